//! The ending of a request: its buffer comes back, what was read is checked, the figures count it,
//! its slot is free.
//!
//! A failed request ends the job, unless the job goes on whatever fails; either way it is counted
//! and the first one is described.

use fabrix_block::Status;
use fabrix_rt::{Loan, Shard};

use super::Worker;
use super::life::Phase;
use crate::words::Counted;

impl Worker {
    /// A request has ended: checks it, counts it, and frees its slot.
    #[inline]
    pub(super) fn finish(&mut self, shard: &mut Shard, slot: u32, status: Status, loan: Loan) {
        self.in_flight -= 1;
        self.life.alive_ns = self.clock.now_ns();
        self.put_back(slot, loan);
        self.verify(slot, status);
        match (status.is_ok(), self.life.phase) {
            (true, Phase::Probe) => {}
            (true, _) => {
                self.count(slot);
                if self.copy_on(slot) {
                    return;
                }
            }
            (false, _) => self.failed(shard, slot, status),
        }
        self.reclaim(slot);
        self.idle.push_back(slot);
    }

    #[inline]
    fn count(&mut self, slot: u32) {
        if !self.life.counts {
            return;
        }
        let slot = &self.slots[slot as usize];
        let write = slot.access.write;
        let bytes = self.bytes(slot.access) as u64;
        let side = &mut self.tally.sides[usize::from(write)];
        side.ios += 1;
        side.bytes += bytes;
        side.service
            .record(self.clock.now_ns().saturating_sub(slot.start_ns));
        if let Some(latency) = &mut side.latency {
            latency.record(self.clock.now_ns().saturating_sub(slot.meant_ns));
        }
        self.show(write);
    }

    /// What was written is acknowledged, what was read is compared.
    #[inline]
    fn verify(&mut self, slot: u32, status: Status) {
        let (Some(verifier), Some(verified)) = (&mut self.verifier, &mut self.tally.verify) else {
            return;
        };
        let slot = &self.slots[slot as usize];
        let unit = slot.access.unit;
        verifier.release(unit);
        if !status.is_ok() {
            return;
        }
        match (slot.access.write, &slot.read) {
            (true, _) => verifier.acknowledge(unit),
            (false, Some(buf)) => {
                verifier.check(unit, &buf.bytes()[..self.unit_bytes as usize], verified);
            }
            (false, None) => verifier.kept(unit, verified),
        }
    }

    #[cold]
    fn failed(&mut self, shard: &mut Shard, slot: u32, status: Status) {
        let access = self.slots[slot as usize].access;
        let region = self.region_of(access.write);
        let lba = region.lba_of(access.unit);
        let blocks = Counted((access.units * region.blocks_per_unit).into(), "block");
        let index = self.setup.index;
        let kind = if access.write { "write" } else { "read" };
        self.tally.errors.count(status, || {
            format!("job {index}: the {kind} of {blocks} at LBA {lba} was answered {status:?}")
        });
        self.show_errors();
        let probing = self.life.phase == Phase::Probe;
        if !self.setup.job.continue_on_error || probing {
            self.give_up(
                shard,
                format!("ended by its first failed request ({status:?})"),
            );
        }
    }
}
