//! RDMA connections of a shard: who hears what, and what they share.
//!
//! The [`Hub`] of a shard takes the events of the connection manager and the completions of its
//! adapters, and tells the tasks that they concern. An adapter is a device as one shard uses it. A
//! [`Member`] is one connection with its queue pair; it belongs to the task of the connection.
//! [`Pair`] is what a transport needs of a queue pair, so that tests and simulators can have one in
//! memory ([`simulated`]). [`Hub::simulated`] is the hub of a shard in a simulated network.
//!
//! Nothing here knows what a message means.

mod adapter;
mod connecting;
mod exposed;
mod hub;
mod listener;
mod manager;
mod member;
mod pair;
mod request;
pub mod simulated;
#[cfg(test)]
pub(crate) mod testing;
mod waiting;

pub use connecting::{Connecting, NotConnected};
pub(crate) use exposed::{Exposed, UNREGISTERED};
pub use hub::{Hub, RDMA_LOST, RDMA_READY};
pub use listener::RdmaListener;
pub use member::Member;
pub use pair::{HostPair, Pair};
pub use request::{DetachedRequest, RdmaRequest};
pub use sys_rdma::{Done, EventKind, Failure, Limits, Parameters, Step};
pub(crate) use waiting::{Begin, Waiting};
