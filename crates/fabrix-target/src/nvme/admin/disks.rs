//! What an admin queue is to the disks of its host's namespaces: it hears of their reservations,
//! and has them stored.
//!
//! A part of `admin`.

use std::sync::Arc;

use fabrix_proto::Slot;
use fabrix_proto::nvme::admin::NSID_ALL;
use fabrix_proto::nvme::spec::{AdminOpcode, Status, SubmissionEntry};
use fabrix_proto::scsi::attention::Attention;
use fabrix_proto::scsi::reservation::{Notice as ReservationNotice, Request};

use super::Admin;
use crate::disk::{Asked, DiskState, Errand, Seat};
use crate::nvme::desk::Desk;
use crate::nvme::reserve::seats;

impl Admin {
    /// The host is told of reservations of these disks from now on.
    pub(super) fn take_seats(&mut self, states: Vec<(u32, Arc<DiskState>)>) {
        let mut seats = seats(states);
        for (_, seat) in &mut seats {
            seat.refresh(&self.me);
        }
        let stays = |old: &Seat| {
            let mut all = seats.iter();
            all.any(|(_, seat)| Arc::ptr_eq(&seat.state, &old.state))
        };
        for (_, gone) in self.seats.iter_mut().filter(|(_, seat)| !stays(seat)) {
            gone.leave(&self.me);
        }
        self.seats = seats;
    }

    /// The connection is over: disks forget it.
    pub(crate) fn leave(&mut self) {
        for (_, seat) in &mut self.seats {
            seat.leave(&self.me);
        }
    }

    /// Takes what happened to reservations, for the log page and the event that announces it.
    pub(crate) fn hear(&mut self, desk: &mut Desk<'_>) {
        for (nsid, seat) in &mut self.seats {
            seat.refresh(&self.me);
            while let Some(attention) = seat.attentions.take() {
                if let Some(notice) = notice(attention) {
                    self.controller.reservation_notice(*nsid, notice);
                }
            }
        }
        self.tell_events(desk);
    }

    /// Whether commands wait for changes: somebody must call [`run_errands`](Self::run_errands).
    pub(crate) fn has_errands(&self) -> bool {
        !self.persisting.is_empty()
    }

    /// Looks again at what takes more than one turn, and answers what is over.
    pub(crate) fn run_errands(&mut self, desk: &mut Desk<'_>) {
        self.persisting.retain_mut(|(slot, errands)| {
            let mut failed = false;
            errands.retain_mut(|errand| match errand.poll() {
                Some(outcome) => {
                    failed |= outcome.is_err();
                    false
                }
                None => true,
            });
            if failed {
                desk.answer(*slot, Status::INTERNAL_ERROR);
            } else if errands.is_empty() {
                desk.answer(*slot, Status::SUCCESS);
            }
            !failed && !errands.is_empty()
        });
    }

    /// Makes reservations outlive the power, or not.
    pub(super) fn persist(&mut self, desk: &mut Desk<'_>, slot: Slot, nsid: u32, persist: bool) {
        let meant = |(of, seat): &&(u32, Seat)| {
            *of == nsid || nsid == NSID_ALL && (seat.state.stores() || !persist)
        };
        let errand = |(_, seat): &(u32, Seat)| {
            Errand::reserve(
                &seat.state,
                &self.me,
                Asked::Request(Request::Persist(persist)),
            )
        };
        let errands = self.seats.iter().filter(meant).map(errand).collect();
        self.persisting.push((slot, errands));
        self.run_errands(desk);
    }

    /// What the Reservation Persistence feature says of the namespace that a command names.
    pub(super) fn persistence(&self, entry: &SubmissionEntry) -> Option<bool> {
        let asked = entry.admin_opcode() == AdminOpcode::GET_FEATURES;
        let seat = self.seats.iter().filter(|_| asked);
        let mut seat = seat.filter(|(nsid, _)| *nsid == entry.nsid.get());
        seat.next().map(|(_, seat)| seat.state.persists())
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
