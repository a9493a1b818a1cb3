//! Wire layout of NBD: magic numbers, codes, and structures of fixed length. All integers are
//! big-endian.
//!
//! Source: "The NBD protocol", sections "Newstyle negotiation", "Transmission" and "Values".

use zerocopy::byteorder::big_endian::{U16, U32, U64};

/// First magic number of a server ("NBDMAGIC").
pub const GREETING: u64 = 0x4e42_444d_4147_4943;
/// Magic number of newstyle negotiation and of every option ("IHAVEOPT").
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Magic number of every answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Magic number of every compact request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Magic number of every extended request.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// Magic number of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Magic number of a chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// Magic number of a chunk of an extended reply.
pub const EXTENDED_CHUNK_MAGIC: u32 = 0x6e8a_278c;

/// The server (or client) speaks fixed newstyle.
pub const FIXED_NEWSTYLE: u16 = 1;
/// No zeroes after the answer to `NBD_OPT_EXPORT_NAME`.
pub const NO_ZEROES: u16 = 2;

/// Options of a client.
pub mod option {
    /// Choose an export and start transmission. The server cannot answer with an error.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and start transmission.
    pub const GO: u32 = 7;
    /// Enable structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List the metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select the metadata contexts for block status.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Enable extended headers of 32 bytes.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Answers to options.
pub mod reply {
    /// Success.
    pub const ACK: u32 = 1;
    /// One export.
    pub const SERVER: u32 = 2;
    /// One property of an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The option is not supported.
    pub const ERR_UNSUPPORTED: u32 = 0x8000_0001;
    /// The option's data is wrong.
    pub const ERR_INVALID: u32 = 0x8000_0003;
    /// The export does not exist.
    pub const ERR_UNKNOWN: u32 = 0x8000_0006;
    /// The option's data is too long.
    pub const ERR_TOO_BIG: u32 = 0x8000_0009;
    /// Extended headers are required, or are already in use and cannot be left.
    pub const ERR_EXT_HEADER_REQD: u32 = 0x8000_000a;
}

/// Properties of an export.
pub mod info {
    /// Size and flags.
    pub const EXPORT: u16 = 0;
    /// Name.
    pub const NAME: u16 = 1;
    /// Description for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and maximum request size.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags of an export.
pub mod flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Flush is understood.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// FUA is understood.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Trim is understood.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Write zeroes is understood.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// A read may be asked for in one piece.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers what was written on all of them.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// Cache is understood.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// Zeroes may be asked for that are fast or refused.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Types of requests.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; the data follows.
    pub const WRITE: u16 = 1;
    /// End the session.
    pub const DISCONNECT: u16 = 2;
    /// Flush.
    pub const FLUSH: u16 = 3;
    /// Deallocate space.
    pub const TRIM: u16 = 4;
    /// Prefetch a range.
    pub const CACHE: u16 = 5;
    /// Write zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Report the state of a range.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests.
pub mod command_flag {
    /// FUA: the answer follows when the data is on the medium.
    pub const FUA: u16 = 1;
    /// Write zeroes without deallocating space.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Answer a read in one chunk.
    pub const DF: u16 = 1 << 2;
    /// Report one extent only.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Write zeroes only if that is faster than a write.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// The length of an extended request counts bytes that follow the header.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Type of a chunk.
pub mod chunk {
    /// Flag of the last chunk.
    pub const DONE: u16 = 1;
    /// Data at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// No content: the request succeeded.
    pub const NONE: u16 = 0;
    /// Extents of a metadata context.
    pub const BLOCK_STATUS: u16 = 5;
    /// Extents with lengths of 64 bits.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// Error.
    pub const ERROR: u16 = 0x8001;
}

/// Metadata context that reports which blocks are allocated.
/// Source: "The `base:` metadata namespace".
pub const ALLOCATION: &str = "base:allocation";

/// Flags of an extent of [`ALLOCATION`].
pub mod state {
    /// No space is allocated.
    pub const HOLE: u32 = 1;
    /// It reads as zeroes.
    pub const ZERO: u32 = 1 << 1;
}

/// Error of a request. The numbers are those of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Error {
    /// The export is read-only.
    NotPermitted = 1,
    /// The disk failed.
    Io = 5,
    /// No memory.
    NoMemory = 12,
    /// The request is invalid.
    Invalid = 22,
    /// No space, or a write past the end.
    NoSpace = 28,
    /// The request is too long.
    Overflow = 75,
    /// The disk does not support the request.
    NotSupported = 95,
    /// The server is being shut down.
    ShuttingDown = 108,
}

wire! {
    /// A compact request of the transmission phase. 28 bytes.
    /// Source: "Transmission", "Request message".
    pub struct Request: 28 bytes {
        /// [`REQUEST_MAGIC`].
        pub magic: U32,
        /// [`command_flag`].
        pub flags: U16,
        /// [`command`].
        pub kind: U16,
        /// Cookie, echoed in the reply.
        pub cookie: [u8; 8],
        /// Offset of the first byte.
        pub offset: U64,
        /// Number of bytes.
        pub length: U32,
    }

    /// An extended request. 32 bytes.
    /// Source: "Transmission", "Request message".
    pub struct ExtendedRequest: 32 bytes {
        /// [`EXTENDED_REQUEST_MAGIC`].
        pub magic: U32,
        /// [`command_flag`].
        pub flags: U16,
        /// [`command`].
        pub kind: U16,
        /// Cookie, echoed in the reply.
        pub cookie: [u8; 8],
        /// Offset of the first byte, echoed in the reply.
        pub offset: U64,
        /// Number of bytes: behind the header with [`command_flag::PAYLOAD_LEN`], otherwise of the
        /// disk.
        pub length: U64,
    }

    /// An option of the negotiation, without its data. 16 bytes.
    /// Source: "Newstyle negotiation".
    pub struct OptionHeader: 16 bytes {
        /// [`OPTION_MAGIC`].
        pub magic: U64,
        /// [`option`].
        pub option: U32,
        /// Length of the option's data in bytes.
        pub length: U32,
    }
}
