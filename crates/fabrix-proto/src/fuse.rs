//! FUSE, server side, for a single regular file: parsing of the kernel's requests.
//!
//! Every message is complete: one read of /dev/fuse, one write, or one exchange in memory shared
//! with the kernel over io_uring (`fuse/exchange.rs`). Integers are in the machine's own order,
//! because kernel and server run on the same machine. The server trusts the kernel, but refuses
//! every invalid message. `fuse/layout.rs` holds the structures, `fuse/answer.rs` the answers.
//! Source: include/uapi/linux/fuse.h of the Linux kernel, protocol 7.31 and later.

mod answer;
mod exchange;
mod layout;

use zerocopy::FromBytes;

use self::answer::INIT_EXT;
pub use self::answer::{
    ANSWER_BYTES_MAX, Facts, OVER_IO_URING, Offer, attributes, head, init, opened, statfs, written,
};
pub use self::exchange::{answer_exchange, parse_exchange};
pub use self::layout::InHeader;
use self::layout::{Fallocate, InitIn, OutHeader, SetAttributes, Transfer};

/// Node number of the file, which is the root of its file system. The root is not a folder.
pub const FILE_NODE: u64 = 1;
/// Bytes before the data in a write message.
pub const WRITE_HEAD_BYTES: usize = size_of::<InHeader>() + size_of::<Transfer>();
/// Smallest buffer that the kernel accepts for a read (FUSE_MIN_READ_BUFFER).
pub const MESSAGE_BYTES_MIN: usize = 8192;
/// Bytes before the data in an answer.
pub const OUT_HEADER_BYTES: usize = size_of::<OutHeader>();

/// Operation that the kernel requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// First message: negotiation of the version and of features.
    Init {
        /// Major version of the protocol.
        major: u32,
        /// Minor version of the protocol.
        minor: u32,
        /// The kernel's readahead in bytes.
        max_readahead: u32,
        /// Features of the kernel.
        flags: u64,
    },
    /// Return the attributes of the file.
    Attributes,
    /// Change attributes of the file.
    Change {
        /// New size, if the size changes.
        size: Option<u64>,
        /// True if the owner or the mode changes.
        owner_or_mode: bool,
    },
    /// Open the file.
    Open,
    /// Read.
    Read {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        bytes: u32,
    },
    /// Write. The data starts at byte [`WRITE_HEAD_BYTES`] of the message.
    Write {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes. The same number of bytes follows.
        bytes: u32,
    },
    /// Answer when all written data is on the medium.
    Sync,
    /// Zero a range.
    Zero {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
        /// True if the space is deallocated (a hole).
        punch: bool,
    },
    /// Return the size of the file system.
    StatFs,
    /// Close a descriptor or the file. There is nothing to do but to answer.
    Close,
    /// Forget a node, or interrupt a request. There is no answer.
    Unanswered,
    /// The file system is unmounted. There is no answer.
    Destroy,
    /// An operation that is not supported for a single file.
    Unknown,
    /// A message that is shorter than its operation requires, or that names another node.
    Broken,
}

/// Parses a message. Returns its unique number for the answer, and its operation, or `None` without
/// a whole header.
#[must_use]
pub fn parse(message: &[u8]) -> Option<(u64, Operation)> {
    let (header, body) = InHeader::read_from_prefix(message).ok()?;
    Some((header.unique, operation(&header, body, None)))
}

/// Parses the body of a message. `apart`: number of data bytes that are stored elsewhere instead of
/// after the body.
fn operation(header: &InHeader, body: &[u8], apart: Option<usize>) -> Operation {
    let operation = body_of(header.opcode, body, apart).unwrap_or(Operation::Broken);
    if header.node != FILE_NODE && needs_node(operation) {
        return Operation::Broken;
    }
    operation
}

fn needs_node(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Attributes
            | Operation::Change { .. }
            | Operation::Open
            | Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Sync
            | Operation::Zero { .. }
    )
}

fn body_of(opcode: u32, body: &[u8], apart: Option<usize>) -> Option<Operation> {
    Some(match opcode {
        opcode::INIT => {
            let (init, more) = InitIn::read_from_prefix(body).ok()?;
            let high = match init.flags & INIT_EXT {
                0 => 0,
                _ => u32::read_from_prefix(more).ok()?.0,
            };
            Operation::Init {
                major: init.major,
                minor: init.minor,
                max_readahead: init.max_readahead,
                flags: u64::from(high) << 32 | u64::from(init.flags),
            }
        }
        opcode::GETATTR => Operation::Attributes,
        opcode::SETATTR => {
            let (change, _) = SetAttributes::read_from_prefix(body).ok()?;
            Operation::Change {
                size: (change.valid & FATTR_SIZE != 0).then_some(change.size),
                owner_or_mode: change.valid & FATTR_OWNER_OR_MODE != 0,
            }
        }
        opcode::OPEN => Operation::Open,
        opcode::READ => {
            let (read, _) = Transfer::read_from_prefix(body).ok()?;
            Operation::Read {
                offset: read.offset,
                bytes: read.bytes,
            }
        }
        opcode::WRITE => {
            let (write, data) = Transfer::read_from_prefix(body).ok()?;
            if apart.unwrap_or(data.len()) != write.bytes as usize {
                return None;
            }
            Operation::Write {
                offset: write.offset,
                bytes: write.bytes,
            }
        }
        opcode::FSYNC => Operation::Sync,
        opcode::FALLOCATE => {
            let (range, _) = Fallocate::read_from_prefix(body).ok()?;
            match range.mode & !FALLOC_KEEP_SIZE {
                FALLOC_PUNCH_HOLE | FALLOC_ZERO_RANGE => Operation::Zero {
                    offset: range.offset,
                    bytes: range.bytes,
                    punch: range.mode & FALLOC_PUNCH_HOLE != 0,
                },
                _ => Operation::Unknown,
            }
        }
        opcode::STATFS => Operation::StatFs,
        opcode::FLUSH | opcode::RELEASE => Operation::Close,
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => Operation::Unanswered,
        opcode::DESTROY => Operation::Destroy,
        _ => Operation::Unknown,
    })
}

mod opcode {
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const FALLOCATE: u32 = 43;
}

/// Mode, user, group.
const FATTR_OWNER_OR_MODE: u32 = 0b111;
const FATTR_SIZE: u32 = 1 << 3;
const FALLOC_KEEP_SIZE: u32 = 1;
const FALLOC_PUNCH_HOLE: u32 = 2;
const FALLOC_ZERO_RANGE: u32 = 16;

#[cfg(test)]
mod tests {
    use super::answer::ASYNC_DIO;
    use super::layout::InitOut;
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    fn message(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
        let header = InHeader {
            length: u32::try_from(40 + body.len()).expect("short"),
            opcode,
            unique: 9,
            node,
            who: [0; 3],
            extensions: 0,
            padding: 0,
        };
        [header.as_bytes(), body].concat()
    }

    fn write(offset: u64, bytes: u32) -> [u8; 40] {
        zerocopy::transmute!(Transfer {
            handle: 0,
            offset,
            bytes,
            transfer_flags: 0,
            lock_owner: 0,
            flags: 0,
            padding: 0,
        })
    }

    #[test]
    fn a_write_brings_as_much_as_it_says() {
        let whole = [&write(512, 4)[..], &[1, 2, 3, 4]].concat();
        let operation = Operation::Write {
            offset: 512,
            bytes: 4,
        };
        assert_eq!(
            parse(&message(opcode::WRITE, 1, &whole)),
            Some((9, operation))
        );
        for bytes in [3, 5] {
            let wrong = [&write(512, bytes)[..], &[1, 2, 3, 4]].concat();
            let parsed = parse(&message(opcode::WRITE, 1, &wrong));
            assert_eq!(parsed, Some((9, Operation::Broken)));
        }
    }

    #[test]
    fn there_is_one_file() {
        let parsed = parse(&message(opcode::GETATTR, 2, &[0; 16]));
        assert_eq!(parsed, Some((9, Operation::Broken)));
    }

    #[test]
    fn holes_and_zeroes_are_told_apart_and_other_modes_refused() {
        let ask = |mode: u32| {
            let range = Fallocate {
                handle: 0,
                offset: 1,
                bytes: 2,
                mode,
                padding: 0,
            };
            parse(&message(opcode::FALLOCATE, 1, range.as_bytes())).map(|(_, operation)| operation)
        };
        let zero = |punch| {
            Some(Operation::Zero {
                offset: 1,
                bytes: 2,
                punch,
            })
        };
        assert_eq!(ask(3), zero(true));
        assert_eq!(ask(17), zero(false));
        assert_eq!(ask(0), Some(Operation::Unknown), "space cannot be reserved");
        assert_eq!(ask(8), Some(Operation::Unknown), "nothing is collapsed");
    }

    #[test]
    fn an_old_kernel_is_refused_and_only_what_is_offered_is_taken() {
        let offer = Offer {
            bytes_max: 1 << 20,
            page_bytes: 4096,
            background: 64,
            over_uring: false,
        };
        assert!(init((7, 27, u64::MAX), 0, &offer).is_none());
        assert!(init((8, 40, u64::MAX), 0, &offer).is_none());
        let out = init((7, 45, ASYNC_DIO), 0, &offer).expect("a kernel of today");
        let out = InitOut::read_from_bytes(&out).expect("64 bytes");
        assert_eq!((u64::from(out.flags), out.max_pages), (ASYNC_DIO, 256));
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), opcode in 0_u32..60) {
            let _refused_or_not = parse(&bytes);
            let _refused_or_not = parse(&message(opcode, 1, &bytes));
        }
    }
}
