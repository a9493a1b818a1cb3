//! What carries operations out: the kernel's ring, epoll where containers forbid the ring, or a
//! simulator.
//!
//! A driver owns what an operation holds until it has ended. It knows nothing of tasks but their
//! tokens, decides nothing about order except that operations are begun in the order given, and is
//! called once per turn.

mod epoll;
mod in_place;
mod now;
mod uring;
mod warm;

pub(crate) use epoll::EpollDriver;
pub(crate) use uring::UringDriver;

use std::io;
use std::time::Duration;

use crate::{Completion, Nanos, Op, TaskId, Token};

/// An operation to begin.
pub type Submission = (Token, Op);
/// An operation that has ended.
pub type Ending = (Token, Completion);

/// How long a turn may wait when there is nothing to hand back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Not at all.
    Now,
    /// Until then.
    At(Nanos),
    /// Until something happens.
    Forever,
}

/// Carries out what a shard asks for.
pub trait Driver {
    /// Begins all of `submissions`, appends to `endings` what has ended, waits only when nothing
    /// has, and returns the time. An operation may end in the turn that begins it. It may return
    /// early with nothing.
    fn turn(
        &mut self,
        submissions: &mut Vec<Submission>,
        endings: &mut Vec<Ending>,
        until: Until,
    ) -> Nanos;

    /// Makes room for so many registered buffers, once; they are put there by drivers of the
    /// kernel's.
    ///
    /// Errors: `Unsupported`: this one has no such table; what the kernel says.
    fn make_table(&mut self, places: u16) -> io::Result<()> {
        let _ = places;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// A task is gone: cancels what of it waits for a peer. Their endings, if any, go to nobody.
    fn forget(&mut self, task: TaskId);

    /// Operations in progress.
    fn in_flight(&self) -> usize;
}

impl Until {
    /// The shorter of this and the time left to `limit`.
    pub(crate) fn or_before(self, limit: Option<Nanos>) -> Self {
        match (self, limit) {
            (Self::Now, _) => Self::Now,
            (Self::At(at), Some(limit)) => Self::At(at.min(limit)),
            (Self::Forever, Some(limit)) => Self::At(limit),
            (until, None) => until,
        }
    }

    /// Whether a wait beginning at `now` would be over.
    pub(crate) fn is_over(self, now: Nanos) -> bool {
        match self {
            Self::Now => true,
            Self::At(at) => at <= now,
            Self::Forever => false,
        }
    }

    /// The time left, None without limit.
    pub(crate) fn left(self, now: Nanos) -> Option<Duration> {
        match self {
            Self::Now => Some(std::time::Duration::ZERO),
            Self::At(at) => Some(at - now),
            Self::Forever => None,
        }
    }
}
