//! A user of a remote disk that changes its size: reads and writes, and opens the disk again when
//! it has another size.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::{Channel, Device, Operation, Payload, Request, Status, Submit};
use fabrix_rt::{Completion, Loan, Shard, Task, TaskId, Token};

use super::access::{Access, Seat};
use crate::checker::{Checker, ReadId, WriteId};
use crate::choices::Choices;
use crate::images::BLOCK;
use crate::trace::{self, Entry};
use crate::workload;

/// What a user does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// Requests in all.
    pub(crate) requests: u64,
    /// Requests at once.
    pub(crate) depth: usize,
    /// Longest pause before a request.
    pub(crate) pause: Duration,
}

/// The user. It runs on a shard of its host.
pub(crate) struct User {
    task: TaskId,
    seat: Seat,
    device: Arc<dyn Device>,
    channel: Box<dyn Channel>,
    access: Rc<RefCell<Access>>,
    checker: Rc<RefCell<Checker>>,
    choices: Choices,
    wish: Wish,
    begun: u64,
    ended: u64,
    failed: u64,
    slots: Vec<Option<Running>>,
    faults: Vec<String>,
}

struct Running {
    /// Its number among the requests of the user. The first one is 1.
    number: u64,
    access: u64,
    blocks: Range<u64>,
    transfer: Transfer,
}

enum Transfer {
    Read(ReadId),
    Write(WriteId),
}

impl User {
    /// Starts a user of a disk on a shard.
    pub(crate) fn start(
        shard: &mut Shard,
        (seat, device): (Seat, Arc<dyn Device>),
        access: &Rc<RefCell<Access>>,
        checker: &Rc<RefCell<Checker>>,
        choices: Choices,
        wish: Wish,
    ) -> Rc<RefCell<Self>> {
        let task = shard.reserve();
        let channel = device.open(shard).expect("a channel");
        let user = Rc::new(RefCell::new(Self {
            task,
            seat,
            device,
            channel,
            access: Rc::clone(access),
            checker: Rc::clone(checker),
            choices,
            wish,
            begun: 0,
            ended: 0,
            failed: 0,
            slots: (0..wish.depth).map(|_| None).collect(),
            faults: Vec::new(),
        }));
        shard.install(task, Rc::clone(&user) as Rc<RefCell<_>>);
        for slot in 0..wish.depth {
            user.borrow_mut().pause(shard, slot);
        }
        user
    }

    /// Ends the user, and closes its disk.
    pub(crate) fn leave(shard: &mut Shard, user: Rc<RefCell<Self>>) {
        shard.remove(user.borrow().task);
        drop(user);
    }

    /// Whether every request has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended == self.wish.requests
    }

    /// Requests that have ended, those of them that have failed, and what was wrong.
    pub(crate) fn outcome(&self) -> (u64, u64, &[String]) {
        (self.ended, self.failed, &self.faults)
    }

    /// The host and the disk.
    pub(crate) fn seat(&self) -> Seat {
        self.seat
    }

    /// The disk as the host knows it.
    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The disk has another size: opens it again.
    pub(crate) fn adopt(&mut self, shard: &mut Shard, device: Arc<dyn Device>) {
        self.access.borrow_mut().is_closed(self.seat);
        self.channel = device.open(shard).expect("a channel");
        self.device = device;
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
        let at = shard.now() + pause;
        shard.set_timer(self.token(slot), at);
    }

    fn submit(&mut self, shard: &mut Shard, slot: usize) {
        if self.begun == self.wish.requests {
            return;
        }
        self.begun += 1;
        let length = self.choices.between(1, 2);
        let first = self
            .choices
            .below(self.device.geometry().blocks - length + 1);
        let blocks = first..first + length;
        let bytes = usize::try_from(length).expect("short") * BLOCK;
        let mut buf = shard.take_buf(bytes).expect("memory");
        let access = self.access.borrow_mut().begins(self.seat, blocks.end);
        let mut checker = self.checker.borrow_mut();
        let (operation, transfer) = match self.choices.once_in(2) {
            true => {
                buf.bytes_mut().fill(workload::CANARY);
                let read = checker.read_begins(blocks.clone());
                (Operation::Read, Transfer::Read(read))
            }
            false => {
                let value = checker.next_value();
                workload::fill(buf.bytes_mut(), value, first);
                let write = checker.write_begins(value, blocks.clone());
                (Operation::Write { durable: false }, Transfer::Write(write))
            }
        };
        drop(checker);
        let running = Running {
            number: self.begun,
            access,
            blocks,
            transfer,
        };
        trace::note(|| running.entry(self.seat, "begins"));
        self.slots[slot] = Some(running);
        let request = Request {
            operation,
            lba: first,
            blocks: u32::try_from(length).expect("short"),
            payload: Payload::Owned(buf),
            token: self.token(slot),
        };
        match self.channel.submit(shard, request) {
            Submit::Pending => {}
            Submit::Done(status, loan) => self.end(shard, slot, status, &loan),
            Submit::Busy(_) => self.faults.push("busy below the depth".to_owned()),
        }
    }

    fn end(&mut self, shard: &mut Shard, slot: usize, status: Status, loan: &Loan) {
        let Some(running) = self.slots[slot].take() else {
            return self.faults.push(format!("slot {slot} ended twice"));
        };
        trace::note(|| running.entry(self.seat, "ends").status(status));
        self.ended += 1;
        self.failed += u64::from(!status.is_ok());
        let fault = self
            .access
            .borrow_mut()
            .ends(running.access, status.is_ok());
        if let Err(fault) = fault {
            let fault = format!("{fault} ({status:?})");
            trace::note(|| Entry::new(trace::CHECKER, fault.clone()));
            self.faults.push(fault);
        }
        let mut checker = self.checker.borrow_mut();
        match (running.transfer, status.is_ok()) {
            (Transfer::Write(write), true) => checker.write_ends(write, running.blocks, false),
            (Transfer::Write(write), false) => checker.write_fails(write, running.blocks, true),
            (Transfer::Read(read), false) => checker.read_fails(read),
            (Transfer::Read(read), true) => {
                let values = match loan {
                    Loan::Buf(buf) => workload::values(buf.bytes(), running.blocks),
                    _ => Err("a read came back without its buffer".to_owned()),
                };
                let ended = values.and_then(|values| {
                    let ended = checker.read_ends(read, &values);
                    ended.map_err(|wrong| wrong.to_string())
                });
                self.faults.extend(ended.err());
            }
        }
        drop(checker);
        self.pause(shard, slot);
    }
}

impl Running {
    fn entry(&self, seat: Seat, what: &str) -> Entry {
        let word = match self.transfer {
            Transfer::Read(_) => "read",
            Transfer::Write(_) => "write",
        };
        let what = format!("{what} a {word} of disk {}", seat.disk);
        let entry = Entry::new(format!("host {}", seat.host + 1), what).request(self.number);
        let entry = entry.blocks(self.blocks.clone());
        match self.transfer {
            Transfer::Read(_) => entry,
            Transfer::Write(write) => entry.values(&[write.value]),
        }
    }
}

impl Task for User {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let status = Status::from_result(completion.result);
        let slot = usize::try_from(slot).expect("an index");
        self.end(shard, slot, status, &completion.loan);
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        self.submit(shard, usize::try_from(slot).expect("an index"));
    }
}
