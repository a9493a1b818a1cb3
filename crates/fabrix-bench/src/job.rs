//! A benchmark job in fio's words, and the checks whether a given disk can run it.
//!
//! These are plain values and arithmetic, without disk access. Every refusal is a sentence that
//! names the job, the option and a remedy. `check` holds the checks that do not depend on the disk,
//! and `region` those that do.
//!
//! The options mean the same as in fio, with these differences:
//! - A job ends after `runtime`, `number_ios` or `loops`, or in its steady state, whichever comes
//!   first. Sequential jobs start over at the end of their region.
//! - Job `i` works on disk `i % disks`. In fio each job visits all disks.
//! - `verify` gives every job its own slice of the region, because two jobs that overwrite each
//!   other's blocks cannot know the expected content.
//!
//! As in fio:
//! - Random jobs visit each block of their region once per pass (`random_map`).
//! - Each of `numjobs` jobs keeps its own `iodepth` requests in flight.
//! - All sequential jobs start at `offset`, unless `offset_increment` separates them.
//! - A sequential mix goes through the region once for reads and once for writes.
//! - Jobs that only read or only write ignore `rwmixread`.

mod check;
mod distribution;
mod region;
mod rw;
mod sizes;

use std::fmt;
use std::time::Duration;

use crate::arrivals::{Bursts, FlowShare, Rate};
use crate::contents::Contents;
use crate::latency::PERCENTILES;
use crate::search::LatencyTarget;
use crate::steady::Steady;
use crate::verify::Verify;

pub use distribution::{Distribution, Zone, ZoneSize};
pub use region::Region;
pub use rw::Rw;
pub use sizes::{Share, SizeRange, Sizes, parse_range, parse_split};

/// Largest `iodepth` of a job.
pub const IODEPTH_MAX: u32 = 4096;
/// Largest number of jobs (threads) of a run.
pub const NUMJOBS_MAX: u32 = 512;
/// Longest `runtime` and longest `ramp`: one year.
pub const RUNTIME_MAX: Duration = Duration::from_secs(365 * 86_400);
/// Largest memory for the buffers of all jobs of a run: 4 GiB.
pub const BUFFER_BYTES_MAX: u64 = 4 << 30;
/// Largest number of units that a run can verify. Each takes 8 bytes of memory.
pub const VERIFY_UNITS_MAX: u64 = 1 << 27;
/// Largest number of units in the random map of a job with requests of several lengths. Each takes
/// one bit of memory: 1 GiB in all.
pub const MAP_UNITS_MAX: u64 = 1 << 33;
/// Largest number of percentiles of a job.
pub const PERCENTILES_MAX: usize = 64;

/// One benchmark job with fio's options.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Name in reports.
    pub name: String,
    /// Kind of access.
    pub rw: Rw,
    /// Request size in bytes (`bs`): a multiple of the disk's block.
    pub block_bytes: u32,
    /// Several request sizes with their shares (`bssplit`), for reads and for writes. Empty:
    /// `block_bytes` only.
    pub split: [Vec<Share>; 2],
    /// Ranges of request sizes (`bsrange`), for reads and for writes. They replace `split`.
    pub ranges: [Option<SizeRange>; 2],
    /// Alignment of random addresses in bytes (`blockalign`), for reads and for writes. 0: the
    /// shortest request.
    pub align: [u32; 2],
    /// Requests in flight per job.
    pub iodepth: u32,
    /// Number of jobs, each on its own thread.
    pub numjobs: u32,
    /// Measured time.
    pub runtime: Duration,
    /// Time under load before the measurement starts (`ramp_time`).
    pub ramp: Duration,
    /// Percentage of reads in `rw` and `randrw`.
    pub rwmixread: u32,
    /// Start of the region in bytes.
    pub offset: u64,
    /// Length of the region in bytes. None: up to the end of the disk.
    pub size: Option<u64>,
    /// Distance between the regions of consecutive jobs, in bytes.
    pub offset_increment: u64,
    /// Distribution of random addresses.
    pub distribution: Distribution,
    /// Requests that follow each other at one random address (`rw=randread:8`). 1: none.
    pub run_ios: u32,
    /// Whether such requests have the same address (`rw_sequencer=identical`). False: they are
    /// sequential.
    pub run_is_identical: bool,
    /// Distance from the end of a sequential request to the start of the next one in bytes
    /// (`rw=read:8k`). Negative: the job walks backwards.
    pub skip_bytes: i64,
    /// Whether random requests visit each block once per pass (false: `norandommap`). The other
    /// distributions draw addresses independently in any case.
    pub random_map: bool,
    /// Percentage of the requests of a random job with random addresses (`percentage_random`), for
    /// reads and for writes. Each other request follows the one before it.
    pub percent_random: [u32; 2],
    /// Contents of unverified writes.
    pub contents: Contents,
    /// Number of requests after which a job ends.
    pub number_ios: Option<u64>,
    /// Number of passes over the region after which a job ends, measured in bytes. A job that
    /// verifies reads back after each pass.
    pub loops: Option<u32>,
    /// Bytes of a pass of `loops`, if they are not those of the region (`io_size`).
    pub io_bytes: Option<u64>,
    /// Steady-state condition that ends the run (`steadystate`).
    pub steady: Option<Steady>,
    /// Offered load (open loop). None: a constant number of requests in flight.
    pub rate: Option<Rate>,
    /// Offered loads of reads and of writes. A direction without one is a closed loop. Both None:
    /// `rate` applies.
    pub side_rates: [Option<Rate>; 2],
    /// Pauses between groups of requests. None: no pauses.
    pub bursts: Option<Bursts>,
    /// Part in a flow, whose jobs start requests in proportion. None: the job runs freely.
    pub flow: Option<FlowShare>,
    /// Whether and how to verify data: see [`crate::verify`]. A job that only reads checks what an
    /// earlier job has written.
    pub verify: Option<Verify>,
    /// Whether a write ends only when its data is on the medium (FUA; fio's `sync=dsync`).
    pub durable: bool,
    /// Flushes of the disk.
    pub flushes: Flushes,
    /// Seed of the random addresses. The same seed gives the same requests.
    pub seed: u64,
    /// Whether to count failed requests and continue: reads, and all others. False: the first
    /// failure ends the job.
    pub continue_on_error: [bool; 2],
    /// Target for the latencies, to which the depth is adjusted between 1 and `iodepth`.
    pub latency_target: Option<LatencyTarget>,
    /// Longest latency of reads, writes and trims (`max_latency`). A longer one ends the job.
    pub max_latency: [Option<Duration>; 3],
    /// Latency percentiles in the results, in ascending order.
    pub percentiles: Vec<f64>,
}

/// Flushes of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushes {
    /// Number of writes after which the job flushes (`fsync`, `fdatasync`). 0: never.
    pub every: u32,
    /// Whether the job ends with a flush (`end_fsync`).
    pub at_end: bool,
}

impl Default for Job {
    /// `fabrix bench` without options: random reads of 4 KiB, depth 32, one job, 10 s after 2 s of
    /// ramp.
    fn default() -> Self {
        Self {
            name: "randread".into(),
            rw: Rw::RandRead,
            block_bytes: 4096,
            split: [Vec::new(), Vec::new()],
            ranges: [None; 2],
            align: [0; 2],
            iodepth: 32,
            numjobs: 1,
            runtime: Duration::from_secs(10),
            ramp: Duration::from_secs(2),
            rwmixread: 50,
            offset: 0,
            size: None,
            offset_increment: 0,
            distribution: Distribution::Uniform,
            run_ios: 1,
            run_is_identical: false,
            skip_bytes: 0,
            random_map: true,
            percent_random: [100; 2],
            contents: Contents::default(),
            number_ios: None,
            loops: None,
            io_bytes: None,
            steady: None,
            rate: None,
            side_rates: [None; 2],
            bursts: None,
            flow: None,
            verify: None,
            durable: false,
            flushes: Flushes::default(),
            seed: 1,
            continue_on_error: [false; 2],
            latency_target: None,
            max_latency: [None; 3],
            percentiles: PERCENTILES.into(),
        }
    }
}

/// The reason why a job cannot run, as a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError(pub String);

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JobError {}

impl Job {
    /// Percentage of reads, considering `rw`.
    pub fn percent_read(&self) -> u32 {
        match (self.rw.reads(), self.rw.writes()) {
            (true, true) => self.rwmixread,
            (true, false) => 100,
            _ => 0,
        }
    }

    /// Whether requests have scheduled starts.
    pub fn is_open_loop(&self) -> bool {
        self.rate.is_some() || self.side_rates.iter().any(Option::is_some)
    }

    /// Requests per second that each job has to start. None: a closed loop takes part.
    pub fn offered_iops(&self) -> Option<f64> {
        let [reads, writes] = self.side_rates;
        let sides = reads
            .zip(writes)
            .map(|(reads, writes)| reads.iops + writes.iops);
        self.rate.map(|rate| rate.iops).or(sides)
    }

    /// Buffer memory of one job in bytes: one buffer per request in flight and direction.
    pub fn buffer_bytes(&self) -> u64 {
        let percent = self.percent_read();
        let depth = u64::from(self.iodepth);
        let longest = |sizes: Sizes<'_>| u64::from(sizes.longest_bytes());
        let mut bytes = 0;
        if percent > 0 || self.verify.is_some() {
            bytes += depth * longest(self.sizes(false));
        }
        if percent < 100 && !self.rw.trims_only() {
            bytes += depth * longest(self.sizes(true));
        }
        bytes
    }

    fn refuse<T>(&self, sentence: &str) -> Result<T, JobError> {
        Err(JobError(format!("job \"{}\": {sentence}", self.name)))
    }
}

/// Helpers for the tests of all submodules.
#[cfg(test)]
mod testing {
    use super::*;
    use fabrix_block::Geometry;

    /// A disk of 1 GiB with blocks of 4096 bytes and requests of at most 1 MiB.
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
