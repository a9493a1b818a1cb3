//! The logical unit: what is refused, what reaches the disk, and what initiators are told first.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

mod access;
mod copies;
mod medium;
mod reservations;
#[path = "../scsi_common/mod.rs"]
mod scsi_common;
mod told;

use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::sense::Sense;

const TUR: [u8; 6] = [0; 6];
const OUT_OF_RANGE: Sense = Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE);
