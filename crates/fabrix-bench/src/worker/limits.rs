//! Amounts after which a job ends: requests, bytes, and passes of a job that verifies.

use super::Setup;

/// Amounts after which the load of a job ends.
pub(super) struct Limits {
    /// Requests of the job.
    pub(super) ios: u64,
    /// Bytes of the job.
    bytes: u64,
    /// Bytes after which the load ends: those of the job, or the end of a pass.
    pub(super) end_bytes: u64,
    /// Bytes of a pass, after which the job reads back. [`u64::MAX`]: the job has one pass.
    pass_bytes: u64,
    /// Passes that follow in any case.
    passes_left: u32,
    /// Bytes written and read back until which another pass follows.
    moved_bytes: u64,
    /// Length of the longest request in bytes.
    longest: u64,
}

impl Limits {
    pub(super) fn new(setup: &Setup) -> Self {
        let job = &setup.job;
        let unit_bytes = setup.region.blocks_per_unit * setup.block_bytes;
        let region_bytes = setup.region.units * u64::from(unit_bytes);
        let moved_bytes = job.io_bytes.unwrap_or(region_bytes);
        let bytes = match job.loops {
            Some(loops) => moved_bytes.saturating_mul(loops.into()),
            None => u64::MAX,
        };
        let reads_back = job.verify.as_ref().is_some_and(|verify| verify.read_back);
        // As in fio, a random job without its map writes all of `io_size` before it reads back.
        let pass_bytes = match reads_back && job.percent_read() < 100 {
            true if job.rw.is_random() && !job.random_map => region_bytes.max(moved_bytes),
            true => region_bytes,
            false => u64::MAX,
        };
        let longest = job
            .used_sides()
            .map(|write| job.sizes(write).longest_bytes())
            .max();
        Self {
            ios: job.number_ios.unwrap_or(u64::MAX),
            bytes,
            end_bytes: match job.loops {
                Some(_) => bytes.min(pass_bytes),
                None => bytes,
            },
            pass_bytes,
            passes_left: job.loops.unwrap_or(1) - 1,
            moved_bytes,
            longest: longest.unwrap_or(job.block_bytes).into(),
        }
    }

    /// Begins the next pass when the blocks of one are read back. False: the job is over. As in
    /// fio, the bytes read back (in `moved`) count too when the loops are over, and a rest shorter
    /// than a request is left out.
    pub(super) fn next_pass(&mut self, started: u64, started_bytes: u64, moved: u64) -> bool {
        let is_over = started >= self.ios || started_bytes >= self.bytes;
        let rest = self.moved_bytes.saturating_sub(moved);
        if is_over || (self.passes_left == 0 && rest < self.longest) {
            return false;
        }
        self.passes_left = self.passes_left.saturating_sub(1);
        let end = started_bytes.saturating_add(self.pass_bytes);
        self.end_bytes = end.min(self.bytes);
        true
    }
}
