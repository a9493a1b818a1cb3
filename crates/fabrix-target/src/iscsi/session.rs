//! A session's commands: which one waits for what, in a table with an entry per slot of the
//! connection.
//!
//! What becomes of a command is in `commands`; what a job asks of its disk is in `job`. Nothing is
//! allocated for a read or a write: its state is its slot's entry, made with the session.

use std::collections::VecDeque;
use std::sync::Arc;

use fabrix_block::Status as DiskStatus;
use fabrix_proto::Slot;
use fabrix_proto::iscsi::login::Leading;
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_proto::iscsi::target::{Answer as Response, ManagementId};
use fabrix_proto::scsi::attention::Attention;
use fabrix_proto::scsi::cdb::Command;
use fabrix_proto::scsi::reservation::{Initiator, Nexus};
use fabrix_proto::scsi::sense::{SENSE_BYTES_MAX, SenseFormat};
use fabrix_proto::scsi::spec::Status;
use fabrix_proto::scsi::unit::{Answer, Failure};
use fabrix_rt::{Completion, Nanos};
use fabrix_transport::Outgoing;

use super::context::SessionCarrier;
use super::job::Job;
use super::job::copying::Copies;
use super::units::{Unit, UnitName, Units};
use crate::context::{CommandContext, copy};
use crate::disk::{Barrier, DiskView, Member, PendingChange, Role, Stop, Trouble};
use crate::registry::ConnectionAddress;

/// What a slot waits for.
pub(super) enum Work {
    /// Nothing: the slot is free, or the machine's.
    Idle,
    /// The initiator's data, for a job.
    Fetching(Job),
    /// The initiator's data, for a command with a parameter list, at this logical unit.
    FetchingList(UnitName, Command),
    /// A disk that had no room.
    Stalled(Job),
    /// The turn of others: its disk answers at once.
    Paused(Job),
    /// The disk.
    AtDisk(Job),
    /// A change of reservations, of a command that moved so much.
    Changing(UnitName, Box<PendingChange>, u32),
    /// This disk, and then to be answered so, or to be forgotten; a sense format is that of the
    /// logical unit there.
    Aborted(UnitName, Option<(usize, Answer)>),
}

impl Work {
    /// The job that is at its disk, or waits to go on there.
    pub(super) fn job(&self) -> Option<&Job> {
        match self {
            Self::AtDisk(job) | Self::Stalled(job) | Self::Paused(job) => Some(job),
            _ => None,
        }
    }

    /// The disk at which there is a request.
    pub(super) fn at_disk(&self) -> Option<UnitName> {
        match self {
            Self::AtDisk(job) => Some(job.disk()),
            Self::Aborted(disk, _) => Some(*disk),
            _ => None,
        }
    }
}

/// Somebody who waits for commands to be quiet.
pub(super) struct Managing {
    pub(super) who: Who,
    /// Of this session.
    pub(super) waits_for: Vec<Slot>,
    /// Those of others.
    pub(super) pending_changes: Vec<PendingChange>,
    /// When commands of this session that are still at a disk are abandoned.
    pub(super) until: Nanos,
}

/// Who waits.
pub(super) enum Who {
    /// The initiator, for an answer.
    Initiator(ManagementId),
    /// The same, after a cold reset: all other sessions end first, those that have not been told
    /// yet in the list.
    ColdReset(ManagementId, Option<Vec<ConnectionAddress>>),
    /// Another connection: it sees when this is dropped.
    Other(#[expect(dead_code, reason = "it is held, and dropped")] Stop),
    /// The connection: it answers a logout when no command is left.
    Connection,
}

/// The commands in progress of one session, and what it is towards each logical unit.
pub(super) struct Session {
    /// This session, as disks know it.
    pub(super) me: Member,
    pub(super) units: Arc<Units>,
    pub(super) disk_views: Vec<DiskView>,
    pub(super) work: Vec<Work>,
    pub(super) stalled: VecDeque<Slot>,
    /// Whose turn it is comes first.
    pub(super) paused: VecDeque<Slot>,
    pub(super) at_disk: usize,
    /// Of disks that have requests of this session, once its connection has ended.
    pub(super) barriers: Vec<Barrier>,
    pub(super) managing: Vec<Managing>,
    pub(super) copies: Copies,
    /// How many slots wait for a change of reservations.
    pub(super) changing: usize,
    /// All sessions of the target end, and this one with its last answer.
    pub(super) dismissed: bool,
    /// Where answers are written that are not blocks.
    pub(super) page: Box<[u8]>,
}

impl Session {
    pub(super) fn new(
        place: ConnectionAddress,
        leading: &Leading,
        units: Arc<Units>,
        slots: usize,
    ) -> Self {
        Self {
            me: Member {
                place,
                nexus: Nexus {
                    initiator: Initiator::iscsi(&leading.initiator, leading.isid),
                    port: units.port(),
                },
                role: Role::Session,
            },
            disk_views: units.list.iter().map(Unit::disk_view).collect(),
            units,
            work: (0..slots).map(|_| Work::Idle).collect(),
            stalled: VecDeque::with_capacity(slots),
            paused: VecDeque::with_capacity(slots),
            at_disk: 0,
            barriers: Vec::new(),
            managing: Vec::new(),
            copies: Copies::default(),
            changing: 0,
            dismissed: false,
            page: vec![0; PAGE_BYTES].into(),
        }
    }

    /// The session sees other logical units from now on. What it has begun goes on, and finds out
    /// at its disk.
    pub(super) fn serve(&mut self, units: Arc<Units>) {
        let mut old: Vec<_> = std::mem::take(&mut self.disk_views)
            .into_iter()
            .map(Some)
            .collect();
        let luns_changed = self.units.luns != units.luns;
        let disk_views = units.list.iter().map(|unit| {
            let at = self.units.find(unit.name());
            let Some((at, mut disk_view)) = at.and_then(|at| Some((at, old[at].take()?))) else {
                return unit.disk_view();
            };
            if self.units.list[at].disk.blocks != unit.disk.blocks {
                disk_view.attentions.add(Attention::CapacityChanged);
            }
            if luns_changed {
                disk_view.attentions.add(Attention::LunsChanged);
            }
            disk_view
        });
        self.disk_views = disk_views.collect();
        self.units = units;
        for disk_view in old.iter_mut().flatten() {
            disk_view.leave(&self.me);
        }
    }

    /// The session is over: disks that it has used forget it.
    pub(super) fn leave(&mut self) {
        for disk_view in &mut self.disk_views {
            disk_view.leave(&self.me);
        }
    }

    /// All slots.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..=u16::MAX).take(self.work.len()).map(Slot)
    }

    pub(super) fn set(&mut self, slot: Slot, work: Work) {
        self.work[usize::from(slot.0)] = work;
    }

    pub(super) fn take(&mut self, slot: Slot) -> Work {
        std::mem::replace(&mut self.work[usize::from(slot.0)], Work::Idle)
    }

    /// Slots that wait for changes: somebody must call
    /// [`run_pending_changes`](Self::run_pending_changes).
    pub(super) fn has_pending_changes(&self) -> bool {
        self.changing > 0 || !self.managing.is_empty()
    }

    /// Looks again at what takes more than one turn.
    pub(super) fn run_pending_changes(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
    ) {
        for slot in self.slots() {
            if self.changing == 0 {
                break;
            }
            if matches!(self.work[usize::from(slot.0)], Work::Changing(..)) {
                self.go_on_changing(context, slot);
            }
        }
        self.end_overdue(context);
        self.answer_managed(context);
    }

    /// Answers a change of reservations when it holds and the commands that it ends are quiet.
    pub(super) fn go_on_changing(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        slot: Slot,
    ) {
        let Work::Changing(name, pending_change, moved) = &mut self.work[usize::from(slot.0)]
        else {
            return;
        };
        let (at, moved) = (self.units.find(*name), *moved);
        let Some(outcome) = pending_change.poll() else {
            return;
        };
        self.end_changing(slot);
        let answer = match outcome {
            Ok(()) => return self.respond(context, slot, &Response::good(moved)),
            Err(Trouble::Refused(refusal)) => Answer::reserved(Err(refusal)),
            Err(Trouble::NotStored) => Failure::Internal.answer(),
        };
        self.answer_page(context, slot, at, &answer);
    }

    /// A slot waits for a change no more.
    pub(super) fn end_changing(&mut self, slot: Slot) {
        self.changing -= 1;
        self.set(slot, Work::Idle);
    }

    /// A slot is free again after an answer or an abort that had to wait.
    pub(super) fn released(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        slot: Slot,
    ) {
        drop(context.stream.release(slot));
        self.quiet(context, slot);
    }

    /// A disk has answered.
    pub(super) fn disk_answered(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        slot: Slot,
        completion: Completion,
    ) {
        self.at_disk -= 1;
        match self.take(slot) {
            Work::AtDisk(mut job) => {
                let status = DiskStatus::from_result(completion.result);
                match job.ended(context, status, completion.loan) {
                    Some(end) => self.finish(context, slot, &job, end),
                    None => self.run(context, slot, job, None),
                }
            }
            Work::Aborted(_, None) => self.let_go(context, slot),
            Work::Aborted(_, Some((at, answer))) => {
                self.answer_page(context, slot, Some(at), &answer);
            }
            other => self.set(slot, other),
        }
        self.retry(context);
    }

    // ---- answers

    /// GOOD with a read's data, which is in `held`.
    pub(super) fn answer_blocks(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        slot: Slot,
        outgoing: Outgoing,
        moved: u32,
    ) {
        context.stream.send_from(slot, outgoing);
        self.respond(context, slot, &Response::good(moved));
    }

    /// An answer, its data at the start of the page.
    pub(super) fn answer_page(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        slot: Slot,
        at: Option<usize>,
        answer: &Answer,
    ) {
        if answer.status == Status::GOOD && answer.bytes > 0 {
            let bytes = answer.bytes as usize;
            let Some(buf) = copy(context.shard, &self.page[..bytes]) else {
                return self.fail(context, slot, at, Failure::Busy);
            };
            return self.answer_blocks(context, slot, Outgoing::Buf(buf, 0), answer.bytes);
        }
        let response = self.response(at, answer);
        self.respond(context, slot, &response);
    }

    pub(super) fn fail(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        slot: Slot,
        at: Option<usize>,
        failure: Failure,
    ) {
        let response = self.response(at, &failure.answer());
        self.respond(context, slot, &response);
    }

    /// An answer without data, in the words of iSCSI.
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
        slot: Slot,
        response: &Response,
    ) {
        if context.respond(slot, response) {
            self.quiet(context, slot);
        }
    }
}

/// The number of a logical unit, where it is one of ours: in the peripheral or flat space
/// addressing method.
///
/// Source: SAM-5, "Logical unit numbers".
pub(super) fn number(lun: Lun) -> Option<u16> {
    let [high, low, rest @ ..] = lun.0;
    let method = high >> 6;
    let fits = rest == [0; 6] && (method == 1 || high == 0);
    fits.then(|| u16::from_be_bytes([high & 0x3F, low]))
}

/// Data-in that is not blocks is at most this long: READ FULL STATUS of 256 registrants with the
/// longest names.
const PAGE_BYTES: usize = 72 << 10;
