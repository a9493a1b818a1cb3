//! Structures of FUSE, under the kernel's names.
//!
//! Source: include/uapi/linux/fuse.h of the Linux kernel, protocol 7.31 and later.

native! {
    /// Header of every message of the kernel. 40 bytes.
    pub struct InHeader: 40 bytes {
        /// Length of the whole message in bytes.
        pub length: u32,
        /// Operation code.
        pub opcode: u32,
        /// Number of the request, echoed in the answer.
        pub unique: u64,
        /// Node number.
        pub node: u64,
        /// User, group and process that the kernel acts for.
        pub who: [u32; 3],
        /// Length of extensions, in units of eight bytes.
        pub extensions: u16,
        pub(super) padding: u16,
    }

    /// Header of every answer. 16 bytes.
    pub(super) struct OutHeader: 16 bytes {
        pub(super) length: u32,
        pub(super) error: i32,
        pub(super) unique: u64,
    }

    /// FUSE_READ and FUSE_WRITE. 40 bytes. A write's data follows.
    pub(super) struct Transfer: 40 bytes {
        pub(super) handle: u64,
        pub(super) offset: u64,
        pub(super) bytes: u32,
        pub(super) transfer_flags: u32,
        pub(super) lock_owner: u64,
        pub(super) flags: u32,
        pub(super) padding: u32,
    }

    /// FUSE_FALLOCATE. 32 bytes.
    pub(super) struct Fallocate: 32 bytes {
        pub(super) handle: u64,
        pub(super) offset: u64,
        pub(super) bytes: u64,
        pub(super) mode: u32,
        pub(super) padding: u32,
    }

    /// FUSE_SETATTR: the first 24 of 88 bytes. The server does not use the others.
    pub(super) struct SetAttributes: 24 bytes {
        pub(super) valid: u32,
        pub(super) padding: u32,
        pub(super) handle: u64,
        pub(super) size: u64,
    }

    /// FUSE_INIT, the fields of every kernel. 16 bytes.
    pub(super) struct InitIn: 16 bytes {
        pub(super) major: u32,
        pub(super) minor: u32,
        pub(super) max_readahead: u32,
        pub(super) flags: u32,
    }

    /// The answer to FUSE_INIT. 64 bytes.
    pub(super) struct InitOut: 64 bytes {
        pub(super) major: u32,
        pub(super) minor: u32,
        pub(super) max_readahead: u32,
        pub(super) flags: u32,
        pub(super) max_background: u16,
        pub(super) congestion_threshold: u16,
        pub(super) max_write: u32,
        pub(super) time_granularity_ns: u32,
        pub(super) max_pages: u16,
        pub(super) map_alignment: u16,
        pub(super) flags2: u32,
        pub(super) unused: [u32; 7],
    }

    /// The answer to FUSE_GETATTR and FUSE_SETATTR. 104 bytes.
    pub(super) struct AttributesOut: 104 bytes {
        pub(super) valid_s: u64,
        pub(super) valid_ns: u32,
        pub(super) dummy: u32,
        pub(super) inode: u64,
        pub(super) size: u64,
        pub(super) sectors: u64,
        pub(super) times_s: [u64; 3],
        pub(super) times_ns: [u32; 3],
        pub(super) mode: u32,
        pub(super) links: u32,
        pub(super) user: u32,
        pub(super) group: u32,
        pub(super) device: u32,
        pub(super) block_bytes: u32,
        pub(super) flags: u32,
    }

    /// The answer to FUSE_OPEN. 16 bytes.
    pub(super) struct OpenOut: 16 bytes {
        pub(super) handle: u64,
        pub(super) flags: u32,
        pub(super) backing: u32,
    }

    /// The answer to FUSE_STATFS. 80 bytes.
    pub(super) struct StatFsOut: 80 bytes {
        pub(super) blocks: u64,
        pub(super) free: u64,
        pub(super) available: u64,
        pub(super) files: u64,
        pub(super) files_free: u64,
        pub(super) block_bytes: u32,
        pub(super) name_bytes: u32,
        pub(super) fragment_bytes: u32,
        pub(super) padding: u32,
        pub(super) spare: [u32; 6],
    }
}
