//! Answers to the kernel.

use super::layout::{AttributesOut, InitOut, OpenOut, OutHeader, StatFsOut};
use super::{FILE_NODE, OUT_HEADER_BYTES};

/// Attributes of the file, as reported to the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Size in bytes.
    pub bytes: u64,
    /// Preferred request size in bytes, and the unit of holes.
    pub block_bytes: u32,
    /// True if writes are refused.
    pub read_only: bool,
    /// Owner: user, group.
    pub owner: (u32, u32),
}

/// Longest answer without data, in bytes.
pub const ANSWER_BYTES_MAX: usize = OUT_HEADER_BYTES + size_of::<AttributesOut>();

/// Header of an answer that is followed by `bytes` bytes. `error` is zero or a negative errno.
#[must_use]
pub fn head(unique: u64, error: i32, bytes: usize) -> [u8; OUT_HEADER_BYTES] {
    let length = u32::try_from(OUT_HEADER_BYTES + bytes).unwrap_or(u32::MAX);
    zerocopy::transmute!(OutHeader {
        length,
        error,
        unique,
    })
}

/// Values offered to the kernel in the negotiation.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Longest read and write in bytes.
    pub bytes_max: u32,
    /// Page size of this machine in bytes.
    pub page_bytes: u32,
    /// Most background requests (requests that no process waits for) in progress.
    pub background: u16,
    /// True if the server accepts requests over io_uring, provided that the kernel offers them.
    pub over_uring: bool,
}

/// Answer to [`Operation::Init`](super::Operation::Init). `None` if the kernel's protocol version
/// is not supported.
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

/// Answer to [`Operation::Attributes`] and [`Operation::Change`]. The kernel may not cache it,
/// because the size may change.
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

/// Answer to [`Operation::Open`]: requests bypass the page cache, and writes run in parallel.
#[must_use]
pub fn opened() -> [u8; 16] {
    zerocopy::transmute!(OpenOut {
        handle: 0,
        flags: FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES,
        backing: 0,
    })
}

/// Answer to a write of `bytes` bytes.
#[must_use]
pub fn written(bytes: u32) -> [u8; 8] {
    zerocopy::transmute!([bytes, 0])
}

/// Answer to [`Operation::StatFs`].
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
/// First minor version with a settable number of pages: Linux 4.20.
const MINOR_MIN: u32 = 28;
const ASYNC_READ: u64 = 1;
const BIG_WRITES: u64 = 1 << 5;
pub(super) const ASYNC_DIO: u64 = 1 << 15;
const MAX_PAGES: u64 = 1 << 22;
/// The message has a second word of flags.
pub(super) const INIT_EXT: u32 = 1 << 30;
/// FUSE_OVER_IO_URING: Linux 6.14 and later, if the administrator allows it.
pub const OVER_IO_URING: u64 = 1 << 41;
const FOPEN_DIRECT_IO: u32 = 1;
const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
