//! What a benchmark is asked to do, in fio's words, and whether a given disk can do it.
//!
//! Plain values and arithmetic: nothing here touches a disk. Every refusal is a sentence that names the job,
//! the option and a way out.
//!
//! What the options mean is what they mean in fio, with these differences:
//! - every job is time based: it ends after `runtime` (or `number_ios`), and sequential jobs start over at
//!   the end of their region;
//! - random jobs draw every address uniformly and independently (fio's `norandommap`);
//! - jobs on several disks are dealt out, job `i` to disk `i % disks`, instead of each job visiting all disks;
//! - `verify` gives every job its own slice of the region, because two jobs that overwrite each other's blocks
//!   cannot both know what must be there.
//!
//! As in fio, each of `numjobs` jobs keeps `iodepth` requests in flight of its own, sequential jobs all start at
//! `offset` unless `offset_increment` moves them apart, a sequential mix walks the region once for reads and
//! once for writes, and `rwmixread` means nothing to a job that only reads or only writes.

use std::fmt;
use std::time::Duration;

use fabrix_block::Geometry;

use crate::arrivals::Rate;

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

/// The kind of access, by fio's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rw {
    /// `read`: sequential reads.
    Read,
    /// `write`: sequential writes.
    Write,
    /// `randread`: random reads.
    RandRead,
    /// `randwrite`: random writes.
    RandWrite,
    /// `rw` or `readwrite`: sequential, mixed as `rwmixread` says.
    Mixed,
    /// `randrw`: random, mixed as `rwmixread` says.
    RandMixed,
}

impl Rw {
    /// All of them with fio's names, aliases last.
    const NAMES: [(&'static str, Self); 7] = [
        ("read", Self::Read),
        ("write", Self::Write),
        ("randread", Self::RandRead),
        ("randwrite", Self::RandWrite),
        ("rw", Self::Mixed),
        ("randrw", Self::RandMixed),
        ("readwrite", Self::Mixed),
    ];

    /// Reads fio's name of an access kind.
    ///
    /// Errors: a sentence that lists the names there are.
    pub fn parse(name: &str) -> Result<Self, JobError> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, rw)| *rw).ok_or_else(|| {
            JobError(format!(
                "rw={name} is not known; say read, write, randread, randwrite, rw (or readwrite) or randrw"
            ))
        })
    }

    /// fio's name for it.
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, rw)| *rw == self);
        found.expect("every kind stands in NAMES").0
    }

    /// Whether addresses are drawn rather than walked.
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandMixed)
    }

    /// Whether it reads at all; `rwmixread` may still make it 0 %.
    pub fn reads(self) -> bool {
        !matches!(self, Self::Write | Self::RandWrite)
    }

    /// Whether it writes at all; `rwmixread` may still make it 0 %.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::RandRead)
    }
}

impl fmt::Display for Rw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One benchmark job, by fio's options.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// What reports call it.
    pub name: String,
    /// Kind of access.
    pub rw: Rw,
    /// Bytes of one request (`bs`): a multiple of the disk's block.
    pub block_bytes: u32,
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
    /// Each job ends after so many requests, if `runtime` does not end it before.
    pub number_ios: Option<u64>,
    /// Offered load instead of a constant number in flight.
    pub rate: Option<Rate>,
    /// Mark and check every block: see [`crate::verify`].
    pub verify: bool,
    /// Names the sequence of random addresses; the same seed asks for the same requests.
    pub seed: u64,
    /// Count failed requests and go on; otherwise the first one ends its job.
    pub continue_on_error: bool,
}

impl Default for Job {
    /// `fabrix bench` without options: random 4 KiB reads, depth 32, one job, ten seconds after two.
    fn default() -> Self {
        Self {
            name: "randread".into(),
            rw: Rw::RandRead,
            block_bytes: 4096,
            iodepth: 32,
            numjobs: 1,
            runtime: Duration::from_secs(10),
            ramp: Duration::from_secs(2),
            rwmixread: 50,
            offset: 0,
            size: None,
            offset_increment: 0,
            number_ios: None,
            rate: None,
            verify: false,
            seed: 1,
            continue_on_error: false,
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

/// Where one of the jobs works: a row of equal units, each the place of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First LBA.
    pub lba: u64,
    /// Places for a request.
    pub units: u64,
    /// Blocks of the disk in one unit.
    pub blocks_per_unit: u32,
}

impl Region {
    /// The first LBA of a unit.
    #[inline]
    pub fn lba_of(&self, unit: u64) -> u64 {
        debug_assert!(unit < self.units, "unit {unit} of {}", self.units);
        self.lba + unit * u64::from(self.blocks_per_unit)
    }
}

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

    /// Memory of the buffers of one job, in bytes: one per request in flight and direction.
    pub fn buffer_bytes(&self) -> u64 {
        let percent = self.percent_read();
        let read = u64::from(percent > 0 || self.verify);
        let write = u64::from(percent < 100);
        (read + write) * u64::from(self.iodepth) * u64::from(self.block_bytes)
    }

    /// Checks everything that does not depend on the disk.
    fn check_numbers(&self) -> Result<(), JobError> {
        if !(1..=IODEPTH_MAX).contains(&self.iodepth) {
            return self.refuse(&format!(
                "iodepth={} is outside 1..{IODEPTH_MAX}",
                self.iodepth
            ));
        }
        if !(1..=NUMJOBS_MAX).contains(&self.numjobs) {
            return self.refuse(&format!(
                "numjobs={} is outside 1..{NUMJOBS_MAX}",
                self.numjobs
            ));
        }
        if self.rwmixread > 100 {
            return self.refuse(&format!("rwmixread={} is not a percentage", self.rwmixread));
        }
        if self.runtime.is_zero() {
            return self.refuse("runtime=0 measures nothing; say how long, for example runtime=10");
        }
        if self.runtime > RUNTIME_MAX || self.ramp > RUNTIME_MAX {
            return self.refuse("runtime and ramp_time are limited to a year each");
        }
        if self.number_ios == Some(0) {
            return self.refuse("number_ios=0 asks for nothing; leave it out to run by time");
        }
        if let Some(rate) = &self.rate {
            rate.check().or_else(|sentence| self.refuse(&sentence))?;
        }
        if self.verify && self.percent_read() == 100 {
            return self.refuse(&format!(
                "verify needs a job that writes, and {} only reads; it can check only what it wrote itself",
                self.rw
            ));
        }
        let memory = self.buffer_bytes().saturating_mul(u64::from(self.numjobs));
        if memory > BUFFER_BYTES_MAX {
            return self.refuse(&format!(
                "numjobs={} x iodepth={} x bs={} needs {memory} bytes of buffers, and the limit is \
                 {BUFFER_BYTES_MAX}; lower one of them",
                self.numjobs, self.iodepth, self.block_bytes
            ));
        }
        Ok(())
    }

    /// Checks the request size against the disk.
    fn check_block(&self, geometry: &Geometry) -> Result<(), JobError> {
        let (bs, block) = (self.block_bytes, geometry.block_bytes);
        if block == 0 || geometry.blocks == 0 {
            return self.refuse("the disk has no blocks");
        }
        if bs == 0 || !bs.is_multiple_of(block) {
            let fix = u64::from(bs.max(1)).div_ceil(u64::from(block)) * u64::from(block);
            return self.refuse(&format!(
                "bs={bs} is not a multiple of the disk's block of {block} bytes; bs={fix} would be"
            ));
        }
        if bs > geometry.max_transfer_bytes {
            return self.refuse(&format!(
                "bs={bs} is more than the disk takes in one request, {} bytes; lower bs",
                geometry.max_transfer_bytes
            ));
        }
        if self.percent_read() < 100 && geometry.read_only {
            return self.refuse(&format!("the disk is read-only, and rw={} writes", self.rw));
        }
        Ok(())
    }

    /// The region of job `index` (from 0) on a disk.
    ///
    /// Errors: a sentence when the job asks for something that this disk, or this program, cannot do.
    pub fn region(&self, index: u32, geometry: &Geometry) -> Result<Region, JobError> {
        self.check_numbers()?;
        self.check_block(geometry)?;
        let (start, bytes) = self.span(index, geometry)?;
        let units = bytes / u64::from(self.block_bytes);
        let region = Region {
            lba: start / u64::from(geometry.block_bytes),
            units,
            blocks_per_unit: self.block_bytes / geometry.block_bytes,
        };
        if self.verify {
            self.slice(index, region)
        } else {
            Ok(region)
        }
    }

    /// First byte and length of the region, checked against the disk.
    fn span(&self, index: u32, geometry: &Geometry) -> Result<(u64, u64), JobError> {
        let block = u64::from(geometry.block_bytes);
        let disk = geometry.blocks.saturating_mul(block);
        let moved = self.offset_increment.checked_mul(u64::from(index));
        let start = moved
            .and_then(|moved| self.offset.checked_add(moved))
            .unwrap_or(u64::MAX);
        if !self.offset.is_multiple_of(block) || !self.offset_increment.is_multiple_of(block) {
            return self.refuse(&format!(
                "offset={} and offset_increment={} must be multiples of the disk's block of {block} bytes",
                self.offset, self.offset_increment
            ));
        }
        if start >= disk {
            return self.refuse(&format!(
                "offset {start} of job {index} is beyond the disk of {disk} bytes"
            ));
        }
        let bytes = self.size.unwrap_or(disk - start);
        if bytes > disk - start {
            return self.refuse(&format!(
                "size={bytes} from offset {start} ends beyond the disk of {disk} bytes; size={} is what is left",
                disk - start
            ));
        }
        if bytes < u64::from(self.block_bytes) {
            return self.refuse(&format!(
                "a region of {bytes} bytes has no room for bs={}",
                self.block_bytes
            ));
        }
        Ok((start, bytes))
    }

    /// The part of the region that is this job's alone, for `verify`.
    fn slice(&self, index: u32, region: Region) -> Result<Region, JobError> {
        // With an increment the user has already moved the regions; they may still overlap, so it is refused.
        if self.offset_increment != 0 {
            return self.refuse("verify divides the region itself; leave offset_increment out");
        }
        let units = region.units / u64::from(self.numjobs);
        if units < 2 * u64::from(self.iodepth) {
            return self.refuse(&format!(
                "verify gives each of {} jobs {units} places of {} bytes, fewer than twice iodepth={}; \
                 enlarge size or lower numjobs or iodepth",
                self.numjobs, self.block_bytes, self.iodepth
            ));
        }
        if region.units > VERIFY_UNITS_MAX {
            return self.refuse(&format!(
                "verify would have to remember {} places, and the limit is {VERIFY_UNITS_MAX}; \
                 lower size or raise bs",
                region.units
            ));
        }
        let blocks = units * u64::from(index) * u64::from(region.blocks_per_unit);
        Ok(Region {
            lba: region.lba + blocks,
            units,
            ..region
        })
    }

    fn refuse<T>(&self, sentence: &str) -> Result<T, JobError> {
        Err(JobError(format!("job \"{}\": {sentence}", self.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Pacing;

    /// 1 GiB in blocks of 4096, 1 MiB per request.
    fn disk() -> Geometry {
        Geometry::new(4096, 1 << 18)
    }

    /// The sentence with which a job is refused on [`disk`].
    #[track_caller]
    fn refused(job: &Job, sentence: &str) {
        let error = job.region(0, &disk()).expect_err("the job is impossible");
        assert_eq!(error.0, format!("job \"randread\": {sentence}"));
    }

    fn region(job: &Job, index: u32) -> Region {
        job.region(index, &disk()).expect("the job is possible")
    }

    #[test]
    fn the_default_job_covers_the_disk() {
        let whole = Region {
            lba: 0,
            units: 1 << 18,
            blocks_per_unit: 1,
        };
        assert_eq!(region(&Job::default(), 0), whole);
    }

    #[test]
    fn refuses_a_size_that_is_no_multiple_of_the_block_and_names_one_that_is() {
        refused(
            &Job {
                block_bytes: 5000,
                ..Job::default()
            },
            "bs=5000 is not a multiple of the disk's block of 4096 bytes; bs=8192 would be",
        );
        refused(
            &Job {
                block_bytes: 0,
                ..Job::default()
            },
            "bs=0 is not a multiple of the disk's block of 4096 bytes; bs=4096 would be",
        );
    }

    #[test]
    fn refuses_more_than_the_disk_takes_at_once() {
        refused(
            &Job {
                block_bytes: 2 << 20,
                ..Job::default()
            },
            "bs=2097152 is more than the disk takes in one request, 1048576 bytes; lower bs",
        );
    }

    #[test]
    fn refuses_a_region_beyond_the_disk_and_says_what_is_left() {
        refused(
            &Job {
                size: Some(1 << 30),
                offset: 4096,
                ..Job::default()
            },
            "size=1073741824 from offset 4096 ends beyond the disk of 1073741824 bytes; \
             size=1073737728 is what is left",
        );
        refused(
            &Job {
                offset: 1 << 30,
                ..Job::default()
            },
            "offset 1073741824 of job 0 is beyond the disk of 1073741824 bytes",
        );
        refused(
            &Job {
                offset: 100,
                ..Job::default()
            },
            "offset=100 and offset_increment=0 must be multiples of the disk's block of 4096 bytes",
        );
        refused(
            &Job {
                size: Some(1024),
                ..Job::default()
            },
            "a region of 1024 bytes has no room for bs=4096",
        );
    }

    #[test]
    fn refuses_an_increment_that_leaves_the_disk_even_by_overflow() {
        let job = Job {
            offset_increment: u64::MAX - 4095,
            numjobs: 3,
            ..Job::default()
        };
        assert!(job.region(2, &disk()).is_err());
    }

    #[test]
    fn refuses_numbers_out_of_bounds() {
        refused(
            &Job {
                iodepth: 0,
                ..Job::default()
            },
            "iodepth=0 is outside 1..4096",
        );
        refused(
            &Job {
                iodepth: 4097,
                ..Job::default()
            },
            "iodepth=4097 is outside 1..4096",
        );
        refused(
            &Job {
                numjobs: 0,
                ..Job::default()
            },
            "numjobs=0 is outside 1..512",
        );
        refused(
            &Job {
                rwmixread: 101,
                ..Job::default()
            },
            "rwmixread=101 is not a percentage",
        );
        refused(
            &Job {
                runtime: Duration::ZERO,
                ..Job::default()
            },
            "runtime=0 measures nothing; say how long, for example runtime=10",
        );
        refused(
            &Job {
                runtime: Duration::MAX,
                ..Job::default()
            },
            "runtime and ramp_time are limited to a year each",
        );
        refused(
            &Job {
                rate: Some(Rate {
                    iops: 0,
                    pacing: Pacing::Fixed,
                }),
                ..Job::default()
            },
            "rate_iops=0 is outside 1..50000000",
        );
    }

    #[test]
    fn refuses_more_buffers_than_memory_is_allowed() {
        refused(
            &Job {
                iodepth: 4096,
                block_bytes: 1 << 20,
                numjobs: 2,
                ..Job::default()
            },
            "numjobs=2 x iodepth=4096 x bs=1048576 needs 8589934592 bytes of buffers, and the limit is \
             4294967296; lower one of them",
        );
    }

    #[test]
    fn refuses_to_write_a_read_only_disk_but_reads_it() {
        let disk = Geometry {
            read_only: true,
            ..disk()
        };
        let write = Job {
            rw: Rw::RandMixed,
            ..Job::default()
        };
        let error = write.region(0, &disk).expect_err("it writes");
        assert!(
            error
                .0
                .ends_with("the disk is read-only, and rw=randrw writes"),
            "{error}"
        );
        assert!(Job::default().region(0, &disk).is_ok());
        assert!(
            Job {
                rw: Rw::RandMixed,
                rwmixread: 100,
                ..Job::default()
            }
            .region(0, &disk)
            .is_ok()
        );
    }

    #[test]
    fn refuses_to_verify_what_nobody_writes() {
        refused(
            &Job {
                verify: true,
                ..Job::default()
            },
            "verify needs a job that writes, and randread only reads; it can check only what it wrote itself",
        );
    }

    #[test]
    fn verifying_jobs_share_no_block() {
        let job = Job {
            rw: Rw::RandWrite,
            verify: true,
            numjobs: 3,
            ..Job::default()
        };
        let regions: Vec<Region> = (0..3).map(|index| region(&job, index)).collect();
        for pair in regions.windows(2) {
            assert!(pair[0].lba_of(pair[0].units - 1) < pair[1].lba);
        }
        let crowded = Job {
            size: Some(64 * 4096),
            ..job
        };
        assert!(
            crowded.region(0, &disk()).is_err(),
            "21 places for a depth of 32"
        );
    }

    #[test]
    fn increments_move_each_job() {
        let job = Job {
            offset: 8192,
            offset_increment: 1 << 20,
            size: Some(1 << 20),
            ..Job::default()
        };
        assert_eq!(region(&job, 2).lba, 2 + 2 * 256);
    }

    #[test]
    fn a_region_that_is_no_multiple_of_the_request_is_rounded_down() {
        let job = Job {
            size: Some(65536 + 4096),
            block_bytes: 65536,
            ..Job::default()
        };
        assert_eq!(
            region(&job, 0),
            Region {
                lba: 0,
                units: 1,
                blocks_per_unit: 16
            }
        );
    }

    #[test]
    fn every_name_of_fio_is_understood() {
        for name in ["read", "write", "randread", "randwrite", "rw", "randrw"] {
            assert_eq!(Rw::parse(name).map(Rw::name), Ok(name));
        }
        assert_eq!(Rw::parse("readwrite"), Ok(Rw::Mixed));
        let error = Rw::parse("trim").expect_err("not a kind of ours");
        assert!(error.0.contains("rw=trim is not known"), "{error}");
    }
}
