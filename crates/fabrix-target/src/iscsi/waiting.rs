//! Commands of a session that wait for a disk: for room at it, for the turn of others, or for its
//! answer longer than anybody waits with them.
//!
//! A part of `session`.

use std::sync::Arc;

use fabrix_proto::Slot;
use fabrix_proto::scsi::unit::Answer;

use super::context::SessionCarrier;
use super::job::Job;
use super::session::{Session, Work};
use super::units::UnitName;
use crate::context::CommandContext;
use crate::disk::{Barrier, DiskState};
use crate::local::Local;
use crate::requests::Requests;

impl Session {
    /// True while requests wait for a disk that had no room: somebody must call `retry`.
    pub(super) fn is_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// True while commands wait for the turn of others only: somebody must call `go_on`.
    pub(super) fn is_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// A slot waits until its disk has room again.
    pub(super) fn stall(&mut self, slot: Slot, job: Job) {
        self.set(slot, Work::Stalled(job));
        self.stalled.push_back(slot);
    }

    /// A slot waits until others have had their turn.
    pub(super) fn pause(&mut self, slot: Slot, job: Job) {
        self.set(slot, Work::Paused(job));
        self.paused.push_back(slot);
    }

    /// Tries once more what disks had no room for. One that still has none is not asked for the
    /// next command too, and other disks are: a disk that does not answer holds its own commands
    /// only. All keep their order.
    pub(super) fn retry(&mut self, context: &mut CommandContext<'_, impl SessionCarrier>) {
        let mut full = None;
        for _ in 0..self.stalled.len() {
            let Some(slot) = self.stalled.pop_front() else {
                return;
            };
            let disk = self.stalled_at(slot);
            if disk.is_some() && disk == full {
                self.stalled.push_back(slot);
                continue;
            }
            match self.take(slot) {
                Work::Stalled(job) => self.run(context, slot, job, None),
                other => self.set(slot, other),
            }
            full = self.stalled_at(slot).or(full);
        }
    }

    /// The disk that had no room for the command of a slot.
    fn stalled_at(&self, slot: Slot) -> Option<UnitName> {
        match &self.work[usize::from(slot.0)] {
            Work::Stalled(job) => Some(job.disk()),
            _ => None,
        }
    }

    /// Goes on with the one that pauses whose turn it is. If it pauses again, it goes behind the
    /// others.
    pub(super) fn go_on(&mut self, context: &mut CommandContext<'_, impl SessionCarrier>) {
        while let Some(slot) = self.paused.pop_front() {
            match self.take(slot) {
                Work::Paused(job) => return self.run(context, slot, job, None),
                // It was aborted meanwhile.
                other => self.set(slot, other),
            }
        }
    }

    /// The connection is over: what the disks had no room for is not tried again, and what pauses
    /// does not go on. What is at a disk comes before all that others ask of it from now on.
    pub(super) fn give_up(&mut self) {
        self.stalled.clear();
        self.paused.clear();
        let disks = self.work.iter().filter_map(Work::at_disk);
        let states = disks.filter_map(|disk| self.state(disk));
        self.barriers = states.map(Barrier::before).collect();
    }

    /// What connections share about a disk, if it is still there.
    fn state(&self, disk: UnitName) -> Option<&Arc<DiskState>> {
        let at = self.units.find(disk)?;
        Some(&self.units.list[at].state)
    }

    /// The command of a slot ends before its disk has ended its request. Gives the answer that was
    /// waiting, if any.
    pub(super) fn abandon_request(
        &mut self,
        local: &Local,
        requests: &mut Requests,
        slot: Slot,
    ) -> Option<(usize, Answer)> {
        let disk = self.work[usize::from(slot.0)].at_disk()?;
        local.abandon(requests, slot, self.state(disk));
        self.at_disk -= 1;
        match self.take(slot) {
            Work::Aborted(_, answer) => answer,
            _ => None,
        }
    }

    /// The connection is over, and disks have not ended its requests in time.
    pub(super) fn abandon_all(&mut self, local: &Local, requests: &mut Requests) {
        for slot in self.slots() {
            self.abandon_request(local, requests, slot);
        }
    }
}
