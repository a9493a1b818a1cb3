//! ANA groups at an I/O queue: commands that a state refuses, and the wait for those that came
//! before.
//!
//! Source: NVM Express Base Specification 2.x, "Asymmetric Namespace Access Reporting".

use fabrix_proto::Slot;
use fabrix_proto::nvme::spec::Status;
use fabrix_proto::nvme::subsystem::Authorized;

use super::io::{IoQueue, ResolvedCommand, Work};
use crate::shared::Done;

/// The states of a queue's ANA groups, as far as commands need them.
#[derive(Default)]
pub(super) struct AnaGate {
    /// True if the state of any group refuses commands. While false, no command looks further.
    refuses: bool,
    /// Owners of an order that wait for commands at disks.
    waiting: Vec<Done>,
}

impl AnaGate {
    /// Takes over the states of a view.
    pub(super) fn refresh(&mut self, view: &Authorized) {
        let mut groups = view.ana_groups();
        self.refuses = groups.any(|group| view.ana_state(group).refusal().is_some());
    }
}

impl IoQueue {
    /// The status of a command that must not reach its disk now: its ANA group does not serve it,
    /// or a reservation forbids it.
    #[inline(always)]
    pub(super) fn forbidden(&mut self, command: &ResolvedCommand) -> Option<Status> {
        let refusal = self.ana_refusal(command.nsid);
        if refusal.is_some() {
            return refusal;
        }
        let conflicts = self.conflicts(command);
        conflicts.then_some(Status::RESERVATION_CONFLICT)
    }

    /// The status of commands for a namespace whose ANA group does not serve them.
    #[inline(always)]
    pub(super) fn ana_refusal(&self, nsid: u32) -> Option<Status> {
        match self.ana.refuses {
            false => None,
            true => self.refusal_of_group(nsid),
        }
    }

    /// The status of a command that has waited for its disk or its turn, and must not go on.
    pub(super) fn refusal_of_resumed(&self, work: &Work) -> Option<Status> {
        match work {
            Work::Stalled(command, _) | Work::Paused(command, _) | Work::Half { command, .. } => {
                self.ana_refusal(command.nsid)
            }
            _ => None,
        }
    }

    #[cold]
    fn refusal_of_group(&self, nsid: u32) -> Option<Status> {
        let group = self.view.namespace(nsid)?.ana_group;
        self.view.ana_state(group).refusal()
    }

    /// Keeps `done` while a disk has a command of a group that is refused.
    pub(super) fn await_refused(&mut self, done: Done) {
        self.ana.waiting.push(done);
        self.tell_drained();
    }

    /// Drops what waits for commands of refused groups, once no disk has one.
    #[inline(always)]
    pub(super) fn tell_drained(&mut self) {
        if !self.ana.waiting.is_empty() && !self.has_refused_in_progress() {
            self.ana.waiting.clear();
        }
    }

    #[cold]
    fn has_refused_in_progress(&self) -> bool {
        let mut commands = self.commands.iter();
        commands.any(|(slot, work)| is_in_progress(work) && self.is_refused(slot))
    }

    fn is_refused(&self, slot: Slot) -> bool {
        let command = self.last_commands[usize::from(slot.0)];
        command.is_some_and(|command| self.ana_refusal(command.nsid).is_some())
    }
}

/// Whether a command may still have an effect on its disk or on its reservations.
const fn is_in_progress(work: &Work) -> bool {
    work.is_at_disk() || matches!(work, Work::Reserving(_))
}
