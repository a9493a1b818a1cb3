//! The thirteen workloads of the demonstration, with the names of their publication.
//!
//! The publication used fio, and two kinds of its rows do not match their names. fio ignores
//! `rwmixread=50` together with `rw=write`, so the "50write" rows are pure writes. The "8k random
//! 70% write" row ran with `rwmixread=70`, which means 70 % reads. Both interpretations are
//! available, and the report must name the one that was used.

use std::time::Duration;

use fabrix_block::Geometry;

use crate::job::{Job, RUNTIME_MAX, Rw};

/// Interpretation of the workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As named: 50 % writes and 70 % writes.
    Names,
    /// As fio executed the published job file.
    JobFile,
}

/// The thirteen jobs, in the order of the published table.
///
/// The publication measured each for 60 s with the best `numjobs` and `iodepth` of a search, and
/// then once more with one job at depth 1 for the latencies.
pub fn thirteen(
    reading: Reading,
    numjobs: u32,
    iodepth: u32,
    runtime: Duration,
    ramp: Duration,
) -> Vec<Job> {
    let job = |name: String, kib: u32, rw, rwmixread| Job {
        name,
        rw,
        rwmixread,
        block_bytes: kib << 10,
        numjobs,
        iodepth,
        runtime,
        ramp,
        ..Job::default()
    };
    let as_named = reading == Reading::Names;
    let mut jobs = Vec::with_capacity(13);
    for kib in [4, 64] {
        for (order, random) in [("random", true), ("sequential", false)] {
            // As executed, "50write" only wrote.
            let half = if as_named { 50 } else { 0 };
            for (kind, reads, rwmixread) in
                [("50write", half, 50), ("read", 100, 100), ("write", 0, 0)]
            {
                let name = format!("{kib}k {order} {kind}");
                jobs.push(job(name, kib, Rw::new(random, reads), rwmixread));
            }
        }
    }
    let rwmixread = if as_named { 30 } else { 70 };
    jobs.push(job(
        "8k random 70% write".into(),
        8,
        Rw::RandMixed,
        rwmixread,
    ));
    jobs
}

/// A job that writes the whole disk once, in requests of up to 1 MiB.
///
/// Run it before a measurement: unwritten memory is a single shared page of zeroes, and unwritten
/// blocks are not read from the medium at all.
pub fn fill(geometry: &Geometry) -> Job {
    let longest = geometry.max_transfer_bytes.min(FILL_BYTES) / geometry.block_bytes;
    let block_bytes = longest.max(1) * geometry.block_bytes;
    Job {
        name: "fill".into(),
        rw: Rw::Write,
        block_bytes,
        iodepth: 16,
        number_ios: Some((geometry.bytes() / u64::from(block_bytes)).max(1)),
        runtime: RUNTIME_MAX,
        ramp: Duration::ZERO,
        ..Job::default()
    }
}

/// Longest request of [`fill`] in bytes. 16 requests in flight take 16 MiB.
const FILL_BYTES: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(reading: Reading) -> Vec<Job> {
        thirteen(reading, 8, 4, Duration::from_secs(60), Duration::ZERO)
    }

    fn by_name(jobs: &[Job], name: &str) -> Job {
        jobs.iter()
            .find(|job| job.name == name)
            .expect("the name is in the table")
            .clone()
    }

    #[test]
    fn the_names_keep_their_word() {
        let jobs = jobs(Reading::Names);
        assert_eq!(by_name(&jobs, "4k random 50write").percent_read(), 50);
        assert_eq!(by_name(&jobs, "64k sequential 50write").percent_read(), 50);
        assert_eq!(by_name(&jobs, "8k random 70% write").percent_read(), 30);
    }

    #[test]
    fn the_job_file_does_what_fio_did() {
        let jobs = jobs(Reading::JobFile);
        assert_eq!(by_name(&jobs, "4k random 50write").percent_read(), 0);
        assert_eq!(by_name(&jobs, "8k random 70% write").percent_read(), 70);
    }

    #[test]
    fn filling_covers_a_disk_with_whole_requests() {
        let disk = Geometry {
            max_transfer_bytes: 300_000,
            ..Geometry::new(4096, 1 << 18)
        };
        let job = fill(&disk);
        let region = job.region(0, &disk).expect("it can be run on this disk");
        assert_eq!(job.block_bytes, 73 * 4096);
        assert_eq!(job.number_ios, Some(region.units));
    }

    #[test]
    fn sizes_and_directions_match_the_names_in_both_readings() {
        for job in [jobs(Reading::Names), jobs(Reading::JobFile)].concat() {
            let size = job
                .name
                .split('k')
                .next()
                .and_then(|digits| digits.parse::<u32>().ok());
            assert_eq!(size, Some(job.block_bytes / 1024), "{}", job.name);
            assert_eq!(
                job.name.contains("random"),
                job.rw.is_random(),
                "{}",
                job.name
            );
            assert_eq!(
                job.name.ends_with("read"),
                job.percent_read() == 100,
                "{}",
                job.name
            );
        }
    }
}
