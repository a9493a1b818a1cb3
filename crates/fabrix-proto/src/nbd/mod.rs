//! NBD, the network block device protocol, server side: fixed newstyle negotiation, simple and
//! structured replies, extended headers.
//!
//! [`spec`] holds the wire layout, [`server`] the machine, `options` the negotiation. The program
//! carries out the commands.
//! Source: "The NBD protocol", doc/proto.md of the NetworkBlockDevice project. The branch
//! extension-ext-header of that file describes extended headers.

mod options;
pub mod server;
pub mod spec;
