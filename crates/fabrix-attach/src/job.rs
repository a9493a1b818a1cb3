//! A request of a front end at work: which request of the disk comes next, and how it ends.
//!
//! Knows operations and blocks; does not know where bytes lie, nor who asked.

use std::time::Duration;

use fabrix_block::{Deallocate, Geometry, Operation, Status};
use fabrix_rt::errno;

/// What is to be done with a range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Read,
    Write { durable: bool },
    Flush,
    Trim { durable: bool },
    Zeroes { deallocate: bool, durable: bool },
}

/// One request of a front end, in as many pieces as its disk needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    ask: Ask,
    lba: u64,
    left: u64,
    piece: u32,
}

impl Job {
    /// `blocks` lie on the disk, and a read or a write is within the disk's longest transfer.
    pub(crate) fn new(ask: Ask, lba: u64, blocks: u64) -> Self {
        Self {
            ask,
            lba,
            left: blocks,
            piece: 0,
        }
    }

    pub(crate) fn reads(&self) -> bool {
        self.ask == Ask::Read
    }

    pub(crate) fn writes(&self) -> bool {
        matches!(self.ask, Ask::Write { .. })
    }

    /// The next request of the disk: what, from where, how many blocks.
    pub(crate) fn next(&mut self) -> (Operation, u64, u32) {
        let operation = match self.ask {
            Ask::Read => Operation::Read,
            Ask::Write { durable } => Operation::Write { durable },
            Ask::Flush => return (Operation::Flush, 0, 0),
            Ask::Trim { .. } => Operation::Deallocate,
            Ask::Zeroes {
                deallocate,
                durable,
            } => Operation::WriteZeroes {
                deallocate,
                durable,
            },
        };
        self.piece = u32::try_from(self.left.min(PIECE_BLOCKS)).unwrap_or(u32::MAX);
        (operation, self.lba, self.piece)
    }

    /// The request has ended. None: there is another.
    pub(crate) fn ended(&mut self, status: Status) -> Option<Status> {
        if !status.is_ok() || self.ask == Ask::Flush {
            return Some(status);
        }
        self.lba += u64::from(self.piece);
        self.left -= u64::from(self.piece);
        match self.ask {
            _ if self.left > 0 => None,
            // A disk deallocates without a promise: the promise is a flush after it.
            Ask::Trim { durable: true } => {
                self.ask = Ask::Flush;
                None
            }
            _ => Some(Status::Ok),
        }
    }

    /// Whether the blocks still lie on the disk: it may have become smaller since the request came.
    pub(crate) fn fits(&self, geometry: &Geometry) -> bool {
        self.ask == Ask::Flush || (self.lba + self.left) <= geometry.blocks
    }
}

/// Whether the disk gives space back.
pub(crate) fn trims(geometry: &Geometry) -> bool {
    geometry.deallocate != Deallocate::No
}

/// What the kernel is told of a status; None: it was carried out.
pub(crate) fn errno_of(status: Status) -> Option<i32> {
    Some(match status {
        Status::Ok => return None,
        Status::OutOfRange => errno::EINVAL,
        Status::Unsupported => errno::EOPNOTSUPP,
        Status::ReadOnly => errno::EROFS,
        Status::NoSpace => errno::ENOSPC,
        Status::NotReady
        | Status::MediaRead
        | Status::MediaWrite
        | Status::CompareFailed
        | Status::Aborted
        | Status::Degraded
        | Status::Internal => errno::EIO,
    })
}

/// Pieces of one request that a disk answers at once before others have their turn.
pub(crate) const PIECES_AT_ONCE: usize = 32;
/// How soon a busy disk is asked again, when no ending of our own will wake us.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(1);
/// Zeroes and holes go to the disk in pieces of so many blocks: others have their turn in between.
const PIECE_BLOCKS: u64 = 1 << 21;

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(ask: Ask, blocks: u64) -> Vec<(Operation, u64, u32)> {
        let mut job = Job::new(ask, 8, blocks);
        let mut pieces = Vec::new();
        loop {
            pieces.push(job.next());
            if let Some(status) = job.ended(Status::Ok) {
                assert_eq!(status, Status::Ok);
                return pieces;
            }
        }
    }

    #[test]
    fn long_holes_go_in_pieces_and_cover_all() {
        let blocks = PIECE_BLOCKS * 2 + 5;
        let pieces = pieces(Ask::Trim { durable: false }, blocks);
        let sum: u64 = pieces.iter().map(|piece| u64::from(piece.2)).sum();
        assert_eq!((pieces.len(), sum), (3, blocks));
        assert_eq!(pieces[2], (Operation::Deallocate, 8 + PIECE_BLOCKS * 2, 5));
    }

    #[test]
    fn a_durable_hole_ends_with_a_flush() {
        let pieces = pieces(Ask::Trim { durable: true }, 1);
        assert_eq!(pieces[1].0, Operation::Flush);
        assert_eq!(pieces.len(), 2);
    }

    #[test]
    fn the_first_failure_ends_it() {
        let mut job = Job::new(Ask::Trim { durable: true }, 0, PIECE_BLOCKS * 2);
        job.next();
        assert_eq!(job.ended(Status::NoSpace), Some(Status::NoSpace));
    }
}
