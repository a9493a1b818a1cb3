//! Comparisons of a channel, one at a time and alone: a read, and a write if it found what was
//! expected.
//!
//! A part of `channel`. The gate is closed from the first phase of a comparison to its last.

use fabrix_rt::{Buf, Completion, Loan, Shard, Token};

use super::{COMPARISON, ExclusiveTask, PARKED_MAX, Parked};
use crate::{Operation, Payload, Request, Status, Submit};

pub(super) struct Comparison {
    request: Parked,
    phase: Phase,
}

/// How far a comparison is. The gate is closed from the first phase to the last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Writes in progress have to end first.
    Draining,
    /// The read is to be submitted.
    WantsRead,
    Reading,
    /// The write is to be submitted.
    WantsWrite,
    Writing,
}

impl ExclusiveTask {
    pub(super) fn compare<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if self.comparisons.len() == PARKED_MAX {
            return Submit::Busy(request);
        }
        match self.keep(shard, request) {
            Ok(parked) => self.comparisons.push_back(parked),
            Err(answer) => return answer,
        }
        self.compare_next(shard);
        self.tick_later(shard);
        Submit::Pending
    }

    /// Begins the next comparison, if there is one and the gate is to be had.
    pub(super) fn compare_next(&mut self, shard: &mut Shard) {
        if self.current.is_some() || self.comparisons.is_empty() || !self.lane.want_hold() {
            return;
        }
        let next = self.comparisons.pop_front();
        self.current = next.map(|request| Comparison {
            request,
            phase: Phase::Draining,
        });
        self.step(shard);
    }

    /// Takes the current comparison as far as it goes.
    pub(super) fn step(&mut self, shard: &mut Shard) {
        while let Some(current) = &mut self.current {
            match current.phase {
                Phase::Draining if self.lane.is_alone() => current.phase = Phase::WantsRead,
                Phase::WantsRead | Phase::WantsWrite => {
                    if !self.submit_part(shard) {
                        return;
                    }
                }
                Phase::Draining | Phase::Reading | Phase::Writing => return,
            }
        }
    }

    /// Submits the comparison's read or write. False: nothing more can be done now.
    fn submit_part(&mut self, shard: &mut Shard) -> bool {
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
                self.part_ended(shard, status, &loan);
                true
            }
        }
    }

    pub(super) fn part_ended(&mut self, shard: &mut Shard, status: Status, loan: &Loan) {
        let Some(Comparison { request, phase }) = &mut self.current else {
            return;
        };
        if *phase != Phase::Reading || !status.is_ok() {
            return self.compared(shard, status);
        }
        let bytes = request.blocks as usize * self.geometry.block_bytes as usize;
        let expected = request
            .buf
            .as_ref()
            .map(|buf| &buf.bytes()[..bytes])
            .unwrap_or_default();
        match holds(loan, expected) {
            Some(true) => *phase = Phase::WantsWrite,
            Some(false) => self.compared(shard, Status::CompareFailed),
            None => self.compared(shard, Status::Internal),
        }
    }

    /// The current comparison is over: the next in line may have the gate.
    fn compared(&mut self, shard: &mut Shard, status: Status) {
        self.lane.release();
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

/// Whether what was read is what was expected; None if nothing was brought.
fn holds(loan: &Loan, expected: &[u8]) -> Option<bool> {
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
