//! Fault injection: errors for a fraction of the requests or for a single one, and delayed answers.
//! A request that fails never reaches the disk below. A delayed request reaches the disk at once,
//! and only its answer is delayed. The random numbers are seeded, so a run can be repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fabrix_rt::{Completion, Loan, Shard, TaskId, Token};

use super::Filter;
use crate::slots::Slots;
use crate::spec::{Effect, Inject, On};
use crate::task::{ChannelTask, TaskHandle, complete, submit_as, token};
use crate::{Channel, Device, OpenError, Operation, Request, Status, Submit};

/// A disk with injected faults.
pub struct Fault {
    inner: Arc<dyn Device>,
    rules: Arc<[Rule]>,
    seed: u64,
}

struct Rule {
    inject: Inject,
    /// Number of matching requests so far, on all shards.
    matched: AtomicU64,
}

impl Fault {
    /// The same disk with the given faults. The random sequence of a shard depends only on `seed`
    /// and on the shard's number.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, faults: &[Inject], seed: u64) -> Arc<Self> {
        let rule = |inject: &Inject| Rule {
            inject: *inject,
            matched: AtomicU64::new(0),
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

    fn around(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(Self {
            inner,
            rules: Arc::clone(&self.rules),
            seed: self.seed,
        })
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let inner = self.inner.open(shard)?;
        let random = SplitMix64(self.seed ^ shard.id() as u64);
        let make = |id| FaultTask {
            id,
            inner,
            rules: Arc::clone(&self.rules),
            random,
            delayed: Slots::new(DELAYED_MAX),
        };
        Ok(Box::new(TaskHandle::new(shard, make)))
    }
}

struct FaultTask {
    id: TaskId,
    inner: Box<dyn Channel>,
    rules: Arc<[Rule]>,
    random: SplitMix64,
    delayed: Slots<Delayed>,
}

/// A request with a delayed answer.
struct Delayed {
    caller: Token,
    delay: Duration,
    /// The answer, once it is known. Only the delay remains.
    answer: Option<(Status, Loan)>,
}

/// Combined effect of all rules on a request.
struct Verdict {
    fails: bool,
    delay: Duration,
}

impl FaultTask {
    /// Applies every rule to a request. A request that was `Busy` before counts again.
    fn judge(&mut self, operation: Operation) -> Verdict {
        let mut verdict = Verdict {
            fails: false,
            delay: Duration::ZERO,
        };
        let applies = |rule: &&Rule| applies_to(rule.inject.on, operation);
        for rule in self.rules.iter().filter(applies) {
            match rule.inject.effect {
                Effect::ErrorRate { ppm } => {
                    verdict.fails |= self.random.next() % 1_000_000 < u64::from(ppm);
                }
                Effect::ErrorNth(nth) => {
                    verdict.fails |= rule.matched.fetch_add(1, Ordering::Relaxed) + 1 == nth;
                }
                Effect::Delay(delay) => verdict.delay += delay,
            }
        }
        verdict
    }

    /// Stores the known answer and starts the delay.
    fn answered(&mut self, shard: &mut Shard, slot: u32, status: Status, loan: Loan) {
        let Some(delayed) = self.delayed.get_mut(slot) else {
            return;
        };
        delayed.answer = Some((status, loan));
        shard.set_timer(token(self.id, slot), shard.now() + delayed.delay);
    }
}

impl ChannelTask for FaultTask {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if self.delayed.is_full() {
            return Submit::Busy(request);
        }
        let verdict = self.judge(request.operation);
        if verdict.delay.is_zero() && !verdict.fails {
            return self.inner.submit(shard, request);
        }
        let failure = failure(request.operation);
        if verdict.delay.is_zero() {
            return request.done(failure);
        }
        let delayed = Delayed {
            caller: request.token,
            delay: verdict.delay,
            answer: None,
        };
        let slot = self.delayed.insert(delayed);
        let slot = slot.expect("the caller saw a free slot");
        let answer = match verdict.fails {
            true => request.done(failure),
            false => submit_as(&mut self.inner, shard, request, token(self.id, slot)),
        };
        match answer {
            Submit::Done(status, loan) => self.answered(shard, slot, status, loan),
            Submit::Pending => {}
            Submit::Busy(request) => {
                self.delayed.take(slot);
                return Submit::Busy(request);
            }
        }
        Submit::Pending
    }

    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let status = Status::from_result(completion.result);
        self.answered(shard, slot, status, completion.loan);
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        if let Some(delayed) = self.delayed.take(slot) {
            let (status, loan) = delayed.answer.unwrap_or((Status::Internal, Loan::None));
            complete(shard, delayed.caller, status, loan);
        }
    }

    fn is_idle(&self) -> bool {
        self.delayed.is_empty()
    }
}

fn applies_to(on: On, operation: Operation) -> bool {
    match (on, operation) {
        (On::Any, _)
        | (On::Read, Operation::Read)
        | (On::Write, Operation::Write { .. } | Operation::CompareAndWrite { .. })
        | (On::Flush, Operation::Flush)
        | (On::Zeroes, Operation::WriteZeroes { .. } | Operation::Deallocate) => true,
        (On::Read | On::Write | On::Flush | On::Zeroes, _) => false,
    }
}

/// The status with which a real medium would fail.
fn failure(operation: Operation) -> Status {
    match operation {
        Operation::Read => Status::MediaRead,
        Operation::Flush => Status::Degraded,
        _ => Status::MediaWrite,
    }
}

/// Seeded pseudo-random numbers. Source: SplitMix64, Steele, Lea and Flood, 2014.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Largest number of delayed answers per channel.
const DELAYED_MAX: u16 = 4096;

#[cfg(test)]
mod tests;
