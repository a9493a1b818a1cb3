//! How a session comes up behind its login: what the logical unit is asked, or which targets there
//! are.
//!
//! A part of `session`. The order of the questions is `proto`'s; here they are sent, and waited
//! for.

use std::sync::Arc;

use fabrix_proto::iscsi::initiator::{TaskOutcome, Transfer};
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::bringup::{Answer, Bringup, Step, UnitFacts};
use fabrix_proto::scsi::cdb::build;
use fabrix_proto::scsi::sense::Sense;
use fabrix_proto::scsi::spec::Status;
use fabrix_rt::{Nanos, Shard};

use super::connection::{Carried, Command, Connection, Link};
use super::plan::Found;
use super::session::{Pinged, Session};
use crate::probe::Outcome;
use crate::timers::Timer;
use crate::{ConnectError, ConnectErrorKind, PathEvent};

impl<L: Link> Session<L> {
    pub(super) fn logged_in(&mut self, shard: &mut Shard) {
        if self.plan.target.is_some() {
            match Bringup::new(self.plan.lun) {
                Ok(bringup) => {
                    self.bringup = Some(bringup);
                    self.step(shard);
                }
                Err(error) => self.lose(shard, ConnectError::from(error)),
            }
            return;
        }
        let speak = self.connection.as_mut().and_then(Connection::speak);
        let asked = speak.is_some_and(|(initiator, mut out)| initiator.send_targets(&mut out));
        if !asked {
            let sentence = "the target takes no request in a discovery session";
            self.lose_with(shard, ConnectErrorKind::Protocol, sentence);
        }
    }

    /// The list of targets has come.
    pub(super) fn listed(&mut self, shard: &mut Shard) {
        let machine = self.connection.as_ref().and_then(Connection::endpoint);
        match machine.map(|machine| machine.targets()) {
            Some(Ok(targets)) => self.outcome = Outcome::Ready(Found::Targets(targets)),
            Some(Err(error)) => {
                let sentence = format!("the list of targets is {error}");
                self.lose_with(shard, ConnectErrorKind::Protocol, &sentence);
            }
            None => {}
        }
    }

    /// A command of the bring-up was answered.
    pub(super) fn own_answer(
        &mut self,
        shard: &mut Shard,
        outcome: TaskOutcome,
        sense: Option<Sense>,
        data: &[u8],
    ) {
        if !outcome.intact || !outcome.delivered {
            let sentence =
                "data of the target does not match its digest, or it could not carry out a command";
            return self.lose_with(shard, ConnectErrorKind::Protocol, sentence);
        }
        self.unsettled |= sense.is_some_and(is_of_capacity);
        let Some(bringup) = &mut self.bringup else {
            return;
        };
        let answer = Answer {
            status: Status(outcome.status),
            sense,
            data,
        };
        match bringup.answered(&answer, now(shard)) {
            Ok(()) => self.step(shard),
            Err(error) => self.lose(shard, ConnectError::from(error)),
        }
    }

    /// Takes the next step of the bring-up.
    pub(super) fn step(&mut self, shard: &mut Shard) {
        let now = now(shard);
        let Some(step) = self.bringup.as_mut().map(|bringup| bringup.next(now)) else {
            return;
        };
        match step {
            Step::Send {
                lun,
                cdb,
                data_in_bytes: bytes,
            } => {
                let command = Command {
                    lun: Lun::flat(lun),
                    cdb,
                    transfer: Transfer::Read { bytes },
                };
                if !self.send_own(shard, &command, bytes) {
                    let sentence =
                        "no room for a command: the target takes none, or this shard has no memory";
                    self.lose_with(shard, ConnectErrorKind::Local, sentence);
                }
            }
            Step::Wait { until } if until.0 < u64::MAX => {
                let at = Nanos(until.0);
                self.reconnection
                    .timers
                    .set(shard, self.reconnection.task, Timer::Step, at);
            }
            Step::Wait { .. } => {}
            Step::Ready(facts) => self.up(shard, *facts),
        }
    }

    fn send_own(&mut self, shard: &mut Shard, command: &Command, bytes: u32) -> bool {
        let data = match bytes {
            0 => None,
            _ => match shard.take_buf(bytes as usize) {
                Some(buf) => Some(buf),
                None => return false,
            },
        };
        let Some(connection) = &mut self.connection else {
            return false;
        };
        let sent = connection.send(shard.now(), command, data, Carried::Own);
        sent.is_ok()
    }

    /// All is known of the disk.
    fn up(&mut self, shard: &mut Shard, facts: UnitFacts) {
        self.bringup = None;
        let expected = self.plan.expected.clone();
        let has_changed = expected
            .as_ref()
            .is_some_and(|seen| self.unsettled || seen.geometry.blocks != facts.blocks);
        if let Some(Err(error)) = expected.as_ref().map(|seen| seen.check(&facts)) {
            // A disk that became smaller is not used as it was; whoever watches may take it as it
            // is.
            if expected.is_some_and(|seen| seen.again(&facts).is_ok()) {
                self.reconnection.tell_path(PathEvent::Changed);
            }
            return self.lose(shard, error);
        }
        self.reconnection.connected(shard);
        self.outcome = Outcome::Ready(Found::Unit(Arc::new(facts)));
        self.pinged = Pinged {
            sent_at: shard.now(),
            is_answered: true,
        };
        self.arm_tick(shard);
        if has_changed {
            self.reconnection.tell_path(PathEvent::Changed);
        }
        self.send_waiting(shard);
    }

    /// Whoever has asked, the disk says once that its capacity has changed.
    pub(super) fn look_for_changes(&self, sense: Option<Sense>) {
        if sense.is_some_and(is_of_capacity) {
            self.reconnection.tell_path(PathEvent::Changed);
        }
    }

    /// Asks a disk that nobody asks anything whether it has something to say: targets tell changes
    /// with an answer only.
    pub(super) fn look(&mut self, shard: &mut Shard) {
        let (Some(seen), Some(connection)) = (&self.plan.expected, &mut self.connection) else {
            return;
        };
        if connection.is_busy() {
            return;
        }
        let command = Command {
            lun: Lun::flat(seen.facts.lun),
            cdb: build::test_unit_ready(),
            transfer: Transfer::None,
        };
        // Where there is no room, something else is asked.
        let _sent = connection.send(shard.now(), &command, None, Carried::Look);
    }

    /// Bring-up has had its time: who has not answered what.
    pub(super) fn too_slow(&mut self, shard: &mut Shard) {
        let most = self.plan.options.bringup_timeout;
        let is_connected = self
            .connection
            .as_mut()
            .is_some_and(|connection| connection.link().stream().is_some());
        let sentence = match (&self.bringup, is_connected) {
            (_, false) => format!(
                "no connection within {most:?}: check the address, the network and firewalls in between"
            ),
            (None, true) => format!(
                "something accepts connections and did not let us log in within {most:?}: is it an iSCSI target?"
            ),
            (Some(_), true) => format!("the disk was not ready within {most:?}"),
        };
        self.lose_with(shard, ConnectErrorKind::Timeout, &sentence);
    }
}

/// Whether a disk says that it has another size.
fn is_of_capacity(sense: Sense) -> bool {
    sense.code == AdditionalSense::CAPACITY_DATA_CHANGED
}

/// The time, as machines have it.
fn now(shard: &Shard) -> fabrix_proto::Nanos {
    fabrix_proto::Nanos(shard.now().0)
}
