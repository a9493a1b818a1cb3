//! Exports: disks on one side, connections of hosts on the other.
//!
//! Knows which disk is which namespace, who may see it, and what a command of the protocol means
//! for a disk. Touches sockets and disks through `transport` and `block` only, and never the
//! initiator (`host`): a disk that is itself remote is composed in the program.
//!
//! A [`Target`] listens on one shard and spreads connections over all of them; what the shards
//! share is a registry of controllers, touched when connections come and go. What is exported,
//! where and to whom is a [`Catalog`], which can be changed while the target runs:
//! [`Target::change`].

mod catalog;
mod channels;
mod command_table;
mod config;
mod config_task;
mod connection;
mod context;
mod counters;
mod disk;
mod iscsi;
mod lifecycle;
mod local;
mod lock;
mod notice;
mod nvme;
mod port;
mod registry;
mod requests;
mod shared;
mod target;
mod unauthenticated_peers;

pub use catalog::{Catalog, Export, IscsiTargetConfig, SubsystemConfig};
pub use config::{Deadlines, Limits, Listen, Protocol, TargetError};
pub use disk::{Receipt, ReservationStore};
pub use fabrix_proto::iscsi::auth::PolicyError;
pub use fabrix_proto::nvme::subsystem::NAMESPACES_MAX;
pub use fabrix_proto::portal::Portal;
pub use iscsi::{Chap, Initiators};
pub use notice::{End, Notice};
pub use nvme::DISCOVERY_PORT;
pub use shared::TargetConfig;
pub use target::Target;
pub use unauthenticated_peers::origin;
