//! A shard's channel through the gate: counts writes in and out, keeps those that must wait, and
//! carries out one comparison at a time (`channel/comparison.rs`). Whatever it waits for is looked
//! at again after every call, every ending and every tick.

mod comparison;

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use fabrix_rt::{Buf, Completion, Loan, Shard, Task, TaskId, Token};

use self::comparison::Comparison;
use super::gate::{Call, Gate, LaneHandle};
use crate::slots::Slots;
use crate::task::{Closing, Hold};
use crate::{Channel, Geometry, Operation, Payload, Request, Status, Submit};

pub(super) fn open(
    shard: &mut Shard,
    inner: Box<dyn Channel>,
    geometry: Geometry,
    gate: &Arc<Gate>,
) -> Box<dyn Channel> {
    let remote = shard.remote();
    let make = |id| ExclusiveTask {
        id,
        inner,
        geometry,
        lane: gate.lane(id, remote),
        writes: Slots::new(WRITES_MAX),
        parked: VecDeque::with_capacity(PARKED_MAX),
        comparisons: VecDeque::with_capacity(PARKED_MAX),
        current: None,
        ticking: false,
        closing: false,
    };
    Box::new(ExclusiveChannel {
        hold: Hold::new(shard, make),
    })
}

struct ExclusiveChannel {
    hold: Hold<ExclusiveTask>,
}

impl Channel for ExclusiveChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        self.hold.task().submit(shard, request)
    }
}

/// Apart from what other shards write, as [`fabrix_rt::Apart`] says.
#[repr(align(128))]
struct ExclusiveTask {
    id: TaskId,
    inner: Box<dyn Channel>,
    geometry: Geometry,
    lane: LaneHandle,
    /// Writes that have passed the gate.
    writes: Slots<Passed>,
    /// Writes that wait for the gate to open.
    parked: VecDeque<Parked>,
    /// Comparisons that wait for their turn to be alone.
    comparisons: VecDeque<Parked>,
    current: Option<Comparison>,
    /// Whether a timer is set.
    ticking: bool,
    closing: bool,
}

struct Passed {
    caller: Token,
    /// Whether the buffer below is the caller's, and not a copy of ours.
    callers_buf: bool,
}

/// A request that outlives its `submit`.
struct Parked {
    caller: Token,
    operation: Operation,
    lba: u64,
    blocks: u32,
    buf: Option<Buf>,
    callers_buf: bool,
}

impl ExclusiveTask {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if !request.operation.writes() {
            return self.inner.submit(shard, request);
        }
        if let Some(status) = request.refusal(&self.geometry) {
            return request.done(status);
        }
        match request.operation {
            _ if request.blocks == 0 => request.done(Status::Ok),
            Operation::CompareAndWrite { .. } => self.compare(shard, request),
            _ => self.write(shard, request),
        }
    }

    fn write<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if self.writes.is_full() {
            return Submit::Busy(request);
        }
        if !self.lane.enter() {
            return self.park(shard, request);
        }
        let caller = request.token;
        let slot = self
            .writes
            .insert(Passed {
                caller,
                callers_buf: true,
            })
            .expect("a free place was seen");
        let answer = self.inner.submit(
            shard,
            request.with_token(Token {
                task: self.id,
                slot,
            }),
        );
        if matches!(answer, Submit::Pending) {
            return Submit::Pending;
        }
        self.writes.take(slot);
        self.lane.leave();
        match answer {
            Submit::Busy(request) => Submit::Busy(request.with_token(caller)),
            answer => answer,
        }
    }

    fn park<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if self.parked.len() == PARKED_MAX {
            return Submit::Busy(request);
        }
        match self.keep(shard, request) {
            Ok(parked) => self.parked.push_back(parked),
            Err(answer) => return answer,
        }
        if self.lane.want_write() {
            self.unpark(shard);
        }
        self.tick_later(shard);
        Submit::Pending
    }

    /// Makes a request outlive its `submit`: bytes that were only lent are copied.
    fn keep<'a>(&self, shard: &mut Shard, request: Request<'a>) -> Result<Parked, Submit<'a>> {
        let (buf, callers_buf) = match request.payload {
            // Registered memory was refused: nobody here says that it is taken.
            Payload::None | Payload::Lend | Payload::Registered(_) => (None, false),
            Payload::Owned(buf) => (Some(buf), true),
            Payload::Borrowed(bytes) => match shard.take_buf(bytes.len()) {
                Some(mut buf) => {
                    buf.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
                    (Some(buf), false)
                }
                None if self.is_idle() => return Err(request.done(Status::NotReady)),
                None => return Err(Submit::Busy(request)),
            },
        };
        let Request {
            operation,
            lba,
            blocks,
            token: caller,
            ..
        } = request;
        Ok(Parked {
            caller,
            operation,
            lba,
            blocks,
            buf,
            callers_buf,
        })
    }

    /// Lets the parked writes pass. The gate was granted, and it is given back when all have gone.
    fn unpark(&mut self, shard: &mut Shard) {
        while let Some(parked) = self.parked.pop_front() {
            if let Err(parked) = self.pass(shard, parked) {
                self.parked.push_front(parked);
                return;
            }
        }
        self.lane.release_grant();
    }

    fn pass(&mut self, shard: &mut Shard, parked: Parked) -> Result<(), Parked> {
        if self.writes.is_full() || !self.lane.enter() {
            return Err(parked);
        }
        let Parked {
            caller,
            operation,
            lba,
            blocks,
            buf,
            callers_buf,
        } = parked;
        let slot = self
            .writes
            .insert(Passed {
                caller,
                callers_buf,
            })
            .expect("a free place was seen");
        let payload = buf.map_or(Payload::None, Payload::Owned);
        let token = Token {
            task: self.id,
            slot,
        };
        match self.inner.submit(
            shard,
            Request {
                operation,
                lba,
                blocks,
                payload,
                token,
            },
        ) {
            Submit::Pending => Ok(()),
            Submit::Done(status, loan) => {
                self.write_ended(shard, slot, status, loan);
                Ok(())
            }
            Submit::Busy(request) => {
                self.writes.take(slot);
                self.lane.leave();
                let buf = match request.payload {
                    Payload::Owned(buf) => Some(buf),
                    _ => None,
                };
                Err(Parked {
                    caller,
                    operation,
                    lba,
                    blocks,
                    buf,
                    callers_buf,
                })
            }
        }
    }

    fn write_ended(&mut self, shard: &mut Shard, slot: u32, status: Status, loan: Loan) {
        let Some(passed) = self.writes.take(slot) else {
            return;
        };
        self.lane.leave();
        let loan = if passed.callers_buf { loan } else { Loan::None };
        shard.complete(
            passed.caller,
            Completion {
                result: status.to_result(),
                loan,
            },
        );
    }

    /// Looks again at everything that this channel may be waiting for.
    fn look_again(&mut self, shard: &mut Shard) {
        if !self.parked.is_empty() && self.lane.want_write() {
            self.unpark(shard);
        }
        self.step(shard);
        self.compare_next(shard);
        let position = self.lane.position();
        if position.granted && self.parked.is_empty() {
            self.lane.release_grant();
        }
        if position.holds && self.current.is_none() {
            self.lane.release();
        }
        self.tick_later(shard);
        if self.closing && self.is_idle() {
            shard.remove(self.id);
        }
    }

    /// Calls can be lost to a full mailbox, and a busy disk calls nobody: as long as anything
    /// waits, a timer runs.
    fn tick_later(&mut self, shard: &mut Shard) {
        if self.waits() && !self.ticking {
            self.ticking = true;
            shard.set_timer(
                Token {
                    task: self.id,
                    slot: 0,
                },
                shard.now() + TICK,
            );
        }
    }

    fn waits(&self) -> bool {
        !self.parked.is_empty() || !self.comparisons.is_empty() || self.current.is_some()
    }

    fn is_idle(&self) -> bool {
        !self.waits() && self.writes.is_empty()
    }
}

impl Task for ExclusiveTask {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let status = Status::from_result(completion.result);
        if slot == COMPARISON {
            self.part_ended(shard, status, &completion.loan);
        } else {
            self.write_ended(shard, slot, status, completion.loan);
        }
        // Ordinary writes find nothing waiting, and so take no lock.
        if self.waits() || self.closing {
            self.look_again(shard);
        }
    }

    fn expired(&mut self, shard: &mut Shard, _slot: u32) {
        self.ticking = false;
        self.look_again(shard);
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        self.closing |= message.is::<Closing>();
        debug_assert!(
            self.closing || message.is::<Call>(),
            "nobody else writes to this task"
        );
        self.look_again(shard);
    }
}

/// The slot of the current comparison's read and write: no number that `Slots` gives.
const COMPARISON: u32 = u32::MAX;

/// Writes in progress per channel.
const WRITES_MAX: u16 = 4096;

/// Writes, and comparisons, that may wait per channel.
const PARKED_MAX: usize = 256;

/// How long a lost call can go unnoticed.
const TICK: Duration = Duration::from_millis(1);
