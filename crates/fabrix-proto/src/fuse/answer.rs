//! What the kernel is told.

use super::layout::{AttributesOut, InitOut, OpenOut, OutHeader, StatFsOut};
use super::{FILE_NODE, OUT_HEADER_BYTES};

/// What the kernel is told of the file.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Its size in bytes.
    pub bytes: u64,
    /// What is best read and written at once, and the unit of holes.
    pub block_bytes: u32,
    /// Nobody may write.
    pub read_only: bool,
    /// Whose it is: user, group.
    pub owner: (u32, u32),
}

/// The longest answer without data.
pub const ANSWER_BYTES_MAX: usize = OUT_HEADER_BYTES + size_of::<AttributesOut>();

/// The head of an answer with so many bytes behind it; `error` is zero or a negative errno.
#[must_use]
pub fn head(unique: u64, error: i32, bytes: usize) -> [u8; OUT_HEADER_BYTES] {
    let length = u32::try_from(OUT_HEADER_BYTES + bytes).unwrap_or(u32::MAX);
    zerocopy::transmute!(OutHeader {
        length,
        error,
        unique,
    })
}

/// What the kernel is offered when it begins.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// The longest read and write.
    pub bytes_max: u32,
    /// Bytes of a page of this machine.
    pub page_bytes: u32,
    /// How many requests that nobody waits for it sends at once.
    pub background: u16,
    /// Its requests may come over io_uring, if it has offered that.
    pub over_uring: bool,
}

/// The answer to [`Operation::Init`](super::Operation::Init). None: the kernel speaks another
/// protocol.
#[must_use]
pub fn init(asked: (u32, u32, u64), readahead: u32, offer: &Offer) -> Option<[u8; 64]> {
    let (major, minor, flags) = asked;
    if major != MAJOR || minor < MINOR_MIN {
        return None;
    }
    let mut taken = flags & (ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES);
    if offer.over_uring {
        taken |= flags & (OVER_IO_URING | u64::from(INIT_EXT));
    }
    let half = |flags: u64| u32::try_from(flags & u64::from(u32::MAX)).unwrap_or_default();
    let out = InitOut {
        major: MAJOR,
        minor: MINOR,
        max_readahead: readahead,
        flags: half(taken),
        max_background: offer.background,
        congestion_threshold: offer.background,
        max_write: offer.bytes_max,
        time_granularity_ns: 1,
        max_pages: u16::try_from(offer.bytes_max / offer.page_bytes.max(1)).unwrap_or(u16::MAX),
        map_alignment: 0,
        flags2: half(taken >> 32),
        unused: [0; 7],
    };
    Some(zerocopy::transmute!(out))
}

/// The answer to [`Operation::Attributes`] and [`Operation::Change`]. Nothing of it may be kept:
/// the size may change.
#[must_use]
pub fn attributes(facts: &Facts) -> [u8; 104] {
    let mode = if facts.read_only {
        0o100_400
    } else {
        0o100_600
    };
    zerocopy::transmute!(AttributesOut {
        valid_s: 0,
        valid_ns: 0,
        dummy: 0,
        inode: FILE_NODE,
        size: facts.bytes,
        sectors: facts.bytes / 512,
        times_s: [0; 3],
        times_ns: [0; 3],
        mode,
        links: 1,
        user: facts.owner.0,
        group: facts.owner.1,
        device: 0,
        block_bytes: facts.block_bytes,
        flags: 0,
    })
}

/// The answer to [`Operation::Open`]: past the page cache, writes side by side.
#[must_use]
pub fn opened() -> [u8; 16] {
    zerocopy::transmute!(OpenOut {
        handle: 0,
        flags: FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES,
        backing: 0,
    })
}

/// The answer to a write of so many bytes.
#[must_use]
pub fn written(bytes: u32) -> [u8; 8] {
    zerocopy::transmute!([bytes, 0])
}

/// The answer to [`Operation::StatFs`].
#[must_use]
pub fn statfs(facts: &Facts) -> [u8; 80] {
    zerocopy::transmute!(StatFsOut {
        blocks: facts.bytes / u64::from(facts.block_bytes.max(1)),
        free: 0,
        available: 0,
        files: 1,
        files_free: 0,
        block_bytes: facts.block_bytes,
        name_bytes: 255,
        fragment_bytes: facts.block_bytes,
        padding: 0,
        spare: [0; 6],
    })
}

const MAJOR: u32 = 7;
const MINOR: u32 = 31;
/// The first with a settable number of pages: Linux 4.20.
const MINOR_MIN: u32 = 28;
const ASYNC_READ: u64 = 1;
const BIG_WRITES: u64 = 1 << 5;
pub(super) const ASYNC_DIO: u64 = 1 << 15;
const MAX_PAGES: u64 = 1 << 22;
/// There are more than 32 flags.
pub(super) const INIT_EXT: u32 = 1 << 30;
/// FUSE_OVER_IO_URING, of Linux 6.14 and later where the administrator allows it.
pub const OVER_IO_URING: u64 = 1 << 41;
const FOPEN_DIRECT_IO: u32 = 1;
const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
