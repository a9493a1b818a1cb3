//! One queue of a guest: its requests become requests of the disk, and their endings its answers.
//!
//! A queue is a task: when it ends, the wait for its next kick ends with it. Data is copied between
//! the guest's memory and buffers of the shard, because the guest may change it at any time.

mod call;

use std::cell::RefCell;
use std::rc::Rc;

use fabrix_block::Status;
use fabrix_proto::virtio::Broken;
use fabrix_proto::virtio::queue::Queue;
use fabrix_proto::virtio::vhost_user::Start;
use fabrix_rt::{Buf, Completion, File, Loan, Op, Shard, Task, TaskId, Token, errno};

use super::hub::Common;
use super::inflight::Tracked;
use super::memory::GuestMemory;
use crate::job::RETRY_AFTER;
use call::{Call, Slot};

const KICK: u32 = 0;
const RETRY: u32 = 1;
/// The disk's endings: this and the slot's number.
const DISK_SLOTS: u32 = 16;

/// Requests in progress of one queue.
const SLOTS: u16 = 128;
/// Requests taken at once: then others have their turn.
const REQUESTS_AT_ONCE: usize = 64;
/// What a counter is read as.
const COUNT_BYTES: usize = 8;

pub(super) struct Ring {
    task: TaskId,
    index: usize,
    queue: Queue,
    enabled: bool,
    /// Where it is recorded what is in progress, if the monitor keeps a record.
    tracked: Option<Tracked>,
    /// What a process before us has left in progress, the last one first.
    again: Vec<u16>,
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
        let mut queue = queue.map_err(|Broken(sentence)| sentence)?;
        let (tracked, again) = match common.inflight() {
            Some(record) => {
                let opened = Tracked::open(&record, index, &mut queue);
                let (tracked, again) = opened.map_err(|Broken(sentence)| sentence)?;
                (Some(tracked), again)
            }
            None => (None, Vec::new()),
        };
        let count = shard.take_buf(COUNT_BYTES).ok_or("no memory is left")?;
        let task = shard.reserve();
        let ring = Self {
            task,
            index,
            queue,
            enabled: start.enabled,
            tracked,
            again,
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
        // What is there already was kicked for before, and what was given back last may not have
        // been called for.
        shard.flush_later(task);
        common.call(index);
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
            match self.take(&memory, slot)? {
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

    /// Takes the next request into a slot's chain, if there is one.
    fn take(&mut self, memory: &GuestMemory, slot: u16) -> Result<Option<u16>, Broken> {
        let chain = &mut self.slots[usize::from(slot)].chain;
        if let Some(head) = self.again.pop() {
            self.queue.take_again(memory, head, chain)?;
            return Ok(Some(head));
        }
        let head = self.queue.take(memory, chain)?;
        if let (Some(head), Some(tracked)) = (head, &mut self.tracked) {
            tracked.taken(head)?;
        }
        Ok(head)
    }

    fn give(&mut self, memory: &GuestMemory, head: u16, written: u32) -> Result<(), Broken> {
        match &self.tracked {
            Some(tracked) => tracked.give(&mut self.queue, memory, head, written),
            None => self.queue.give(memory, head, written),
        }
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
                // A counter says how often, whatever that is; what says something else is waited
                // for no more.
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
