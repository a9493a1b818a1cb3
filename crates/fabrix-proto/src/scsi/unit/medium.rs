//! Commands that name blocks: checks, and the operation for the disk.
//!
//! Checks happen in this order: range, limits, write protection. libiscsi expects LOGICAL BLOCK
//! ADDRESS OUT OF RANGE even for commands that also exceed a limit. A command for zero blocks does
//! nothing after these checks.

use super::{Answer, DiskOperation, Outcome, Sense, View};
use crate::scsi::additional::AdditionalSense;
use crate::scsi::cdb::{ByteCheck, Command, CommandEntry, Extent};
use crate::scsi::pages::WRITE_SAME_BLOCKS_MAX;
use crate::scsi::spec::Opcode;

impl View<'_> {
    pub(super) fn medium(
        &self,
        command: &Command,
        extent: Extent,
        entry: &CommandEntry,
    ) -> Result<Outcome, Sense> {
        if !self.disk.contains(extent) {
            return Err(Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE));
        }
        if extent.blocks > self.most_blocks(command) || is_empty_write_same(command, extent) {
            return Err(Sense::field_in_cdb(length_field(entry), None));
        }
        self.check_protection(command)?;
        Ok(self
            .operation(command, extent)
            .map_or(Outcome::Answer(Answer::GOOD), Outcome::Disk))
    }

    /// Maximum number of blocks of `command`, as in the Block Limits page.
    fn most_blocks(&self, command: &Command) -> u32 {
        let transfer = self.disk.max_transfer_blocks();
        match command {
            Command::CompareAndWrite { .. } => self.disk.compare_and_write_blocks.into(),
            Command::WriteAtomic { .. } => self.disk.max_atomic_blocks(),
            Command::WriteSame { .. } => WRITE_SAME_BLOCKS_MAX,
            Command::PreFetch { .. }
            | Command::SynchronizeCache { .. }
            | Command::Verify {
                check: ByteCheck::Medium | ByteCheck::OneBlock,
                ..
            } => u32::MAX,
            _ => transfer,
        }
    }

    /// Operation for the disk. `None` for zero blocks, and for PRE-FETCH, because the standard
    /// allows a GOOD answer without any reading.
    fn operation(&self, command: &Command, extent: Extent) -> Option<DiskOperation> {
        if let Command::SynchronizeCache { .. } = command {
            return Some(DiskOperation::Flush);
        }
        if extent.blocks == 0 {
            return None;
        }
        let through = self.disk.volatile_cache && !self.mode.write_cache;
        Some(match *command {
            Command::Read { fua, .. } => DiskOperation::Read { extent, fua },
            Command::Write { fua, .. } => write(extent, fua || through, false),
            Command::WriteAtomic { fua, .. } => write(extent, fua || through, true),
            Command::WriteAndVerify { compare, .. } => {
                DiskOperation::WriteAndVerify { extent, compare }
            }
            Command::Verify { check, .. } => DiskOperation::Verify { extent, check },
            Command::OrWrite { fua, .. } => DiskOperation::OrWrite {
                extent,
                fua: fua || through,
            },
            Command::CompareAndWrite { fua, .. } => DiskOperation::CompareAndWrite {
                extent,
                fua: fua || through,
            },
            Command::WriteSame { unmap, no_data, .. } => {
                write_same(extent, unmap, no_data, through)
            }
            _ => return None,
        })
    }
}

const fn write(extent: Extent, fua: bool, atomic: bool) -> DiskOperation {
    DiskOperation::Write {
        extent,
        fua,
        atomic,
    }
}

const fn write_same(extent: Extent, deallocate: bool, no_data: bool, fua: bool) -> DiskOperation {
    if no_data {
        DiskOperation::WriteZeroes {
            extent,
            deallocate,
            fua,
        }
    } else {
        DiskOperation::WriteSame {
            extent,
            deallocate,
            fua,
        }
    }
}

/// Whether the command is a WRITE SAME of zero blocks. WSNZ of the Block Limits page announces that
/// it is refused: zero blocks would mean the rest of the disk.
fn is_empty_write_same(command: &Command, extent: Extent) -> bool {
    matches!(command, Command::WriteSame { .. }) && extent.blocks == 0
}

/// Byte position of the length field in the CDB.
const fn length_field(entry: &CommandEntry) -> u16 {
    match (entry.opcode, entry.cdb_bytes()) {
        (Opcode::COMPARE_AND_WRITE, _) => 13,
        (Opcode::WRITE_ATOMIC_16, _) => 12,
        (_, 6) => 4,
        (_, 10) => 7,
        (_, 12) => 6,
        _ => 10,
    }
}
