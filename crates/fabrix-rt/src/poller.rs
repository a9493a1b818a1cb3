//! The contract of a poller: a source of work beside the operations of a shard.

use crate::Waitable;

/// A source that a shard looks at while it is awake and waits for while it sleeps: the completion
/// queue of a device, for instance.
///
/// The shard calls [`Poller::is_ready`] at least once in every turn, and again and again while it
/// spins. Whenever the answer is yes, the task of the poller is told ([`Shard::add_poller`]) and
/// takes what has come. Before the shard sleeps, it calls [`Poller::arm`] and then looks once more.
/// So nothing is lost between the last look and the sleep: what came before `arm` is seen by that
/// look, and what comes later makes the descriptor readable.
///
/// [`Shard::add_poller`]: crate::Shard::add_poller
pub trait Poller {
    /// The descriptor that wakes a sleeping shard by being readable. Always the same one.
    fn waitable(&self) -> Waitable<'_>;

    /// Whether something is there to be taken. A look into memory: no system call, no side effect.
    fn is_ready(&self) -> bool;

    /// The shard is about to sleep. Reads the descriptor empty without waiting, and asks the source
    /// to make it readable when something comes.
    fn arm(&self);
}
