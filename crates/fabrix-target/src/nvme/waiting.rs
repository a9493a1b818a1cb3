//! Commands of an I/O queue that wait for a disk: for room at it, for the turn of others, or for
//! its answer longer than anybody waits with them.
//!
//! A part of `io`.

use std::sync::Arc;

use fabrix_proto::{Claim, Settled, Slot};
use fabrix_transport::Incoming;

use super::context::Queue;
use super::io::{IoQueue, Ranges, ResolvedCommand, Work};
use crate::context::CommandContext;
use crate::disk::{Barrier, DiskState};
use crate::local::Local;
use crate::requests::Requests;

impl IoQueue {
    /// True while requests wait for a disk that had no room: somebody must call `retry`.
    pub(crate) fn is_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// True while commands wait for the turn of others only: somebody must call `go_on`.
    pub(crate) fn is_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// A slot waits until its disk has room again.
    pub(crate) fn stall(&mut self, claim: Claim, work: Work) -> Settled {
        self.stalled.push_back(claim.slot());
        self.keep(claim, work)
    }

    /// A slot waits until others have had their turn.
    pub(crate) fn pause(
        &mut self,
        claim: Claim,
        wanted: ResolvedCommand,
        ranges: Option<Ranges>,
    ) -> Settled {
        self.paused.push_back(claim.slot());
        self.keep(claim, Work::Paused(wanted, ranges))
    }

    /// Tries once more what disks had no room for. One that still has none is not asked for the
    /// next command too, and other disks are: a disk that does not answer holds its own commands
    /// only. All keep their order.
    pub(crate) fn retry(&mut self, context: &mut CommandContext<'_, impl Queue>) {
        let mut full = None;
        for _ in 0..self.stalled.len() {
            let Some(slot) = self.stalled.pop_front() else {
                return;
            };
            let waiting = self.stalled.len();
            let nsid = self.wanted[usize::from(slot.0)].map(|wanted| wanted.nsid);
            let work = self.peek(slot);
            let is_stalled = matches!(work, Some(Work::Stalled(..) | Work::Half { .. }));
            if is_stalled && nsid == full {
                self.stalled.push_back(slot);
                continue;
            }
            match self.take(slot) {
                Some((claim, Work::Stalled(wanted, data))) => {
                    let data = data.map(|buf| Incoming::Buf(buf, 0));
                    self.execute(context, claim, wanted, data);
                }
                Some((claim, other)) => {
                    self.keep(claim, other);
                    self.try_pair(context, slot);
                }
                None => {}
            }
            if self.stalled.len() > waiting {
                full = nsid;
            }
        }
    }

    /// Goes on with the one that pauses whose turn it is. If it pauses again, it goes behind the
    /// others.
    pub(crate) fn go_on(&mut self, context: &mut CommandContext<'_, impl Queue>) {
        while let Some(slot) = self.paused.pop_front() {
            match self.take(slot) {
                Some((claim, Work::Paused(wanted, ranges))) => {
                    match ranges {
                        None => self.execute(context, claim, wanted, None),
                        Some(ranges) => self.next_range(context, claim, wanted, ranges),
                    };
                    return;
                }
                // The one that paused was aborted meanwhile.
                Some((claim, other)) => {
                    self.keep(claim, other);
                }
                None => {}
            }
        }
    }

    /// The connection is over: what the disks had no room for is not tried again, and what pauses
    /// does not go on. What is at a disk comes before all that others ask of it from now on.
    pub(crate) fn give_up(&mut self) {
        self.stalled.clear();
        self.paused.clear();
        let disks = self.slots().filter_map(|slot| self.disk_of(slot));
        self.barriers = disks.map(Barrier::before).collect();
    }

    /// The disk at which a slot has a request, if it is still there.
    fn disk_of(&self, slot: Slot) -> Option<&Arc<DiskState>> {
        let wanted = self.wanted[usize::from(slot.0)].filter(|_| self.is_at_disk(slot))?;
        let mut states = self
            .disk_views
            .iter()
            .map(|(_, disk_view)| &disk_view.state);
        states.find(|state| state.id() == wanted.disk)
    }

    /// The command of a slot ends before its disk has ended its request, if it has one. Gives the
    /// command, and what it waited for.
    pub(super) fn abandon_request(
        &mut self,
        local: &Local,
        requests: &mut Requests,
        slot: Slot,
    ) -> Option<(Claim, Work)> {
        if !self.is_at_disk(slot) {
            return None;
        }
        local.abandon(requests, slot, self.disk_of(slot));
        self.at_disk -= 1;
        self.take(slot)
    }

    /// The connection is over, and disks have not ended its requests in time.
    pub(crate) fn abandon_all(&mut self, local: &Local, requests: &mut Requests) {
        for slot in self.slots() {
            self.abandon_request(local, requests, slot);
        }
    }
}
