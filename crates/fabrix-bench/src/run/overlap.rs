//! Refuses a job that writes blocks which another job verifies.
//!
//! A verifying job knows the content of a block only if no other job writes that block. The
//! `numjobs` jobs of one part have slices of their own. Two parts that run at the same time may
//! overlap.

use std::ops::Range;
use std::sync::Arc;

use fabrix_block::Device;

use super::Part;
use super::workers::device;
use crate::job::{JobError, Region};

/// One job of a part, with its blocks.
struct Place<'a> {
    part: usize,
    device: &'a Arc<dyn Device>,
    lbas: Range<u64>,
}

/// Checks all parts of a run against each other. `regions` are the regions of each part's jobs.
///
/// Errors: a sentence that names both jobs and the blocks.
pub(super) fn check(parts: &[Part<'_>], regions: &[Vec<Region>]) -> Result<(), JobError> {
    let places = || {
        let numbered = parts.iter().zip(regions).enumerate();
        numbered.flat_map(|(part, (Part { devices, .. }, regions))| {
            (0..).zip(regions).map(move |(index, region)| Place {
                part,
                device: device(devices, index),
                lbas: region.lba..region.lba + region.units * u64::from(region.blocks_per_unit),
            })
        })
    };
    let verifying: Vec<Place<'_>> = places()
        .filter(|place| parts[place.part].job.verify.is_some())
        .collect();
    for writing in places().filter(|place| parts[place.part].job.percent_read() < 100) {
        for verifying in verifying.iter().filter(|other| other.part != writing.part) {
            let lbas = overlap(&writing.lbas, &verifying.lbas);
            if !lbas.is_empty() && Arc::ptr_eq(writing.device, verifying.device) {
                return Err(refusal(
                    &parts[verifying.part].job.name,
                    &parts[writing.part].job.name,
                    &lbas,
                ));
            }
        }
    }
    Ok(())
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.max(other.start)..one.end.min(other.end)
}

fn refusal(verifying: &str, writing: &str, lbas: &Range<u64>) -> JobError {
    JobError(format!(
        "jobs \"{verifying}\" and \"{writing}\" overlap: both use LBA {} to {} at the same time, and \
         \"{verifying}\" can verify only what no other job writes; separate them with offset= and \
         size=, or with stonewall",
        lbas.start,
        lbas.end - 1
    ))
}
