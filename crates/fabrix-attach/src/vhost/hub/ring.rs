//! One queue of a guest: submits its requests to the disk and returns their answers.
//!
//! A queue is a task, so removing the task also ends the wait for the next kick. Data is copied
//! between guest memory and buffers of the shard, because the guest may change its memory at any
//! time.

mod call;

use std::cell::RefCell;
use std::rc::Rc;

use fabrix_block::Status;
use fabrix_proto::virtio::Broken;
use fabrix_proto::virtio::queue::{Chain, Queue};
use fabrix_proto::virtio::vhost_user::Start;
use fabrix_rt::{Buf, Completion, File, Loan, Op, Shard, Task, TaskId, Token, errno};

use super::Common;
use crate::vhost::inflight::Tracked;
use crate::vhost::memory::GuestMemory;
use crate::work::Work;
use call::Call;

const KICK: u32 = 0;
const RETRY: u32 = 1;
/// Completions of the disk: this number plus the slot number.
const DISK_SLOTS: u32 = 16;

/// Largest number of requests in progress per queue.
const SLOTS: u16 = 128;
/// Largest number of requests taken per turn, so that other tasks can run.
const REQUESTS_AT_ONCE: usize = 64;
/// Length of an eventfd counter in bytes.
const COUNT_BYTES: usize = 8;

pub(super) struct Ring {
    task: TaskId,
    index: usize,
    queue: Queue,
    enabled: bool,
    /// Record of requests in progress, if the monitor keeps one.
    tracked: Option<Tracked>,
    /// Unfinished requests of an earlier process, the last one first.
    resubmit: Vec<u16>,
    common: Rc<Common>,
    kick: File,
    count: Option<Buf>,
    /// Descriptor chains of the requests, by slot. Their memory is reused.
    chains: Vec<Chain>,
    work: Work<Call>,
    free: Vec<u16>,
}

impl Ring {
    /// Starts a queue with the guest's current memory.
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
        let (tracked, resubmit) = match common.inflight() {
            Some(record) => {
                let opened = Tracked::open(&record, index, &mut queue);
                let (tracked, resubmit) = opened.map_err(|Broken(sentence)| sentence)?;
                (Some(tracked), resubmit)
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
            resubmit,
            common: Rc::clone(common),
            kick: File::from(kick),
            count: Some(count),
            chains: (0..SLOTS).map(|_| Chain::default()).collect(),
            work: Work::new(SLOTS, Token { task, slot: RETRY }),
            free: (0..SLOTS).rev().collect(),
        };
        let ring = Rc::new(RefCell::new(ring));
        ring.borrow_mut().await_kick(shard);
        shard.install(task, Rc::clone(&ring) as Rc<RefCell<dyn Task>>);
        // Requests that are already in the queue had their kick earlier, and the last returned
        // request may lack its notification.
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

    /// Takes available requests while slots are free.
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

    /// Takes the next request into the chain of a slot, if there is one.
    fn take(&mut self, memory: &GuestMemory, slot: u16) -> Result<Option<u16>, Broken> {
        let chain = &mut self.chains[usize::from(slot)];
        if let Some(head) = self.resubmit.pop() {
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

    /// Submits all stalled requests again.
    fn retry(&mut self, shard: &mut Shard) -> Result<(), Broken> {
        let Some(memory) = self.common.memory() else {
            return Ok(());
        };
        while let Some((slot, call, _)) = self.work.next_stalled() {
            self.common.request_resumed();
            self.run(shard, &memory, slot, call)?;
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
        let Some(mut call) = self.work.answered(slot) else {
            return Ok(());
        };
        self.common.request_resumed();
        let Some(memory) = self.common.memory() else {
            return Ok(());
        };
        match call.job.ended(Status::from_result(completion.result)) {
            Some(status) if self.ended(&memory, slot, &mut call, status, &completion.loan)? => {
                Ok(())
            }
            _ => self.run(shard, &memory, slot, call),
        }
    }

    /// Takes new requests, and notifies the guest about returned ones.
    fn end_turn(&mut self, shard: &mut Shard) -> Result<(), Broken> {
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

    /// Disconnects the guest if it broke the protocol.
    fn handle_outcome(&self, shard: &mut Shard, outcome: Result<(), Broken>) {
        if let Err(Broken(sentence)) = outcome {
            self.common.disconnect_violator(sentence);
        }
        self.common.execute_order_if_idle(shard);
    }
}

impl Task for Ring {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let outcome = match (slot, completion) {
            (KICK, Completion { result, loan }) => {
                if let Loan::Buf(buf) = loan {
                    self.count = Some(buf);
                }
                // An eventfd always yields 8 bytes. A descriptor with another behaviour is not read
                // again.
                if usize::try_from(result) == Ok(COUNT_BYTES) || result == -errno::EAGAIN {
                    self.await_kick(shard);
                }
                Ok(())
            }
            (slot, completion) => self.disk_answered(shard, slot, &completion),
        };
        self.handle_outcome(shard, outcome);
        shard.flush_later(self.task);
    }

    fn expired(&mut self, shard: &mut Shard, _slot: u32) {
        self.work.timer_expired();
        let outcome = self.retry(shard);
        self.handle_outcome(shard, outcome);
        shard.flush_later(self.task);
    }

    fn flush(&mut self, shard: &mut Shard) {
        let outcome = self.end_turn(shard);
        self.handle_outcome(shard, outcome);
    }
}
