//! A simulated world: targets, hosts, a network and disks on one thread, by one clock, from one
//! seed or from the bytes of a fuzzer.
//!
//! - `choices`, `run`: where every decision comes from, and what a run leaves out.
//! - `attempt`, `shrink`: one run of a world, and smaller runs of a world that is wrong.
//! - `trace`, `capture`: what has happened, for an engineer and for Wireshark to read.
//! - `net`, `driver`: the network, and the driver that carries the operations of a shard out on it.
//! - `rdma`: the RDMA network.
//! - `world`: shards, time, and planned events.
//! - `backing`: what outlives the target's process: `disk`, a disk with a volatile cache, or
//!   `files`, files of the kernel below the product's file back end. `images`: their bytes.
//!   `disk_faults`: how they fail.
//! - `workload`, `checker`: users of a disk, and what they must see.
//! - `backlog`: when every request must have ended.
//! - `server`, `hosts`, `faults`: the cast of a world, and what happens to it.
//! - `one_disk`: worlds with one disk and one path to it.
//! - `reexport`: worlds in which a gateway exports the disk of a target again.
//! - `several_gateways`: hosts with a path to each of several gateways, and how they end.
//! - `two_gateways`: worlds in which two targets export one disk.
//! - `gateway_group`, `cluster`: worlds of a group of gateways at the disk of a storage cluster.
//! - `peer`: hosts that send single commands.
//! - `store`, `reservations`: worlds of reservations.
//! - `admin`: worlds in which a target is administered.
//! - `worlds`: all worlds by name.
//! - `place`: worlds for tests of other crates that are written out.
//!
//! This crate is a test and never part of the product.

mod admin;
mod attempt;
mod backing;
mod backlog;
mod capture;
mod checker;
mod choices;
mod cluster;
mod disk;
mod disk_faults;
mod driver;
mod faults;
mod files;
mod gateway_group;
mod gateways;
mod hosts;
mod images;
mod net;
mod one_disk;
mod peer;
mod place;
mod rdma;
mod reexport;
mod report;
mod reservations;
mod run;
mod server;
mod several_gateways;
mod shrink;
mod store;
mod trace;
mod two_gateways;
mod workload;
mod world;
mod worlds;

pub use attempt::{Attempt, attempt};
pub use place::{Listener, Place, Stream};
pub use report::Report;
pub use run::{Cut, Run, Source};
pub use shrink::{Shrunk, shrink};
pub use trace::{Entry, Record};
pub use worlds::{Kind, WORLDS, find, of_bytes};
