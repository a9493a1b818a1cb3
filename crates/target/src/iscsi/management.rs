//! Task management: commands that end early, and the answer to who asked for it when all of them are quiet.
//!
//! It reaches the commands of its own session. A command that is at its disk ends there first: nothing is cancelled
//! while the kernel owns a buffer.
//!
//! Source: RFC 7143, section 11.5 "Task Management Function Request"; SAM-5, "Task management functions".

use fabrix_proto::Slot;
use fabrix_proto::iscsi::pdu::{Lun, TaskFunction, TaskManagementOutcome};
use fabrix_proto::iscsi::target::ManagementId;

use super::session::{Desk, Session, Work, number};

/// A request that waits for commands to be quiet.
pub(super) struct Managing {
    id: ManagementId,
    waits_for: Vec<Slot>,
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
        let slots: Vec<Slot> = match function {
            TaskFunction::ABORT_TASK => referenced.into_iter().collect(),
            TaskFunction::TARGET_WARM_RESET | TaskFunction::TARGET_COLD_RESET => {
                self.units.list.iter().for_each(|unit| unit.state.reset());
                let all = desk.stream.machine().commands();
                all.map(|(slot, _)| slot).collect()
            }
            _ => {
                let Some(unit) = unit else {
                    return answer(desk, id, TaskManagementOutcome::NoSuchLun);
                };
                if function == TaskFunction::LOGICAL_UNIT_RESET {
                    self.units.list[unit].state.reset();
                }
                let ours = desk.stream.machine().commands();
                let ours = ours.filter(|(_, other)| number(*other) == number(lun));
                ours.map(|(slot, _)| slot).collect()
            }
        };
        self.managing.push(Managing {
            id,
            waits_for: slots.clone(),
        });
        for slot in slots {
            self.abort(desk, slot);
        }
        self.answer_managed(desk);
    }

    /// Ends all commands without an answer.
    pub(super) fn abort_all(&mut self, desk: &mut Desk<'_>) {
        let all = desk.stream.machine().commands();
        let slots: Vec<_> = all.map(|(slot, _)| slot).collect();
        for slot in slots {
            self.abort(desk, slot);
        }
    }

    fn abort(&mut self, desk: &mut Desk<'_>, slot: Slot) {
        match self.take(slot) {
            Work::AtDisk(_) | Work::Aborted => self.set(slot, Work::Aborted),
            _ => self.let_go(desk, slot),
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

    fn answer_managed(&mut self, desk: &mut Desk<'_>) {
        self.managing.retain(|managing| {
            let done = managing.waits_for.is_empty();
            if done {
                answer(desk, managing.id, TaskManagementOutcome::Complete);
            }
            !done
        });
    }
}

fn answer(desk: &mut Desk<'_>, id: ManagementId, outcome: TaskManagementOutcome) {
    let (machine, mut out) = desk.stream.speak();
    machine.answer_management(id, outcome, &mut out);
}
