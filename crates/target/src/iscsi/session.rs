//! A session's commands: which one waits for what, in a table with an entry per slot of the connection.
//!
//! CDBs become answers or jobs through `proto`'s logical unit; what a job asks of its disk is in `job`. Nothing is
//! allocated for a read or a write: its state is its slot's entry, made with the session.

use std::collections::VecDeque;
use std::sync::Arc;

use fabrix_block::{Allocation, Status as DiskStatus};
use fabrix_proto::Slot;
use fabrix_proto::iscsi::login::Leading;
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_proto::iscsi::target::{Answer as Response, SENSE_CRC_ERROR, Target, Transfer};
use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::attention::Attention;
use fabrix_proto::scsi::cdb::{Command, Direction};
use fabrix_proto::scsi::pages::Disk;
use fabrix_proto::scsi::pages::capacity::LbaRun;
use fabrix_proto::scsi::reservation::{Access, Initiator, Nexus, Reservations};
use fabrix_proto::scsi::sense::{SENSE_BYTES_MAX, Sense, SenseFormat};
use fabrix_proto::scsi::spec::{Opcode, Status};
use fabrix_proto::scsi::unit::{
    Answer, DiskOperation, Failure, Outcome, View, classify_absent, copy_status, lba_status,
};
use fabrix_rt::{Buf, Completion, Shard, TaskId};
use fabrix_transport::{Held, Stream};

use super::copy::Copies;
use super::job::{Job, Source};
use super::management::Managing;
use super::units::{TARGET_PORT, Unit, UnitName, Units};
use crate::disk::{Asked, Errand, Member, Role, Seat, Trouble};
use crate::local::Local;
use crate::registry::Place;

/// Slots of the connection's task from here on are disk requests of the command slot that is added.
pub(super) const DISK_SLOTS: u32 = 16;

/// What a session works with during one call.
pub(super) struct Desk<'a> {
    pub(super) shard: &'a mut Shard,
    pub(super) stream: &'a mut Stream<Target>,
    pub(super) local: &'a Local,
    pub(super) task: TaskId,
}

impl Desk<'_> {
    /// Answers a slot; false: its data is still arriving, and the slot is used until `Released`.
    fn respond(&mut self, slot: Slot, response: &Response) -> bool {
        let (machine, mut out) = self.stream.speak();
        let free = machine.answer(slot, response, &mut out);
        if free {
            let _sent_or_unwanted = self.stream.release(slot);
        }
        free
    }

    /// Makes room for a write's data and asks the initiator for what does not come by itself.
    fn fetch(&mut self, slot: Slot, bytes: u32) -> bool {
        let Some(buf) = self.shard.take_buf(bytes as usize) else {
            return false;
        };
        self.stream.hold(slot, Held::Awaited(buf, bytes as usize));
        let (machine, mut out) = self.stream.speak();
        machine.fetch(slot, &mut out);
        true
    }

    /// The data that a slot has fetched.
    fn fetched(&mut self, slot: Slot) -> Source {
        match self.stream.release(slot) {
            Held::Buf(buf, _) => Source::Kept(buf),
            Held::Stayed(_) => Source::InPlace,
            Held::Nothing | Held::Awaited(..) | Held::Lent(_) => Source::None,
        }
    }

    /// Whether what is sent must not change on the way: digests are computed over it.
    pub(super) fn copies_reads(&self) -> bool {
        let session = self.stream.machine().session();
        session.is_some_and(|session| session.parameters.digests.data)
    }
}

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
    /// The disk.
    AtDisk(Job),
    /// A change of reservations, of a command that moved so much.
    Changing(UnitName, Box<Errand>, u32),
    /// The disk, and then to be answered so, or to be forgotten.
    Aborted(Option<Status>),
}

/// The commands in progress of one session, and what it is towards each logical unit.
pub(super) struct Session {
    /// This session, as disks know it.
    pub(super) me: Member,
    pub(super) units: Arc<Units>,
    pub(super) seats: Vec<Seat>,
    pub(super) work: Vec<Work>,
    stalled: VecDeque<Slot>,
    pub(super) at_disk: usize,
    pub(super) managing: Vec<Managing>,
    pub(super) copies: Copies,
    /// How many slots wait for a change of reservations.
    changing: usize,
    /// Where answers are written that are not blocks.
    page: Box<[u8]>,
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
            at_disk: 0,
            managing: Vec::new(),
            copies: Copies::default(),
            changing: 0,
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

    /// The connection is over: what the disks had no room for is not tried again.
    pub(super) fn give_up(&mut self) {
        self.stalled.clear();
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

    /// A command has come from the initiator.
    pub(super) fn command(
        &mut self,
        desk: &mut Desk<'_>,
        slot: Slot,
        (cdb, lun): (&[u8; 16], Lun),
        transfer: Transfer,
        intact: bool,
    ) {
        let at = number(lun).and_then(|lun| self.units.index(lun));
        let Some(at) = at else {
            let answer = classify_absent(&self.units.luns, cdb, &mut self.page);
            return self.answer_page(desk, slot, None, &answer);
        };
        if !intact {
            let response = Response::check_condition(&SENSE_CRC_ERROR);
            return self.respond(desk, slot, &response);
        }
        let unit = &self.units.list[at];
        let seat = &mut self.seats[at];
        seat.refresh(&self.me);
        let asks_reservations = cdb[0] == Opcode::PERSISTENT_RESERVE_IN.0;
        let reservations = asks_reservations.then(|| unit.state.reservations());
        let view = View {
            disk: &unit.disk,
            mode: seat.mode,
            target: &self.units.target,
            port: TARGET_PORT,
            luns: &self.units.luns,
            reservations: reservations.as_ref().unwrap_or(&NO_RESERVATIONS),
            standing: seat.standing,
        };
        match view.classify(&mut seat.attentions, cdb, &mut self.page) {
            Outcome::Answer(answer)
                if answer == Answer::GOOD && !fits(cdb, transfer, &unit.disk) =>
            {
                self.answer_page(desk, slot, Some(at), &UNFIT);
            }
            Outcome::Answer(answer) => self.answer_page(desk, slot, Some(at), &answer),
            Outcome::Disk(operation) => {
                self.begin(desk, slot, at, (operation, cdb), transfer);
            }
            Outcome::Parameters(command) => self.await_list(desk, slot, at, command, transfer),
            Outcome::LbaStatus { lba, allocation } => {
                self.lba_status(desk, slot, at, lba, allocation);
            }
            Outcome::CopyStatus { list, allocation } => {
                let status = self.copy_status(self.units.list[at].name(), list);
                let answer = copy_status(status.as_ref(), allocation, &mut self.page);
                self.answer_page(desk, slot, Some(at), &answer);
            }
            other => self.change(desk, slot, at, other, 0),
        }
    }

    /// The target goes: no command is begun any more.
    pub(super) fn refuse(&mut self, desk: &mut Desk<'_>, slot: Slot) {
        self.respond(desk, slot, &Response::status(Status::BUSY.0, 0));
    }

    /// Fetches the parameter list of a command, or takes it if it is here.
    fn await_list(
        &mut self,
        desk: &mut Desk<'_>,
        slot: Slot,
        at: usize,
        command: Command,
        transfer: Transfer,
    ) {
        match transfer {
            Transfer::Inline { .. } => self.list(desk, slot, at, command, &Source::InPlace),
            Transfer::Fetch { bytes, .. } if desk.fetch(slot, bytes) => {
                let name = self.units.list[at].name();
                self.set(slot, Work::FetchingList(name, command));
            }
            Transfer::Fetch { .. } => self.fail(desk, slot, Some(at), Failure::Busy),
            Transfer::None | Transfer::Send { .. } => {
                self.list(desk, slot, at, command, &Source::None);
            }
        }
    }

    /// A command's parameter list is here.
    fn list(
        &mut self,
        desk: &mut Desk<'_>,
        slot: Slot,
        at: usize,
        command: Command,
        data: &Source,
    ) {
        let (unit, seat) = (&self.units.list[at], &mut self.seats[at]);
        seat.refresh(&self.me);
        let view = View {
            disk: &unit.disk,
            mode: seat.mode,
            target: &self.units.target,
            port: TARGET_PORT,
            luns: &self.units.luns,
            reservations: &NO_RESERVATIONS,
            standing: seat.standing,
        };
        let moved = command.parameter_bytes().unwrap_or(0);
        match view.parameters(&command, data.bytes(desk)) {
            Outcome::Answer(answer) if answer.status == Status::GOOD => {
                self.respond(desk, slot, &Response::good(moved));
            }
            Outcome::Answer(answer) => self.answer_page(desk, slot, Some(at), &answer),
            Outcome::Disk(operation) => {
                let job = Job::new(&self.units.list[at], at, operation, moved);
                self.run(desk, slot, job, Source::None);
            }
            Outcome::Copy(list) => self.copy(desk, slot, at, &list, moved),
            other => self.change(desk, slot, at, other, moved),
        }
    }

    /// Asks the disk which of its blocks hold something; runs that it tells in parts are told as one.
    fn lba_status(
        &mut self,
        desk: &mut Desk<'_>,
        slot: Slot,
        at: usize,
        lba: u64,
        allocation: u32,
    ) {
        let unit = &self.units.list[at];
        let channels = &desk.local.channels;
        let same = |at: &usize| channels.added(*at) == unit.added;
        let Some(index) = channels.index(unit.nsid).filter(same) else {
            return self.fail(desk, slot, Some(at), Failure::Gone);
        };
        let mut runs: Vec<LbaRun> = Vec::new();
        let (mut next, end) = (lba, unit.disk.blocks.min(channels.blocks(index)));
        for _ in 0..LBA_QUESTIONS_MAX {
            if next >= end {
                break;
            }
            let run = channels.allocation(index, next).at_most(end - next);
            let deallocated = run.allocation == Allocation::Deallocated;
            let blocks = u32::try_from(run.blocks).unwrap_or(u32::MAX);
            next += u64::from(blocks);
            match runs.last_mut() {
                Some(last) if last.deallocated == deallocated => {
                    last.blocks = last.blocks.saturating_add(blocks);
                    if last.blocks == u32::MAX {
                        break;
                    }
                }
                _ => runs.push(LbaRun {
                    blocks,
                    deallocated,
                }),
            }
        }
        let answer = lba_status(lba, allocation, runs.into_iter(), &mut self.page);
        self.answer_page(desk, slot, Some(at), &answer);
    }

    /// What changes the state of the logical unit.
    fn change(&mut self, desk: &mut Desk<'_>, slot: Slot, at: usize, outcome: Outcome, moved: u32) {
        let unit = &self.units.list[at];
        let answer = match outcome {
            Outcome::Reserve(request) => {
                let errand = Errand::reserve(&unit.state, &self.me, Asked::Request(request));
                self.set(slot, Work::Changing(unit.name(), Box::new(errand), moved));
                self.changing += 1;
                return self.go_on_changing(desk, slot);
            }
            Outcome::Mode(mode) => {
                unit.state.set_mode(&self.me, mode);
                Answer::GOOD
            }
            _ => Answer::check(Sense::illegal(
                AdditionalSense::INVALID_COMMAND_OPERATION_CODE,
            )),
        };
        if answer.status == Status::GOOD {
            return self.respond(desk, slot, &Response::good(moved));
        }
        self.answer_page(desk, slot, Some(at), &answer);
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
    fn go_on_changing(&mut self, desk: &mut Desk<'_>, slot: Slot) {
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

    /// A command that is a disk's: it waits for its data, or begins.
    fn begin(
        &mut self,
        desk: &mut Desk<'_>,
        slot: Slot,
        at: usize,
        (operation, cdb): (DiskOperation, &[u8; 16]),
        transfer: Transfer,
    ) {
        let unit = &self.units.list[at];
        let Ok((command, _)) = Command::parse(cdb, unit.disk.features()) else {
            return self.fail(desk, slot, Some(at), Failure::Internal);
        };
        let needed = command.transfer(unit.disk.block_bytes);
        let (given, direction) = expected(transfer);
        match (needed.direction, direction) {
            // A read that is announced as a write has nothing to give, and nothing is taken.
            (Direction::In, Direction::Out) => {
                return self.respond(desk, slot, &Response::good(0));
            }
            (Direction::Out, Direction::In) => {
                return self.answer_page(desk, slot, Some(at), &UNFIT);
            }
            _ if !needed.fits(given.into()) => {
                return self.answer_page(desk, slot, Some(at), &UNFIT);
            }
            _ => {}
        }
        // Commands are limited by what a disk moves at once, so this fits.
        let moved = u32::try_from(needed.bytes).unwrap_or(u32::MAX);
        let mut job = Job::new(unit, at, operation, moved);
        if needed.direction == Direction::Out && !job.limit_to(given.min(moved)) {
            // Not one whole block of data: nothing is to be done, and the residual says so.
            return self.respond(desk, slot, &Response::good(moved));
        }
        match transfer {
            Transfer::Fetch { bytes, .. } if desk.fetch(slot, bytes) => {
                self.set(slot, Work::Fetching(job));
            }
            Transfer::Fetch { .. } => self.fail(desk, slot, Some(at), Failure::Busy),
            Transfer::Inline { .. } => self.run(desk, slot, job, Source::InPlace),
            Transfer::None | Transfer::Send { .. } => self.run(desk, slot, job, Source::None),
        }
    }

    /// The data that a slot asked for is here.
    pub(super) fn fetched(&mut self, desk: &mut Desk<'_>, slot: Slot, intact: bool) {
        let data = desk.fetched(slot);
        match self.take(slot) {
            _ if !intact => {
                let response = Response::check_condition(&SENSE_CRC_ERROR);
                self.respond(desk, slot, &response);
            }
            Work::Fetching(job) if self.may_still(&job) => self.run(desk, slot, job, data),
            Work::Fetching(job) => {
                self.answer_page(desk, slot, Some(job.at), &Answer::CONFLICT);
            }
            Work::FetchingList(name, command) => match self.units.find(name) {
                Some(at) => self.list(desk, slot, at, command, &data),
                None => self.fail(desk, slot, None, Failure::Gone),
            },
            _ => self.fail(desk, slot, None, Failure::Internal),
        }
    }

    /// Whether reservations still allow what was allowed when the command came: its data may have taken long.
    fn may_still(&mut self, job: &Job) -> bool {
        match self.units.find(job.name) {
            Some(at) => !self.is_reserved(at, job.access()),
            // Its disk is gone, which it finds out there.
            None => true,
        }
    }

    /// Whether somebody else's reservation forbids this of the logical unit at this place.
    pub(super) fn is_reserved(&mut self, at: usize, access: Access) -> bool {
        self.seats[at].conflicts(&self.me, access)
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
                    None => self.run(desk, slot, job, Source::None),
                }
            }
            Work::Aborted(None) => self.let_go(desk, slot),
            Work::Aborted(Some(status)) => {
                self.respond(desk, slot, &Response::status(status.0, 0));
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
                Work::Stalled(job) => self.run(desk, slot, job, Source::None),
                other => self.set(slot, other),
            }
            if self.stalled.len() > waiting {
                // Still no room: keep the order, and wait for the next ending.
                self.stalled.rotate_right(1);
                return;
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

/// How much data the initiator announces, and which way.
fn expected(transfer: Transfer) -> (u32, Direction) {
    match transfer {
        Transfer::None => (0, Direction::None),
        Transfer::Inline { bytes } | Transfer::Fetch { bytes, .. } => (bytes, Direction::Out),
        Transfer::Send { bytes } => (bytes, Direction::In),
    }
}

/// Whether a command that needs nothing of its disk may come with so much data.
fn fits(cdb: &[u8], transfer: Transfer, disk: &Disk) -> bool {
    let (given, direction) = expected(transfer);
    if direction != Direction::Out {
        return true;
    }
    let parsed = Command::parse(cdb, disk.features());
    parsed.map_or(true, |(command, _)| {
        command.transfer(disk.block_bytes).fits(given.into())
    })
}

/// A copy in a buffer of the shard's.
pub(super) fn copy(shard: &mut Shard, bytes: &[u8]) -> Option<Buf> {
    let mut buf = shard.take_buf(bytes.len().max(1))?;
    buf.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    Some(buf)
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

/// So often a disk is asked for one GET LBA STATUS.
const LBA_QUESTIONS_MAX: u32 = 256;

/// The data that the initiator announces is not what the command moves.
const UNFIT: Answer = Answer::check(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_CDB));

static NO_RESERVATIONS: Reservations = Reservations::new();
