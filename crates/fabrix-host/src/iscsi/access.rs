//! Access states (ALUA): how the target serves the disk over this path.
//!
//! A part of `session`. It reads the target port groups when the session has connected, after the
//! unit attention ASYMMETRIC ACCESS STATE CHANGED, after a command that a state has refused, and at
//! each tick while the state refuses commands: such a path gets no request whose answer could tell.
//! The state goes to the pool of the disk, and is reported as [`PathEvent::Access`]. A target that
//! reports no access states (TPGS 00b) is not asked.
//!
//! Source: SPC-4, "Target port group access states", "REPORT TARGET PORT GROUPS command".

use fabrix_proto::iscsi::initiator::{TaskOutcome, Transfer};
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::alua::{AccessState, state_of_group};
use fabrix_proto::scsi::cdb::build;
use fabrix_proto::scsi::sense::{Sense, SenseKey};
use fabrix_proto::scsi::spec::Status;
use fabrix_rt::Shard;

use super::connection::{Command, IscsiLink, OwnCommand};
use super::session::Session;
use crate::PathEvent;
use crate::connection::InFlight;
use crate::multipath::Access;
use crate::reconnection::State;

/// The access states of a session, as far as they are known.
#[derive(Default)]
pub(super) struct PortGroup {
    /// Target port group of this path. None: the target reports no access states.
    id: Option<u16>,
    /// State of the disk there, as last read. None: nothing was read.
    state: Option<AccessState>,
    /// The target port groups are asked for.
    is_reading: bool,
}

impl PortGroup {
    /// Whether the state refuses commands, as far as it is known.
    pub(super) fn refuses(&self) -> bool {
        self.state.is_some_and(|state| state.refusal().is_some())
    }

    /// The connection is lost, and an answer with it.
    pub(super) const fn disconnected(&mut self) {
        self.is_reading = false;
    }
}

impl<L: IscsiLink> Session<L> {
    /// The session has connected, at a port of this target port group.
    pub(super) fn found_port_group(&mut self, shard: &mut Shard, id: Option<u16>) {
        let group = &mut self.protocol.port_group;
        group.id = id;
        if id.is_none() && group.state.is_some() {
            return self.state_read(shard, AccessState::Optimized);
        }
        self.read_states(shard);
    }

    /// Reads the states if the sense data of an answer says that they may have changed.
    pub(super) fn read_states_after(&mut self, shard: &mut Shard, sense: Option<Sense>) {
        let changed = Sense::new(
            SenseKey::UNIT_ATTENTION,
            AdditionalSense::ASYMMETRIC_ACCESS_CHANGED,
        );
        let tells = |sense: Sense| {
            let is_change = (sense.key, sense.code) == (changed.key, changed.code);
            is_change || AccessState::from_sense(sense).is_some()
        };
        if sense.is_some_and(tells) {
            self.read_states(shard);
        }
    }

    /// Asks for the target port groups, unless they are asked for already. Without a slot or memory
    /// the next refused command lets them be read.
    pub(super) fn read_states(&mut self, shard: &mut Shard) {
        let group = &self.protocol.port_group;
        if group.id.is_none() || group.is_reading || self.reconnection.state != State::Connected {
            return;
        }
        let (Some(disk), Some(connection)) = (&self.plan.expected, self.connections.first_mut())
        else {
            return;
        };
        let Some(buf) = shard.take_buf(GROUPS_BYTES as usize) else {
            return;
        };
        let command = Command {
            lun: Lun::flat(disk.facts.lun),
            cdb: build::report_target_port_groups(GROUPS_BYTES),
            transfer: Transfer::Read {
                bytes: GROUPS_BYTES,
            },
        };
        let content = InFlight::Other(OwnCommand::States);
        let sent = connection.send(shard.now(), &command, Some(buf), content);
        self.protocol.port_group.is_reading = sent.is_ok();
        shard.flush_later(self.reconnection.task);
    }

    /// Processes the target port groups. A group that they do not name is taken as optimized. A
    /// unit attention has come before them: they are asked for again.
    pub(super) fn states_answered(
        &mut self,
        shard: &mut Shard,
        outcome: TaskOutcome,
        sense: Option<Sense>,
        data: &[u8],
    ) {
        self.protocol.port_group.is_reading = false;
        let is_good = outcome.intact && outcome.delivered && outcome.status == Status::GOOD.0;
        if let (true, Some(id)) = (is_good, self.protocol.port_group.id) {
            let state = state_of_group(data, id).unwrap_or(AccessState::Optimized);
            return self.state_read(shard, state);
        }
        if sense.is_some_and(|sense| sense.key == SenseKey::UNIT_ATTENTION) {
            self.read_states(shard);
        }
    }

    fn state_read(&mut self, shard: &mut Shard, state: AccessState) {
        if self.protocol.port_group.state.replace(state) == Some(state) {
            return;
        }
        let access = match state {
            AccessState::Optimized => Access::Optimized,
            AccessState::NonOptimized | AccessState::BlockDependent => Access::NonOptimized,
            AccessState::Standby
            | AccessState::Unavailable
            | AccessState::Offline
            | AccessState::Transitioning => Access::Inaccessible,
        };
        self.reconnection.report_event(PathEvent::Access(access));
        if let Some(path) = &self.reconnection.path {
            path.serves(shard, access);
        }
    }
}

/// 4 KiB: 340 target port groups of one port each. A group behind them is taken as optimized.
const GROUPS_BYTES: u32 = 4096;
