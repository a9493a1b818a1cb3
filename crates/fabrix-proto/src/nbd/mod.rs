//! NBD, the network block device protocol, as a server speaks it: fixed newstyle negotiation,
//! simple and structured replies, extended headers.
//!
//! [`spec`] holds what lies on the wire, [`server`] the machine, [`options`] what is negotiated.
//! Not here: what a command does to a disk.
//! Source: "The NBD protocol", doc/proto.md of the NetworkBlockDevice project. Extended headers
//! stand in that file on the branch extension-ext-header.

mod options;
pub mod server;
pub mod spec;
