//! What a queue pair tells its owner.

use std::fmt;

use crate::Memory;
use crate::sys::layout::WC_FLUSHED;

/// News of a queue pair.
#[derive(Debug)]
pub enum Done {
    /// A message has come into a slot.
    Received {
        /// The slot, which stays with the owner until it is posted again.
        slot: u32,
        /// Bytes of the message.
        bytes: usize,
        /// Key that the message has invalidated.
        invalidated: Option<u32>,
    },
    /// A work has ended.
    Ended {
        /// Token of the work.
        token: u64,
        /// The work was done. Otherwise nobody knows how much of it.
        is_ok: bool,
        /// Memory of the work.
        memory: Option<Memory>,
    },
    /// A request or a receive has failed, and so the connection. Told once, before the rest ends.
    Failed(WorkFailure),
}

/// Why a request or a receive has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkFailure {
    /// Status of the completion (`enum ibv_wc_status`).
    pub status: i32,
    /// Words of the library for it.
    pub text: &'static str,
}

/// A work that was not begun, with its memory.
#[derive(Debug)]
pub struct Unsent {
    /// The reason.
    pub why: Why,
    /// Memory of the work.
    pub memory: Option<Memory>,
}

/// Why a work was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Too many requests are in progress. There is room after the next [`Done::Ended`].
    Full,
    /// The connection is not open.
    Closed,
    /// The device does not know the memory.
    Unregistered,
}

impl WorkFailure {
    /// The peer ended the connection, or this end did: the request itself was right.
    pub fn is_flush(&self) -> bool {
        self.status == WC_FLUSHED
    }
}

impl fmt::Display for WorkFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (status {})", self.text, self.status)
    }
}
