//! The comparisons of a channel, one at a time. A comparison is a read and, if the data is as
//! expected, a write. The gate stays closed from its first phase to its last.

use fabrix_rt::{Buf, Completion, Loan, Shard, Token};

use super::{COMPARISON, ExclusiveTask, PARKED_MAX, Parked};
use crate::{Operation, Payload, Request, Status, Submit};

pub(super) struct Comparison {
    request: Parked,
    phase: Phase,
}

/// Progress of a comparison. The gate is closed in all phases.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
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
        self.current = next.map(|request| Comparison {
            request,
            phase: Phase::Draining,
        });
        self.step(shard);
    }

    /// Advances the current comparison as far as possible.
    pub(super) fn step(&mut self, shard: &mut Shard) {
        while let Some(current) = &mut self.current {
            match current.phase {
                Phase::Draining if self.gate.writes_have_ended() => {
                    current.phase = Phase::WantsRead
                }
                Phase::WantsRead | Phase::WantsWrite => {
                    if !self.submit_step(shard) {
                        return;
                    }
                }
                Phase::Draining | Phase::Reading | Phase::Writing => return,
            }
        }
    }

    /// Submits the comparison's read or write. False: the comparison has to wait.
    fn submit_step(&mut self, shard: &mut Shard) -> bool {
        let Some(Comparison { request, phase }) = &mut self.current else {
            return false;
        };
        let bytes = request.blocks as usize * self.geometry.block_bytes as usize;
        let source = request.buf.as_ref().map(Buf::bytes).unwrap_or_default();
        let (operation, payload, next) = if *phase == Phase::WantsRead {
            (Operation::Read, Payload::Lend, Phase::Reading)
        } else {
            let payload = Payload::Borrowed(&source[bytes..2 * bytes]);
            let write = Operation::Write {
                durable: request.operation.promises_durability(),
            };
            (write, payload, Phase::Writing)
        };
        let (lba, blocks, token) = (
            request.lba,
            request.blocks,
            Token {
                task: self.id,
                slot: COMPARISON,
            },
        );
        let answer = self.inner.submit(
            shard,
            Request {
                operation,
                lba,
                blocks,
                payload,
                token,
            },
        );
        match answer {
            Submit::Busy(_) => false,
            Submit::Pending => {
                *phase = next;
                false
            }
            Submit::Done(status, loan) => {
                *phase = next;
                self.step_ended(shard, status, &loan);
                true
            }
        }
    }

    pub(super) fn step_ended(&mut self, shard: &mut Shard, status: Status, loan: &Loan) {
        let Some(Comparison { request, phase }) = &mut self.current else {
            return;
        };
        if *phase != Phase::Reading || !status.is_ok() {
            return self.finish_comparison(shard, status);
        }
        let bytes = request.blocks as usize * self.geometry.block_bytes as usize;
        let expected = request
            .buf
            .as_ref()
            .map(|buf| &buf.bytes()[..bytes])
            .unwrap_or_default();
        match equals(loan, expected) {
            Some(true) => *phase = Phase::WantsWrite,
            Some(false) => self.finish_comparison(shard, Status::CompareFailed),
            None => self.finish_comparison(shard, Status::Internal),
        }
    }

    /// Ends the current comparison and opens the gate for the next in the queue.
    fn finish_comparison(&mut self, shard: &mut Shard, status: Status) {
        self.gate.release();
        if let Some(Comparison { request, .. }) = self.current.take() {
            let loan = request
                .buf
                .filter(|_| request.callers_buf)
                .map_or(Loan::None, Loan::Buf);
            shard.complete(
                request.caller,
                Completion {
                    result: status.to_result(),
                    loan,
                },
            );
        }
    }
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
