//! A front end's request in progress: the next disk request, and the result.
//!
//! It knows operations and blocks, but neither the location of the data nor the requester.

use std::time::Duration;

use fabrix_block::{Deallocate, Geometry, Operation, Status};
use fabrix_rt::errno;

/// Action on a range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Read,
    Write { durable: bool },
    Flush,
    Trim { durable: bool },
    Zeroes { deallocate: bool, durable: bool },
}

/// A front end's request, executed in as many pieces as the disk needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    action: Action,
    lba: u64,
    left: u64,
    piece: u32,
}

impl Job {
    /// A job on `blocks` blocks. They lie on the disk, and a read or write fits the longest
    /// transfer.
    pub(crate) fn new(action: Action, lba: u64, blocks: u64) -> Self {
        Self {
            action,
            lba,
            left: blocks,
            piece: 0,
        }
    }

    pub(crate) fn reads(&self) -> bool {
        self.action == Action::Read
    }

    pub(crate) fn writes(&self) -> bool {
        matches!(self.action, Action::Write { .. })
    }

    /// Blocks of all pieces that have not ended.
    pub(crate) fn blocks(&self) -> u64 {
        self.left
    }

    /// The next disk request: operation, first block and number of blocks.
    pub(crate) fn next(&mut self) -> (Operation, u64, u32) {
        let operation = match self.action {
            Action::Read => Operation::Read,
            Action::Write { durable } => Operation::Write { durable },
            Action::Flush => return (Operation::Flush, 0, 0),
            Action::Trim { .. } => Operation::Deallocate,
            Action::Zeroes {
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

    /// Records the result of a piece. None: another piece follows.
    pub(crate) fn ended(&mut self, status: Status) -> Option<Status> {
        if !status.is_ok() || self.action == Action::Flush {
            return Some(status);
        }
        self.lba += u64::from(self.piece);
        self.left -= u64::from(self.piece);
        match self.action {
            _ if self.left > 0 => None,
            // `Deallocate` promises no durability, so a flush follows.
            Action::Trim { durable: true } => {
                self.action = Action::Flush;
                None
            }
            _ => Some(Status::Ok),
        }
    }

    /// Whether the blocks still lie on the disk, which may have shrunk since the request arrived.
    pub(crate) fn fits(&self, geometry: &Geometry) -> bool {
        self.action == Action::Flush || (self.lba + self.left) <= geometry.blocks
    }
}

/// Whether the disk releases the space of deallocated blocks.
pub(crate) fn trims(geometry: &Geometry) -> bool {
    geometry.deallocate != Deallocate::No
}

/// The errno of a status. None: success.
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
        | Status::Refused
        | Status::Degraded
        | Status::Internal => errno::EIO,
    })
}

/// Largest number of pieces of a request per turn, so that other requests can run.
pub(crate) const PIECES_AT_ONCE: usize = 32;
/// Interval for retrying a busy disk when no own completion triggers the retry.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(1);
/// Length of one piece of zeroing or deallocation in blocks, so that other requests can run in
/// between.
const PIECE_BLOCKS: u64 = 1 << 21;

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(action: Action, blocks: u64) -> Vec<(Operation, u64, u32)> {
        let mut job = Job::new(action, 8, blocks);
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
        let pieces = pieces(Action::Trim { durable: false }, blocks);
        let sum: u64 = pieces.iter().map(|piece| u64::from(piece.2)).sum();
        assert_eq!((pieces.len(), sum), (3, blocks));
        assert_eq!(pieces[2], (Operation::Deallocate, 8 + PIECE_BLOCKS * 2, 5));
    }

    #[test]
    fn a_durable_hole_ends_with_a_flush() {
        let pieces = pieces(Action::Trim { durable: true }, 1);
        assert_eq!(pieces[1].0, Operation::Flush);
        assert_eq!(pieces.len(), 2);
    }

    #[test]
    fn the_first_failure_ends_it() {
        let mut job = Job::new(Action::Trim { durable: true }, 0, PIECE_BLOCKS * 2);
        job.next();
        assert_eq!(job.ended(Status::NoSpace), Some(Status::NoSpace));
    }
}
