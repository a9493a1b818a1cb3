//! Additional measurements of a command: disks are filled before, and the load generator is
//! measured on a null disk afterwards.

use std::time::Duration;

use fabrix_bench::Job;
use fabrix_bench::job::NUMJOBS_MAX;
use fabrix_bench::workloads::fill;
use fabrix_block::spec::Size;

use super::{Disk, Session};
use crate::cli::bench::disk::is_null;
use crate::report::number::grouped;
use crate::report::sheet::Run;

impl Session {
    /// Writes a region once, so that reads find written data. Returns a sentence about it, or about
    /// the reason for not doing it.
    pub(crate) fn fill(&mut self, disk: &Disk, size: Option<u64>) -> Option<String> {
        let geometry = disk.device.geometry();
        let bytes = size
            .unwrap_or_else(|| geometry.bytes())
            .min(geometry.bytes());
        if geometry.read_only || disk.is_null() {
            return None;
        }
        if bytes > FILL_MOST {
            return Some(format!(
                "{} was not filled before: {} is more than {}; give --size to fill and measure a part",
                disk.label,
                Size(bytes),
                Size(FILL_MOST)
            ));
        }
        let job = fill(geometry);
        // The filling is no run of the user's.
        let warnings = self.warnings.clone();
        let rest = bytes % u64::from(job.block_bytes);
        for (offset, length) in [(0, bytes - rest), (bytes - rest, rest)] {
            let most = u32::try_from(length).unwrap_or(u32::MAX);
            let part = Job {
                offset,
                size: Some(length),
                block_bytes: job.block_bytes.min(most),
                number_ios: None,
                loops: Some(1),
                ..job.clone()
            };
            if length > 0 {
                self.measure(disk, &part, 1)?;
            }
        }
        self.warnings = warnings;
        Some(format!("{} was filled with random data before", disk.label))
    }

    /// Measures the generator on a null disk with the settings of the fastest run. Returns a
    /// sentence about its limit.
    pub(super) fn headroom(&mut self, runs: &[Run]) -> Option<String> {
        let asked = runs
            .iter()
            .filter(|run| !is_null(&run.disk) && !run.disk.ends_with("(null:)"));
        let fastest = asked.max_by(|one, other| one.iops().total_cmp(&other.iops()))?;
        // Jobs that run at the same time share the processors.
        let beside = || runs.iter().filter(|run| run.group == fastest.group);
        let iops: f64 = beside().map(Run::iops).sum();
        let jobs: u32 = beside().map(|run| run.results.job.numjobs).sum();
        let job = Job {
            name: "headroom".into(),
            runtime: Duration::from_millis(300),
            ramp: Duration::from_millis(50),
            size: None,
            offset: 0,
            offset_increment: 0,
            number_ios: None,
            io_bytes: None,
            loops: None,
            rate: None,
            side_rates: [None; 2],
            bursts: None,
            flow: None,
            steady: None,
            latency_target: None,
            max_latency: [None; 3],
            verify: None,
            numjobs: jobs.min(NUMJOBS_MAX),
            ..fastest.results.job.clone()
        };
        let null = self.open("null:1T").ok()?;
        // Requests on files may be shorter than the sectors of the null disk.
        job.check_on(null.device.geometry()).ok()?;
        // The generator makes at least what it made before, even if this short trial was disturbed.
        let warnings = self.warnings.clone();
        let trial = self.measure(&null, &job, 1);
        // A warning about this trial would say nothing about the runs.
        self.warnings = warnings;
        let most = trial?.iops().max(iops);
        self.warnings.headroom(fastest, iops, most);
        Some(format!(
            "the load generator alone makes {} IOPS with the settings of `{}`, which used {:.0} % of that",
            grouped(most),
            fastest.name,
            iops / most.max(1.0) * 100.0
        ))
    }
}

/// Whether the runs lasted at least a second, so that measuring the generator does not prolong the
/// command much.
pub(super) fn is_long_enough(runs: &[Run]) -> bool {
    let longest = runs
        .iter()
        .map(|run| run.results.aggregate.total.runtime_ns);
    longest.max().unwrap_or(0) >= 1_000_000_000
}

/// Largest region in bytes that is filled without a request.
const FILL_MOST: u64 = 16 << 30;
