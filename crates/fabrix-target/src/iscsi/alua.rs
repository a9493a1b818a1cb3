//! Access states (ALUA) of a session's logical units: commands that a state refuses, and the wait
//! for those that came before. A part of `session`.
//!
//! The states are those of ANA groups at the address by which the session came.
//! Source: SPC-4, "Target port group access states".

use fabrix_proto::nvme::ana::AnaState;
use fabrix_proto::scsi::alua::AccessState;
use fabrix_proto::scsi::unit::Failure;

use super::session::{Session, Work};
use super::units::{UnitName, Units};
use crate::shared::Done;

/// The access state that initiators see for the state of an ANA group. Persistent loss is
/// unavailable, too: an offline port would not answer, and this one does.
pub(super) const fn access_state(state: AnaState) -> AccessState {
    match state {
        AnaState::Optimized => AccessState::Optimized,
        AnaState::NonOptimized => AccessState::NonOptimized,
        AnaState::Inaccessible | AnaState::PersistentLoss => AccessState::Unavailable,
        AnaState::Change => AccessState::Transitioning,
    }
}

/// The access states at a session's port, as far as commands need them.
pub(super) struct AccessGate {
    /// Index of the session's port among the ports of its target.
    port: usize,
    /// True if the state of any logical unit refuses commands. While false, no command looks
    /// further.
    refuses: bool,
    /// Owners of an order that wait for commands at disks.
    waiting: Vec<Done>,
}

impl AccessGate {
    /// The gate of a session at the listener with this number, counted from 1.
    pub(super) fn new(number: u16, units: &Units) -> Self {
        let mut gate = Self {
            port: usize::from(number).saturating_sub(1),
            refuses: false,
            waiting: Vec::new(),
        };
        gate.refresh(units);
        gate
    }

    /// Index of the session's port among the ports of its target.
    pub(super) const fn port(&self) -> usize {
        self.port
    }

    /// Takes over the states of logical units.
    pub(super) fn refresh(&mut self, units: &Units) {
        let mut states = units.list.iter().map(|unit| unit.access(self.port));
        self.refuses = states.any(|state| state.refusal().is_some());
    }
}

impl Session {
    /// The failure of requests for a logical unit whose access state refuses commands.
    #[inline(always)]
    pub(super) fn access_refusal(&self, name: UnitName) -> Option<Failure> {
        match self.gate.refuses {
            false => None,
            true => self.refusal_of(name),
        }
    }

    #[cold]
    fn refusal_of(&self, name: UnitName) -> Option<Failure> {
        let unit = &self.units.list[self.units.find(name)?];
        let code = unit.access(self.gate.port).refusal();
        code.map(Failure::Inaccessible)
    }

    /// Keeps `done` while a disk has a command of a logical unit that is refused.
    pub(super) fn await_refused(&mut self, done: Done) {
        self.gate.waiting.push(done);
        self.tell_drained();
    }

    /// Drops what waits for commands of refused logical units, once no disk has one.
    #[inline(always)]
    pub(super) fn tell_drained(&mut self) {
        if !self.gate.waiting.is_empty() && !self.has_refused_in_progress() {
            self.gate.waiting.clear();
        }
    }

    #[cold]
    fn has_refused_in_progress(&self) -> bool {
        let refused = |name| self.access_refusal(name).is_some();
        let mut commands = self.commands.iter();
        commands.any(|(_, work)| match work {
            // A copy may be at the disk of another logical unit than its own.
            Work::AtDisk(job) => refused(job.disk()) || refused(job.name),
            Work::Aborted(name, _) | Work::Changing(name, ..) => refused(*name),
            _ => false,
        })
    }
}
