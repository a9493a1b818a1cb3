//! The disks of an admin queue: notices of their reservations, and the storing of reservations.
//!
//! A part of `admin`.

use std::sync::Arc;

use fabrix_proto::nvme::admin::NSID_ALL;
use fabrix_proto::nvme::spec::{AdminOpcode, Status, SubmissionEntry};
use fabrix_proto::scsi::attention::Attention;
use fabrix_proto::scsi::reservation::{Notice as ReservationNotice, Request};
use fabrix_proto::{Claim, Settled};

use super::Admin;
use crate::context::CommandContext;
use crate::disk::{DiskState, DiskView, PendingChange, RequestedChange};
use crate::nvme::context::Queue;
use crate::nvme::io::disk_views;
use crate::shared::Done;

impl Admin {
    /// Replaces the disks whose reservation notices the host gets.
    pub(super) fn take_disk_views(&mut self, states: Vec<(u32, Arc<DiskState>)>) {
        let mut disk_views = disk_views(states);
        for (_, disk_view) in &mut disk_views {
            disk_view.refresh(&self.me);
        }
        let stays = |old: &DiskView| {
            let mut all = disk_views.iter();
            all.any(|(_, disk_view)| Arc::ptr_eq(&disk_view.state, &old.state))
        };
        for (_, gone) in self
            .disk_views
            .iter_mut()
            .filter(|(_, disk_view)| !stays(disk_view))
        {
            gone.leave(&self.me);
        }
        self.disk_views = disk_views;
    }

    /// Removes the queue from the state of its disks, at its end.
    pub(crate) fn leave(&mut self) {
        for (_, disk_view) in &mut self.disk_views {
            disk_view.leave(&self.me);
        }
    }

    /// Takes the notices of reservations, for the log page and its event.
    pub(crate) fn hear(&mut self, context: &mut CommandContext<'_, impl Queue>) {
        for (nsid, disk_view) in &mut self.disk_views {
            disk_view.refresh(&self.me);
            while let Some(attention) = disk_view.attentions.take() {
                if let Some(notice) = notice(attention) {
                    self.controller.reservation_notice(*nsid, notice);
                }
            }
        }
        self.tell_events(context);
    }

    /// Whether commands wait for changes: the connection has to call
    /// [`run_pending_changes`](Self::run_pending_changes).
    pub(crate) fn has_pending_changes(&self) -> bool {
        !self.persisting.is_empty() || !self.resetting.is_empty()
    }

    /// Polls the changes that take more than one turn, and answers the commands whose changes are
    /// over.
    pub(crate) fn run_pending_changes(&mut self, context: &mut CommandContext<'_, impl Queue>) {
        self.answer_resets(context);
        let mut at = 0;
        while let Some((_, pending_changes)) = self.persisting.get_mut(at) {
            let mut status = Status::SUCCESS;
            pending_changes.retain_mut(|pending_change| match pending_change.poll() {
                Some(Ok(())) => false,
                Some(Err(_)) => {
                    status = Status::INTERNAL_ERROR;
                    false
                }
                None => true,
            });
            if status.is_success() && !pending_changes.is_empty() {
                at += 1;
                continue;
            }
            let (claim, _) = self.persisting.remove(at);
            context.answer(claim, status);
        }
        if self.persisting.is_empty() {
            self.awaiting_persisted.clear();
        }
    }

    /// Keeps `done` while a command changes what is stored of reservations.
    pub(crate) fn await_persisted(&mut self, done: Done) {
        if !self.persisting.is_empty() {
            self.awaiting_persisted.push(done);
        }
    }

    /// Sets whether reservations outlive a loss of power.
    pub(super) fn persist(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        nsid: u32,
        persist: bool,
    ) -> Settled {
        let meant = |(of, disk_view): &&(u32, DiskView)| {
            *of == nsid || nsid == NSID_ALL && (disk_view.state.stores() || !persist)
        };
        let pending_change = |(_, disk_view): &(u32, DiskView)| {
            PendingChange::reserve(
                &disk_view.state,
                &self.me,
                RequestedChange::Request(Request::Persist(persist)),
            )
        };
        let pending_changes = self
            .disk_views
            .iter()
            .filter(meant)
            .map(pending_change)
            .collect();
        let kept = claim.keep_in(&mut self.persisting, pending_changes);
        self.run_pending_changes(context);
        kept
    }

    /// The Reservation Persistence feature of the namespace that a command names.
    pub(super) fn persistence(&self, entry: &SubmissionEntry) -> Option<bool> {
        let is_get = entry.admin_opcode() == AdminOpcode::GET_FEATURES;
        let disk_view = self.disk_views.iter().filter(|_| is_get);
        let mut disk_view = disk_view.filter(|(nsid, _)| *nsid == entry.nsid.get());
        disk_view
            .next()
            .map(|(_, disk_view)| disk_view.state.persists())
    }
}

/// The notice to a host of an attention, if there is one.
const fn notice(attention: Attention) -> Option<ReservationNotice> {
    Some(match attention {
        Attention::RegistrationsPreempted => ReservationNotice::RegistrationPreempted,
        Attention::ReservationsReleased => ReservationNotice::ReservationReleased,
        Attention::ReservationsPreempted => ReservationNotice::ReservationPreempted,
        _ => return None,
    })
}
