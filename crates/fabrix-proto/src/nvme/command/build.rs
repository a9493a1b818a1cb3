//! Builds the I/O commands that a host sends.

use zerocopy::little_endian::{U32, U64};

use super::{CDW12_BLOCKS, CDW12_DEALLOCATE, CDW12_FUA, DSM_DEALLOCATE, Fuse};
use crate::nvme::spec::{Opcode, SubmissionEntry};

/// Constructors of I/O commands for a host. The transport sets the SGL and the command id.
impl SubmissionEntry {
    fn blocks_command(opcode: Opcode, nsid: u32, lba: u64, blocks: u32, bits: u32) -> Self {
        debug_assert!(
            (1..=65536).contains(&blocks),
            "a command covers 1 to 65536 blocks"
        );
        let mut entry = Self::new(opcode.0);
        entry.nsid = U32::new(nsid);
        let [low, high] = zerocopy::transmute!(U64::new(lba));
        (entry.cdw10, entry.cdw11) = (low, high);
        entry.cdw12 = U32::new(blocks.wrapping_sub(1) & CDW12_BLOCKS | bits);
        entry
    }

    /// Reads `blocks` (1 to 65536) blocks from `lba` on.
    #[must_use]
    pub fn read(nsid: u32, lba: u64, blocks: u32) -> Self {
        Self::blocks_command(Opcode::READ, nsid, lba, blocks, 0)
    }

    /// Writes `blocks` (1 to 65536) blocks from `lba` on. With `fua` the data is durable before the
    /// answer.
    #[must_use]
    pub fn write(nsid: u32, lba: u64, blocks: u32, fua: bool) -> Self {
        Self::blocks_command(Opcode::WRITE, nsid, lba, blocks, flag(fua, CDW12_FUA))
    }

    /// Compares `blocks` (1 to 65536) blocks from `lba` on with the sent data.
    #[must_use]
    pub fn compare(nsid: u32, lba: u64, blocks: u32) -> Self {
        Self::blocks_command(Opcode::COMPARE, nsid, lba, blocks, 0)
    }

    /// Verifies `blocks` (1 to 65536) blocks from `lba` on.
    #[must_use]
    pub fn verify(nsid: u32, lba: u64, blocks: u32) -> Self {
        Self::blocks_command(Opcode::VERIFY, nsid, lba, blocks, 0)
    }

    /// Writes zeroes to `blocks` (1 to 65536) blocks from `lba` on. With `deallocate` the
    /// controller may deallocate them.
    #[must_use]
    pub fn write_zeroes(nsid: u32, lba: u64, blocks: u32, deallocate: bool, fua: bool) -> Self {
        let bits = flag(deallocate, CDW12_DEALLOCATE) | flag(fua, CDW12_FUA);
        Self::blocks_command(Opcode::WRITE_ZEROES, nsid, lba, blocks, bits)
    }

    /// Makes all acknowledged writes of the namespace durable.
    #[must_use]
    pub fn flush(nsid: u32) -> Self {
        let mut entry = Self::new(Opcode::FLUSH.0);
        entry.nsid = U32::new(nsid);
        entry
    }

    /// Dataset Management for `ranges` (1 to 256) ranges. The data of the command is a list of
    /// [`DatasetRange`](super::DatasetRange)s.
    #[must_use]
    pub fn dataset_management(nsid: u32, ranges: u16, deallocate: bool) -> Self {
        debug_assert!(
            (1..=256).contains(&ranges),
            "a command names 1 to 256 ranges"
        );
        let mut entry = Self::new(Opcode::DATASET_MANAGEMENT.0);
        entry.nsid = U32::new(nsid);
        entry.cdw10 = U32::new(u32::from(ranges.wrapping_sub(1) & 0xFF));
        entry.cdw11 = U32::new(flag(deallocate, DSM_DEALLOCATE));
        entry
    }

    /// The same command in a fused pair.
    #[must_use]
    pub fn fused(mut self, fuse: Fuse) -> Self {
        let bits = match fuse {
            Fuse::Normal => 0,
            Fuse::First => 1,
            Fuse::Second => 2,
        };
        self.flags = self.flags & !0b11 | bits;
        self
    }
}

const fn flag(set: bool, bit: u32) -> u32 {
    if set { bit } else { 0 }
}
