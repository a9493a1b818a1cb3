//! Commands that end early, of this session and of others, and the answer to who asked for it when all are quiet.
//!
//! A command that is at its disk ends there first: nothing is cancelled while the kernel owns a buffer. Who loses a
//! command because of another initiator is told so (TASK ABORTED: the Control mode page says TAS), and by a unit
//! attention what happened.
//!
//! Source: RFC 7143, section 11.5 "Task Management Function Request"; SAM-5, "Task management functions" and "Aborting
//! commands".

use std::sync::Arc;

use fabrix_proto::Slot;
use fabrix_proto::iscsi::pdu::{Lun, TaskFunction, TaskManagementOutcome};
use fabrix_proto::iscsi::target::{Answer as Response, ManagementId};
use fabrix_proto::scsi::attention::Attention;
use fabrix_proto::scsi::spec::Status;

use super::session::{Desk, Session, Work, number};
use crate::disk::{Errand, Seat, Stop, Why};

/// Somebody who waits for commands to be quiet.
pub(super) struct Managing {
    who: Who,
    /// Of this session.
    waits_for: Vec<Slot>,
    /// Those of others.
    errands: Vec<Errand>,
}

/// Who waits.
enum Who {
    /// The initiator, for an answer.
    Initiator(ManagementId),
    /// Another connection: it sees when this is dropped.
    Other(#[expect(dead_code, reason = "it is held, and dropped")] Stop),
}

impl Managing {
    /// Whether something is to be looked at again: what others do for it.
    pub(super) fn has_errands(&self) -> bool {
        !self.errands.is_empty()
    }
}

impl Session {
    /// Tasks are to be managed.
    pub(super) fn manage(
        &mut self,
        desk: &mut Desk<'_>,
        id: ManagementId,
        (function, lun): (TaskFunction, Lun),
        referenced: Option<Slot>,
    ) {
        let unit = number(lun).and_then(|lun| self.units.index(lun));
        let (slots, errands) = match function {
            TaskFunction::ABORT_TASK => (referenced.into_iter().collect(), Vec::new()),
            TaskFunction::TARGET_WARM_RESET | TaskFunction::TARGET_COLD_RESET => {
                let errands = (0..self.units.list.len()).map(|unit| self.reset(unit));
                (commands(desk, |_| true), errands.collect())
            }
            // There is no ACA: NACA is refused.
            TaskFunction::CLEAR_ACA => {
                return answer(desk, id, TaskManagementOutcome::NotSupported);
            }
            _ => {
                let Some(unit) = unit else {
                    return answer(desk, id, TaskManagementOutcome::NoSuchLun);
                };
                let errand = match function {
                    TaskFunction::LOGICAL_UNIT_RESET => Some(self.reset(unit)),
                    TaskFunction::CLEAR_TASK_SET => {
                        let state = &self.units.list[unit].state;
                        Some(Errand::stop_others(state, &self.me, Why::Cleared))
                    }
                    _ => None,
                };
                let ours = commands(desk, |other| number(other) == number(lun));
                (ours, errand.into_iter().collect())
            }
        };
        self.begin_managing(desk, Who::Initiator(id), slots, errands, None);
    }

    /// Resets a unit for all; the commands of others end by and by.
    fn reset(&self, unit: usize) -> Errand {
        let state = &self.units.list[unit].state;
        state.reset();
        Errand::stop_others(state, &self.me, Why::Reset)
    }

    /// Another connection wants the commands at one disk to end.
    pub(super) fn stop(&mut self, desk: &mut Desk<'_>, stop: Stop) {
        let same = |seat: &Seat| Arc::ptr_eq(&seat.state, &stop.disk);
        let Some(at) = self.seats.iter().position(same) else {
            return;
        };
        let lun = self.units.luns.get(at).copied();
        let slots = commands(desk, |other| number(other) == lun);
        if !slots.is_empty() && stop.why != Why::Reset {
            self.seats[at].attentions.add(Attention::CommandsCleared);
        }
        let who = Who::Other(stop);
        self.begin_managing(desk, who, slots, Vec::new(), Some(Status::TASK_ABORTED));
    }

    /// Ends commands, with a status or without an answer, and remembers who waits for that.
    fn begin_managing(
        &mut self,
        desk: &mut Desk<'_>,
        who: Who,
        slots: Vec<Slot>,
        errands: Vec<Errand>,
        status: Option<Status>,
    ) {
        let at_disk = |slot: &&Slot| {
            let work = &self.work[usize::from(slot.0)];
            matches!(work, Work::AtDisk(_) | Work::Aborted(_))
        };
        // Others do not wait for what an initiator may never send: it may be a dead one that is being fenced.
        let waits_for = match who {
            Who::Initiator(_) => slots.clone(),
            Who::Other(_) => slots.iter().filter(at_disk).copied().collect(),
        };
        self.managing.push(Managing {
            who,
            waits_for,
            errands,
        });
        for slot in slots {
            self.abort(desk, slot, status);
        }
        self.answer_managed(desk);
    }

    /// Ends all commands without an answer.
    pub(super) fn abort_all(&mut self, desk: &mut Desk<'_>) {
        for slot in commands(desk, |_| true) {
            self.abort(desk, slot, None);
        }
    }

    fn abort(&mut self, desk: &mut Desk<'_>, slot: Slot, status: Option<Status>) {
        match (self.take(slot), status) {
            // Who ends it himself hears of it no more.
            (Work::AtDisk(_), _) | (Work::Aborted(_), None) => {
                self.set(slot, Work::Aborted(status));
            }
            (aborted @ Work::Aborted(_), Some(_)) => self.set(slot, aborted),
            (work, status) => {
                if let Work::Changing(..) = work {
                    self.end_changing(slot);
                }
                match status {
                    Some(status) => self.respond(desk, slot, &Response::status(status.0, 0)),
                    None => self.let_go(desk, slot),
                }
            }
        }
    }

    /// The machine forgets a command that nobody works on any more.
    pub(super) fn let_go(&mut self, desk: &mut Desk<'_>, slot: Slot) {
        let (machine, _) = desk.stream.speak();
        if machine.abort(slot) {
            drop(desk.stream.release(slot));
            self.quiet(desk, slot);
        }
    }

    /// A slot is free: whoever waited for that is answered.
    pub(super) fn quiet(&mut self, desk: &mut Desk<'_>, slot: Slot) {
        if self.managing.is_empty() {
            return;
        }
        for managing in &mut self.managing {
            managing.waits_for.retain(|other| *other != slot);
        }
        self.answer_managed(desk);
    }

    /// Answers, or lets go, those who have waited long enough.
    pub(super) fn answer_managed(&mut self, desk: &mut Desk<'_>) {
        self.managing.retain_mut(|managing| {
            managing
                .errands
                .retain_mut(|errand| errand.poll().is_none());
            let done = managing.waits_for.is_empty() && managing.errands.is_empty();
            if let (true, Who::Initiator(id)) = (done, &managing.who) {
                answer(desk, *id, TaskManagementOutcome::Complete);
            }
            !done
        });
    }
}

/// The commands in progress at the units that are wanted.
fn commands(desk: &Desk<'_>, wanted: impl Fn(Lun) -> bool) -> Vec<Slot> {
    let all = desk.stream.machine().commands();
    let all = all.filter(|(_, lun)| wanted(*lun));
    all.map(|(slot, _)| slot).collect()
}

fn answer(desk: &mut Desk<'_>, id: ManagementId, outcome: TaskManagementOutcome) {
    let (machine, mut out) = desk.stream.speak();
    machine.answer_management(id, outcome, &mut out);
}
