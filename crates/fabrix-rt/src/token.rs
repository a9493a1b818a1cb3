//! Whose slot an ending belongs to: 64 bits that travel with every operation and come back with its
//! ending.

/// A task of one shard: its place in the table and how often the place was used before.
///
/// The id of a removed task matches no later one: a place is used again only after 1,024 others
/// were freed, and the same id comes back only after four million later tasks, when no operation of
/// the first can still be in progress.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TaskId(u32);

impl TaskId {
    /// No task at all: what is sent here is dropped.
    pub const NOBODY: Self = Self(u32::MAX);

    pub(crate) const fn new(index: u32, generation: u16) -> Self {
        Self(index | (generation as u32) << INDEX_BITS)
    }

    pub(crate) const fn index(self) -> usize {
        (self.0 & INDEX_MAX) as usize
    }

    pub(crate) const fn generation(self) -> u32 {
        self.0 >> INDEX_BITS
    }
}

/// Where an ending goes: the task, and which of the task's own slots is meant. The slot is the
/// task's to choose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token {
    /// Whose.
    pub task: TaskId,
    /// Which of its operations, in the task's own numbering.
    pub slot: u32,
}

impl Token {
    /// A token of nobody: its ending is dropped and what it lent is freed.
    pub const NOBODY: Self = Self {
        task: TaskId::NOBODY,
        slot: 0,
    };
}

const _: () = assert!(size_of::<Token>() == 8);

pub(crate) const INDEX_BITS: u32 = 20;
pub(crate) const INDEX_MAX: u32 = (1 << INDEX_BITS) - 1;
pub(crate) const GENERATION_MAX: u16 = (1 << (32 - INDEX_BITS)) - 1;
