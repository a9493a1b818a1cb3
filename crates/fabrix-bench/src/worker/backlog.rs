//! fio's `verify_backlog`: written units are read back before the job ends.
//!
//! After a number of writes the job reads back the units that were written longest ago, at most
//! `verify_backlog_batch` of them. The units that are left are read back at the end of the job.

use std::collections::VecDeque;

use super::Worker;
use crate::access::{Access, Direction};
use crate::job::Region;
use crate::verify::Verify;

/// Written units that wait for their verification.
pub(super) struct Backlog {
    /// Units, the first written one in front. Writes that end while units are read back make it
    /// longer than `limit`, by the depth of the job at most.
    units: VecDeque<u64>,
    limit: usize,
    /// Units to read back when the limit is reached.
    batch: u32,
    /// Units to read back now.
    due: u32,
}

impl Backlog {
    /// The empty backlog of a job with `depth` requests in flight. None if the job has none.
    pub(super) fn new(options: &Verify, region: &Region, depth: u32) -> Option<Self> {
        let limit = options.backlog as usize;
        let most = u64::from(options.backlog).min(region.units) + u64::from(depth);
        (limit > 0).then(|| Self {
            units: VecDeque::with_capacity(usize::try_from(most).unwrap_or(limit)),
            limit,
            batch: match options.backlog_batch {
                0 => options.backlog,
                batch => batch,
            },
            due: 0,
        })
    }

    /// Adds a written unit.
    pub(super) fn written(&mut self, unit: u64) {
        self.units.push_back(unit);
        if self.units.len() >= self.limit {
            self.due = self.batch;
        }
    }

    /// The next unit after the load has ended.
    pub(super) fn next_left(&mut self) -> Option<u64> {
        self.units.pop_front()
    }
}

impl Worker {
    /// The next unit that is to be read back while the load runs.
    #[inline]
    pub(super) fn next_of_backlog(&mut self) -> Option<Access> {
        let backlog = self.backlog.as_mut().filter(|backlog| backlog.due > 0)?;
        let verifier = self.verifier.as_mut()?;
        backlog.due -= 1;
        let unit = backlog.units.pop_front()?;
        // A unit that is being written again returns to the backlog after that write.
        verifier.claim(unit).then_some(Access {
            unit,
            units: 1,
            direction: Direction::Read,
        })
    }
}
