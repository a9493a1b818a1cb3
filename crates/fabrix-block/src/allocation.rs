//! Allocation state of the blocks of a thin disk, as single blocks or as runs. These are plain
//! values. [`ram`](crate::ram) and [`file`](mod@crate::file) disks know more than "mapped". Arrays
//! and filters ask the disks below them.

/// Allocation state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// The block holds written data, or its state is unknown.
    Mapped,
    /// The block holds no data. Until it is written it reads as [`Deallocate`](crate::Deallocate)
    /// says. The disk decides when it returns the space to the system.
    Deallocated,
}

/// Adjacent blocks in the same allocation state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Their common state.
    pub allocation: Allocation,
    /// Number of blocks, at least 1.
    pub blocks: u64,
}

impl Run {
    /// A run from `lba` to the end of a disk of `blocks` blocks.
    #[must_use]
    pub const fn to_the_end(allocation: Allocation, lba: u64, blocks: u64) -> Self {
        let rest = blocks.saturating_sub(lba);
        Self {
            allocation,
            blocks: if rest == 0 { 1 } else { rest },
        }
    }

    /// The run shortened to at most `blocks` blocks, and to no less than 1.
    #[must_use]
    pub fn at_most(self, blocks: u64) -> Self {
        Self {
            blocks: self.blocks.min(blocks).max(1),
            ..self
        }
    }
}
