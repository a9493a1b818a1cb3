//! The target: exports disks to NVMe hosts and iSCSI initiators.
//!
//! This crate maps disks to namespaces and logical units, checks who may see them, and turns
//! commands into disk requests. It reaches sockets and disks through `transport` and `block` only.
//! It does not use the initiator (`host`): the program composes a disk that is itself remote.
//!
//! A [`Target`] listens on one shard and spreads connections over all shards. The shards share a
//! registry of controllers, which is locked when connections begin or end. A [`Catalog`] describes
//! the exports, the listeners and the access rules. [`Target::change`] changes the catalog while
//! the target runs.

mod catalog;
mod catch_up;
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
mod load;
mod local;
mod lock;
mod notice;
mod nvme;
mod port;
mod rdma_port;
mod registry;
mod requests;
mod shared;
mod target;
mod unauthenticated_peers;

pub use catalog::{Catalog, Export, Gateways, IscsiTargetConfig, SubsystemConfig};
pub use config::{Deadlines, Limits, Listen, Protocol, TargetError};
pub use disk::{Receipt, ReservationStore};
pub use fabrix_proto::iscsi::auth::PolicyError;
pub use fabrix_proto::nvme::ana::{ANA_GROUP_DEFAULT, ANA_GROUPS_MAX, AnaState, AnaStateAt};
pub use fabrix_proto::nvme::subsystem::NAMESPACES_MAX;
pub use fabrix_proto::portal::Portal;
pub use iscsi::{Chap, Initiators};
pub use notice::{End, Notice};
pub use nvme::DISCOVERY_PORT;
pub use shared::TargetConfig;
pub use target::Target;
pub use unauthenticated_peers::origin;
