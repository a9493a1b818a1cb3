//! How the requests of a job reach their disks, and how its ending becomes an answer.

use fabrix_block::{Operation, Payload, Request, Status as DiskStatus, Submit};
use fabrix_proto::Slot;
use fabrix_proto::scsi::copy::CopyProgress;
use fabrix_proto::scsi::unit::Failure;
use fabrix_rt::{Buf, Loan};
use fabrix_transport::{Incoming, Outgoing};

use super::context::SessionCarrier;
use super::job::{Ask, End, Job, Moves};
use super::session::{Session, Work};
use super::status::unreached;
use crate::channels::Unreached;
use crate::context::{Budget, CommandContext, copy};

/// How the disk took a request.
enum Submitted {
    Done(DiskStatus, Loan),
    Pending,
    Busy,
    Failed(Failure),
}

impl Session {
    /// Goes on with a job until its disk takes its time, or it has ended. A job of many requests
    /// whose disk answers each of them at once pauses, so that others have their turn.
    pub(super) fn run(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        slot: Slot,
        mut job: Job,
        data: Option<Incoming>,
    ) {
        let in_place = matches!(data, Some(Incoming::InPlace));
        if !job.prepare(context, data) {
            return self.finish(context, slot, &job, End::Failed(Failure::Busy));
        }
        let mut budget = Budget::of_a_turn();
        loop {
            if !self.may_go_on(&job) {
                return self.finish(context, slot, &job, End::Failed(Failure::CopyAborted));
            }
            let ask = job.next();
            if !budget.spend(ask.bytes as u64) {
                return self.pause(slot, job);
            }
            let end = match submit(context, slot, &mut job, ask, in_place) {
                Submitted::Done(status, loan) => job.ended(context, status, loan),
                Submitted::Pending => {
                    self.at_disk += 1;
                    return self.set(slot, Work::AtDisk(job));
                }
                Submitted::Busy => return self.stall(slot, job),
                Submitted::Failed(failure) => Some(End::Failed(failure)),
            };
            if let Some(end) = end {
                return self.finish(context, slot, &job, end);
            }
        }
    }

    /// Answers a command whose job has ended.
    pub(super) fn finish(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        slot: Slot,
        job: &Job,
        end: End,
    ) {
        use fabrix_proto::iscsi::target::Answer as Response;
        if let Some(copying) = job.copying() {
            let progress = match end {
                End::Good => CopyProgress::Done,
                _ => CopyProgress::Failed,
            };
            self.remember_copy(job.name, copying, progress);
        }
        match end {
            End::Good => self.respond(context, slot, &Response::good(job.moved)),
            End::Data(Loan::Lent(lent)) => match context.sendable(lent) {
                Some(outgoing) => self.answer_blocks(context, slot, outgoing, job.moved),
                None => self.fail(context, slot, Some(job.at), Failure::Busy),
            },
            End::Data(Loan::Buf(buf)) => {
                self.answer_blocks(context, slot, Outgoing::Buf(buf, 0), job.moved);
            }
            End::Data(_) => self.fail(context, slot, Some(job.at), Failure::Internal),
            End::Failed(failure) => {
                if matches!(failure, Failure::Read(_) | Failure::Write(_)) {
                    context.local.counters().media_error();
                }
                let failure = match job.copying() {
                    Some(_) => Failure::CopyAborted,
                    None => failure,
                };
                self.fail(context, slot, Some(job.at), failure);
            }
        }
    }
}

/// Hands a request to the disk of a job.
fn submit(
    context: &mut CommandContext<'_, impl SessionCarrier>,
    slot: Slot,
    job: &mut Job,
    ask: Ask,
    in_place: bool,
) -> Submitted {
    let Ask {
        disk,
        operation,
        extent,
        bytes,
        moves,
    } = ask;
    let wanted = (operation != Operation::Flush).then_some((extent.lba, extent.blocks));
    let payload = match moves {
        Moves::Nothing => Payload::None,
        Moves::Read => Payload::Lend,
        Moves::ReadToCopy => job.made.take().map_or(Payload::None, Payload::Owned),
        Moves::Made => owned(job.made.as_ref()),
        Moves::Data if in_place && job.data.is_none() => {
            Payload::Borrowed(&context.stream.in_place()[..bytes])
        }
        Moves::Data => owned(job.data.as_ref()),
    };
    let token = context.token(slot);
    let request = Request {
        operation,
        lba: extent.lba,
        blocks: extent.blocks,
        payload,
        token,
    };
    let submitted = match context.local.reach(context.shard, disk.disk, wanted) {
        Ok(channel) => channel.borrow_mut().submit(context.shard, request),
        Err(Unreached::Barrier) => Submit::Busy(request),
        Err(why) => return Submitted::Failed(unreached(why)),
    };
    match submitted {
        Submit::Done(status, loan) => Submitted::Done(status, loan),
        Submit::Pending => Submitted::Pending,
        Submit::Busy(request) => match (moves, request.payload) {
            // The receive buffer does not wait.
            (_, Payload::Borrowed(bytes)) => {
                job.data = copy(context.shard, bytes);
                match job.data {
                    Some(_) => Submitted::Busy,
                    None => Submitted::Failed(Failure::Busy),
                }
            }
            (Moves::ReadToCopy, Payload::Owned(buf)) => {
                job.made = Some(buf);
                Submitted::Busy
            }
            // Everything else the job has kept.
            _ => Submitted::Busy,
        },
    }
}

/// The job keeps its own hold on what is written.
fn owned<'a>(buf: Option<&Buf>) -> Payload<'a> {
    buf.map_or(Payload::None, |buf| Payload::Owned(buf.clone()))
}
