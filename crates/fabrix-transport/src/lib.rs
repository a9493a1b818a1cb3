//! Moves bytes between a socket of `rt` or a queue pair of `sys-rdma` and a machine of `proto`.
//!
//! Knows sockets, queue pairs, buffers and the order in which bytes travel; touches them through
//! `rt` and `sys-rdma` only. Does not know what a command means: the machine says where the next
//! bytes go and what is to be sent, the task that owns the connection says what a command does.

mod connection;
mod inbox;
mod iscsi_rdma;
mod iscsi_rdma_initiator;
mod iscsi_tcp;
mod nvme_rdma;
mod nvme_rdma_host;
mod nvme_tcp;
mod outbox;
pub mod pass;
pub mod rdma;
mod slot;
mod stream;

pub use connection::Connection;
pub use iscsi_rdma::IserQueue;
pub use iscsi_rdma_initiator::{ConnectingIser, IserInitiatorQueue};
pub use nvme_rdma::RdmaQueue;
pub use nvme_rdma_host::{ConnectingRdma, RdmaHostQueue};
pub use outbox::Out;
pub use slot::{Incoming, Outgoing};
pub use stream::{Ended, RdmaFailure, Stream, StreamSlots};
