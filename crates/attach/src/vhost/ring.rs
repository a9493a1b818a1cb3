//! One queue of a guest: its requests become requests of the disk, and their endings its answers.
//!
//! A queue is a task: when it ends, the wait for its next kick ends with it. Data is copied between the guest's memory
//! and buffers of the shard, because the guest may change it at any time.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fabrix_block::{Payload, Request, Status, Submit};
use fabrix_proto::virtio::blk::{Answer, ID_BYTES};
use fabrix_proto::virtio::queue::{Chain, Queue};
use fabrix_proto::virtio::vhost_user::Start;
use fabrix_proto::virtio::{Broken, Segment, gather, pieces, scatter, total};
use fabrix_rt::{Buf, Completion, File, Loan, Op, Shard, Task, TaskId, Token, errno};

use super::hub::Common;
use super::memory::GuestMemory;
use super::request::{Plan, plan};
use crate::job::{Ask, Job};

const KICK: u32 = 0;
const RETRY: u32 = 1;
/// The disk's endings: this and the slot's number.
const DISK_SLOTS: u32 = 16;

/// Requests in progress of one queue.
const SLOTS: u16 = 128;
/// Requests taken at once: then others have their turn.
const REQUESTS_AT_ONCE: usize = 64;
/// Pieces of one request that a disk answers at once before others have their turn.
const PIECES_AT_ONCE: usize = 32;
/// How soon a busy disk is asked again, when no ending of our own will wake us.
const RETRY_AFTER: Duration = Duration::from_millis(1);
/// What a counter is read as.
const COUNT_BYTES: usize = 8;

/// One request in progress; its chain's memory is used again.
#[derive(Default)]
struct Slot {
    chain: Chain,
    call: Option<Call>,
    /// The disk, or memory, was too busy for it.
    stalled: bool,
}

#[derive(Clone, Copy)]
struct Call {
    head: u16,
    job: Job,
    /// What comes behind this job: the next block, and how many bytes are left.
    next: (u64, u64),
    ask: Ask,
    /// How many bytes of data were moved by jobs that have ended.
    moved: u64,
    /// How many bytes this job moves.
    piece: usize,
}

pub(super) struct Ring {
    task: TaskId,
    index: usize,
    queue: Queue,
    enabled: bool,
    common: Rc<Common>,
    kick: File,
    count: Option<Buf>,
    slots: Vec<Slot>,
    free: Vec<u16>,
    stalled: usize,
    retrying: bool,
}

impl Ring {
    /// Begins a queue of a guest with this memory.
    pub(super) fn begin(
        shard: &mut Shard,
        common: &Rc<Common>,
        index: usize,
        start: &Start,
        kick: std::fs::File,
    ) -> Result<(TaskId, Rc<RefCell<Self>>), &'static str> {
        let memory = common.memory();
        let memory = memory.as_deref().ok_or("a queue begins without memory")?;
        let queue = Queue::new(start.layout, start.next, start.event_index, memory);
        let queue = queue.map_err(|Broken(sentence)| sentence)?;
        let count = shard.take_buf(COUNT_BYTES).ok_or("no memory is left")?;
        let task = shard.reserve();
        let ring = Self {
            task,
            index,
            queue,
            enabled: start.enabled,
            common: Rc::clone(common),
            kick: File::from(kick),
            count: Some(count),
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            free: (0..SLOTS).rev().collect(),
            stalled: 0,
            retrying: false,
        };
        let ring = Rc::new(RefCell::new(ring));
        ring.borrow_mut().await_kick(shard);
        shard.install(task, Rc::clone(&ring) as Rc<RefCell<dyn Task>>);
        // What is there already was kicked for before.
        shard.flush_later(task);
        Ok((task, ring))
    }

    pub(super) fn enable(&mut self, on: bool) {
        self.enabled = on;
    }

    pub(super) fn next_available(&self) -> u16 {
        self.queue.next_available()
    }

    fn await_kick(&mut self, shard: &mut Shard) {
        if let Some(buf) = self.count.take() {
            let op = Op::TakeMessage {
                file: self.kick.clone(),
                buf,
                start: 0,
                bytes: COUNT_BYTES,
            };
            shard.start(self.token(KICK), op);
        }
    }

    /// Takes what the guest has made available, as long as there are slots.
    fn serve(&mut self, shard: &mut Shard) -> Result<(), Broken> {
        let Some(memory) = self.common.memory() else {
            return Ok(());
        };
        for _ in 0..REQUESTS_AT_ONCE {
            let paused = !self.enabled || self.common.is_paused();
            let Some(slot) = self.free.last().copied().filter(|_| !paused) else {
                return Ok(());
            };
            let chain = &mut self.slots[usize::from(slot)].chain;
            match self.queue.take(&*memory, chain)? {
                Some(head) => {
                    self.free.pop();
                    self.request(shard, &memory, slot, head)?;
                }
                None if self.queue.ask_for_kick(&*memory)? => {}
                None => return Ok(()),
            }
        }
        shard.flush_later(self.task);
        Ok(())
    }

    fn request(
        &mut self,
        shard: &mut Shard,
        memory: &GuestMemory,
        slot: u16,
        head: u16,
    ) -> Result<(), Broken> {
        let chain = &self.slots[usize::from(slot)].chain;
        let durable = !self.common.is_writeback();
        let plan = plan(memory, chain, &self.common.lane.geometry(), durable)?;
        let call = |job, ask, next| Call {
            head,
            job,
            next,
            ask,
            moved: 0,
            piece: 0,
        };
        match plan {
            Plan::Data { ask, lba, bytes } => {
                // The first job is none: `advance` makes them all.
                let mut call = call(Job::new(ask, lba, 0), ask, (lba, bytes));
                self.advance(&mut call);
                self.run(shard, memory, slot, call)
            }
            Plan::Job(job) => self.run(shard, memory, slot, call(job, Ask::Flush, (0, 0))),
            Plan::Identity => {
                let room = usize::try_from(total(&chain.writable) - 1).unwrap_or(usize::MAX);
                let identity = self.common.identity();
                let told = &identity[..room.min(ID_BYTES)];
                if !scatter(memory, &chain.writable, 0, told) {
                    return Err(GONE);
                }
                self.finish(memory, slot, head, Answer::Ok, told.len() as u64)
            }
            Plan::Nothing => self.finish(memory, slot, head, Answer::Ok, 0),
            Plan::Wrong => self.finish(memory, slot, head, Answer::IoError, 0),
            Plan::Unsupported => self.finish(memory, slot, head, Answer::Unsupported, 0),
        }
    }

    /// Makes the next job of a call that moves data, no longer than the disk moves at once.
    fn advance(&self, call: &mut Call) {
        let geometry = self.common.lane.geometry();
        let block = u64::from(geometry.block_bytes);
        let most = u64::from(geometry.max_transfer_bytes) / block * block;
        let (lba, left) = call.next;
        let bytes = left.min(most);
        call.job = Job::new(call.ask, lba, bytes / block);
        call.piece = usize::try_from(bytes).unwrap_or(usize::MAX);
        call.next = (lba + bytes / block, left - bytes);
    }

    /// Goes on with a call until the disk takes its time, or it has ended.
    fn run(
        &mut self,
        shard: &mut Shard,
        memory: &GuestMemory,
        slot: u16,
        mut call: Call,
    ) -> Result<(), Broken> {
        for _ in 0..PIECES_AT_ONCE {
            if !call.job.fits(&self.common.lane.geometry()) {
                return self.end(memory, slot, &call, Status::OutOfRange);
            }
            let (operation, lba, blocks) = call.job.next();
            let payload = if call.job.reads() {
                Payload::Lend
            } else if call.job.writes() {
                match self.copied(shard, memory, slot, &call)? {
                    Some(buf) => Payload::Owned(buf),
                    None => {
                        self.stall(shard, slot, call);
                        return Ok(());
                    }
                }
            } else {
                Payload::None
            };
            let request = Request {
                operation,
                lba,
                blocks,
                payload,
                token: self.token(DISK_SLOTS + u32::from(slot)),
            };
            let (status, loan) = match self.common.lane.submit(shard, request) {
                Submit::Done(status, loan) => (status, loan),
                Submit::Pending => {
                    self.keep(slot, call);
                    return Ok(());
                }
                // A write's data is copied again then: the guest has not been told anything about it.
                Submit::Busy(_) => {
                    self.stall(shard, slot, call);
                    return Ok(());
                }
            };
            if self.ended(memory, slot, &mut call, status, &loan)? {
                return Ok(());
            }
        }
        self.stall(shard, slot, call);
        Ok(())
    }

    /// A write's data, in a buffer of ours. None: there is none free.
    fn copied(
        &self,
        shard: &mut Shard,
        memory: &GuestMemory,
        slot: u16,
        call: &Call,
    ) -> Result<Option<Buf>, Broken> {
        let Some(mut buf) = shard.take_buf(call.piece) else {
            return Ok(None);
        };
        let skip = HEAD_BYTES + call.moved;
        let segments = &self.slots[usize::from(slot)].chain.readable;
        match gather(memory, segments, skip, buf.bytes_mut()) {
            true => Ok(Some(buf)),
            false => Err(GONE),
        }
    }

    /// A request of the disk has ended. True: the call has, too.
    fn ended(
        &mut self,
        memory: &GuestMemory,
        slot: u16,
        call: &mut Call,
        status: Status,
        loan: &Loan,
    ) -> Result<bool, Broken> {
        let mut status = status;
        if status.is_ok() && call.job.reads() {
            let segments = &self.slots[usize::from(slot)].chain.writable;
            match deliver(memory, segments, call.moved, call.piece, loan) {
                Some(true) => {}
                Some(false) => return Err(GONE),
                None => status = Status::Internal,
            }
        }
        match call.job.ended(status) {
            None => Ok(false),
            Some(status) if status.is_ok() && call.next.1 > 0 => {
                call.moved += call.piece as u64;
                self.advance(call);
                Ok(false)
            }
            Some(status) => {
                call.moved += call.piece as u64;
                self.end(memory, slot, call, status)?;
                Ok(true)
            }
        }
    }

    fn end(
        &mut self,
        memory: &GuestMemory,
        slot: u16,
        call: &Call,
        status: Status,
    ) -> Result<(), Broken> {
        let answer = match status {
            Status::Ok => Answer::Ok,
            Status::Unsupported => Answer::Unsupported,
            _ => Answer::IoError,
        };
        let read = if call.job.reads() { call.moved } else { 0 };
        self.finish(memory, slot, call.head, answer, read)
    }

    /// Answers a request: its last byte says how it went.
    fn finish(
        &mut self,
        memory: &GuestMemory,
        slot: u16,
        head: u16,
        answer: Answer,
        read: u64,
    ) -> Result<(), Broken> {
        let segments = &self.slots[usize::from(slot)].chain.writable;
        let last = total(segments) - 1;
        self.free.push(slot);
        if !scatter(memory, segments, last, &[answer as u8]) {
            return Err(GONE);
        }
        // How many bytes were written, which counts only where it is all of them.
        let written = u32::try_from(read + 1).unwrap_or(u32::MAX);
        self.queue.give(memory, head, written)
    }

    fn stall(&mut self, shard: &mut Shard, slot: u16, call: Call) {
        self.keep(slot, call);
        self.slots[usize::from(slot)].stalled = true;
        self.stalled += 1;
        self.arrange_retry(shard);
    }

    fn arrange_retry(&mut self, shard: &mut Shard) {
        if self.stalled > 0 && !self.retrying {
            self.retrying = true;
            let at = shard.now() + RETRY_AFTER;
            shard.set_timer(self.token(RETRY), at);
        }
    }

    fn keep(&mut self, slot: u16, call: Call) {
        self.common.kept();
        self.slots[usize::from(slot)].call = Some(call);
    }

    fn resume(&mut self, slot: u16) -> Option<Call> {
        let call = self.slots[usize::from(slot)].call.take()?;
        self.common.goes_on();
        Some(call)
    }

    /// Asks the disk again for all that it was too busy for.
    fn retry(&mut self, shard: &mut Shard) -> Result<(), Broken> {
        let Some(memory) = self.common.memory() else {
            return Ok(());
        };
        for slot in 0..SLOTS {
            if !std::mem::take(&mut self.slots[usize::from(slot)].stalled) {
                continue;
            }
            if let Some(call) = self.resume(slot) {
                self.stalled -= 1;
                let before = self.stalled;
                self.run(shard, &memory, slot, call)?;
                if self.stalled > before {
                    break; // it is still busy
                }
            }
        }
        Ok(())
    }

    fn disk_answered(
        &mut self,
        shard: &mut Shard,
        slot: u32,
        completion: &Completion,
    ) -> Result<(), Broken> {
        let slot = u16::try_from(slot - DISK_SLOTS).expect("the slot came from a slot");
        let (Some(mut call), Some(memory)) = (self.resume(slot), self.common.memory()) else {
            debug_assert!(false, "an ending for a slot that asked for none");
            return Ok(());
        };
        let status = Status::from_result(completion.result);
        match self.ended(&memory, slot, &mut call, status, &completion.loan)? {
            true => Ok(()),
            false => self.run(shard, &memory, slot, call),
        }
    }

    /// Takes what has come, and calls the guest for what was given back.
    fn turn_ends(&mut self, shard: &mut Shard) -> Result<(), Broken> {
        self.serve(shard)?;
        let Some(memory) = self.common.memory() else {
            return Ok(());
        };
        if self.queue.wants_call(&*memory)? {
            self.common.call(self.index);
        }
        Ok(())
    }

    fn token(&self, slot: u32) -> Token {
        Token {
            task: self.task,
            slot,
        }
    }

    /// The guest that has broken the rules is served no more.
    fn judge(&self, shard: &mut Shard, outcome: Result<(), Broken>) {
        if let Err(Broken(sentence)) = outcome {
            self.common.broken(sentence);
        }
        self.common.rest_if_quiet(shard);
    }
}

impl Task for Ring {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let outcome = match (slot, completion) {
            (KICK, Completion { result, loan }) => {
                if let Loan::Buf(buf) = loan {
                    self.count = Some(buf);
                }
                // A counter says how often, whatever that is; what says something else is waited for no more.
                if usize::try_from(result) == Ok(COUNT_BYTES) || result == -errno::EAGAIN {
                    self.await_kick(shard);
                }
                Ok(())
            }
            (slot, completion) => self.disk_answered(shard, slot, &completion),
        };
        self.judge(shard, outcome);
        shard.flush_later(self.task);
    }

    fn expired(&mut self, shard: &mut Shard, _slot: u32) {
        self.retrying = false;
        let outcome = self.retry(shard);
        self.arrange_retry(shard);
        self.judge(shard, outcome);
        shard.flush_later(self.task);
    }

    fn flush(&mut self, shard: &mut Shard) {
        let outcome = self.turn_ends(shard);
        self.judge(shard, outcome);
    }
}

/// Copies what a disk gave into a guest's memory. None: the disk gave nothing; false: the memory is not there.
fn deliver(
    memory: &GuestMemory,
    segments: &[Segment],
    skip: u64,
    bytes: usize,
    loan: &Loan,
) -> Option<bool> {
    match loan {
        Loan::Buf(buf) => {
            let source = buf.bytes().get(..bytes)?;
            Some(scatter(memory, segments, skip, source))
        }
        Loan::Lent(lent) if lent.len() >= bytes => {
            Some(pieces(segments, skip, bytes, |address, at, bytes| {
                memory.write_lent(address, &lent.slice(at, bytes))
            }))
        }
        _ => None,
    }
}

const HEAD_BYTES: u64 = fabrix_proto::virtio::blk::HEAD_BYTES as u64;
const GONE: Broken = Broken("a request's memory has gone");
