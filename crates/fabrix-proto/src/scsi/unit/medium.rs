//! Commands that name blocks: from the command to what the disk is to do.
//!
//! Range first, then the limits of the pages, then protection: libiscsi expects LOGICAL BLOCK
//! ADDRESS OUT OF RANGE also of commands that are too long. Nothing is done for no blocks, once the
//! address is found right.

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

    /// The same limits that the Block Limits page has.
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

    /// What the disk is to do; nothing for no blocks, and for PRE-FETCH, which may be answered
    /// without doing it.
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

/// WSNZ: zero blocks would mean the rest of the disk, which no page offers.
fn is_empty_write_same(command: &Command, extent: Extent) -> bool {
    matches!(command, Command::WriteSame { .. }) && extent.blocks == 0
}

/// Where the length of a command stands in its CDB.
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
