//! Tokens: 64 bits that go with every operation and come back with its completion.

/// Id of a task of one shard: index of its place in the table, and generation of the place.
///
/// The id of a removed task matches no later task: a place is used again after 1,024 others were
/// freed, and an id comes back after four million later tasks. No operation of the first task can
/// be in progress then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TaskId(u32);

impl TaskId {
    /// No task. Completions and messages for it are dropped.
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

/// Destination of a completion: a task, and a slot number that the task chooses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token {
    /// The task.
    pub task: TaskId,
    /// Number of the operation, chosen by the task.
    pub slot: u32,
}

impl Token {
    /// No destination. The completion is dropped, and its buffer is freed.
    pub const NOBODY: Self = Self {
        task: TaskId::NOBODY,
        slot: 0,
    };
}

const _: () = assert!(size_of::<Token>() == 8);

pub(crate) const INDEX_BITS: u32 = 20;
pub(crate) const INDEX_MAX: u32 = (1 << INDEX_BITS) - 1;
pub(crate) const GENERATION_MAX: u16 = (1 << (32 - INDEX_BITS)) - 1;
