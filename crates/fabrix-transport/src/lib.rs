//! Moves bytes between a socket of `rt` and a machine of `proto`.
//!
//! Knows sockets, buffers and the order in which bytes travel; touches them through `rt` only. Does
//! not know what a command means: the machine says where the next bytes go and what is to be sent,
//! the task that owns the [`Stream`] says what a command does.

mod connection;
mod inbox;
mod iscsi_tcp;
mod nvme_tcp;
mod outbox;
pub mod pass;
mod slot;
mod stream;

pub use connection::Connection;
pub use outbox::Out;
pub use slot::{Incoming, Outgoing};
pub use stream::{Ended, Stream, StreamSlots};
