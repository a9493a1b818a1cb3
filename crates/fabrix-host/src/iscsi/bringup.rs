//! Bring-up of a session after its login: reads the properties of the logical unit, or the list of
//! targets.
//!
//! A part of `session`. The order of the commands is in `fabrix_proto::scsi::bringup`. The polls of
//! an idle disk are here too: they find changes of what the bring-up has read.

use std::sync::Arc;

use fabrix_proto::Nanos;
use fabrix_proto::iscsi::initiator::{TaskOutcome, Transfer};
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::bringup::{Answer, Bringup, Step, UnitFacts};
use fabrix_proto::scsi::cdb::build;
use fabrix_proto::scsi::sense::Sense;
use fabrix_proto::scsi::spec::Status;
use fabrix_rt::Shard;

use super::connection::{Command, Connection, IscsiLink, OwnCommand};
use super::plan::Found;
use super::session::Session;
use crate::connection::InFlight;
use crate::session::{Outcome, now};
use crate::{ConnectError, ConnectErrorKind, PathEvent, Transport};

impl<L: IscsiLink> Session<L> {
    /// The login is complete. Over RDMA a pause follows, for the sake of Linux' target.
    pub(super) fn logged_in(&mut self, shard: &mut Shard) {
        match self.plan.transport {
            Transport::Tcp => self.begin(shard),
            Transport::Rdma => {
                let at = now(shard).0.saturating_add(PAUSE_AFTER_LOGIN);
                self.step_at(shard, Nanos(at));
            }
        }
    }

    /// Asks for the logical unit, or for the list of targets.
    fn begin(&mut self, shard: &mut Shard) {
        if self.plan.target.is_none() {
            return self.ask_for_targets(shard);
        }
        match Bringup::new(self.plan.lun) {
            Ok(bringup) => {
                self.protocol.bringup = Some(bringup);
                self.step(shard);
            }
            Err(error) => self.disconnect(shard, ConnectError::from(error)),
        }
    }

    fn ask_for_targets(&mut self, shard: &mut Shard) {
        let speak = self.connections.first_mut().and_then(Connection::speak);
        let is_sent = speak.is_some_and(|(initiator, mut out)| initiator.send_targets(&mut out));
        if !is_sent {
            let sentence = "the target takes no request in a discovery session";
            self.disconnect_with(shard, ConnectErrorKind::Protocol, sentence);
        }
    }

    /// The list of targets has arrived.
    pub(super) fn targets_received(&mut self, shard: &mut Shard) {
        let initiator = self.connections.first().and_then(Connection::endpoint);
        match initiator.map(|initiator| initiator.targets()) {
            Some(Ok(targets)) => self.outcome = Outcome::Ready(Found::Targets(targets)),
            Some(Err(error)) => {
                let sentence = format!("the list of targets is {error}");
                self.disconnect_with(shard, ConnectErrorKind::Protocol, sentence);
            }
            None => {}
        }
    }

    /// Processes the answer of a command of the bring-up.
    pub(super) fn bringup_answered(
        &mut self,
        shard: &mut Shard,
        outcome: TaskOutcome,
        sense: Option<Sense>,
        data: &[u8],
    ) {
        if !outcome.intact || !outcome.delivered {
            let sentence =
                "data of the target does not match its digest, or it could not carry out a command";
            return self.disconnect_with(shard, ConnectErrorKind::Protocol, sentence);
        }
        self.protocol.has_changed |= sense.is_some_and(is_capacity_change);
        let Some(bringup) = &mut self.protocol.bringup else {
            return;
        };
        let answer = Answer {
            status: Status(outcome.status),
            sense,
            data,
        };
        match bringup.answered(&answer, now(shard)) {
            Ok(()) => self.step(shard),
            Err(error) => self.disconnect(shard, ConnectError::from(error)),
        }
    }

    /// Takes the next step of the bring-up.
    pub(super) fn step(&mut self, shard: &mut Shard) {
        if self.protocol.bringup.is_none() {
            return self.begin(shard);
        }
        let now = now(shard);
        let Some(step) = self
            .protocol
            .bringup
            .as_mut()
            .map(|bringup| bringup.next(now))
        else {
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
                if !self.send_bringup(shard, &command, bytes) {
                    let sentence =
                        "no room for a command: the target takes none, or this shard has no memory";
                    self.disconnect_with(shard, ConnectErrorKind::Local, sentence);
                }
            }
            Step::Wait { until } => self.step_at(shard, until),
            Step::Ready(facts) => self.disk_ready(shard, *facts),
        }
    }

    fn send_bringup(&mut self, shard: &mut Shard, command: &Command, bytes: u32) -> bool {
        let data = match bytes {
            0 => None,
            _ => match shard.take_buf(bytes as usize) {
                Some(buf) => Some(buf),
                None => return false,
            },
        };
        let Some(connection) = self.connections.first_mut() else {
            return false;
        };
        let sent = connection.send(
            shard.now(),
            command,
            data,
            InFlight::Other(OwnCommand::Bringup),
        );
        sent.is_ok()
    }

    /// The bring-up has read the properties of the disk.
    fn disk_ready(&mut self, shard: &mut Shard, facts: UnitFacts) {
        self.protocol.bringup = None;
        let mut has_changed = false;
        if let Some(disk) = &self.plan.expected {
            has_changed = self.protocol.has_changed || disk.geometry.blocks != facts.blocks;
            if let Err(error) = disk.check(&facts) {
                // A disk that became smaller is refused and reported as changed.
                if disk.remeasured(&facts).is_ok() {
                    self.reconnection.report_event(PathEvent::Changed);
                }
                return self.disconnect(shard, error);
            }
        }
        let port_group = facts.port_group.filter(|_| facts.has_access_states);
        self.connected(shard, Found::Unit(Arc::new(facts)));
        self.found_port_group(shard, port_group);
        if has_changed {
            self.reconnection.report_event(PathEvent::Changed);
        }
        self.send_waiting(shard);
    }

    /// Reports a change of the size, which the disk announces once, with the answer of any command.
    /// Reports too that the disk is gone or back, which each answer tells.
    pub(super) fn report_change(&mut self, sense: Option<Sense>) {
        let is_gone = sense.is_some_and(is_missing);
        let was_gone = std::mem::replace(&mut self.protocol.is_gone, is_gone);
        if is_gone != was_gone || sense.is_some_and(is_capacity_change) {
            self.reconnection.report_event(PathEvent::Changed);
        }
    }

    /// Sends a command to an idle disk: targets announce changes only with the answer of a command.
    pub(super) fn poll(&mut self, shard: &mut Shard) {
        let (Some(disk), Some(connection)) = (&self.plan.expected, self.connections.first_mut())
        else {
            return;
        };
        if !connection.is_idle() {
            return;
        }
        let command = Command {
            lun: Lun::flat(disk.facts.lun),
            cdb: build::test_unit_ready(),
            transfer: Transfer::None,
        };
        // Without room other commands are in progress, whose answers announce changes.
        let content = InFlight::Other(OwnCommand::Poll);
        let _sent = connection.send(shard.now(), &command, None, content);
    }
}

/// 100 ms, in nanoseconds. Linux' target (isert, 6.1 and 6.12) answers the login over RDMA before
/// it has registered the session. A text that comes before is rejected, and a SCSI command makes
/// its kernel fail. Linux' own initiator is slower: its login is a program.
const PAUSE_AFTER_LOGIN: u64 = 100_000_000;

/// Whether a disk announces another size.
fn is_capacity_change(sense: Sense) -> bool {
    sense.code == AdditionalSense::CAPACITY_DATA_CHANGED
}

/// Whether the target has no disk there.
fn is_missing(sense: Sense) -> bool {
    sense.code == AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED
}
