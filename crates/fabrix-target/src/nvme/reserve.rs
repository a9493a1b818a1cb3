//! Reservations at an I/O queue: commands that change or report them, commands that they forbid,
//! and commands that end because another host has preempted the registration.
//!
//! Source: NVM Express Base Specification 2.x, "Reservations".

use std::sync::Arc;

use fabrix_proto::nvme::reservation::{
    ReservationCommand, ReservationRequest, refused, write_report,
};
use fabrix_proto::nvme::spec::Status;
use fabrix_proto::{Claim, Settled, Slot};
use fabrix_transport::Incoming;

use super::context::Queue;
use super::io::{IoQueue, ResolvedCommand, Stopping, Work, disk_views};
use crate::command_table::Waiting;
use crate::context::CommandContext;
use crate::disk::{DiskId, DiskState, DiskView, PendingChange, RequestedChange, Stop, Trouble};

impl IoQueue {
    /// Replaces the disks. The views of disks that stay remain.
    pub(super) fn take_disk_views(&mut self, states: Vec<(u32, Arc<DiskState>)>) {
        let mut old = std::mem::replace(&mut self.disk_views, disk_views(states));
        for (nsid, disk_view) in &mut self.disk_views {
            let same = |(other, earlier): &&mut (u32, DiskView)| {
                nsid == other && Arc::ptr_eq(&earlier.state, &disk_view.state)
            };
            if let Some((_, earlier)) = old.iter_mut().find(same) {
                std::mem::swap(earlier, disk_view);
            }
        }
        for (_, gone) in &mut old {
            gone.leave(&self.me);
        }
    }

    /// Removes the queue from the state of its disks, at the end of the connection.
    pub(super) fn leave(&mut self) {
        for (_, disk_view) in &mut self.disk_views {
            disk_view.leave(&self.me);
        }
    }

    /// Index of a namespace in the list of views.
    #[inline(always)]
    fn position(&self, nsid: u32) -> Option<usize> {
        // Ids are dense from 1 until a namespace is removed. They are always sorted.
        let guess = nsid as usize - 1;
        match self.disk_views.get(guess) {
            Some((of, _)) if *of == nsid => Some(guess),
            _ => self
                .disk_views
                .binary_search_by_key(&nsid, |(of, _)| *of)
                .ok(),
        }
    }

    /// The disk of a namespace that the queue sees.
    #[inline(always)]
    pub(super) fn disk(&self, nsid: u32) -> DiskId {
        let at = self.position(nsid);
        at.map_or(DiskId::NONE, |at| self.disk_views[at].1.state.id())
    }

    /// Whether a reservation forbids this command.
    #[inline(always)]
    pub(super) fn conflicts(&mut self, command: &ResolvedCommand) -> bool {
        let access = command.command.access();
        let at = self.position(command.nsid);
        at.is_some_and(|at| self.disk_views[at].1.conflicts(&self.me, access))
    }

    /// Changes or reports reservations.
    pub(super) fn reserve(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        command: &ResolvedCommand,
        reservation: ReservationCommand,
        data: Option<&Incoming>,
    ) -> Settled {
        let disk_view = self
            .disk_views
            .iter()
            .find(|(nsid, _)| *nsid == command.nsid);
        let Some((_, disk_view)) = disk_view else {
            return context.answer(claim, Status::INVALID_NAMESPACE);
        };
        if let ReservationCommand::Report(bytes) = reservation {
            return report(context, claim, &disk_view.state, bytes);
        }
        let request = ReservationRequest::new(reservation, context.bytes(data));
        let pending_change =
            PendingChange::reserve(&disk_view.state, &self.me, RequestedChange::Host(request));
        let slot = claim.slot();
        let kept = self
            .commands
            .keep(claim, Work::Reserving(Box::new(pending_change)));
        self.reserving += 1;
        self.go_on_reserving(context, slot);
        kept
    }

    /// Whether commands wait for changes: the connection has to call
    /// [`run_pending_changes`](Self::run_pending_changes).
    pub(super) fn has_pending_changes(&self) -> bool {
        self.reserving > 0 || !self.stopping.is_empty()
    }

    /// Polls the changes that take more than one turn.
    pub(super) fn run_pending_changes(&mut self, context: &mut CommandContext<'_, impl Queue>) {
        for slot in self.commands.slots() {
            self.go_on_reserving(context, slot);
        }
        self.end_overdue(context);
        self.tell_drained();
    }

    /// Answers a change that is in force, once the commands that it ends have ended.
    fn go_on_reserving(&mut self, context: &mut CommandContext<'_, impl Queue>, slot: Slot) {
        let Some(Work::Reserving(pending_change)) = self.commands.get_mut(slot) else {
            return;
        };
        let Some(outcome) = pending_change.poll() else {
            return;
        };
        let Some((claim, _)) = self.commands.take(slot) else {
            return;
        };
        self.reserving -= 1;
        let status = match outcome {
            Ok(()) => Status::SUCCESS,
            Err(Trouble::Refused(refusal)) => refused(refusal),
            Err(Trouble::NotStored) => Status::INTERNAL_ERROR,
        };
        context.answer(claim, status);
    }

    /// Another host has preempted the registration: aborts the commands at the disk.
    pub(super) fn stop(&mut self, context: &mut CommandContext<'_, impl Queue>, stop: Stop) {
        let same = |(_, disk_view): &&(u32, DiskView)| Arc::ptr_eq(&disk_view.state, &stop.disk);
        let Some(nsid) = self.disk_views.iter().find(same).map(|(nsid, _)| *nsid) else {
            return;
        };
        let slots = self
            .commands
            .slots()
            .filter(|slot| self.is_about(*slot, nsid));
        let slots: Vec<_> = slots.collect();
        let waits_for: Vec<_> = slots
            .into_iter()
            .filter(|slot| self.abort(context, *slot))
            .collect();
        if !waits_for.is_empty() {
            self.stopping.push(Stopping {
                waits_for,
                _stop: stop,
                until: context.shard.now() + context.local.shared.deadlines.quiet,
            });
        }
    }

    /// Aborts a command. True: its disk has to end the request first.
    fn abort(&mut self, context: &mut CommandContext<'_, impl Queue>, slot: Slot) -> bool {
        let Some((claim, work)) = self.commands.take(slot) else {
            return false;
        };
        let first = match work {
            Work::Fetching(_) | Work::Stalled(..) | Work::Paused(..) | Work::Half { .. } => {
                if self.expecting == Some(slot) {
                    self.expecting = None;
                }
                context.answer(claim, Status::ABORTED_PREEMPT);
                return false;
            }
            Work::Reserving(_) => {
                self.reserving -= 1;
                context.answer(claim, Status::ABORTED_PREEMPT);
                return false;
            }
            Work::First => {
                self.commands.keep(claim, Work::First);
                return true;
            }
            Work::Pair { first } | Work::Aborted { first: Some(first) } => Some(first),
            _ => None,
        };
        self.commands.keep(claim, Work::Aborted { first });
        true
    }

    /// Abandons commands that their disk has not ended in time. The disk gets no new request before
    /// it has ended the abandoned ones. So no effect of them is visible after the answer to the
    /// preempting host.
    fn end_overdue<Q: Queue>(&mut self, context: &mut CommandContext<'_, Q>) {
        let now = context.shard.now();
        let overdue = self.stopping.iter().filter(|it| it.until <= now);
        let slots: Vec<_> = overdue.flat_map(|it| it.waits_for.clone()).collect();
        for slot in slots {
            let given_up = Waiting::<Q>::abandon(self, context.local, context.requests, slot);
            if let Some((claim, Work::Aborted { first })) = given_up {
                self.aborted(context, claim, first);
            }
        }
    }

    /// Answers an aborted command whose request the disk has ended, with its other half if it has
    /// one.
    pub(super) fn aborted(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        first: Option<Slot>,
    ) {
        let first = first.and_then(|first| self.commands.take(first));
        let first = first.map(|(claim, _)| claim);
        for claim in first.into_iter().chain([claim]) {
            for stopping in &mut self.stopping {
                stopping.waits_for.retain(|other| *other != claim.slot());
            }
            context.answer(claim, Status::ABORTED_PREEMPT);
        }
        self.stopping
            .retain(|stopping| !stopping.waits_for.is_empty());
    }
}

/// Writes the report of the registrants and their reservations.
fn report(
    context: &mut CommandContext<'_, impl Queue>,
    claim: Claim,
    state: &DiskState,
    bytes: u32,
) -> Settled {
    let Some(mut page) = context.shard.take_buf(bytes as usize) else {
        return context.answer(claim, Status::INTERNAL_ERROR);
    };
    write_report(
        &state.reservations(),
        &mut page.bytes_mut()[..bytes as usize],
    );
    context.answer_with(claim, page, bytes)
}
