//! A session: the commands in progress of one initiator, and its view of each logical unit.
//!
//! `commands` classifies commands, and `job` knows the requests that they make. A read or a write
//! allocates nothing: its state is the entry of its slot, made with the session.

use std::sync::Arc;

use fabrix_proto::iscsi::login::Leading;
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_proto::iscsi::target::{Answer as Response, ManagementId};
use fabrix_proto::scsi::attention::Attention;
use fabrix_proto::scsi::cdb::Command;
use fabrix_proto::scsi::reservation::{Initiator, Nexus};
use fabrix_proto::scsi::sense::{SENSE_BYTES_MAX, SenseFormat};
use fabrix_proto::scsi::spec::Status;
use fabrix_proto::scsi::unit::{Answer, Failure};
use fabrix_proto::{Claim, Settled, Slot};
use fabrix_rt::Nanos;
use fabrix_transport::Outgoing;

use super::alua::AccessGate;
use super::context::SessionCarrier;
use super::job::Job;
use super::job::copying::Copies;
use super::units::{Unit, UnitName, Units};
use crate::catalog::known::{Known, KnownDisks, OTHER_DISK};
use crate::command_table::CommandTable;
use crate::context::{CommandContext, copy};
use crate::disk::{DiskView, Member, PendingChange, Role, Stop, Trouble};
use crate::registry::ConnectionAddress;

/// The condition that a command waits for.
pub(super) enum Work {
    /// The initiator's data, for a job.
    Fetching(Job),
    /// The initiator's data, for a command with a parameter list, at this logical unit.
    FetchingList(UnitName, Command),
    /// Room at its disk.
    Stalled(Job),
    /// The turn of other connections: its disk answers at once.
    Paused(Job),
    /// Its disk.
    AtDisk(Job),
    /// A change of reservations at this logical unit. The number is the length of the command's
    /// parameter list, in bytes.
    Changing(UnitName, Box<PendingChange>, u32),
    /// The disk of an aborted command. The answer follows, if there is one.
    Aborted(UnitName, Option<AbortAnswer>),
}

/// The answer to an aborted command, with the index of its logical unit where that is known.
pub(super) type AbortAnswer = (Option<usize>, Answer);

impl Work {
    /// The job that is at its disk, or waits to continue there.
    pub(super) fn job(&self) -> Option<&Job> {
        match self {
            Self::AtDisk(job) | Self::Stalled(job) | Self::Paused(job) => Some(job),
            _ => None,
        }
    }

    /// The disk that has a request of the command.
    pub(super) fn at_disk(&self) -> Option<UnitName> {
        match self {
            Self::AtDisk(job) => Some(job.disk()),
            Self::Aborted(disk, _) => Some(*disk),
            _ => None,
        }
    }
}

/// A request that waits for commands to end.
pub(super) struct Managing {
    pub(super) requester: Requester,
    /// Commands of this session.
    pub(super) waits_for: Vec<Slot>,
    /// Commands of other sessions.
    pub(super) pending_changes: Vec<PendingChange>,
    /// When commands of this session that are still at a disk are abandoned.
    pub(super) until: Nanos,
}

/// The owner of a request that waits.
pub(super) enum Requester {
    /// The initiator: it gets an answer.
    Initiator(ManagementId),
    /// The initiator, by a cold reset: all other sessions end first. The list has those that have
    /// no order to end yet.
    ColdReset(ManagementId, Option<Vec<ConnectionAddress>>),
    /// Another connection: it sees the drop of this value.
    Other(#[expect(dead_code, reason = "it is held, and dropped")] Stop),
    /// This connection, which answers a Logout when no command is in progress.
    Connection,
}

/// The commands in progress of one session, and its view of each logical unit.
pub(super) struct Session {
    /// This session as a member of disks' state.
    pub(super) me: Member,
    pub(super) units: Arc<Units>,
    /// The disks that the initiator knows.
    known: KnownDisks,
    pub(super) disk_views: Vec<DiskView>,
    pub(super) commands: CommandTable<Work>,
    pub(super) managing: Vec<Managing>,
    pub(super) copies: Copies,
    pub(super) gate: AccessGate,
    /// Number of commands that wait for a change of reservations.
    pub(super) changing: usize,
    /// True after a cold reset: all sessions of the target end, and this one after its last answer.
    pub(super) dismissed: bool,
    /// Buffer for answers with data that is not blocks.
    pub(super) page: Box<[u8]>,
}

impl Session {
    /// A session that came by the listener with number `listener`.
    pub(super) fn new(
        address: ConnectionAddress,
        (leading, listener): (&Leading, u16),
        units: Arc<Units>,
        slots: usize,
    ) -> Self {
        let gate = AccessGate::new(listener, &units);
        let mut known = KnownDisks::default();
        for unit in &units.list {
            unit.is_seen(&mut known);
        }
        Self {
            known,
            me: Member {
                place: address,
                nexus: Nexus {
                    initiator: Initiator::iscsi(&leading.initiator, leading.isid),
                    port: units.port_id(gate.port()),
                },
                role: Role::Session,
            },
            gate,
            disk_views: units.list.iter().map(Unit::disk_view).collect(),
            units,
            commands: CommandTable::new(slots),
            managing: Vec::new(),
            copies: Copies::default(),
            changing: 0,
            dismissed: false,
            page: vec![0; PAGE_BYTES].into(),
        }
    }

    /// Replaces the logical units that the session sees. Commands in progress continue, and learn
    /// of the change from their disk.
    ///
    /// # Errors
    /// The session has to end, for the reason in the sentence.
    pub(super) fn serve(&mut self, units: Arc<Units>) -> Result<(), &'static str> {
        let seen = units.list.iter();
        let seen: Vec<_> = seen.map(|unit| unit.is_seen(&mut self.known)).collect();
        if seen.contains(&Known::OtherDisk) {
            return Err(OTHER_DISK);
        }
        let mut old: Vec<_> = std::mem::take(&mut self.disk_views)
            .into_iter()
            .map(Some)
            .collect();
        let luns_changed = self.units.luns != units.luns;
        let disk_views = units.list.iter().zip(seen).map(|(unit, seen)| {
            let at = self.units.find(unit.name());
            let Some((at, mut disk_view)) = at.and_then(|at| Some((at, old[at].take()?))) else {
                let mut disk_view = unit.disk_view();
                // The initiator may not have heard of another size before the disk was removed.
                if seen == Known::ThisDisk {
                    disk_view.attentions.add(Attention::CapacityChanged);
                }
                return disk_view;
            };
            if self.units.list[at].disk.blocks != unit.disk.blocks {
                disk_view.attentions.add(Attention::CapacityChanged);
            }
            if self.units.list[at].states != unit.states {
                disk_view.attentions.add(Attention::AsymmetricAccessChanged);
            }
            if luns_changed {
                disk_view.attentions.add(Attention::LunsChanged);
            }
            disk_view
        });
        self.disk_views = disk_views.collect();
        self.gate.refresh(&units);
        self.units = units;
        for disk_view in old.iter_mut().flatten() {
            disk_view.leave(&self.me);
        }
        Ok(())
    }

    /// Removes the session from the state of its disks, at its end.
    pub(super) fn leave(&mut self) {
        for disk_view in &mut self.disk_views {
            disk_view.leave(&self.me);
        }
    }

    /// Whether commands wait for changes: the connection has to call
    /// [`run_pending_changes`](Self::run_pending_changes).
    pub(super) fn has_pending_changes(&self) -> bool {
        self.changing > 0 || !self.managing.is_empty()
    }

    /// Polls the changes that take more than one turn.
    pub(super) fn run_pending_changes(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
    ) {
        for slot in self.commands.slots() {
            if self.changing == 0 {
                break;
            }
            self.poll_change(context, slot);
        }
        self.end_overdue(context);
        self.answer_managed(context);
    }

    /// Answers a change of reservations that is in force, once the commands that it ends have
    /// ended.
    pub(super) fn poll_change(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        slot: Slot,
    ) {
        let Some(Work::Changing(name, pending_change, moved)) = self.commands.get_mut(slot) else {
            return;
        };
        let (at, moved) = (self.units.find(*name), *moved);
        let Some(outcome) = pending_change.poll() else {
            return;
        };
        let Some((claim, _)) = self.commands.take(slot) else {
            return;
        };
        self.changing -= 1;
        let answer = match outcome {
            Ok(()) => {
                self.respond(context, claim, &Response::good(moved));
                return;
            }
            Err(Trouble::Refused(refusal)) => Answer::reserved(Err(refusal)),
            Err(Trouble::NotStored) => Failure::Internal.answer(),
        };
        self.answer_page(context, claim, at, &answer);
    }

    /// A slot is free: the data of an answered or aborted command arrives no more.
    pub(super) fn released(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        slot: Slot,
    ) {
        drop(context.stream.release(slot));
        self.slot_freed(context, slot);
    }

    // ---- answers

    /// Answers GOOD, with the data of a read.
    pub(super) fn answer_blocks(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        claim: Claim,
        outgoing: Outgoing,
        moved: u32,
    ) -> Settled {
        context.stream.send_from(claim.slot(), outgoing);
        self.respond(context, claim, &Response::good(moved))
    }

    /// Answers a command of the logical unit at index `at`. The data of the answer is at the start
    /// of the page.
    pub(super) fn answer_page(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        claim: Claim,
        at: Option<usize>,
        answer: &Answer,
    ) -> Settled {
        if answer.status == Status::GOOD && answer.bytes > 0 {
            let bytes = answer.bytes as usize;
            let Some(buf) = copy(context.shard, &self.page[..bytes]) else {
                return self.fail(context, claim, at, Failure::Busy);
            };
            return self.answer_blocks(context, claim, Outgoing::Buf(buf, 0), answer.bytes);
        }
        let response = self.response(at, answer);
        self.respond(context, claim, &response)
    }

    pub(super) fn fail(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        claim: Claim,
        at: Option<usize>,
        failure: Failure,
    ) -> Settled {
        let response = self.response(at, &failure.answer());
        self.respond(context, claim, &response)
    }

    /// An answer without data, in the terms of iSCSI.
    fn response(&self, at: Option<usize>, answer: &Answer) -> Response {
        let Some(sense) = answer.sense else {
            return Response::status(answer.status.0, 0);
        };
        let disk_view = at.and_then(|at| self.disk_views.get(at));
        let format = disk_view.map_or(SenseFormat::Fixed, |disk_view| {
            disk_view.mode.sense_format()
        });
        let mut bytes = [0; SENSE_BYTES_MAX];
        let end = sense.write(format, &mut bytes);
        Response::check_condition(&bytes[..end])
    }

    pub(super) fn respond(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        claim: Claim,
        response: &Response,
    ) -> Settled {
        let slot = claim.slot();
        let (answered, is_free) = context.respond(claim, response);
        if is_free {
            self.slot_freed(context, slot);
        }
        answered
    }
}

/// The number of a logical unit in the peripheral or flat space addressing method. Our logical
/// units have no other.
///
/// Source: SAM-5, "Logical unit numbers".
pub(super) fn number(lun: Lun) -> Option<u16> {
    let [high, low, rest @ ..] = lun.0;
    let method = high >> 6;
    let fits = rest == [0; 6] && (method == 1 || high == 0);
    fits.then(|| u16::from_be_bytes([high & 0x3F, low]))
}

/// 72 KiB: READ FULL STATUS of 256 registrants with the longest names. No answer with other data
/// than blocks is longer.
const PAGE_BYTES: usize = 72 << 10;
