//! SCSI: the direct-access block device, as values and as a logical unit without I/O. No transport
//! is assumed.
//!
//! Numbers first: [`spec`], [`additional`] and [`sense`]. [`cdb`] turns command descriptor blocks
//! into commands, [`pages`] writes what a disk says of itself, through [`data_in`]; [`reservation`]
//! is who may do what, for all protocols, and [`persistent`] its SCSI bytes; [`copy`] reads the
//! lists of EXTENDED COPY; [`attention`] is what an initiator has to be told first; [`bringup`] is
//! what an initiator asks before it uses a disk. [`unit`](mod@unit) puts them together: a command
//! comes in, and an answer or an operation of a disk comes out.

pub mod additional;
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
