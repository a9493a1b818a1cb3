//! A shard's channel through the gate. It counts writes in and out, queues writes that must wait,
//! and executes one comparison at a time (`channel/comparison.rs`). After every wake-up, completion
//! and timer tick it checks again whether waiting work can continue.

mod comparison;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use fabrix_rt::{Completion, Loan, Shard, TaskId, Token};

use self::comparison::Comparison;
use super::gate::{Gate, GateHandle};
use crate::slots::Slots;
use crate::task::{ChannelTask, TaskHandle, complete, submit_as, token};
use crate::{Channel, Geometry, Operation, Payload, Request, Status, Submit, copy_to_buf};

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
        gate: gate.join(id, remote),
        writes: Slots::new(WRITES_MAX),
        parked: VecDeque::with_capacity(PARKED_MAX),
        comparisons: VecDeque::with_capacity(PARKED_MAX),
        current: None,
        ticking: false,
    };
    Box::new(TaskHandle::new(shard, make))
}

/// Aligned away from memory that other shards write: see [`fabrix_rt::Apart`].
#[repr(align(128))]
struct ExclusiveTask {
    id: TaskId,
    inner: Box<dyn Channel>,
    geometry: Geometry,
    gate: GateHandle,
    /// Writes in progress at the disk.
    writes: Slots<PendingWrite>,
    /// Writes that wait for the gate to open.
    parked: VecDeque<Parked>,
    /// Comparisons that wait for exclusive access.
    comparisons: VecDeque<Parked>,
    current: Option<Comparison>,
    /// Whether a timer is set.
    ticking: bool,
}

struct PendingWrite {
    caller: Token,
    /// Whether the buffer belongs to the caller. False: it is a copy made here.
    callers_buf: bool,
}

/// A queued request. It owns its data, because it outlives the call of `submit`.
struct Parked {
    request: Request<'static>,
    callers_buf: bool,
}

impl ExclusiveTask {
    fn write<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if self.writes.is_full() {
            return Submit::Busy(request);
        }
        if !self.gate.enter() {
            return self.park(shard, request);
        }
        self.submit_write(shard, request, true)
    }

    /// Submits a write that has entered the gate.
    fn submit_write<'a>(
        &mut self,
        shard: &mut Shard,
        request: Request<'a>,
        callers_buf: bool,
    ) -> Submit<'a> {
        let write = PendingWrite {
            caller: request.token,
            callers_buf,
        };
        let slot = self.writes.insert(write);
        let slot = slot.expect("the caller saw a free slot");
        let answer = submit_as(&mut self.inner, shard, request, token(self.id, slot));
        if !matches!(answer, Submit::Pending) {
            self.writes.take(slot);
            self.gate.leave();
        }
        answer
    }

    fn park<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if self.parked.len() == PARKED_MAX {
            return Submit::Busy(request);
        }
        match self.own_payload(shard, request) {
            Ok(parked) => self.parked.push_back(parked),
            Err(answer) => return answer,
        }
        if self.gate.request_write() {
            self.unpark(shard);
        }
        self.tick_later(shard);
        Submit::Pending
    }

    /// Turns a request into a queued one. Borrowed data is copied into a buffer of the shard.
    fn own_payload<'a>(
        &self,
        shard: &mut Shard,
        request: Request<'a>,
    ) -> Result<Parked, Submit<'a>> {
        let (payload, callers_buf) = match request.payload {
            // `refusal` has rejected registered memory: this disk does not accept it.
            Payload::None | Payload::Lend | Payload::Registered(_) => (Payload::None, false),
            Payload::Owned(buf) => (Payload::Owned(buf), true),
            Payload::Borrowed(bytes) => match copy_to_buf(shard, bytes) {
                Some(buf) => (Payload::Owned(buf), false),
                None if self.is_idle() => return Err(request.done(Status::NotReady)),
                None => return Err(Submit::Busy(request)),
            },
        };
        let request = Request {
            operation: request.operation,
            lba: request.lba,
            blocks: request.blocks,
            payload,
            token: request.token,
        };
        Ok(Parked {
            request,
            callers_buf,
        })
    }

    /// Submits the parked writes. The gate has granted them, and the grant is returned when the
    /// queue is empty.
    fn unpark(&mut self, shard: &mut Shard) {
        while let Some(parked) = self.parked.pop_front() {
            if let Err(parked) = self.submit_parked(shard, parked) {
                self.parked.push_front(parked);
                return;
            }
        }
        self.gate.release_grant();
    }

    fn submit_parked(&mut self, shard: &mut Shard, parked: Parked) -> Result<(), Parked> {
        if self.writes.is_full() || !self.gate.enter() {
            return Err(parked);
        }
        let (caller, callers_buf) = (parked.request.token, parked.callers_buf);
        match self.submit_write(shard, parked.request, callers_buf) {
            Submit::Pending => {}
            Submit::Done(status, loan) => answer(shard, caller, callers_buf, status, loan),
            Submit::Busy(request) => {
                return Err(Parked {
                    request,
                    callers_buf,
                });
            }
        }
        Ok(())
    }

    fn write_ended(&mut self, shard: &mut Shard, slot: u32, status: Status, loan: Loan) {
        if let Some(write) = self.writes.take(slot) {
            self.gate.leave();
            answer(shard, write.caller, write.callers_buf, status, loan);
        }
    }

    /// Checks again everything that this channel may be waiting for.
    fn recheck(&mut self, shard: &mut Shard) {
        if !self.parked.is_empty() && self.gate.request_write() {
            self.unpark(shard);
        }
        self.advance_comparison(shard);
        self.compare_next(shard);
        let access = self.gate.access();
        if access.granted && self.parked.is_empty() {
            self.gate.release_grant();
        }
        if access.holds && self.current.is_none() {
            self.gate.release();
        }
        self.tick_later(shard);
    }

    /// A wake-up can be lost when a mailbox is full, and a busy disk sends none. A timer therefore
    /// runs as long as anything waits.
    fn tick_later(&mut self, shard: &mut Shard) {
        if self.waits() && !self.ticking {
            self.ticking = true;
            shard.set_timer(token(self.id, 0), shard.now() + TICK);
        }
    }

    fn waits(&self) -> bool {
        !self.parked.is_empty() || !self.comparisons.is_empty() || self.current.is_some()
    }
}

impl ChannelTask for ExclusiveTask {
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

    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let status = Status::from_result(completion.result);
        if slot == COMPARISON {
            self.step_ended(shard, status, &completion.loan);
        } else {
            self.write_ended(shard, slot, status, completion.loan);
        }
        // Without waiting work this check is skipped, so ordinary writes take no lock.
        if self.waits() {
            self.recheck(shard);
        }
    }

    fn expired(&mut self, shard: &mut Shard, _slot: u32) {
        self.ticking = false;
        self.recheck(shard);
    }

    fn woken(&mut self, shard: &mut Shard) {
        self.recheck(shard);
    }

    fn is_idle(&self) -> bool {
        !self.waits() && self.writes.is_empty()
    }
}

/// Completes a write. A copy made here does not go to the caller.
fn answer(shard: &mut Shard, caller: Token, callers_buf: bool, status: Status, loan: Loan) {
    let loan = if callers_buf { loan } else { Loan::None };
    complete(shard, caller, status, loan);
}

/// Slot number of the current comparison's read and write. `Slots` never returns it.
const COMPARISON: u32 = u32::MAX;

/// Largest number of writes in progress per channel.
const WRITES_MAX: u16 = 4096;

/// Largest number of waiting writes per channel, and of waiting comparisons.
const PARKED_MAX: usize = 256;

/// Longest delay caused by a lost wake-up.
const TICK: Duration = Duration::from_millis(1);
