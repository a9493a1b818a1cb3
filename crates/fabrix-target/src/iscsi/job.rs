//! The disk requests of one SCSI command, one after the other.
//!
//! A [`Job`] makes the next request, and takes the result of the last one (`outcome`). `execute`
//! submits the requests. COMPARE AND WRITE and ORWRITE are atomic among all writes: they pass the
//! gate that all protocols share. `copying` has the requests of EXTENDED COPY.

pub(super) mod copying;
mod outcome;

use fabrix_block::Operation;
use fabrix_proto::scsi::cdb::{ByteCheck, Extent};
use fabrix_proto::scsi::reservation::Access;
use fabrix_proto::scsi::unit::{DiskOperation, Failure};
use fabrix_rt::{Buf, Loan};
use fabrix_transport::Incoming;

use super::context::SessionCarrier;
use super::units::{Unit, UnitName};
use crate::context::CommandContext;
use crate::counters::Counters;
use copying::Copying;

/// A SCSI command that makes requests of disks.
pub(super) struct Job {
    /// Index of its logical unit in the session's list when the command began. It chooses the
    /// format of sense data.
    pub(super) at: usize,
    pub(super) name: UnitName,
    block_bytes: u32,
    max_transfer_bytes: u32,
    work: JobWork,
    /// Length of the command's data in bytes, for the residual.
    pub(super) moved: u32,
    /// The command's data, if the job keeps it.
    pub(super) data: Option<Buf>,
    /// Data that the job writes instead: a pattern, the result of ORWRITE, or copied blocks.
    pub(super) made: Option<Buf>,
    step: u8,
    /// Attempts of ORWRITE that found changed blocks.
    tries: u16,
    /// Blocks, or extents, that are complete.
    done: u32,
    /// Blocks of the request that is in progress.
    piece: u32,
}

/// The work of a job.
pub(super) enum JobWork {
    /// An operation of the job's disk.
    Disk(DiskOperation),
    /// A copy from disk to disk.
    Copy(Box<Copying>),
}

/// The result of a job.
pub(super) enum End {
    Good,
    /// Success, with the data of a read.
    Data(Loan),
    Failed(Failure),
}

/// The data that a request of a job moves.
#[derive(Clone, Copy)]
pub(super) enum Moves {
    Nothing,
    /// The command's data.
    Data,
    /// Data that the job has made.
    Made,
    /// Data of a read, for the initiator or for the job itself.
    Read,
    /// Data of a read into the job's buffer, to be written elsewhere.
    ReadToCopy,
}

/// One request of a job.
#[derive(Clone, Copy)]
pub(super) struct JobRequest {
    /// The disk.
    pub(super) disk: UnitName,
    pub(super) operation: Operation,
    pub(super) extent: Extent,
    /// Length of the extent in bytes.
    pub(super) bytes: usize,
    pub(super) moves: Moves,
}

type Step = (Operation, Extent, Moves);

impl Job {
    /// The job of the logical unit at index `at`. The command moves `moved` bytes.
    pub(super) fn new(unit: &Unit, at: usize, work: JobWork, moved: u32) -> Self {
        Self {
            at,
            name: unit.name(),
            block_bytes: unit.disk.block_bytes,
            max_transfer_bytes: unit.disk.max_transfer_bytes,
            work,
            moved,
            data: None,
            made: None,
            step: 0,
            tries: 0,
            done: 0,
            piece: 0,
        }
    }

    /// Counts the data that the initiator reads or writes in the health log, as NVMe does.
    pub(super) fn count_in(&self, counters: &Counters) {
        let bytes = |extent: &Extent| u64::from(extent.blocks) * u64::from(self.block_bytes);
        let JobWork::Disk(operation) = &self.work else {
            return;
        };
        match operation {
            DiskOperation::Read { extent, .. }
            | DiskOperation::Verify {
                extent,
                check: ByteCheck::Data,
            } => counters.read(bytes(extent)),
            DiskOperation::Write { extent, .. }
            | DiskOperation::WriteAndVerify { extent, .. }
            | DiskOperation::OrWrite { extent, .. } => counters.written(bytes(extent)),
            DiskOperation::CompareAndWrite { extent, .. } => {
                counters.read(bytes(extent));
                counters.written(bytes(extent));
            }
            _ => {}
        }
    }

    /// Limits a write to the whole blocks in `bytes`, which is all that the initiator has. False:
    /// there is no whole block.
    pub(super) fn limit_to(&mut self, bytes: u32) -> bool {
        let blocks = bytes / self.block_bytes;
        let JobWork::Disk(operation) = &mut self.work else {
            return true;
        };
        match operation {
            DiskOperation::Write { extent, .. }
            | DiskOperation::WriteAndVerify { extent, .. }
            | DiskOperation::OrWrite { extent, .. }
            | DiskOperation::Verify {
                extent,
                check: ByteCheck::Data,
            } => {
                extent.blocks = extent.blocks.min(blocks);
                extent.blocks > 0
            }
            _ => blocks > 0,
        }
    }

    /// The copy, if the job is one.
    pub(super) fn copying(&self) -> Option<&Copying> {
        match &self.work {
            JobWork::Copy(copying) => Some(copying),
            JobWork::Disk(_) => None,
        }
    }

    /// The disk of the request that is in progress.
    pub(super) fn disk(&self) -> UnitName {
        let of_copy = self.copying().and_then(Copying::disk);
        of_copy.unwrap_or(self.name)
    }

    /// The kind of access, which reservations of others may forbid.
    pub(super) fn access(&self) -> Access {
        match &self.work {
            JobWork::Disk(DiskOperation::Read { .. } | DiskOperation::Verify { .. }) => {
                Access::Read
            }
            _ => Access::Write,
        }
    }

    /// The data that the job has kept.
    fn kept(&self) -> &[u8] {
        self.data.as_ref().map_or(&[], Buf::bytes)
    }

    fn bytes(&self, blocks: u32) -> usize {
        blocks as usize * self.block_bytes as usize
    }

    /// Keeps the data that the job uses more than once. False: there is no memory for it.
    pub(super) fn prepare(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        data: Option<Incoming>,
    ) -> bool {
        let in_place = matches!(data, Some(Incoming::InPlace));
        let is_write = matches!(self.work, JobWork::Disk(DiskOperation::Write { .. }));
        if data.is_none() || in_place && is_write {
            return true;
        }
        self.data = context.keep(data);
        if self.data.is_none() {
            return false;
        }
        if let JobWork::Disk(DiskOperation::WriteSame { extent, .. }) = self.work {
            return self.make_pattern(context, extent);
        }
        true
    }

    /// Repeats the block of WRITE SAME up to the length of one request. Zeroes need no buffer.
    fn make_pattern(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        extent: Extent,
    ) -> bool {
        let block = self.block_bytes as usize;
        if self.kept()[..block].iter().all(|byte| *byte == 0) {
            return true;
        }
        let blocks = (PATTERN_BYTES.min(self.max_transfer_bytes) / self.block_bytes).max(1);
        let bytes = self.bytes(blocks.min(extent.blocks));
        let Some(mut made) = context.shard.take_buf(bytes) else {
            return false;
        };
        for piece in made.bytes_mut()[..bytes].chunks_exact_mut(block) {
            piece.copy_from_slice(&self.kept()[..block]);
        }
        self.made = Some(made);
        true
    }

    /// The next request.
    pub(super) fn next(&mut self) -> JobRequest {
        if let JobWork::Copy(copying) = &mut self.work {
            return copying.next();
        }
        let (operation, extent, moves) = self.next_step();
        JobRequest {
            disk: self.name,
            operation,
            extent,
            bytes: self.bytes(extent.blocks),
            moves,
        }
    }

    fn next_step(&mut self) -> Step {
        let durable = |fua: bool| Operation::Write { durable: fua };
        let JobWork::Disk(operation) = &self.work else {
            return FLUSH;
        };
        match operation {
            DiskOperation::Read { fua: true, .. } if self.step == 0 => FLUSH,
            DiskOperation::Flush => FLUSH,
            DiskOperation::Read { extent, .. } => (Operation::Read, *extent, Moves::Read),
            DiskOperation::Write { extent, fua, .. } => (durable(*fua), *extent, Moves::Data),
            DiskOperation::WriteAndVerify { extent, .. } if self.step == 0 => {
                (durable(true), *extent, Moves::Data)
            }
            DiskOperation::WriteAndVerify { extent, .. } => (Operation::Read, *extent, Moves::Read),
            DiskOperation::OrWrite { extent, .. } if self.step == 0 => {
                (Operation::Read, *extent, Moves::Read)
            }
            DiskOperation::OrWrite { extent, fua } => {
                let durable = *fua;
                (Operation::CompareAndWrite { durable }, *extent, Moves::Made)
            }
            DiskOperation::CompareAndWrite { extent, fua } if self.step == 0 => {
                let durable = *fua;
                (Operation::CompareAndWrite { durable }, *extent, Moves::Data)
            }
            DiskOperation::CompareAndWrite { extent, .. } => {
                (Operation::Read, *extent, Moves::Read)
            }
            DiskOperation::Verify { extent, .. } => {
                let extent = self.piece_of(*extent, VERIFY_BYTES);
                self.piece = extent.blocks;
                (Operation::Read, extent, Moves::Read)
            }
            DiskOperation::WriteSame { extent, fua, .. } if self.made.is_some() => {
                let durable = durable(*fua);
                let extent = self.piece_of(*extent, PATTERN_BYTES);
                self.piece = extent.blocks;
                (durable, extent, Moves::Made)
            }
            DiskOperation::WriteSame {
                extent,
                deallocate,
                fua,
            }
            | DiskOperation::WriteZeroes {
                extent,
                deallocate,
                fua,
            } => {
                let zero = Operation::WriteZeroes {
                    deallocate: *deallocate,
                    durable: *fua,
                };
                (zero, *extent, Moves::Nothing)
            }
            DiskOperation::Deallocate(extents) => {
                let extent = extents[self.done as usize];
                (Operation::Deallocate, extent, Moves::Nothing)
            }
        }
    }

    fn piece_of(&self, extent: Extent, most_bytes: u32) -> Extent {
        let most = (most_bytes.min(self.max_transfer_bytes) / self.block_bytes).max(1);
        Extent {
            lba: extent.lba + u64::from(self.done),
            blocks: (extent.blocks - self.done).min(most),
        }
    }
}

const FLUSH: Step = (
    Operation::Flush,
    Extent { lba: 0, blocks: 0 },
    Moves::Nothing,
);
/// Bytes that VERIFY reads at a time.
const VERIFY_BYTES: u32 = 128 << 10;
/// Bytes that WRITE SAME writes at a time.
const PATTERN_BYTES: u32 = 64 << 10;
