//! A session's commands: which one waits for what, in a table with an entry per slot of the connection.
//!
//! What becomes of a command is in `commands`; what a job asks of its disk is in `job`. Nothing is allocated for a read
//! or a write: its state is its slot's entry, made with the session.

use std::collections::VecDeque;
use std::sync::Arc;

use fabrix_block::Status as DiskStatus;
use fabrix_proto::Slot;
use fabrix_proto::iscsi::login::Leading;
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_proto::iscsi::target::Answer as Response;
use fabrix_proto::scsi::attention::Attention;
use fabrix_proto::scsi::cdb::Command;
use fabrix_proto::scsi::reservation::{Initiator, Nexus};
use fabrix_proto::scsi::sense::{SENSE_BYTES_MAX, SenseFormat};
use fabrix_proto::scsi::spec::Status;
use fabrix_proto::scsi::unit::{Answer, Failure};
use fabrix_rt::Completion;
use fabrix_transport::Held;

use super::copy::Copies;
use super::desk::Desk;
use super::job::Job;
use super::management::Managing;
use super::units::{TARGET_PORT, Unit, UnitName, Units};
use crate::desk::{Data, copy};
use crate::disk::{Errand, Member, Role, Seat, Trouble};
use crate::registry::Place;

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
    Changing(UnitName, Box<Errand>, u32),
    /// The disk, and then to be answered so, or to be forgotten; a sense format is that of the logical unit there.
    Aborted(Option<(usize, Answer)>),
}

impl Work {
    /// The job that is at its disk, or waits to go on there.
    pub(super) fn job(&self) -> Option<&Job> {
        match self {
            Self::AtDisk(job) | Self::Stalled(job) | Self::Paused(job) => Some(job),
            _ => None,
        }
    }
}

/// The commands in progress of one session, and what it is towards each logical unit.
pub(super) struct Session {
    /// This session, as disks know it.
    pub(super) me: Member,
    pub(super) units: Arc<Units>,
    pub(super) seats: Vec<Seat>,
    pub(super) work: Vec<Work>,
    stalled: VecDeque<Slot>,
    /// Whose turn it is comes first.
    paused: VecDeque<Slot>,
    pub(super) at_disk: usize,
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
    pub(super) fn new(place: Place, leading: &Leading, units: Arc<Units>, slots: usize) -> Self {
        Self {
            me: Member {
                place,
                nexus: Nexus {
                    initiator: Initiator::iscsi(&leading.initiator, leading.isid),
                    port: TARGET_PORT,
                },
                role: Role::Session,
            },
            seats: units.list.iter().map(Unit::seat).collect(),
            units,
            work: (0..slots).map(|_| Work::Idle).collect(),
            stalled: VecDeque::with_capacity(slots),
            paused: VecDeque::with_capacity(slots),
            at_disk: 0,
            managing: Vec::new(),
            copies: Copies::default(),
            changing: 0,
            dismissed: false,
            page: vec![0; PAGE_BYTES].into(),
        }
    }

    /// The session sees other logical units from now on. What it has begun goes on, and finds out at its disk.
    pub(super) fn serve(&mut self, units: Arc<Units>) {
        let mut old: Vec<_> = std::mem::take(&mut self.seats)
            .into_iter()
            .map(Some)
            .collect();
        let luns_changed = self.units.luns != units.luns;
        let seats = units.list.iter().map(|unit| {
            let at = self.units.find(unit.name());
            let Some((at, mut seat)) = at.and_then(|at| Some((at, old[at].take()?))) else {
                return unit.seat();
            };
            if self.units.list[at].disk.blocks != unit.disk.blocks {
                seat.attentions.add(Attention::CapacityChanged);
            }
            if luns_changed {
                seat.attentions.add(Attention::LunsChanged);
            }
            seat
        });
        self.seats = seats.collect();
        self.units = units;
        for seat in old.iter_mut().flatten() {
            seat.leave(&self.me);
        }
    }

    /// The session is over: disks that it has used forget it.
    pub(super) fn leave(&mut self) {
        for seat in &mut self.seats {
            seat.leave(&self.me);
        }
    }

    /// True while requests wait for a disk that had no room: somebody must call `retry`.
    pub(super) fn is_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// True while commands wait for the turn of others only: somebody must call `go_on`.
    pub(super) fn is_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// The connection is over: what the disks had no room for is not tried again, and what pauses does not go on.
    pub(super) fn give_up(&mut self) {
        self.stalled.clear();
        self.paused.clear();
    }

    pub(super) fn set(&mut self, slot: Slot, work: Work) {
        self.work[usize::from(slot.0)] = work;
    }

    pub(super) fn take(&mut self, slot: Slot) -> Work {
        std::mem::replace(&mut self.work[usize::from(slot.0)], Work::Idle)
    }

    /// A slot waits until its disk has room again.
    pub(super) fn stall(&mut self, slot: Slot, job: Job) {
        self.set(slot, Work::Stalled(job));
        self.stalled.push_back(slot);
    }

    /// A slot waits until others have had their turn.
    pub(super) fn pause(&mut self, slot: Slot, job: Job) {
        self.set(slot, Work::Paused(job));
        self.paused.push_back(slot);
    }

    /// Slots that wait for changes: somebody must call [`run_errands`](Self::run_errands).
    pub(super) fn has_errands(&self) -> bool {
        self.changing > 0 || self.managing.iter().any(Managing::has_errands)
    }

    /// Looks again at what takes more than one turn.
    pub(super) fn run_errands(&mut self, desk: &mut Desk<'_>) {
        for index in 0..self.work.len() {
            if self.changing == 0 {
                break;
            }
            let slot = Slot(u16::try_from(index).expect("slots have numbers of 16 bits"));
            if matches!(self.work[index], Work::Changing(..)) {
                self.go_on_changing(desk, slot);
            }
        }
        self.answer_managed(desk);
    }

    /// Answers a change of reservations when it holds and the commands that it ends are quiet.
    pub(super) fn go_on_changing(&mut self, desk: &mut Desk<'_>, slot: Slot) {
        let Work::Changing(name, errand, moved) = &mut self.work[usize::from(slot.0)] else {
            return;
        };
        let (at, moved) = (self.units.find(*name), *moved);
        let Some(outcome) = errand.poll() else {
            return;
        };
        self.end_changing(slot);
        let answer = match outcome {
            Ok(()) => return self.respond(desk, slot, &Response::good(moved)),
            Err(Trouble::Refused(refusal)) => Answer::reserved(Err(refusal)),
            Err(Trouble::NotStored) => Failure::Internal.answer(),
        };
        self.answer_page(desk, slot, at, &answer);
    }

    /// A slot waits for a change no more.
    pub(super) fn end_changing(&mut self, slot: Slot) {
        self.changing -= 1;
        self.set(slot, Work::Idle);
    }

    /// A slot is free again after an answer or an abort that had to wait.
    pub(super) fn released(&mut self, desk: &mut Desk<'_>, slot: Slot) {
        drop(desk.stream.release(slot));
        self.quiet(desk, slot);
    }

    /// A disk has answered.
    pub(super) fn disk_answered(
        &mut self,
        desk: &mut Desk<'_>,
        slot: Slot,
        completion: Completion,
    ) {
        self.at_disk -= 1;
        match self.take(slot) {
            Work::AtDisk(mut job) => {
                let status = DiskStatus::from_result(completion.result);
                match job.ended(desk, status, completion.loan) {
                    Some(end) => self.finish(desk, slot, &job, end),
                    None => self.run(desk, slot, job, Data::None),
                }
            }
            Work::Aborted(None) => self.let_go(desk, slot),
            Work::Aborted(Some((at, answer))) => {
                self.answer_page(desk, slot, Some(at), &answer);
            }
            other => self.set(slot, other),
        }
        self.retry(desk);
    }

    /// Tries once more what a disk had no room for.
    pub(super) fn retry(&mut self, desk: &mut Desk<'_>) {
        for _ in 0..self.stalled.len() {
            let Some(slot) = self.stalled.pop_front() else {
                return;
            };
            let waiting = self.stalled.len();
            match self.take(slot) {
                Work::Stalled(job) => self.run(desk, slot, job, Data::None),
                other => self.set(slot, other),
            }
            if self.stalled.len() > waiting {
                // Still no room: keep the order, and wait for the next ending.
                self.stalled.rotate_right(1);
                return;
            }
        }
    }

    /// Goes on with the one that pauses whose turn it is. If it pauses again, it goes behind the others.
    pub(super) fn go_on(&mut self, desk: &mut Desk<'_>) {
        while let Some(slot) = self.paused.pop_front() {
            match self.take(slot) {
                Work::Paused(job) => return self.run(desk, slot, job, Data::None),
                // It was aborted meanwhile.
                other => self.set(slot, other),
            }
        }
    }

    // ---- answers

    /// GOOD with a read's data, which is in `held`.
    pub(super) fn answer_blocks(
        &mut self,
        desk: &mut Desk<'_>,
        slot: Slot,
        held: Held,
        moved: u32,
    ) {
        desk.stream.hold(slot, held);
        self.respond(desk, slot, &Response::good(moved));
    }

    /// An answer, its data at the start of the page.
    pub(super) fn answer_page(
        &mut self,
        desk: &mut Desk<'_>,
        slot: Slot,
        at: Option<usize>,
        answer: &Answer,
    ) {
        if answer.status == Status::GOOD && answer.bytes > 0 {
            let bytes = answer.bytes as usize;
            let Some(buf) = copy(desk.shard, &self.page[..bytes]) else {
                return self.fail(desk, slot, at, Failure::Busy);
            };
            return self.answer_blocks(desk, slot, Held::Buf(buf, 0), answer.bytes);
        }
        let response = self.response(at, answer);
        self.respond(desk, slot, &response);
    }

    pub(super) fn fail(
        &mut self,
        desk: &mut Desk<'_>,
        slot: Slot,
        at: Option<usize>,
        failure: Failure,
    ) {
        let response = self.response(at, &failure.answer());
        self.respond(desk, slot, &response);
    }

    /// An answer without data, in the words of iSCSI.
    fn response(&self, at: Option<usize>, answer: &Answer) -> Response {
        let Some(sense) = answer.sense else {
            return Response::status(answer.status.0, 0);
        };
        let seat = at.and_then(|at| self.seats.get(at));
        let format = seat.map_or(SenseFormat::Fixed, |seat| seat.mode.sense_format());
        let mut bytes = [0; SENSE_BYTES_MAX];
        let end = sense.write(format, &mut bytes);
        Response::check_condition(&bytes[..end])
    }

    pub(super) fn respond(&mut self, desk: &mut Desk<'_>, slot: Slot, response: &Response) {
        if desk.respond(slot, response) {
            self.quiet(desk, slot);
        }
    }
}

/// The number of a logical unit, where it is one of ours: in the peripheral or flat space addressing method.
///
/// Source: SAM-5, "Logical unit numbers".
pub(super) fn number(lun: Lun) -> Option<u16> {
    let [high, low, rest @ ..] = lun.0;
    let method = high >> 6;
    let fits = rest == [0; 6] && (method == 1 || high == 0);
    fits.then(|| u16::from_be_bytes([high & 0x3F, low]))
}

/// Data-in that is not blocks is at most this long: READ FULL STATUS of 256 registrants with the longest names.
const PAGE_BYTES: usize = 72 << 10;
