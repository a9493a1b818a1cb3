//! One command of an I/O queue, from its submission entry to its answer.
//!
//! The second half of `io`: the disk requests of each command, and their results. `io` has the
//! table of commands, `fused` the fused pairs.

use fabrix_block::{Operation, Payload, Request, Status as DiskStatus, Submit};
use fabrix_proto::nvme::command::{DatasetRange, IoCommand};
use fabrix_proto::nvme::spec::Status;
use fabrix_proto::{Claim, Settled, Slot};
use fabrix_rt::{Buf, Loan, Nanos, Shard};
use fabrix_transport::Incoming;
use zerocopy::FromBytes;

use super::context::Queue;
use super::io::{IoQueue, Ranges, ResolvedCommand, Work};
use super::status::{nvme_status, unreached};
use crate::channels::{SharedChannel, Unreached};
use crate::context::{Budget, CommandContext, copy, payload};
use crate::counters::Counters;
use crate::disk::DiskId;
use crate::local::Local;

/// The disk's first answer to a request.
pub(crate) enum Submitted {
    Done(DiskStatus, Loan),
    Pending,
    /// The disk has no room. The data of the request, if it has any, comes back.
    Busy(Option<Buf>),
    /// The disk cannot be opened on this shard, or its identity has changed.
    Refused(Status),
}

/// Submits a request to the disk of a command's namespace.
///
/// # Errors
/// The status to answer when the disk cannot be opened on this shard, or when its identity has
/// changed.
#[inline(always)]
fn submit<'d>(
    local: &Local,
    shard: &mut Shard,
    disk: DiskId,
    request: Request<'d>,
) -> Result<Submit<'d>, Status> {
    let range = (request.operation != Operation::Flush).then_some((request.lba, request.blocks));
    let channel = match local.reach(shard, disk, range) {
        Ok(channel) => channel,
        Err(Unreached::Barrier) => return Ok(Submit::Busy(request)),
        Err(why) => return Err(unreached(why)),
    };
    let counters = local.counters();
    if counters.are_timed(shard.now()) {
        return Ok(submit_timed(counters, shard, &channel, request));
    }
    Ok(channel.borrow_mut().submit(shard, request))
}

/// Submits a request while a host reads the timing page, and notes the times of submission and
/// answer.
#[cold]
fn submit_timed<'d>(
    counters: &Counters,
    shard: &mut Shard,
    channel: &SharedChannel,
    request: Request<'d>,
) -> Submit<'d> {
    let begun = Nanos::now();
    let submitted = channel.borrow_mut().submit(shard, request);
    if !matches!(submitted, Submit::Busy(_)) {
        counters.reached_disk(begun);
    }
    if matches!(submitted, Submit::Done(..)) {
        counters.left_disk(Nanos::now());
    }
    submitted
}

/// Submits a request of a command for a range: its first block, and the number of blocks.
#[inline(never)]
pub(crate) fn submit_range(
    context: &mut CommandContext<'_, impl Queue>,
    slot: Slot,
    command: &ResolvedCommand,
    operation: Operation,
    (lba, blocks): (u64, u32),
    data: Option<Incoming>,
) -> Submitted {
    let token = context.token(slot);
    let request = Request {
        operation,
        lba,
        blocks,
        payload: match operation {
            Operation::Read => Payload::Lend,
            _ => payload(context.stream, data),
        },
        token,
    };
    match submit(context.local, context.shard, command.disk, request) {
        Ok(submitted) => outcome(context.shard, submitted),
        Err(status) => Submitted::Refused(status),
    }
}

/// The disk's first answer. Data that a refused request has borrowed is copied into a buffer.
#[inline(always)]
fn outcome(shard: &mut Shard, submitted: Submit<'_>) -> Submitted {
    match submitted {
        Submit::Done(status, loan) => Submitted::Done(status, loan),
        Submit::Pending => Submitted::Pending,
        Submit::Busy(request) => match request.payload {
            Payload::Owned(buf) => Submitted::Busy(Some(buf)),
            Payload::Borrowed(bytes) => match copy(shard, bytes) {
                Some(buf) => Submitted::Busy(Some(buf)),
                None => Submitted::Refused(Status::NAMESPACE_NOT_READY),
            },
            Payload::None | Payload::Lend | Payload::Registered(_) => Submitted::Busy(None),
        },
    }
}

impl IoQueue {
    /// Makes the requests of a command whose data has arrived.
    #[inline(always)]
    pub(crate) fn execute(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        command: ResolvedCommand,
        data: Option<Incoming>,
    ) -> Settled {
        match command.command {
            IoCommand::Read {
                lba,
                blocks,
                fua: false,
            } => self.read(context, claim, command, (lba, blocks)),
            IoCommand::Write { lba, blocks, fua } => {
                self.write(context, claim, command, (lba, blocks, fua), data)
            }
            _ => self.execute_other(context, claim, command, data),
        }
    }

    /// Makes the requests of commands that are neither plain reads nor writes.
    #[inline(never)]
    fn execute_other(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        command: ResolvedCommand,
        data: Option<Incoming>,
    ) -> Settled {
        let (operation, range, work) = match command.command {
            IoCommand::Read { .. } => (Operation::Flush, (0, 0), Work::FlushingToRead(command)),
            IoCommand::Flush => (Operation::Flush, (0, 0), Work::Plain),
            IoCommand::WriteZeroes {
                lba,
                blocks,
                deallocate,
                fua,
            } => {
                let zero = Operation::WriteZeroes {
                    deallocate,
                    durable: fua,
                };
                (zero, (lba, blocks), Work::Plain)
            }
            IoCommand::Compare { lba, blocks } => {
                return self.compare(context, claim, command, (lba, blocks), data);
            }
            IoCommand::Verify { lba, blocks } => {
                return self.verify(context, claim, command, (lba, blocks));
            }
            IoCommand::Reservation(reservation) => {
                return self.reserve(context, claim, &command, reservation, data.as_ref());
            }
            IoCommand::DatasetManagement { ranges, deallocate } => {
                return self.dataset(context, claim, command, (ranges, deallocate), data);
            }
            IoCommand::Write { .. } => unreachable!("`execute` has it"),
        };
        let outcome = submit_range(context, claim.slot(), &command, operation, range, None);
        self.submitted(context, claim, command, outcome, work)
    }

    /// Keeps a command after the disk's first answer, or finishes it at once.
    pub(crate) fn submitted(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        command: ResolvedCommand,
        outcome: Submitted,
        work: Work,
    ) -> Settled {
        match outcome {
            Submitted::Done(status, loan) => self.finish(context, claim, work, status, loan),
            Submitted::Pending => self.commands.keep_at_disk(claim, work),
            Submitted::Busy(data) => self.commands.stall(claim, Work::Stalled(command, data)),
            Submitted::Refused(status) => context.answer(claim, status),
        }
    }

    /// Answers a command whose disk request has ended, or takes its next step.
    pub(crate) fn finish(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        work: Work,
        status: DiskStatus,
        loan: Loan,
    ) -> Settled {
        self.note(context, claim.slot(), status);
        match work {
            Work::Reading { bytes } => self.finish_read(context, claim, status, loan, bytes),
            Work::FlushingToRead(command) if status.is_ok() => match command.command.extent() {
                Some(at) => self.read(context, claim, command, at),
                None => context.answer(claim, Status::INTERNAL_ERROR),
            },
            Work::Comparing { expected, bytes } => {
                let status = match expected {
                    Some(expected) => compared(status, &loan, &expected.bytes()[..bytes]),
                    None => DiskStatus::Internal,
                };
                self.answer(context, claim, status)
            }
            Work::Verifying {
                command,
                lba,
                blocks,
            } if status.is_ok() => self.verify(context, claim, command, (lba, blocks)),
            Work::Deallocating(command, ranges) if status.is_ok() || is_ignored(status) => {
                self.next_range(context, claim, command, ranges)
            }
            Work::Pair { first } => self.finish_pair(context, first, claim, status),
            _ => self.answer(context, claim, status),
        }
    }

    #[inline(always)]
    pub(crate) fn read(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        command: ResolvedCommand,
        (lba, blocks): (u64, u32),
    ) -> Settled {
        let request = Request {
            operation: Operation::Read,
            lba,
            blocks,
            payload: Payload::Lend,
            token: context.token(claim.slot()),
        };
        let bytes = command.bytes(blocks);
        match submit(context.local, context.shard, command.disk, request) {
            // Every read of memory ends here: its pages are sent from where they lie.
            Ok(Submit::Done(DiskStatus::Ok, Loan::Lent(lent))) => {
                context.answer_lent(claim, lent, bytes)
            }
            Ok(submitted) => {
                let outcome = outcome(context.shard, submitted);
                self.read_submitted(context, claim, command, outcome, bytes)
            }
            Err(status) => context.answer(claim, status),
        }
    }

    #[inline(never)]
    fn read_submitted(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        command: ResolvedCommand,
        outcome: Submitted,
        bytes: u32,
    ) -> Settled {
        match outcome {
            Submitted::Done(status, loan) => {
                self.note(context, claim.slot(), status);
                self.finish_read(context, claim, status, loan, bytes)
            }
            // A read that waits for room starts again from its command: it has no data to keep.
            Submitted::Busy(_) => self.commands.stall(claim, Work::Stalled(command, None)),
            outcome => self.submitted(context, claim, command, outcome, Work::Reading { bytes }),
        }
    }

    #[inline(always)]
    fn write(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        command: ResolvedCommand,
        (lba, blocks, durable): (u64, u32, bool),
        data: Option<Incoming>,
    ) -> Settled {
        let token = context.token(claim.slot());
        let request = Request {
            operation: Operation::Write { durable },
            lba,
            blocks,
            payload: payload(context.stream, data),
            token,
        };
        match submit(context.local, context.shard, command.disk, request) {
            // Most writes end here: the table gets no entry.
            Ok(Submit::Done(status, _)) => self.end(context, claim, status),
            Ok(submitted) => {
                let outcome = outcome(context.shard, submitted);
                self.submitted(context, claim, command, outcome, Work::Plain)
            }
            Err(status) => context.answer(claim, status),
        }
    }

    fn finish_read(
        &self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        status: DiskStatus,
        loan: Loan,
        bytes: u32,
    ) -> Settled {
        match loan {
            // No byte of a failed read is sent: its buffer may hold another request's data.
            _ if !status.is_ok() => self.answer(context, claim, status),
            Loan::Lent(lent) => context.answer_lent(claim, lent, bytes),
            Loan::Buf(buf) => context.answer_with(claim, buf, bytes),
            _ => context.answer(claim, Status::INTERNAL_ERROR),
        }
    }

    /// Answers a command with the status of its disk.
    fn end(
        &self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        status: DiskStatus,
    ) -> Settled {
        self.note(context, claim.slot(), status);
        self.answer(context, claim, status)
    }

    #[inline(always)]
    fn answer(
        &self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        status: DiskStatus,
    ) -> Settled {
        let status = match status {
            DiskStatus::Aborted => self.status_of_abort(context, claim.slot()),
            status => nvme_status(status),
        };
        context.answer(claim, status)
    }

    /// The status of a command that its disk has aborted. A disk whose storage refuses this process
    /// can be reached by another way: the host has to go there, and not to try again here.
    #[cold]
    fn status_of_abort(&self, context: &CommandContext<'_, impl Queue>, slot: Slot) -> Status {
        let command = self.last_commands[usize::from(slot.0)];
        match command.is_some_and(|it| context.local.channels.is_lost(it.disk)) {
            true => Status::INTERNAL_PATH_ERROR,
            false => nvme_status(DiskStatus::Aborted),
        }
    }

    #[inline(always)]
    fn note(&self, context: &CommandContext<'_, impl Queue>, slot: Slot, status: DiskStatus) {
        if !status.is_ok() && status != DiskStatus::CompareFailed {
            self.note_failure(context, slot, status);
        }
    }

    fn compare(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        command: ResolvedCommand,
        at: (u64, u32),
        data: Option<Incoming>,
    ) -> Settled {
        let bytes = command.bytes(at.1) as usize;
        match submit_range(context, claim.slot(), &command, Operation::Read, at, None) {
            Submitted::Done(status, loan) => {
                self.note(context, claim.slot(), status);
                let status = compared(status, &loan, &context.bytes(data.as_ref())[..bytes]);
                self.answer(context, claim, status)
            }
            // The receive buffer is used again before the disk answers: keep the data to compare.
            Submitted::Pending => {
                let expected = context.keep(data);
                self.commands
                    .keep_at_disk(claim, Work::Comparing { expected, bytes })
            }
            Submitted::Busy(_) => match context.keep(data) {
                Some(expected) => self
                    .commands
                    .stall(claim, Work::Stalled(command, Some(expected))),
                None => context.answer(claim, Status::NAMESPACE_NOT_READY),
            },
            Submitted::Refused(status) => context.answer(claim, status),
        }
    }

    /// Reads piece after piece, and drops the data. The rest waits when the disk has no room, and
    /// when the command has had its share of the turn.
    fn verify(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        mut command: ResolvedCommand,
        (mut lba, mut blocks): (u64, u32),
    ) -> Settled {
        let most = (VERIFY_BYTES.min(self.max_transfer_bytes()) / command.block_bytes).max(1);
        let mut budget = Budget::of_a_turn();
        while blocks > 0 {
            command.command = IoCommand::Verify { lba, blocks };
            let piece = blocks.min(most);
            if !budget.spend(command.bytes(piece).into()) {
                return self.commands.pause(claim, Work::Paused(command, None));
            }
            let at = (lba, piece);
            (lba, blocks) = (lba + u64::from(piece), blocks - piece);
            match submit_range(context, claim.slot(), &command, Operation::Read, at, None) {
                Submitted::Done(status, _) if status.is_ok() => {}
                Submitted::Pending => {
                    let work = Work::Verifying {
                        command,
                        lba,
                        blocks,
                    };
                    return self.commands.keep_at_disk(claim, work);
                }
                other => return self.submitted(context, claim, command, other, Work::Plain),
            }
        }
        context.answer(claim, Status::SUCCESS)
    }

    fn dataset(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        command: ResolvedCommand,
        (count, deallocate): (u16, bool),
        data: Option<Incoming>,
    ) -> Settled {
        let checked = self.check_ranges(command.nsid, context.bytes(data.as_ref()), count);
        if let Err(status) = checked {
            return context.answer(claim, status);
        }
        if !deallocate {
            // The other attributes are hints about access, which no disk of ours uses.
            return context.answer(claim, Status::SUCCESS);
        }
        match context.keep(data) {
            Some(list) => {
                let next = 0;
                self.next_range(context, claim, command, Ranges { list, next, count })
            }
            None => context.answer(claim, Status::NAMESPACE_NOT_READY),
        }
    }

    /// Deallocates range after range, until the disk does not answer one at once or has no room, or
    /// the command has had its share of the turn.
    pub(crate) fn next_range(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        command: ResolvedCommand,
        mut ranges: Ranges,
    ) -> Settled {
        let mut budget = Budget::of_a_turn();
        while let Some(at) = ranges.first() {
            if !budget.spend(command.bytes(at.1).into()) {
                return self
                    .commands
                    .pause(claim, Work::Paused(command, Some(ranges)));
            }
            if at.1 == 0 {
                ranges.next += 1;
                continue;
            }
            match submit_range(
                context,
                claim.slot(),
                &command,
                Operation::Deallocate,
                at,
                None,
            ) {
                Submitted::Done(status, _) if status.is_ok() || is_ignored(status) => {
                    ranges.next += 1;
                }
                Submitted::Busy(_) => {
                    return self
                        .commands
                        .stall(claim, Work::Paused(command, Some(ranges)));
                }
                Submitted::Done(status, _) => return self.end(context, claim, status),
                Submitted::Refused(status) => return context.answer(claim, status),
                Submitted::Pending => {
                    ranges.next += 1;
                    let work = Work::Deallocating(command, ranges);
                    return self.commands.keep_at_disk(claim, work);
                }
            }
        }
        context.answer(claim, Status::SUCCESS)
    }
}

/// Deallocation is a hint: a disk that does not support it ignores it.
fn is_ignored(status: DiskStatus) -> bool {
    status == DiskStatus::Unsupported
}

impl Ranges {
    /// First block and number of blocks of the next range.
    fn first(&self) -> Option<(u64, u32)> {
        let count = usize::from(self.count);
        let list = self.list.bytes();
        let (ranges, _) = <[DatasetRange]>::ref_from_prefix_with_elems(list, count).ok()?;
        let range = ranges.get(usize::from(self.next))?;
        Some((range.lba.get(), range.blocks.get()))
    }
}

fn compared(status: DiskStatus, loan: &Loan, expected: &[u8]) -> DiskStatus {
    if !status.is_ok() {
        return status;
    }
    let same = match loan {
        Loan::Lent(lent) => lent.first_difference(expected).is_none(),
        Loan::Buf(buf) => buf.bytes()[..expected.len()] == *expected,
        _ => return DiskStatus::Internal,
    };
    if same {
        DiskStatus::Ok
    } else {
        DiskStatus::CompareFailed
    }
}

/// Bytes that Verify reads at a time.
const VERIFY_BYTES: u32 = 128 << 10;
