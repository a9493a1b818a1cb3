//! The contract of a driver, which carries operations out: a ring of the kernel, another of its
//! interfaces, or a simulator.
//!
//! - A driver owns the buffers and handles of an operation until the operation has ended.
//! - It knows the token of a task and nothing else about the task.
//! - It begins operations in the order given.
//! - The shard calls it once per turn.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use crate::{Completion, Listener, Nanos, Op, Poller, Socket, TaskId, Token, net};

/// An operation to begin.
pub type Submission = (Token, Op);
/// An ended operation.
pub type Completed = (Token, Completion);

/// Longest wait of a turn in which no operation has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// No wait.
    Now,
    /// A wait up to this time.
    At(Nanos),
    /// A wait without limit.
    Forever,
}

/// Carries out the operations of one shard.
pub trait Driver {
    /// Begins all of `submissions`, appends the ended operations to `endings` and returns the time.
    /// It waits only while no operation has ended, and may return early with none. An operation may
    /// end in the turn that begins it.
    fn turn(
        &mut self,
        submissions: &mut Vec<Submission>,
        endings: &mut Vec<Completed>,
        until: Until,
    ) -> Nanos;

    /// The time by this driver's clock. A simulator has a clock of its own.
    fn now(&self) -> Nanos {
        Nanos::now()
    }

    /// An unconnected socket for [`Op::Connect`] to `to`. `from`: address of this end, None if the
    /// system chooses. A simulator makes sockets of its own network.
    ///
    /// Errors: see [`net::stream`] and [`net::stream_from`].
    fn stream(&mut self, to: &SocketAddr, from: Option<IpAddr>) -> io::Result<Socket> {
        match from {
            Some(from) => net::stream_from(to, from),
            None => net::stream(to),
        }
    }

    /// A listening socket. A simulator makes sockets of its own network.
    ///
    /// Errors: see [`net::listen`].
    fn listen(&mut self, address: SocketAddr) -> io::Result<Listener> {
        net::listen(address)
    }

    /// Makes the table of registered buffers, once, with room for `places` of them. Drivers of the
    /// kernel fill it.
    ///
    /// Errors: `Unsupported` for a driver without such a table, and what the kernel says.
    fn make_table(&mut self, places: u16) -> io::Result<()> {
        let _ = places;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Looks at a poller in every turn, waits for it while asleep, and reports to `token` whenever
    /// the poller is ready, with result 0. Ends when the task of the token is forgotten, or with a
    /// negative errno when the descriptor cannot be waited for.
    ///
    /// Errors: `Unsupported` for a driver without pollers.
    fn add_poller(&mut self, token: Token, poller: Rc<dyn Poller>) -> io::Result<()> {
        let _ = (token, poller);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Ends the pollers of a removed task, and cancels its operations that wait for a peer. Nobody
    /// receives their completions.
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
            Self::Now => Some(Duration::ZERO),
            Self::At(at) => Some(at - now),
            Self::Forever => None,
        }
    }
}
