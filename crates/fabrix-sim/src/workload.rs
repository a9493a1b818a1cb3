//! A user of a remote disk: submits requests at random, and tells the checker what came of them.

mod expectation;

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use fabrix_block::{Channel, Deallocate, Device, Operation, Payload, Request, Status, Submit};
use fabrix_rt::{Completion, Loan, Nanos, Shard, Task, TaskId, Token};

use self::expectation::Expectation;
use crate::checker::{Checker, Value, WriteId};
use crate::choices::Choices;
use crate::disk_faults::DiskFaults;
use crate::images::BLOCK;
use crate::net;
use crate::trace::{self, Entry};

/// What a workload does.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// Requests in all.
    pub(crate) requests: u64,
    /// Requests at once.
    pub(crate) depth: usize,
    /// Blocks of the disk.
    pub(crate) blocks: u64,
    /// Longest request, in blocks.
    pub(crate) longest: u64,
    /// Longest pause before a request.
    pub(crate) pause: Duration,
    /// Of 100 requests, how many are flushes.
    pub(crate) flushes: u64,
    /// Of 100 writes, how many have to be on the medium when they end.
    pub(crate) durable: u64,
    /// Zeroes and compare-and-writes have no FUA on this way to a gateway, so a flush follows them.
    /// When the power fails in between, only the gateway hears of it.
    pub(crate) flushes_apart: bool,
    /// The faults of the disk. Without them no request may fail, but a compare-and-write whose
    /// connection is lost.
    pub(crate) faults: DiskFaults,
}

/// The user. It runs on a shard of a host.
pub(crate) struct Workload {
    task: TaskId,
    channel: Box<dyn Channel>,
    checker: Rc<RefCell<Checker>>,
    choices: Choices,
    wish: Wish,
    /// Whether a write is on the medium only after a flush, as the host knows the disk.
    volatile_cache: bool,
    /// What a deallocated block holds, as the host knows the disk.
    deallocate: Deallocate,
    begun: u64,
    ended: u64,
    failed: u64,
    slowest_read: Duration,
    slots: Vec<Slot>,
    faults: Vec<String>,
}

/// One request at a time.
enum Slot {
    Pausing,
    Running(Running),
    Done,
}

struct Running {
    /// Its number among the requests of the host. The first one is 1.
    number: u64,
    began: Nanos,
    operation: Operation,
    blocks: Range<u64>,
    expectation: Expectation,
}

impl Workload {
    /// Starts a workload on a shard.
    pub(crate) fn start(
        shard: &mut Shard,
        device: &dyn Device,
        checker: &Rc<RefCell<Checker>>,
        choices: Choices,
        wish: Wish,
    ) -> Rc<RefCell<Self>> {
        let task = shard.reserve();
        let channel = device.open(shard).expect("a channel");
        let depth = wish.depth;
        let slots = (0..depth).map(|_| Slot::Pausing).collect();
        let workload = Rc::new(RefCell::new(Self {
            task,
            channel,
            checker: Rc::clone(checker),
            choices,
            wish,
            volatile_cache: device.geometry().volatile_cache,
            deallocate: device.geometry().deallocate,
            begun: 0,
            ended: 0,
            failed: 0,
            slowest_read: Duration::ZERO,
            slots,
            faults: Vec::new(),
        }));
        shard.install(task, Rc::clone(&workload) as Rc<RefCell<_>>);
        for slot in 0..depth {
            workload.borrow_mut().pause(shard, slot);
        }
        workload
    }

    /// Ends the user, and closes its disk.
    pub(crate) fn leave(shard: &mut Shard, workload: Rc<RefCell<Self>>) {
        shard.remove(workload.borrow().task);
        drop(workload);
    }

    /// The process of the user is killed: its requests in progress never end. Result: the writes
    /// among them, which may happen until the target has dropped the connection.
    pub(crate) fn die(&mut self) -> Vec<(WriteId, Range<u64>)> {
        let mut writes = Vec::new();
        for slot in &mut self.slots {
            let Slot::Running(running) = std::mem::replace(slot, Slot::Done) else {
                continue;
            };
            (self.ended, self.failed) = (self.ended + 1, self.failed + 1);
            let Running {
                blocks,
                expectation,
                ..
            } = running;
            let write = expectation.write().map(|write| (write, blocks.clone()));
            writes.extend(write);
            let unknown = (Status::Aborted, &Loan::None);
            let mut checker = self.checker.borrow_mut();
            let ended = expectation.ended(&mut checker, blocks, unknown, false);
            drop(checker);
            self.faults.extend(ended.err());
        }
        writes
    }

    /// Requests that have not begun.
    pub(crate) fn left(&self) -> u64 {
        self.wish.requests - self.begun
    }

    /// Whether every request has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended == self.wish.requests
    }

    /// Requests that have not ended.
    pub(crate) fn missing(&self) -> u64 {
        self.wish.requests - self.ended
    }

    /// Requests that have ended, and those of them that have failed.
    pub(crate) fn ended(&self) -> (u64, u64) {
        (self.ended, self.failed)
    }

    /// The longest time of a read.
    pub(crate) fn slowest_read(&self) -> Duration {
        self.slowest_read
    }

    /// What was wrong.
    pub(crate) fn faults(&self) -> &[String] {
        &self.faults
    }

    fn token(&self, slot: usize) -> Token {
        Token {
            task: self.task,
            slot: u32::try_from(slot).expect("few slots"),
        }
    }

    fn pause(&mut self, shard: &mut Shard, slot: usize) {
        let most = u64::try_from(self.wish.pause.as_nanos()).expect("a short time");
        let pause = Duration::from_nanos(self.choices.below(most + 1));
        self.slots[slot] = Slot::Pausing;
        let token = self.token(slot);
        let at = shard.now() + pause;
        shard.set_timer(token, at);
    }

    fn draw(&mut self) -> (Operation, Range<u64>) {
        let length = self.choices.between(1, self.wish.longest);
        let first = self.choices.below(self.wish.blocks - length + 1);
        let durable = self.choices.below(100) < self.wish.durable;
        if self.choices.below(100) < self.wish.flushes {
            return (Operation::Flush, 0..0);
        }
        let operation = match self.choices.below(21) {
            0..9 => Operation::Read,
            19.. => return (Operation::CompareAndWrite { durable }, first..first + 1),
            9..17 => Operation::Write { durable },
            17 => Operation::WriteZeroes {
                deallocate: self.choices.once_in(2),
                durable,
            },
            _ => Operation::Deallocate,
        };
        (operation, first..first + length)
    }

    fn submit(&mut self, shard: &mut Shard, slot: usize) {
        if self.begun == self.wish.requests {
            self.slots[slot] = Slot::Done;
            return;
        }
        self.begun += 1;
        let (operation, blocks) = self.draw();
        let expectation = Expectation::new(
            &mut self.checker.borrow_mut(),
            &mut self.choices,
            operation,
            &blocks,
            self.deallocate,
        );
        let [expected, written] = expectation.values();
        let bytes = usize::try_from(blocks.end - blocks.start).expect("short") * BLOCK;
        let payload = match operation {
            Operation::Read => {
                let mut buf = shard.take_buf(bytes).expect("memory");
                buf.bytes_mut().fill(CANARY);
                Payload::Owned(buf)
            }
            Operation::Write { .. } => {
                let mut buf = shard.take_buf(bytes).expect("memory");
                fill(buf.bytes_mut(), written, blocks.start);
                Payload::Owned(buf)
            }
            Operation::CompareAndWrite { .. } => {
                let mut buf = shard.take_buf(2 * bytes).expect("memory");
                let (old, new) = buf.bytes_mut().split_at_mut(bytes);
                fill(old, expected, blocks.start);
                fill(new, written, blocks.start);
                Payload::Owned(buf)
            }
            _ => Payload::None,
        };
        let request = Request {
            operation,
            lba: blocks.start,
            blocks: u32::try_from(blocks.end - blocks.start).expect("short"),
            payload,
            token: self.token(slot),
        };
        let running = Running {
            number: self.begun,
            began: shard.now(),
            operation,
            blocks,
            expectation,
        };
        let who = || format!("host {}", net::address_of(shard.id()));
        trace::note(|| running.entry(who(), "begins"));
        self.slots[slot] = Slot::Running(running);
        match self.channel.submit(shard, request) {
            Submit::Pending => {}
            Submit::Done(status, loan) => self.end(shard, slot, status, &loan),
            Submit::Busy(_) => self.faults.push("busy below the depth".to_owned()),
        }
    }

    fn end(&mut self, shard: &mut Shard, slot: usize, status: Status, loan: &Loan) {
        let Slot::Running(running) = std::mem::replace(&mut self.slots[slot], Slot::Pausing) else {
            return self.faults.push(format!("slot {slot} ended twice"));
        };
        self.ended += 1;
        self.failed += u64::from(!status.is_ok());
        let who = || format!("host {}", net::address_of(shard.id()));
        trace::note(|| running.ending(who(), status, loan));
        let Running {
            began,
            operation,
            blocks,
            expectation,
            ..
        } = running;
        if operation == Operation::Read {
            self.slowest_read = self.slowest_read.max(shard.now() - began);
        }
        if !expectation::fits(operation, status, &self.wish.faults) {
            let fault = format!("a {} of {blocks:?} failed: {status}", operation.word());
            trace::note(|| Entry::new(trace::CHECKER, fault.clone()).blocks(blocks.clone()));
            self.faults.push(fault);
        }
        if let Loan::Buf(buf) = loan
            && !buf.is_unique()
        {
            let word = operation.word();
            let fault = format!("a {word} of {blocks:?} has ended, and its buffer is still used");
            self.faults.push(fault);
        }
        let durable = operation.promises_durability() || !self.volatile_cache;
        let mut checker = self.checker.borrow_mut();
        let has_fua = matches!(operation, Operation::Write { .. }) || !self.wish.flushes_apart;
        let lost_power = |write| checker.has_lost_power_since(write);
        let durable = durable && (has_fua || !expectation.write().is_some_and(lost_power));
        let ended = expectation.ended(&mut checker, blocks, (status, loan), durable);
        drop(checker);
        self.faults.extend(ended.err());
        self.pause(shard, slot);
    }
}

impl Task for Workload {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let status = Status::from_result(completion.result);
        let slot = usize::try_from(slot).expect("an index");
        self.end(shard, slot, status, &completion.loan);
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        self.submit(shard, usize::try_from(slot).expect("an index"));
    }
}

impl Running {
    fn entry(&self, who: String, what: &str) -> Entry {
        let entry = Entry::new(who, format!("{what} a {}", self.operation.word()));
        let entry = entry.request(self.number).blocks(self.blocks.clone());
        let [expected, written] = self.expectation.values();
        match self.operation {
            Operation::Read | Operation::Flush => entry,
            Operation::CompareAndWrite { .. } => entry.values(&[expected, written]),
            _ => entry.values(&[written]),
        }
    }

    fn ending(&self, who: String, status: Status, loan: &Loan) -> Entry {
        let entry = self.entry(who, "ends").status(status);
        match (self.operation, status, loan) {
            (Operation::Read, Status::Ok, Loan::Buf(buf)) => {
                let values = values(buf.bytes(), self.blocks.clone());
                entry.values(&values.unwrap_or_default())
            }
            _ => entry,
        }
    }
}

/// Fills a buffer with the value and its place: words of eight bytes in turn.
pub(crate) fn fill(bytes: &mut [u8], value: Value, first: u64) {
    if value == 0 {
        return bytes.fill(0);
    }
    for (block, bytes) in (first..).zip(bytes.chunks_mut(BLOCK)) {
        for pair in bytes.chunks_mut(16) {
            pair[..8].copy_from_slice(&value.to_le_bytes());
            pair[8..].copy_from_slice(&block.to_le_bytes());
        }
    }
}

/// The values that blocks hold.
pub(crate) fn values(bytes: &[u8], blocks: Range<u64>) -> Result<Vec<Value>, String> {
    let chunks = bytes.chunks(BLOCK);
    blocks
        .zip(chunks)
        .map(|(block, bytes)| value(block, bytes))
        .collect()
}

fn value(block: u64, bytes: &[u8]) -> Result<Value, String> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
    let value = word(0);
    let place = if value == 0 { 0 } else { block };
    let is_whole =
        (0..BLOCK / 16).all(|pair| word(16 * pair) == value && word(16 * pair + 8) == place);
    match is_whole {
        true => Ok(value),
        false => Err(format!(
            "block {block} holds pieces of several writes, or bytes of another place: it begins with {:02x?}",
            &bytes[..32]
        )),
    }
}

/// Fills the buffer of a read, which must not show it.
pub(crate) const CANARY: u8 = 0xC5;
