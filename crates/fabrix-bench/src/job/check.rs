//! Checks of a job that do not depend on the disk.

use super::{
    BUFFER_BYTES_MAX, IODEPTH_MAX, Job, JobError, NUMJOBS_MAX, PERCENTILES_MAX, RUNTIME_MAX,
};

impl Job {
    /// Checks all options that do not depend on the disk.
    pub(super) fn check_numbers(&self) -> Result<(), JobError> {
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
        if self.loops == Some(0) {
            return self.refuse("loops=0 asks for nothing; leave it out to run by time");
        }
        self.check_lists()?;
        let rates = self.side_rates.into_iter().chain([self.rate]);
        for rate in rates.flatten() {
            rate.check().or_else(|sentence| self.refuse(&sentence))?;
            if self.rw.trims() && !self.rw.trims_only() {
                return self.refuse(&format!(
                    "a rate would have to count the trims and the writes of rw={} apart; leave it out",
                    self.rw
                ));
            }
        }
        if let Some(bursts) = &self.bursts {
            bursts.check().or_else(|sentence| self.refuse(&sentence))?;
            if self.is_open_loop() {
                return self.refuse("bursts have their own times; leave the rate out");
            }
        }
        if self.flow.is_some() && (self.is_open_loop() || self.bursts.is_some()) {
            return self.refuse("flow has its own times; leave the rate and thinktime out");
        }
        if let Some(target) = &self.latency_target {
            target.check().or_else(|sentence| self.refuse(&sentence))?;
        }
        let memory = self.buffer_bytes().saturating_mul(u64::from(self.numjobs));
        if memory > BUFFER_BYTES_MAX {
            return self.refuse(&format!(
                "numjobs={} x iodepth={} x bs={} needs {memory} bytes of buffers, and the limit is \
                 {BUFFER_BYTES_MAX}; lower one of them",
                self.numjobs,
                self.iodepth,
                self.size_text()
            ));
        }
        Ok(())
    }

    /// Checks the lists, the distribution, and what follows a request.
    fn check_lists(&self) -> Result<(), JobError> {
        if let Err(sentence) = self.distribution.check() {
            return self.refuse(&sentence);
        }
        if let Some(percent) = self.percent_random.iter().find(|percent| **percent > 100) {
            return self.refuse(&format!("percentage_random={percent} is not a percentage"));
        }
        if let Err(sentence) = self.contents.check() {
            return self.refuse(&sentence);
        }
        if let Some(verify) = &self.verify {
            if !self.has_one_size() {
                return self.refuse("verify needs requests of one size; leave bssplit out");
            }
            let checked = verify.check(self.unit_bytes());
            checked.or_else(|sentence| self.refuse(&sentence))?;
        }
        let right = |percent: &f64| *percent > 0.0 && *percent <= 100.0;
        if self.percentiles.len() > PERCENTILES_MAX || !self.percentiles.iter().all(right) {
            return self.refuse(&format!(
                "a list of percentiles has up to {PERCENTILES_MAX} numbers above 0 and up to 100"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::arrivals::{Pacing, Rate};
    use crate::job::testing::refused;
    use crate::verify::Verify;

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
                    iops: 0.0,
                    pacing: Pacing::Fixed,
                }),
                ..Job::default()
            },
            "rate_iops=0 is not above 0 and up to 50000000",
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
    fn refuses_impossible_options_of_the_verification() {
        refused(
            &Job {
                verify: Some(Verify {
                    interval: 3000,
                    ..Verify::default()
                }),
                ..Job::default()
            },
            "verify_interval=3000 does not divide bs=4096",
        );
    }
}
