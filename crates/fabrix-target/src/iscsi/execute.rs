//! The requests of a job at their disks, and the answer after the last one.

use fabrix_block::{Operation, Payload, Request, Status as DiskStatus, Submit};
use fabrix_proto::iscsi::target::Answer as Response;
use fabrix_proto::scsi::copy::CopyProgress;
use fabrix_proto::scsi::unit::Failure;
use fabrix_proto::{Claim, Settled, Slot};
use fabrix_rt::{Buf, Loan};
use fabrix_transport::{Incoming, Outgoing};

use super::context::SessionCarrier;
use super::job::{End, Job, JobRequest, Moves};
use super::session::{Session, Work};
use super::status::unreached;
use crate::channels::Unreached;
use crate::context::{Budget, CommandContext, copy};

/// The disk's first answer to a request.
enum Submitted {
    Done(DiskStatus, Loan),
    Pending,
    Busy,
    Failed(Failure),
}

impl Session {
    /// Makes the requests of a job, until a disk does not answer one at once or the job has ended.
    /// A job of many requests pauses when it has had its share of the turn.
    pub(super) fn run(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        claim: Claim,
        mut job: Job,
        data: Option<Incoming>,
    ) -> Settled {
        let in_place = matches!(data, Some(Incoming::InPlace));
        if !job.prepare(context, data) {
            return self.finish(context, claim, &job, End::Failed(Failure::Busy));
        }
        let mut budget = Budget::of_a_turn();
        loop {
            if !self.may_go_on(&job) {
                return self.finish(context, claim, &job, End::Failed(Failure::CopyAborted));
            }
            if let Some(refusal) = self.access_refusal(job.name) {
                return self.finish(context, claim, &job, End::Failed(refusal));
            }
            let request = job.next();
            if !budget.spend(request.bytes as u64) {
                return self.commands.pause(claim, Work::Paused(job));
            }
            let end = match submit(context, claim.slot(), &mut job, request, in_place) {
                Submitted::Done(status, loan) => job.ended(context, status, loan),
                Submitted::Pending => {
                    return self.commands.keep_at_disk(claim, Work::AtDisk(job));
                }
                Submitted::Busy => return self.commands.stall(claim, Work::Stalled(job)),
                Submitted::Failed(failure) => Some(End::Failed(failure)),
            };
            if let Some(end) = end {
                return self.finish(context, claim, &job, end);
            }
        }
    }

    /// Answers a command whose job has ended.
    pub(super) fn finish(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        claim: Claim,
        job: &Job,
        end: End,
    ) -> Settled {
        if let Some(copying) = job.copying() {
            let progress = match end {
                End::Good => CopyProgress::Done,
                _ => CopyProgress::Failed,
            };
            self.remember_copy(job.name, copying, progress);
        }
        match end {
            End::Good => self.respond(context, claim, &Response::good(job.moved)),
            End::Data(Loan::Lent(lent)) => match context.sendable(lent) {
                Some(outgoing) => self.answer_blocks(context, claim, outgoing, job.moved),
                None => self.fail(context, claim, Some(job.at), Failure::Busy),
            },
            End::Data(Loan::Buf(buf)) => {
                self.answer_blocks(context, claim, Outgoing::Buf(buf, 0), job.moved)
            }
            End::Data(_) => self.fail(context, claim, Some(job.at), Failure::Internal),
            End::Failed(failure) => {
                if matches!(failure, Failure::Read(_) | Failure::Write(_)) {
                    context.local.counters().media_error();
                }
                let failure = match job.copying() {
                    Some(_) => Failure::CopyAborted,
                    None => failure,
                };
                self.fail(context, claim, Some(job.at), failure)
            }
        }
    }
}

/// Submits a job's request to its disk.
fn submit(
    context: &mut CommandContext<'_, impl SessionCarrier>,
    slot: Slot,
    job: &mut Job,
    request: JobRequest,
    in_place: bool,
) -> Submitted {
    let JobRequest {
        disk,
        operation,
        extent,
        bytes,
        moves,
    } = request;
    let range = (operation != Operation::Flush).then_some((extent.lba, extent.blocks));
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
    let submitted = match context.local.reach(context.shard, disk.disk, range) {
        Ok(channel) => channel.borrow_mut().submit(context.shard, request),
        Err(Unreached::Barrier) => Submit::Busy(request),
        Err(why) => return Submitted::Failed(unreached(why)),
    };
    match submitted {
        Submit::Done(status, loan) => Submitted::Done(status, loan),
        Submit::Pending => Submitted::Pending,
        Submit::Busy(request) => match (moves, request.payload) {
            // The receive buffer is used again: the data needs a buffer of its own.
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
            // The job has kept all other payload.
            _ => Submitted::Busy,
        },
    }
}

/// A second reference to a buffer that the job keeps.
fn owned<'a>(buf: Option<&Buf>) -> Payload<'a> {
    buf.map_or(Payload::None, |buf| Payload::Owned(buf.clone()))
}
