//! Which blocks of a thin disk hold something: what a disk answers when it is asked for it, block
//! by block or run by run. Only values; the disks that know more than "mapped" are
//! [`ram`](crate::ram) and [`file`](mod@crate::file), and arrays and filters ask what lies below.

/// How blocks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// They hold what was written, or nobody knows.
    Mapped,
    /// They hold nothing, and read as what [`Deallocate`](crate::Deallocate) says until they are
    /// written. When their space goes back to whom it came from is the disk's own business.
    Deallocated,
}

/// Blocks next to each other that are kept alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How.
    pub allocation: Allocation,
    /// How many; never none.
    pub blocks: u64,
}

impl Run {
    /// From `lba` to the end of a disk of `blocks`.
    #[must_use]
    pub const fn to_the_end(allocation: Allocation, lba: u64, blocks: u64) -> Self {
        let rest = blocks.saturating_sub(lba);
        Self {
            allocation,
            blocks: if rest == 0 { 1 } else { rest },
        }
    }

    /// No more than so many blocks of it, and at least one.
    #[must_use]
    pub fn at_most(self, blocks: u64) -> Self {
        Self {
            blocks: self.blocks.min(blocks).max(1),
            ..self
        }
    }
}
