//! Control threads: threads without a shard that give orders to shards and wait for them, or run a
//! shard for a moment.

use std::io;
use std::time::Duration;

use crate::{Nanos, Shard, ShardConfig, StartError};

/// What a control thread needs of the machine: a clock, a way to wait, a shard of its own, and
/// random bytes. In a simulator all of them are simulated.
pub trait Control: Send + Sync {
    /// The time.
    fn now(&self) -> Nanos;

    /// Calls `attempt` until it returns true, or until the time is `until`. An attempt may block
    /// for the time that it is given. Result: whether an attempt returned true.
    fn wait(&self, until: Nanos, attempt: &mut dyn FnMut(Duration) -> bool) -> bool;

    /// A shard that the calling thread runs by [`turn`](Self::turn).
    ///
    /// Errors: as [`Shard::new`].
    fn shard(&self, config: ShardConfig) -> Result<Shard, StartError>;

    /// One turn of a shard of this thread, with a limited wait.
    fn turn(&self, shard: &mut Shard, at_most: Duration);

    /// Fills `bytes` with random bytes that nobody can guess.
    ///
    /// Errors: see [`random::fill`](crate::random::fill).
    fn random(&self, bytes: &mut [u8]) -> io::Result<()>;
}
