//! The settings of a shard, and the reasons why a shard cannot be made.

use std::fmt;
use std::io;

use crate::{Engine, Refused, SpinPolicy};

/// Settings of a shard.
#[derive(Clone, Copy, Debug)]
pub struct ShardConfig {
    /// Number of the shard, for its owner.
    pub id: usize,
    /// Driver to use.
    pub engine: Engine,
    /// Most bytes of buffers. Memory is mapped when it is needed.
    pub arena_bytes: usize,
    /// When to spin instead of sleeping.
    pub spin: SpinPolicy,
    /// Operations that one system call submits, rounded up to a power of two. More operations in
    /// one turn cost more calls.
    pub entries: u32,
    /// Most messages that wait to be read.
    pub mailbox: usize,
    /// Whether the ring has entries of 128 bytes, which [`Op::Exchange`](crate::Op::Exchange)
    /// needs. All other operations need 64 bytes.
    pub exchanges: bool,
}

impl Default for ShardConfig {
    fn default() -> Self {
        Self {
            id: 0,
            engine: Engine::Auto,
            arena_bytes: 1 << 30,
            spin: SpinPolicy::default(),
            entries: 1024,
            mailbox: 1024,
            exchanges: false,
        }
    }
}

/// Reason why a shard cannot be made.
#[derive(Debug)]
pub enum StartError {
    /// The config demands io_uring, and io_uring cannot be used.
    Refused(Refused),
    /// The system has refused something that a shard needs.
    System {
        /// The thing that was to be made.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => write!(f, "{refused}"),
            Self::System { what, source } => write!(f, "making {what}: {source}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(refused) => Some(refused),
            Self::System { source, .. } => Some(source),
        }
    }
}

pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::System { what, source }
}
