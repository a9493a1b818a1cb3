//! EXTENDED COPY from disk to disk, in pieces: each is read into one buffer and written from it.
//!
//! `execute` checks with every request that the disks are still the ones that the list named.

use fabrix_block::Operation;
use fabrix_proto::scsi::cdb::Extent;
use fabrix_proto::scsi::copy::{CopyProgress, CopyStatus};
use fabrix_proto::scsi::unit::Failure;
use fabrix_rt::{Buf, Loan};

use super::{End, JobRequest, Moves};
use crate::iscsi::units::UnitName;

/// A copy in progress.
pub(in crate::iscsi) struct Copying {
    /// LIST IDENTIFIER.
    list: u8,
    /// Whether its result is kept for RECEIVE COPY STATUS.
    pub(in crate::iscsi) kept: bool,
    routes: Vec<Route>,
    /// Index of the present route.
    at: usize,
    /// Copied blocks of the present route.
    done: u32,
    /// Blocks of the request that is in progress.
    piece: u32,
    /// True after the piece was read.
    writing: bool,
    bytes: u64,
}

/// One segment of the list, with its disks.
pub(in crate::iscsi) struct Route {
    pub(in crate::iscsi) source: (UnitName, u64),
    pub(in crate::iscsi) destination: (UnitName, u64),
    pub(in crate::iscsi) blocks: u32,
    /// Block size of both disks.
    pub(in crate::iscsi) block_bytes: u32,
    /// The smaller limit of both disks.
    pub(in crate::iscsi) max_transfer_bytes: u32,
    /// Whether blocks must be on the medium: the destination's write cache is switched off.
    pub(in crate::iscsi) durable: bool,
}

impl Copying {
    /// A copy along these routes, none of which is empty.
    pub(in crate::iscsi) fn new(list: u8, kept: bool, routes: Vec<Route>) -> Self {
        Self {
            list,
            kept,
            routes,
            at: 0,
            done: 0,
            piece: 0,
            writing: false,
            bytes: 0,
        }
    }

    /// Length of the buffer.
    pub(in crate::iscsi) fn buffer_bytes(&self) -> usize {
        let longest = self.routes.iter().map(Route::piece_bytes).max();
        longest.unwrap_or(0) as usize
    }

    /// The disks of the present route, the source first.
    pub(in crate::iscsi) fn disks(&self) -> Option<(UnitName, UnitName)> {
        let route = self.routes.get(self.at)?;
        Some((route.source.0, route.destination.0))
    }

    /// The disk of the request that is in progress.
    pub(in crate::iscsi) fn disk(&self) -> Option<UnitName> {
        let (source, destination) = self.disks()?;
        Some(if self.writing { destination } else { source })
    }

    /// Whether the copy still has to read from this disk, or to write to it.
    pub(in crate::iscsi) fn touches(&self, disk: UnitName) -> bool {
        let mut ahead = self.routes[self.at..].iter();
        ahead.any(|route| route.source.0 == disk || route.destination.0 == disk)
    }

    /// The progress of the copy.
    pub(in crate::iscsi) fn status(&self, progress: CopyProgress) -> CopyStatus {
        CopyStatus {
            list: self.list,
            progress,
            segments: u16::try_from(self.at).unwrap_or(u16::MAX),
            bytes: self.bytes,
        }
    }

    pub(super) fn next(&mut self) -> JobRequest {
        let route = &self.routes[self.at];
        let most = route.piece_bytes() / route.block_bytes;
        self.piece = (route.blocks - self.done).min(most);
        let durable = route.durable;
        let ((disk, from), operation, moves) = match self.writing {
            true => (route.destination, Operation::Write { durable }, Moves::Made),
            false => (route.source, Operation::Read, Moves::ReadToCopy),
        };
        JobRequest {
            disk,
            operation,
            extent: Extent {
                lba: from + u64::from(self.done),
                blocks: self.piece,
            },
            bytes: self.piece as usize * route.block_bytes as usize,
            moves,
        }
    }

    /// Takes the result of a read or write. None: another request follows.
    pub(super) fn ended(&mut self, loan: Loan, buffer: &mut Option<Buf>) -> Option<End> {
        if !self.writing {
            let Loan::Buf(buf) = loan else {
                return Some(End::Failed(Failure::Internal));
            };
            (*buffer, self.writing) = (Some(buf), true);
            return None;
        }
        self.writing = false;
        let route = &self.routes[self.at];
        self.bytes += u64::from(self.piece) * u64::from(route.block_bytes);
        self.done += self.piece;
        if self.done == route.blocks {
            (self.at, self.done) = (self.at + 1, 0);
        }
        (self.at == self.routes.len()).then_some(End::Good)
    }
}

/// Results of the last copies, each with the logical unit that got the command.
#[derive(Default)]
pub(in crate::iscsi) struct Copies(Vec<(UnitName, CopyStatus)>);

impl Copies {
    pub(in crate::iscsi) fn remember(&mut self, unit: UnitName, status: CopyStatus) {
        self.take(unit, status.list);
        if self.0.len() == COPIES_MAX {
            self.0.remove(0);
        }
        self.0.push((unit, status));
    }

    /// Takes a result out: it is returned once.
    pub(in crate::iscsi) fn take(&mut self, unit: UnitName, list: u8) -> Option<CopyStatus> {
        let same = |(name, status): &(UnitName, CopyStatus)| *name == unit && status.list == list;
        let at = self.0.iter().position(same)?;
        Some(self.0.remove(at).1)
    }
}

impl Route {
    fn piece_bytes(&self) -> u32 {
        COPY_BYTES
            .min(self.max_transfer_bytes)
            .max(self.block_bytes)
    }
}

/// Bytes that one piece has at most.
const COPY_BYTES: u32 = 256 << 10;
/// Results that one session keeps.
const COPIES_MAX: usize = 16;
