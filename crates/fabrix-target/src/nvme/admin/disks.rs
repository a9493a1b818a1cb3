//! What an admin queue is to the disks of its host's namespaces: it hears of their reservations,
//! and has them stored.
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

impl Admin {
    /// The host is told of reservations of these disks from now on.
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

    /// The connection is over: disks forget it.
    pub(crate) fn leave(&mut self) {
        for (_, disk_view) in &mut self.disk_views {
            disk_view.leave(&self.me);
        }
    }

    /// Takes what happened to reservations, for the log page and the event that announces it.
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

    /// Whether commands wait for changes: somebody must call
    /// [`run_pending_changes`](Self::run_pending_changes).
    pub(crate) fn has_pending_changes(&self) -> bool {
        !self.persisting.is_empty()
    }

    /// Looks again at what takes more than one turn, and answers what is over.
    pub(crate) fn run_pending_changes(&mut self, context: &mut CommandContext<'_, impl Queue>) {
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
    }

    /// Makes reservations outlive the power, or not.
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

    /// What the Reservation Persistence feature says of the namespace that a command names.
    pub(super) fn persistence(&self, entry: &SubmissionEntry) -> Option<bool> {
        let asked = entry.admin_opcode() == AdminOpcode::GET_FEATURES;
        let disk_view = self.disk_views.iter().filter(|_| asked);
        let mut disk_view = disk_view.filter(|(nsid, _)| *nsid == entry.nsid.get());
        disk_view
            .next()
            .map(|(_, disk_view)| disk_view.state.persists())
    }
}

/// What a host is told of a condition, if it is one for hosts.
const fn notice(attention: Attention) -> Option<ReservationNotice> {
    Some(match attention {
        Attention::RegistrationsPreempted => ReservationNotice::RegistrationPreempted,
        Attention::ReservationsReleased => ReservationNotice::ReservationReleased,
        Attention::ReservationsPreempted => ReservationNotice::ReservationPreempted,
        _ => return None,
    })
}
