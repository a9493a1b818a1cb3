//! Faults on purpose: errors for a share of the requests or for one of them, and answers that come
//! later. A request that is to fail never reaches the disk below; one that is to be late reaches it
//! at once, and only its answer waits. The dice are seeded, so a run can be repeated.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fabrix_rt::{Completion, Loan, Shard, Task, TaskId, Token};

use super::Filter;
use crate::slots::Slots;
use crate::spec::{Effect, Inject, On};
use crate::task::{Closing, Hold};
use crate::{Channel, Device, OpenError, Operation, Request, Status, Submit};

/// A disk with faults.
pub struct Fault {
    inner: Arc<dyn Device>,
    rules: Arc<[Rule]>,
    seed: u64,
}

struct Rule {
    inject: Inject,
    /// How many requests it was asked about, by all shards.
    asked: AtomicU64,
}

impl Fault {
    /// The same disk with these faults. The dice of a shard depend on `seed` and the shard's number
    /// only.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, faults: &[Inject], seed: u64) -> Arc<Self> {
        let rule = |inject: &Inject| Rule {
            inject: *inject,
            asked: AtomicU64::new(0),
        };
        Arc::new(Self {
            inner,
            rules: faults.iter().map(rule).collect(),
            seed,
        })
    }
}

impl Filter for Fault {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let inner = self.inner.open(shard)?;
        let dice = Dice(self.seed ^ shard.id() as u64);
        let make = |id| FaultTask {
            id,
            inner,
            rules: Arc::clone(&self.rules),
            dice,
            held: Slots::new(HELD_MAX),
            closing: false,
        };
        Ok(Box::new(FaultChannel {
            hold: Hold::new(shard, make),
        }))
    }

    fn remeasure(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        Ok(Arc::new(Self {
            inner: self.inner.remeasure(bytes)?,
            rules: Arc::clone(&self.rules),
            seed: self.seed,
        }))
    }
}

struct FaultChannel {
    hold: Hold<FaultTask>,
}

impl Channel for FaultChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        self.hold.task().submit(shard, request)
    }
}

struct FaultTask {
    id: TaskId,
    inner: Box<dyn Channel>,
    rules: Arc<[Rule]>,
    dice: Dice,
    held: Slots<Held>,
    closing: bool,
}

/// A request whose answer will be late.
struct Held {
    caller: Token,
    delay: Duration,
    /// The answer, once it is known: then only the time is missing.
    answer: Option<(Status, Loan)>,
}

/// What the rules say about a request.
struct Verdict {
    fails: bool,
    delay: Duration,
}

impl FaultTask {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if self.held.is_full() {
            return Submit::Busy(request);
        }
        let verdict = self.judge(request.operation);
        if verdict.delay.is_zero() {
            return if verdict.fails {
                let status = failure(request.operation);
                request.done(status)
            } else {
                self.inner.submit(shard, request)
            };
        }
        let held = Held {
            caller: request.token,
            delay: verdict.delay,
            answer: None,
        };
        let slot = self.held.insert(held).expect("a free place was seen");
        if verdict.fails {
            let status = failure(request.operation);
            self.answered(shard, slot, status, request.payload.into_loan());
            return Submit::Pending;
        }
        let caller = request.token;
        match self.inner.submit(
            shard,
            request.with_token(Token {
                task: self.id,
                slot,
            }),
        ) {
            Submit::Done(status, loan) => self.answered(shard, slot, status, loan),
            Submit::Pending => {}
            Submit::Busy(request) => {
                self.held.take(slot);
                return Submit::Busy(request.with_token(caller));
            }
        }
        Submit::Pending
    }

    /// Asks every rule. A request that comes back because the disk was busy is asked about again.
    fn judge(&mut self, operation: Operation) -> Verdict {
        let mut verdict = Verdict {
            fails: false,
            delay: Duration::ZERO,
        };
        for rule in self
            .rules
            .iter()
            .filter(|rule| meant(rule.inject.on, operation))
        {
            match rule.inject.effect {
                Effect::ErrorRate { ppm } => {
                    verdict.fails |= self.dice.roll() % 1_000_000 < u64::from(ppm);
                }
                Effect::ErrorNth(nth) => {
                    verdict.fails |= rule.asked.fetch_add(1, Ordering::Relaxed) + 1 == nth;
                }
                Effect::Delay(delay) => verdict.delay += delay,
            }
        }
        verdict
    }

    /// The answer is known: it is told when its time has come.
    fn answered(&mut self, shard: &mut Shard, slot: u32, status: Status, loan: Loan) {
        let Some(held) = self.held.get_mut(slot) else {
            return;
        };
        held.answer = Some((status, loan));
        shard.set_timer(
            Token {
                task: self.id,
                slot,
            },
            shard.now() + held.delay,
        );
    }

    fn leave_if_idle(&self, shard: &mut Shard) {
        if self.closing && self.held.is_empty() {
            shard.remove(self.id);
        }
    }
}

impl Task for FaultTask {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        self.answered(
            shard,
            slot,
            Status::from_result(completion.result),
            completion.loan,
        );
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        let Some(held) = self.held.take(slot) else {
            return;
        };
        let (status, loan) = held.answer.unwrap_or((Status::Internal, Loan::None));
        shard.complete(
            held.caller,
            Completion {
                result: status.to_result(),
                loan,
            },
        );
        self.leave_if_idle(shard);
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        self.closing |= message.is::<Closing>();
        self.leave_if_idle(shard);
    }
}

fn meant(on: On, operation: Operation) -> bool {
    match (on, operation) {
        (On::Any, _)
        | (On::Read, Operation::Read)
        | (On::Write, Operation::Write { .. } | Operation::CompareAndWrite { .. })
        | (On::Flush, Operation::Flush)
        | (On::Zeroes, Operation::WriteZeroes { .. } | Operation::Deallocate) => true,
        (On::Read | On::Write | On::Flush | On::Zeroes, _) => false,
    }
}

/// What a medium would answer.
fn failure(operation: Operation) -> Status {
    match operation {
        Operation::Read => Status::MediaRead,
        Operation::Flush => Status::Degraded,
        _ => Status::MediaWrite,
    }
}

/// Seeded numbers, good enough to choose requests. Source: SplitMix64, Steele, Lea and Flood, 2014.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Late answers per channel.
const HELD_MAX: u16 = 4096;

#[cfg(test)]
mod tests;
