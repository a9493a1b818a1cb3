//! Task management: aborts of commands of this session and of others, and the answer when all of
//! these commands have ended.
//!
//! A request at a disk is not cancelled: the kernel may own its buffer. The command ends when the
//! disk has ended the request. After a deadline the command is abandoned and ends without the disk.
//! The disk then gets no new request before it has ended the abandoned one (`disk::Barrier`). So
//! the answer comes within a bounded time, and no effect of an aborted command is visible after it.
//!
//! An initiator that loses a command because of another initiator gets TASK ABORTED (the Control
//! mode page sets TAS) and a unit attention. After a cold reset all sessions end, as if the target
//! had been switched off and on.
//!
//! Source: RFC 7143, section 11.5 "Task Management Function Request"; SAM-5, "Task management
//! functions" and "Aborting commands".

use std::sync::Arc;

use fabrix_proto::iscsi::pdu::{Lun, TaskFunction, TaskManagementOutcome};
use fabrix_proto::iscsi::target::ManagementId;
use fabrix_proto::scsi::attention::Attention;
use fabrix_proto::scsi::copy::CopyProgress;
use fabrix_proto::scsi::spec::Status;
use fabrix_proto::scsi::unit::{Answer, Failure};
use fabrix_proto::{Claim, Settled, Slot};

use super::context::SessionCarrier;
use super::session::{AbortAnswer, Managing, Requester, Session, Work, number};
use crate::command_table::Waiting;
use crate::context::CommandContext;
use crate::disk::{DiskView, PendingChange, Stop, Why};
use crate::registry::ConnectionOrder;

/// A command to abort, and its answer. None: no answer.
type Abort = (Slot, Option<Answer>);

impl Session {
    /// Carries out a task management function.
    pub(super) fn manage(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        id: ManagementId,
        (function, lun): (TaskFunction, Lun),
        referenced: Option<Slot>,
    ) {
        let unit = number(lun).and_then(|lun| self.units.index(lun));
        let mut requester = Requester::Initiator(id);
        let (aborts, pending_changes) = match function {
            TaskFunction::ABORT_TASK => (silently(referenced), Vec::new()),
            TaskFunction::TARGET_WARM_RESET | TaskFunction::TARGET_COLD_RESET => {
                if function == TaskFunction::TARGET_COLD_RESET {
                    requester = Requester::ColdReset(id, None);
                }
                let pending_changes = (0..self.units.list.len()).map(|unit| self.reset(unit));
                (
                    silently(commands(context, |_| true)),
                    pending_changes.collect(),
                )
            }
            // There is no ACA: NACA is refused.
            TaskFunction::CLEAR_ACA => {
                return answer(context, id, TaskManagementOutcome::NotSupported);
            }
            _ => {
                let Some(unit) = unit else {
                    return answer(context, id, TaskManagementOutcome::NoSuchLun);
                };
                let mut aborts = silently(commands(context, |other| number(other) == number(lun)));
                let pending_change = match function {
                    TaskFunction::LOGICAL_UNIT_RESET => Some(self.reset(unit)),
                    TaskFunction::CLEAR_TASK_SET => {
                        let state = &self.units.list[unit].state;
                        Some(PendingChange::stop_others(state, &self.me, Why::Cleared))
                    }
                    _ => None,
                };
                if pending_change.is_some() {
                    self.abort_copies(unit, &mut aborts);
                }
                (aborts, pending_change.into_iter().collect())
            }
        };
        self.begin_managing(context, requester, aborts, pending_changes);
    }

    /// Resets a unit for all sessions. The change is over when the commands of the others have
    /// ended.
    fn reset(&self, unit: usize) -> PendingChange {
        let state = &self.units.list[unit].state;
        state.reset();
        PendingChange::stop_others(state, &self.me, Why::Reset)
    }

    /// Aborts the commands at one disk, for another connection.
    pub(super) fn stop(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        stop: Stop,
    ) {
        let same = |disk_view: &DiskView| Arc::ptr_eq(&disk_view.state, &stop.disk);
        let Some(at) = self.disk_views.iter().position(same) else {
            return;
        };
        let lun = self.units.luns.get(at).copied();
        let slots = commands(context, |other| number(other) == lun);
        if !slots.is_empty() && stop.why != Why::Reset {
            self.disk_views[at]
                .attentions
                .add(Attention::CommandsCleared);
        }
        let aborted = |slot| (slot, Some(Answer::status(Status::TASK_ABORTED)));
        let mut aborts = slots.into_iter().map(aborted).collect();
        self.abort_copies(at, &mut aborts);
        self.begin_managing(context, Requester::Other(stop), aborts, Vec::new());
    }

    /// Adds the copies of other logical units that still use this one. Their initiator gets an
    /// answer, because it has not aborted them itself.
    fn abort_copies(&self, unit: usize, aborts: &mut Vec<Abort>) {
        let copies = self.copies_at(self.units.list[unit].name());
        for slot in copies {
            if aborts.iter().all(|(other, _)| *other != slot) {
                aborts.push((slot, Some(Failure::CopyAborted.answer())));
            }
        }
    }

    /// Aborts commands, and keeps the request until they have ended.
    fn begin_managing(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        requester: Requester,
        aborts: Vec<Abort>,
        pending_changes: Vec<PendingChange>,
    ) {
        let at_disk = |slot: &Slot| self.is_at_disk(*slot);
        let slots = aborts.iter().map(|(slot, _)| *slot);
        // Other connections do not wait for data of this initiator: it may be a dead one that they
        // fence.
        let waits_for = match requester {
            Requester::Initiator(_) | Requester::ColdReset(..) => slots.collect(),
            Requester::Other(_) | Requester::Connection => slots.filter(at_disk).collect(),
        };
        self.managing.push(Managing {
            requester,
            waits_for,
            pending_changes,
            until: context.shard.now() + context.local.shared.deadlines.quiet,
        });
        for (slot, answer) in aborts {
            self.abort(context, slot, answer);
        }
        self.answer_managed(context);
    }

    /// Aborts all commands without an answer.
    pub(super) fn abort_all(&mut self, context: &mut CommandContext<'_, impl SessionCarrier>) {
        let all = silently(commands(context, |_| true));
        self.begin_managing(context, Requester::Connection, all, Vec::new());
    }

    /// Abandons commands that a disk has not ended in time.
    pub(super) fn end_overdue<C: SessionCarrier>(&mut self, context: &mut CommandContext<'_, C>) {
        let now = context.shard.now();
        let overdue = self.managing.iter().filter(|it| it.until <= now);
        let slots: Vec<_> = overdue.flat_map(|it| it.waits_for.clone()).collect();
        for slot in slots {
            let abandoned = Waiting::<C>::abandon(self, context.local, context.requests, slot);
            if let Some((claim, work)) = abandoned {
                let answer = match work {
                    Work::Aborted(_, answer) => answer,
                    _ => None,
                };
                self.end_aborted(context, claim, answer);
            }
        }
    }

    fn is_at_disk(&self, slot: Slot) -> bool {
        let work = self.commands.get(slot);
        work.is_some_and(|work| work.at_disk().is_some())
    }

    /// Ends a command, after its disk if that has its request: with `answer`, or silently.
    fn abort(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        slot: Slot,
        answer: Option<Answer>,
    ) {
        let Some((claim, work)) = self.commands.take(slot) else {
            let (target, _) = context.stream.speak();
            if answer.is_none() && target.abort_unclaimed(slot) {
                self.released(context, slot);
            }
            return;
        };
        if let Some((job, copying)) = work.job().and_then(|job| Some((job, job.copying()?))) {
            self.remember_copy(job.name, copying, CopyProgress::Failed);
        }
        let at = work.job().map(|job| job.at);
        let answer = answer.map(|answer| (at, answer));
        match (work, answer) {
            (Work::AtDisk(job), answer) => {
                self.commands.keep(claim, Work::Aborted(job.disk(), answer))
            }
            // An initiator that aborts its own command gets no answer to it.
            (Work::Aborted(disk, _), None) => self.commands.keep(claim, Work::Aborted(disk, None)),
            (aborted @ Work::Aborted(..), Some(_)) => self.commands.keep(claim, aborted),
            (work, answer) => {
                self.changing -= usize::from(matches!(work, Work::Changing(..)));
                self.end_aborted(context, claim, answer)
            }
        };
    }

    /// Answers a command that was aborted, or frees its slot without an answer.
    pub(super) fn end_aborted(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        claim: Claim,
        answer: Option<AbortAnswer>,
    ) -> Settled {
        if let Some((at, answer)) = answer {
            return self.answer_page(context, claim, at, &answer);
        }
        let slot = claim.slot();
        let (target, _) = context.stream.speak();
        let (aborted, is_free) = target.abort(claim);
        if is_free {
            self.released(context, slot);
        }
        aborted
    }

    /// A slot is free: requests that waited for it may be answered.
    pub(super) fn slot_freed(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        slot: Slot,
    ) {
        if self.managing.is_empty() {
            return;
        }
        for managing in &mut self.managing {
            managing.waits_for.retain(|other| *other != slot);
        }
        self.answer_managed(context);
    }

    /// Answers the requests whose commands have ended, and drops them.
    pub(super) fn answer_managed(&mut self, context: &mut CommandContext<'_, impl SessionCarrier>) {
        self.managing.retain_mut(|managing| {
            managing
                .pending_changes
                .retain_mut(|pending_change| pending_change.poll().is_none());
            if !managing.waits_for.is_empty() || !managing.pending_changes.is_empty() {
                return true;
            }
            match &mut managing.requester {
                Requester::Initiator(id) => answer(context, *id, TaskManagementOutcome::Complete),
                Requester::ColdReset(id, untold) => {
                    let sessions = &context.local.shared.sessions;
                    let untold = untold.get_or_insert_with(|| sessions.others(&self.me.place));
                    untold.retain(|place| place.send(ConnectionOrder::Close(COLD_RESET)).is_err());
                    if !untold.is_empty() {
                        return true;
                    }
                    answer(context, *id, TaskManagementOutcome::Complete);
                    self.dismissed = true;
                }
                Requester::Other(_) | Requester::Connection => {}
            }
            false
        });
    }
}

/// Why all sessions end at a TARGET COLD RESET.
pub(super) const COLD_RESET: &str = "an initiator has reset the target";

/// Aborts without an answer.
fn silently(slots: impl IntoIterator<Item = Slot>) -> Vec<Abort> {
    slots.into_iter().map(|slot| (slot, None)).collect()
}

/// The commands without a response at the logical units that `filter` accepts.
fn commands(
    context: &CommandContext<'_, impl SessionCarrier>,
    filter: impl Fn(Lun) -> bool,
) -> Vec<Slot> {
    let target = context.stream.endpoint();
    let all = target.commands().chain(target.answered());
    let all = all.filter(|(_, lun)| filter(*lun));
    all.map(|(slot, _)| slot).collect()
}

fn answer(
    context: &mut CommandContext<'_, impl SessionCarrier>,
    id: ManagementId,
    outcome: TaskManagementOutcome,
) {
    let (target, mut out) = context.stream.speak();
    target.answer_management(id, outcome, &mut out);
}
