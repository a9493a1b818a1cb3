//! What a benchmark is asked to do, in fio's words, and whether a given disk can do it.
//!
//! Plain values and arithmetic: nothing here touches a disk. Every refusal is a sentence that names
//! the job, the option and a way out. What is wrong whatever the disk is stands in `check`, what
//! depends on the disk in `region`.
//!
//! What the options mean is what they mean in fio, with these differences:
//! - a job ends after `runtime`, `number_ios`, `loops` or in its steady state, whichever comes
//!   first, and sequential jobs start over at the end of their region;
//! - random jobs draw every address independently (fio's `norandommap`);
//! - jobs on several disks are dealt out, job `i` to disk `i % disks`, instead of each job visiting
//!   all disks;
//! - `verify` gives every job its own slice of the region, because two jobs that overwrite each
//!   other's blocks cannot both know what must be there.
//!
//! As in fio, each of `numjobs` jobs keeps `iodepth` requests in flight of its own, sequential jobs
//! all start at `offset` unless `offset_increment` moves them apart, a sequential mix walks the
//! region once for reads and once for writes, and `rwmixread` means nothing to a job that only
//! reads or only writes.

mod check;
mod region;
mod rw;
mod sizes;

use std::fmt;
use std::time::Duration;

use crate::access::Distribution;
use crate::arrivals::Rate;
use crate::latency::PERCENTILES;
use crate::steady::Steady;

pub use region::Region;
pub use rw::Rw;
pub use sizes::{Share, Sizes, parse_split};

/// The most requests one job keeps in flight.
pub const IODEPTH_MAX: u32 = 4096;
/// The most jobs (threads) one run has.
pub const NUMJOBS_MAX: u32 = 512;
/// The longest `runtime` and the longest `ramp`: a year.
pub const RUNTIME_MAX: Duration = Duration::from_secs(365 * 86_400);
/// The most memory the buffers of all jobs of one run take: 4 GiB.
pub const BUFFER_BYTES_MAX: u64 = 4 << 30;
/// The most places for a request that one run verifies; it remembers 8 bytes for each.
pub const VERIFY_UNITS_MAX: u64 = 1 << 27;
/// The most percentiles one job is asked for.
pub const PERCENTILES_MAX: usize = 64;

/// One benchmark job, by fio's options.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// What reports call it.
    pub name: String,
    /// Kind of access.
    pub rw: Rw,
    /// Bytes of one request (`bs`): a multiple of the disk's block.
    pub block_bytes: u32,
    /// Several sizes of requests instead of one (`bssplit`), reads and writes; empty:
    /// `block_bytes`.
    pub split: [Vec<Share>; 2],
    /// Requests that each job keeps in flight.
    pub iodepth: u32,
    /// Jobs, each on a thread of its own.
    pub numjobs: u32,
    /// How long is measured.
    pub runtime: Duration,
    /// How long the load runs before measuring begins (`ramp_time`).
    pub ramp: Duration,
    /// Percent of reads in `rw` and `randrw`.
    pub rwmixread: u32,
    /// Where the region begins, in bytes.
    pub offset: u64,
    /// How many bytes the region has; `None`: up to the end of the disk.
    pub size: Option<u64>,
    /// How far the region of each further job is moved, in bytes.
    pub offset_increment: u64,
    /// How random addresses are spread.
    pub distribution: Distribution,
    /// Each job ends after so many requests, if `runtime` does not end it before.
    pub number_ios: Option<u64>,
    /// Each job ends when it has moved so many times the bytes of its region.
    pub loops: Option<u32>,
    /// End when the rates are steady (`steadystate`), if nothing ends it before.
    pub steady: Option<Steady>,
    /// Offered load instead of a constant number in flight.
    pub rate: Option<Rate>,
    /// Mark and check every block: see [`crate::verify`].
    pub verify: bool,
    /// Names the sequence of random addresses; the same seed asks for the same requests.
    pub seed: u64,
    /// Count failed requests and go on; otherwise the first one ends its job.
    pub continue_on_error: bool,
    /// Which percentiles of the latency the results have, ascending.
    pub percentiles: Vec<f64>,
}

impl Default for Job {
    /// `fabrix bench` without options: random 4 KiB reads, depth 32, one job, ten seconds after
    /// two.
    fn default() -> Self {
        Self {
            name: "randread".into(),
            rw: Rw::RandRead,
            block_bytes: 4096,
            split: [Vec::new(), Vec::new()],
            iodepth: 32,
            numjobs: 1,
            runtime: Duration::from_secs(10),
            ramp: Duration::from_secs(2),
            rwmixread: 50,
            offset: 0,
            size: None,
            offset_increment: 0,
            distribution: Distribution::Uniform,
            number_ios: None,
            loops: None,
            steady: None,
            rate: None,
            verify: false,
            seed: 1,
            continue_on_error: false,
            percentiles: PERCENTILES.into(),
        }
    }
}

/// Why a job cannot be run: a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError(pub String);

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JobError {}

impl Job {
    /// The most requests in flight, all jobs together.
    pub fn total_depth(&self) -> u64 {
        u64::from(self.iodepth) * u64::from(self.numjobs)
    }

    /// Percent of requests that are reads, after `rw` has had its say.
    pub fn percent_read(&self) -> u32 {
        match (self.rw.reads(), self.rw.writes()) {
            (true, true) => self.rwmixread,
            (true, false) => 100,
            _ => 0,
        }
    }

    /// Memory of the buffers of one job, in bytes: one for each read in flight; one for all writes,
    /// or when verifying one for each.
    pub fn buffer_bytes(&self) -> u64 {
        let percent = self.percent_read();
        let depth = u64::from(self.iodepth);
        let longest = |sizes: Sizes<'_>| u64::from(sizes.longest_bytes());
        let mut bytes = 0;
        if percent > 0 || self.verify {
            bytes += depth * longest(self.sizes(false));
        }
        if percent < 100 {
            let buffers = if self.verify { depth } else { 1 };
            bytes += buffers * longest(self.sizes(true));
        }
        bytes
    }

    fn refuse<T>(&self, sentence: &str) -> Result<T, JobError> {
        Err(JobError(format!("job \"{}\": {sentence}", self.name)))
    }
}

/// What the tests of all parts share.
#[cfg(test)]
mod testing {
    use super::*;
    use fabrix_block::Geometry;

    /// 1 GiB in blocks of 4096, 1 MiB per request.
    pub(super) fn disk() -> Geometry {
        Geometry::new(4096, 1 << 18)
    }

    /// The sentence with which a job is refused on [`disk`].
    #[track_caller]
    pub(super) fn refused(job: &Job, sentence: &str) {
        let error = job.region(0, &disk()).expect_err("the job is impossible");
        assert_eq!(error.0, format!("job \"randread\": {sentence}"));
    }
}
