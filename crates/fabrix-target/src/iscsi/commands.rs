//! The first step of a command: an answer, a fetch of its data, a job for its disk, or a change of
//! shared state.
//!
//! A part of `session`. The logical unit of `proto` interprets the CDB. This file checks the length
//! of the announced data, and finds where the data lies.

use fabrix_block::Allocation;
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_proto::iscsi::target::{Answer as Response, SENSE_CRC_ERROR, Transfer};
use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::cdb::{Command, Direction};
use fabrix_proto::scsi::pages::Disk;
use fabrix_proto::scsi::pages::capacity::LbaRun;
use fabrix_proto::scsi::reservation::{Access, Reservations};
use fabrix_proto::scsi::sense::Sense;
use fabrix_proto::scsi::spec::{Opcode, Status};
use fabrix_proto::scsi::unit::{
    Answer, DiskOperation, Failure, Outcome, View, classify_absent, copy_status, lba_status,
};
use fabrix_proto::{Claim, Settled, Slot};
use fabrix_transport::Incoming;

use super::context::SessionCarrier;
use super::job::{Job, JobWork};
use super::session::{Session, Work, number};
use super::units::Units;
use crate::context::CommandContext;
use crate::disk::{DiskView, PendingChange, RequestedChange};

impl Session {
    /// Handles a command of the initiator.
    pub(super) fn command(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        claim: Claim,
        (cdb, lun): (&[u8; 16], Lun),
        transfer: Transfer,
        intact: bool,
    ) -> Settled {
        let at = number(lun).and_then(|lun| self.units.index(lun));
        let Some(at) = at else {
            let answer = classify_absent(&self.units.luns, cdb, &mut self.page);
            return self.answer_page(context, claim, None, &answer);
        };
        if !intact {
            let response = Response::check_condition(&SENSE_CRC_ERROR);
            return self.respond(context, claim, &response);
        }
        let unit = &self.units.list[at];
        let disk_view = &mut self.disk_views[at];
        disk_view.refresh(&self.me);
        let asks_reservations = cdb[0] == Opcode::PERSISTENT_RESERVE_IN.0;
        let reservations = asks_reservations.then(|| unit.state.reservations());
        let reservations = reservations.as_ref().unwrap_or(&NO_RESERVATIONS);
        let view = view(&self.units, (at, self.gate.port()), disk_view, reservations);
        match view.classify(&mut disk_view.attentions, cdb, &mut self.page) {
            Outcome::Answer(answer)
                if answer == Answer::GOOD && !fits(cdb, transfer, &unit.disk) =>
            {
                self.answer_page(context, claim, Some(at), &UNFIT)
            }
            Outcome::Answer(answer) => self.answer_page(context, claim, Some(at), &answer),
            Outcome::Disk(operation) => self.begin(context, claim, at, (operation, cdb), transfer),
            Outcome::Parameters(command) => self.await_list(context, claim, at, command, transfer),
            Outcome::LbaStatus { lba, allocation } => {
                self.lba_status(context, claim, at, lba, allocation)
            }
            Outcome::CopyStatus { list, allocation } => {
                let status = self.copy_status(self.units.list[at].name(), list);
                let answer = copy_status(status.as_ref(), allocation, &mut self.page);
                self.answer_page(context, claim, Some(at), &answer)
            }
            other => self.change(context, claim, at, other, 0),
        }
    }

    /// Refuses a command: the connection drains.
    pub(super) fn refuse(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        claim: Claim,
    ) -> Settled {
        self.respond(context, claim, &Response::status(Status::BUSY.0, 0))
    }

    /// Handles the parameter list of a command, after fetching it if needed.
    fn await_list(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        claim: Claim,
        at: usize,
        command: Command,
        transfer: Transfer,
    ) -> Settled {
        match transfer {
            Transfer::Inline { .. } => {
                self.list(context, claim, at, command, Some(&Incoming::InPlace))
            }
            Transfer::Fetch { bytes, .. } if context.fetch(claim.slot(), bytes) => {
                let name = self.units.list[at].name();
                self.commands.keep(claim, Work::FetchingList(name, command))
            }
            Transfer::Fetch { .. } => self.fail(context, claim, Some(at), Failure::Busy),
            Transfer::None | Transfer::Send { .. } => self.list(context, claim, at, command, None),
        }
    }

    /// Handles a parameter list that has arrived.
    fn list(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        claim: Claim,
        at: usize,
        command: Command,
        data: Option<&Incoming>,
    ) -> Settled {
        let disk_view = &mut self.disk_views[at];
        disk_view.refresh(&self.me);
        let view = view(
            &self.units,
            (at, self.gate.port()),
            disk_view,
            &NO_RESERVATIONS,
        );
        let moved = command.parameter_bytes().unwrap_or(0);
        match view.parameters(&command, context.bytes(data)) {
            Outcome::Answer(answer) if answer.status == Status::GOOD => {
                self.respond(context, claim, &Response::good(moved))
            }
            Outcome::Answer(answer) => self.answer_page(context, claim, Some(at), &answer),
            Outcome::Disk(operation) => {
                let job = Job::new(&self.units.list[at], at, JobWork::Disk(operation), moved);
                self.run(context, claim, job, None)
            }
            Outcome::Copy(list) => self.copy(context, claim, at, &list, moved),
            other => self.change(context, claim, at, other, moved),
        }
    }

    /// Answers GET LBA STATUS. Adjacent runs of the disk with the same state become one.
    fn lba_status(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        claim: Claim,
        at: usize,
        lba: u64,
        allocation: u32,
    ) -> Settled {
        let unit = &self.units.list[at];
        let channels = &context.local.channels;
        let Some(index) = channels.find(unit.name().disk) else {
            return self.fail(context, claim, Some(at), Failure::Gone);
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
        self.answer_page(context, claim, Some(at), &answer)
    }

    /// Begins a change of the logical unit's state.
    fn change(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        claim: Claim,
        at: usize,
        outcome: Outcome,
        moved: u32,
    ) -> Settled {
        let unit = &self.units.list[at];
        let answer = match outcome {
            Outcome::Reserve(request) => {
                let pending_change = PendingChange::reserve(
                    &unit.state,
                    &self.me,
                    RequestedChange::Request(request),
                );
                let slot = claim.slot();
                let work = Work::Changing(unit.name(), Box::new(pending_change), moved);
                let kept = self.commands.keep(claim, work);
                self.changing += 1;
                self.poll_change(context, slot);
                return kept;
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
            return self.respond(context, claim, &Response::good(moved));
        }
        self.answer_page(context, claim, Some(at), &answer)
    }

    /// Begins a command that needs its disk, after fetching its data if needed.
    fn begin(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        claim: Claim,
        at: usize,
        (operation, cdb): (DiskOperation, &[u8; 16]),
        transfer: Transfer,
    ) -> Settled {
        let unit = &self.units.list[at];
        let Ok((command, _)) = Command::parse(cdb, unit.disk.features()) else {
            return self.fail(context, claim, Some(at), Failure::Internal);
        };
        let needed = command.transfer(unit.disk.block_bytes);
        let (given, direction) = expected(transfer);
        match (needed.direction, direction) {
            // A read that is announced as a write moves no data in either direction.
            (Direction::In, Direction::Out) => {
                return self.respond(context, claim, &Response::good(0));
            }
            (Direction::Out, Direction::In) => {
                return self.answer_page(context, claim, Some(at), &UNFIT);
            }
            _ if !needed.fits(given.into()) => {
                return self.answer_page(context, claim, Some(at), &UNFIT);
            }
            _ => {}
        }
        // The length fits: a disk's longest transfer limits a command.
        let moved = u32::try_from(needed.bytes).unwrap_or(u32::MAX);
        let mut job = Job::new(unit, at, JobWork::Disk(operation), moved);
        if needed.direction == Direction::Out && !job.limit_to(given.min(moved)) {
            // There is no whole block to write. The residual tells the initiator.
            return self.respond(context, claim, &Response::good(moved));
        }
        job.count_in(context.local.counters());
        match transfer {
            Transfer::Fetch { bytes, .. } if context.fetch(claim.slot(), bytes) => {
                self.commands.keep(claim, Work::Fetching(job))
            }
            Transfer::Fetch { .. } => self.fail(context, claim, Some(at), Failure::Busy),
            Transfer::Inline { .. } => self.run(context, claim, job, Some(Incoming::InPlace)),
            Transfer::None | Transfer::Send { .. } => self.run(context, claim, job, None),
        }
    }

    /// All data that a command fetched has arrived.
    pub(super) fn fetched(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        slot: Slot,
        intact: bool,
    ) {
        let data = Some(context.stream.take_incoming(slot));
        let Some((claim, work)) = self.commands.take(slot) else {
            return debug_assert!(false, "{slot:?} fetched no data");
        };
        match work {
            _ if !intact => {
                let response = Response::check_condition(&SENSE_CRC_ERROR);
                self.respond(context, claim, &response)
            }
            Work::Fetching(job) if self.may_still(&job) => self.run(context, claim, job, data),
            Work::Fetching(job) => {
                self.answer_page(context, claim, Some(job.at), &Answer::CONFLICT)
            }
            Work::FetchingList(name, command) => match self.units.find(name) {
                Some(at) => self.list(context, claim, at, command, data.as_ref()),
                None => self.fail(context, claim, None, Failure::Gone),
            },
            _ => self.fail(context, claim, None, Failure::Internal),
        };
    }

    /// Whether reservations still allow a command whose data has arrived: fetching may take long.
    fn may_still(&mut self, job: &Job) -> bool {
        match self.units.find(job.name) {
            Some(at) => !self.is_reserved(at, job.access()),
            // The disk is not exported any more: the request fails there.
            None => true,
        }
    }

    /// Whether a reservation of another initiator forbids this access to the logical unit at index
    /// `at`.
    pub(super) fn is_reserved(&mut self, at: usize, access: Access) -> bool {
        self.disk_views[at].conflicts(&self.me, access)
    }
}

/// The logical unit at index `at`, as a command sees it at the target port with index `port`.
fn view<'a>(
    units: &'a Units,
    (at, port): (usize, usize),
    disk_view: &DiskView,
    reservations: &'a Reservations,
) -> View<'a> {
    let unit = &units.list[at];
    View {
        disk: &unit.disk,
        mode: disk_view.mode,
        target: &units.target,
        port: units.port_id(port),
        access: unit.access(port),
        states: &unit.states,
        luns: &units.luns,
        reservations,
        standing: disk_view.standing,
    }
}

/// Length and direction of the data that the initiator announces.
fn expected(transfer: Transfer) -> (u32, Direction) {
    match transfer {
        Transfer::None => (0, Direction::None),
        Transfer::Inline { bytes } | Transfer::Fetch { bytes, .. } => (bytes, Direction::Out),
        Transfer::Send { bytes } => (bytes, Direction::In),
    }
}

/// Whether the announced data fits a command that does not need its disk.
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

/// Most runs that one GET LBA STATUS takes from a disk.
const LBA_QUESTIONS_MAX: u32 = 256;

/// The announced data does not fit the command.
const UNFIT: Answer = Answer::check(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_CDB));

static NO_RESERVATIONS: Reservations = Reservations::new();
