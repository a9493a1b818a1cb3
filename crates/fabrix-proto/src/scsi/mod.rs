//! SCSI direct-access block devices: typed values, and a logical unit without I/O. The code is
//! independent of the transport.
//!
//! - [`spec`], [`additional`], [`sense`]: numbers and sense data.
//! - [`cdb`]: parses and builds command descriptor blocks.
//! - [`pages`]: INQUIRY, VPD and mode pages, written through [`data_in`].
//! - [`alua`]: states of a logical unit at the ports of its target.
//! - [`reservation`]: reservations for all protocols. [`persistent`] has their SCSI bytes.
//! - [`copy`]: lists of EXTENDED COPY.
//! - [`attention`]: unit attentions.
//! - [`unit`](mod@unit): the logical unit. It receives commands and returns answers or disk
//!   operations.
//! - [`bringup`]: commands that an initiator sends before it uses a disk.

pub mod additional;
pub mod alua;
pub mod attention;
pub mod bringup;
pub mod cdb;
pub mod copy;
pub mod data_in;
pub mod pages;
pub mod persistent;
pub mod reservation;
pub mod sense;
pub mod spec;
pub mod unit;
