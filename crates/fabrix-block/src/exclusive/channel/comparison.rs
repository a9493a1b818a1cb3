//! The comparisons of a channel, one at a time. A comparison is a read and, if the data is as
//! expected, a write. The gate stays closed from its first step to its last.

use fabrix_rt::{Loan, Shard};

use super::{COMPARISON, ExclusiveTask, PARKED_MAX, Parked, answer};
use crate::task::token;
use crate::{Geometry, Operation, Payload, Request, Status, Submit};

pub(super) struct Comparison {
    parked: Parked,
    step: Step,
}

/// Progress of a comparison. The gate is closed in all steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Waiting for the writes in progress to end.
    Draining,
    /// The read is not yet submitted.
    WantsRead,
    Reading,
    /// The write is not yet submitted.
    WantsWrite,
    Writing,
}

impl ExclusiveTask {
    pub(super) fn compare<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if self.comparisons.len() == PARKED_MAX {
            return Submit::Busy(request);
        }
        match self.own_payload(shard, request) {
            Ok(parked) => self.comparisons.push_back(parked),
            Err(answer) => return answer,
        }
        self.compare_next(shard);
        self.tick_later(shard);
        Submit::Pending
    }

    /// Starts the next waiting comparison if the gate can be closed.
    pub(super) fn compare_next(&mut self, shard: &mut Shard) {
        if self.current.is_some() || self.comparisons.is_empty() || !self.gate.request_hold() {
            return;
        }
        let next = self.comparisons.pop_front();
        let step = Step::Draining;
        self.current = next.map(|parked| Comparison { parked, step });
        self.advance_comparison(shard);
    }

    /// Advances the current comparison as far as possible.
    pub(super) fn advance_comparison(&mut self, shard: &mut Shard) {
        while let Some(current) = &mut self.current {
            match current.step {
                Step::Draining if self.gate.writes_have_ended() => current.step = Step::WantsRead,
                Step::WantsRead | Step::WantsWrite => {
                    if !self.submit_step(shard) {
                        return;
                    }
                }
                Step::Draining | Step::Reading | Step::Writing => return,
            }
        }
    }

    /// Submits the comparison's read or write. False: the comparison has to wait.
    fn submit_step(&mut self, shard: &mut Shard) -> bool {
        let Some(Comparison { parked, step }) = &mut self.current else {
            return false;
        };
        let request = &parked.request;
        let (operation, payload, next) = if *step == Step::WantsRead {
            (Operation::Read, Payload::Lend, Step::Reading)
        } else {
            let (_, new) = halves(request, &self.geometry);
            let durable = request.operation.promises_durability();
            let write = Operation::Write { durable };
            (write, Payload::Borrowed(new), Step::Writing)
        };
        let part = Request {
            operation,
            lba: request.lba,
            blocks: request.blocks,
            payload,
            token: token(self.id, COMPARISON),
        };
        match self.inner.submit(shard, part) {
            Submit::Busy(_) => false,
            Submit::Pending => {
                *step = next;
                false
            }
            Submit::Done(status, loan) => {
                *step = next;
                self.step_ended(shard, status, &loan);
                true
            }
        }
    }

    pub(super) fn step_ended(&mut self, shard: &mut Shard, status: Status, loan: &Loan) {
        let Some(Comparison { parked, step }) = &mut self.current else {
            return;
        };
        if *step != Step::Reading || !status.is_ok() {
            // Who repeats a write that may have been executed would compare with its own data.
            let is_unsure = *step != Step::Reading && status == Status::Refused;
            let status = if is_unsure { Status::Aborted } else { status };
            return self.finish_comparison(shard, status);
        }
        let (expected, _) = halves(&parked.request, &self.geometry);
        match equals(loan, expected) {
            Some(true) => *step = Step::WantsWrite,
            Some(false) => self.finish_comparison(shard, Status::CompareFailed),
            None => self.finish_comparison(shard, Status::Internal),
        }
    }

    /// Ends the current comparison and opens the gate for the next in the queue.
    fn finish_comparison(&mut self, shard: &mut Shard, status: Status) {
        self.gate.release();
        if let Some(Comparison { parked, .. }) = self.current.take() {
            let (caller, loan) = (parked.request.token, parked.request.payload.into_loan());
            answer(shard, caller, parked.callers_buf, status, loan);
        }
    }
}

/// The two halves of a comparison's payload: the expected data and the new data. The payload has
/// been checked, but its buffer may be longer.
fn halves<'a>(request: &'a Request<'_>, geometry: &Geometry) -> (&'a [u8], &'a [u8]) {
    let bytes = request.blocks as usize * geometry.block_bytes as usize;
    let both = request.payload.source().unwrap_or_default();
    (&both[..bytes], &both[bytes..2 * bytes])
}

/// Whether the read data equals the expected data. None: the read returned too few bytes.
fn equals(loan: &Loan, expected: &[u8]) -> Option<bool> {
    match loan {
        Loan::Lent(lent) if lent.len() >= expected.len() => {
            Some(lent.first_difference(expected).is_none())
        }
        Loan::Buf(buf) if buf.len() >= expected.len() => {
            Some(&buf.bytes()[..expected.len()] == expected)
        }
        _ => None,
    }
}
