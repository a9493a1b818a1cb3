//! RDMA: queue pairs, their connections, and the memory that a device reads and writes by itself.
//!
//! libibverbs and librdmacm are opened at run time, so the program runs without them. This crate
//! knows messages, RDMA READ and RDMA WRITE, and no protocol that uses them. Unsafe code stands in
//! `sys/`.
//!
//! - An [`EventChannel`] reports the events of connections ([`Id`]) and listeners.
//! - A [`Device`] is found through the id of a connection. The process has one protection domain on
//!   each.
//! - [`ShardMemory`] registers the buffers of a shard. [`Exposed`] is memory that peers reach.
//! - A [`QueuePair`] owns what its device may use, counts it, and gives each thing back once.
//! - A [`CompletionQueue`] is looked at while a shard spins, and wakes a shard that sleeps.

mod done;
mod event;
mod look;
mod refused;
mod sys;

pub use done::{Done, Unsent, Why, WorkFailure};
pub use event::{Event, EventKind, Failure, Parameters, Step};
pub use look::{Port, addresses, look};
pub use refused::Refused;
pub use sys::channel::EventChannel;
pub use sys::completions::CompletionQueue;
pub use sys::device::{Device, Limits};
pub use sys::id::{DetachedId, Id};
pub use sys::memory::{Access, Data, Exposed, Memory, Part, Remote, ShardMemory};
pub use sys::queue_pair::{QueuePair, QueueSizes};
