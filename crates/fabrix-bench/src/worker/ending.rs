//! Handles the completion of a request: takes its buffer back, verifies the data, counts the
//! request and frees its slot.
//!
//! A failed request ends the job unless `continue_on_error` is set. Failures are always counted,
//! and the first one is described. While the disk cannot be reached, the slots of failed requests
//! rest before they are used again, so that a job without a target does not occupy a processor.

use fabrix_block::Status;
use fabrix_rt::{Loan, Shard};

use super::Worker;
use super::lifecycle::JobPhase;
use crate::access::Direction;
use crate::words::Counted;

impl Worker {
    /// Completes a request: verifies and counts it, and frees its slot.
    #[inline]
    pub(super) fn finish(&mut self, shard: &mut Shard, slot: u32, status: Status, loan: Loan) {
        self.in_flight -= 1;
        self.lifecycle.last_ending_ns = self.clock.now_ns();
        if self.flushing.slot == Some(slot) {
            return self.flushed(shard, slot, status);
        }
        self.put_back(slot, loan);
        let (slot, status) = match self.pieces.most {
            1 => (slot, status),
            _ => match self.end_piece(slot, status) {
                Some(ended) => ended,
                None => return,
            },
        };
        self.verify(shard, slot, status);
        match (status.is_ok(), self.lifecycle.phase) {
            (true, JobPhase::Probe) => {}
            (true, _) => {
                self.count(slot);
                if !self.is_plain
                    && (self.queue_copy_write(slot) || self.watch_latency(shard, slot))
                {
                    return;
                }
            }
            (false, _) => {
                self.record_failure(shard, slot, status);
                if matches!(status, Status::NotReady | Status::Aborted | Status::Refused) {
                    return self.rest(shard, slot);
                }
            }
        }
        self.reclaim(slot);
        self.idle.push_back(slot);
    }

    /// Frees a slot after a while, because the disk cannot be reached.
    #[cold]
    fn rest(&mut self, shard: &mut Shard, slot: u32) {
        self.reclaim(slot);
        self.resting.push_back(slot);
        self.wake_resting(shard);
    }

    #[inline]
    fn count(&mut self, slot: u32) {
        let slot = &self.slots[slot as usize];
        let direction = slot.access.direction;
        let bytes = self.bytes(slot.access) as u64;
        let side = match &mut self.tally.read_back {
            _ if self.lifecycle.counts => &mut self.tally.sides[direction.index()],
            Some(side) if matches!(self.lifecycle.phase, JobPhase::ReadBack { .. }) => side,
            _ => return,
        };
        side.ios += 1;
        side.bytes += bytes;
        side.service
            .record(self.clock.now_ns().saturating_sub(slot.start_ns));
        if let Some(latency) = &mut side.latency {
            latency.record(self.clock.now_ns().saturating_sub(slot.scheduled_ns));
        }
        self.publish(direction);
    }

    /// Verification: acknowledges a write, or compares the data of a read.
    #[inline]
    fn verify(&mut self, shard: &mut Shard, slot: u32, status: Status) {
        let (Some(verifier), Some(verified)) = (&mut self.verifier, &mut self.tally.verify) else {
            return;
        };
        let index = slot as usize;
        let slot = &self.slots[index];
        let unit = slot.access.unit;
        verifier.release(unit);
        if !status.is_ok() || self.lifecycle.phase == JobPhase::Probe {
            return;
        }
        let bytes = self.unit_bytes as usize;
        let data = match (self.pieces.most, &slot.read) {
            _ if slot.access.direction != Direction::Read => None,
            (1, buf) => buf.as_ref().map(|buf| &buf.bytes()[..bytes]),
            _ => self.pieces.gather(&self.slots[index..], bytes),
        };
        match (slot.access.direction, data) {
            (Direction::Trim, _) => verifier.forget(unit),
            (Direction::Write, _) => {
                verifier.acknowledge(unit);
                if let Some(backlog) = &mut self.backlog {
                    backlog.written(unit);
                }
            }
            (Direction::Read, Some(data)) => verifier.check(unit, data, verified),
            (Direction::Read, None) => verifier.buffer_missing(unit, verified),
        }
        if verified.errors > 0 && verifier.is_fatal() {
            self.end_early(
                shard,
                "ended by its first wrong block (verify_fatal)".into(),
            );
        }
    }

    #[cold]
    fn record_failure(&mut self, shard: &mut Shard, slot: u32, status: Status) {
        let access = self.slots[slot as usize].access;
        let region = self.region_of(access.direction);
        let lba = region.lba_of(access.unit);
        let blocks = Counted((access.units * region.blocks_per_unit).into(), "block");
        let index = self.setup.index;
        let kind = access.direction.word();
        let writes = access.direction != Direction::Read;
        self.fail(shard, status, writes, || {
            format!("job {index}: the {kind} of {blocks} at LBA {lba} was answered {status:?}")
        });
    }

    /// Counts a failure, and ends the job unless it continues on errors. `writes` is false for a
    /// read. `sentence` describes the failure.
    #[cold]
    pub(super) fn fail(
        &mut self,
        shard: &mut Shard,
        status: Status,
        writes: bool,
        sentence: impl FnOnce() -> String,
    ) {
        self.tally.errors.count(status, 1, sentence);
        self.publish_errors();
        let probing = self.lifecycle.phase == JobPhase::Probe;
        if !self.setup.job.continue_on_error[usize::from(writes)] || probing {
            self.end_early(
                shard,
                format!("ended by its first failed request ({status:?})"),
            );
        }
    }
}
