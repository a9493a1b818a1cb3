//! What the tests of this crate share: a front end that asks and waits, both engines, a model of a disk, and a
//! kernel that answers as a test tells it to.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabrix_rt::driver::{Driver, Ending, Submission, Until};
use fabrix_rt::{
    Buf, Completion, Engine, Loan, Nanos, Op, Registered, Shard, ShardConfig, SpinPolicy, Task,
    TaskId, Token, Wait,
};
use proptest::prelude::*;

use crate::geometry::Geometry;
use crate::null::NullDisk;
use crate::{Channel, Device, Identity, Operation, Payload, Request, Status, Submit};

/// A shard and one task on it that collects endings.
pub(crate) struct FrontEnd {
    pub(crate) shard: Shard,
    task: TaskId,
    endings: Rc<RefCell<Endings>>,
    next_slot: u32,
}

#[derive(Default)]
struct Endings(HashMap<u32, (Status, Loan)>);

impl Task for Endings {
    fn completed(&mut self, _shard: &mut Shard, slot: u32, completion: Completion) {
        let status = Status::from_result(completion.result);
        let earlier = self.0.insert(slot, (status, completion.loan));
        assert!(earlier.is_none(), "slot {slot} ended twice");
    }
}

/// Runs a test on every engine there is.
pub(crate) fn on_both_engines(mut test: impl FnMut(&mut FrontEnd)) {
    for engine in [Engine::IoUring, Engine::Epoll] {
        let config = ShardConfig { engine, ..config() };
        match Shard::new(config) {
            Ok(shard) => test(&mut FrontEnd::on(shard)),
            Err(error) => eprintln!("skipped on {engine:?}: {error}"),
        }
    }
}

pub(crate) fn config() -> ShardConfig {
    ShardConfig {
        spin: SpinPolicy::Never,
        arena_bytes: 64 << 20,
        ..ShardConfig::default()
    }
}

impl FrontEnd {
    pub(crate) fn new() -> Self {
        Self::on(Shard::new(config()).expect("a shard"))
    }

    pub(crate) fn on(mut shard: Shard) -> Self {
        let endings = Rc::new(RefCell::new(Endings::default()));
        let task = shard.add(Rc::clone(&endings) as Rc<RefCell<dyn Task>>);
        Self {
            shard,
            task,
            endings,
            next_slot: 0,
        }
    }

    pub(crate) fn open(&mut self, device: &Arc<impl Device + ?Sized>) -> Box<dyn Channel> {
        device.open(&mut self.shard).expect("a channel")
    }

    pub(crate) fn token(&mut self) -> Token {
        self.next_slot += 1;
        Token {
            task: self.task,
            slot: self.next_slot,
        }
    }

    /// Submits without waiting; the answer, or the slot whose ending is to be waited for.
    pub(crate) fn submit(
        &mut self,
        channel: &mut Box<dyn Channel>,
        operation: Operation,
        lba: u64,
        blocks: u32,
        payload: Payload<'_>,
    ) -> Result<(Status, Loan), u32> {
        let token = self.token();
        let request = Request {
            operation,
            lba,
            blocks,
            payload,
            token,
        };
        match channel.submit(&mut self.shard, request) {
            Submit::Done(status, loan) => Ok((status, loan)),
            Submit::Pending => Err(token.slot),
            Submit::Busy(_) => panic!("busy"),
        }
    }

    /// Turns until a slot has ended.
    pub(crate) fn wait(&mut self, slot: u32) -> (Status, Loan) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(ending) = self.endings.borrow_mut().0.remove(&slot) {
                return ending;
            }
            assert!(Instant::now() < deadline, "no ending in 20 s");
            self.shard.turn(Wait::AtMost(Duration::from_millis(100)));
        }
    }

    pub(crate) fn has_ended(&self, slot: u32) -> bool {
        self.endings.borrow().0.contains_key(&slot)
    }

    /// Some turns, for what needs no waiting.
    pub(crate) fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.shard.turn(Wait::Never);
        }
    }

    /// Submits and waits.
    pub(crate) fn ask(
        &mut self,
        channel: &mut Box<dyn Channel>,
        operation: Operation,
        lba: u64,
        blocks: u32,
        payload: Payload<'_>,
    ) -> (Status, Loan) {
        match self.submit(channel, operation, lba, blocks, payload) {
            Ok(ended) => ended,
            Err(slot) => self.wait(slot),
        }
    }

    pub(crate) fn write(
        &mut self,
        channel: &mut Box<dyn Channel>,
        lba: u64,
        bytes: &[u8],
    ) -> Status {
        let blocks = u32::try_from(bytes.len() / 512).expect("a small write");
        let operation = Operation::Write { durable: false };
        self.ask(channel, operation, lba, blocks, Payload::Borrowed(bytes))
            .0
    }

    pub(crate) fn read(
        &mut self,
        channel: &mut Box<dyn Channel>,
        lba: u64,
        blocks: u32,
    ) -> Result<Vec<u8>, Status> {
        let (status, loan) = self.ask(channel, Operation::Read, lba, blocks, Payload::Lend);
        if status.is_ok() {
            Ok(bytes_of(&loan, blocks as usize * 512))
        } else {
            Err(status)
        }
    }

    pub(crate) fn flush(&mut self, channel: &mut Box<dyn Channel>) -> Status {
        self.ask(channel, Operation::Flush, 0, 0, Payload::None).0
    }

    pub(crate) fn buf(&mut self, bytes: usize, fill: u8) -> Buf {
        let mut buf = self.shard.take_buf(bytes).expect("a buffer");
        buf.bytes_mut().fill(fill);
        buf
    }
}

/// The bytes that a read's loan stands for. A lent one is exactly as long as what was read.
pub(crate) fn bytes_of(loan: &Loan, bytes: usize) -> Vec<u8> {
    match loan {
        Loan::Buf(buf) => buf.bytes()[..bytes].to_vec(),
        Loan::Lent(lent) => {
            assert_eq!(lent.len(), bytes);
            let mut out = vec![0; bytes];
            lent.copy_to(&mut out);
            out
        }
        other => panic!("a read brought {other:?}"),
    }
}

pub(crate) fn identity(name: &str) -> Identity {
    Identity::derive(name, name, "a test's disk")
}

pub(crate) fn null_disk(blocks: u64) -> Arc<dyn Device> {
    NullDisk::new(Geometry::new(512, blocks), identity("null"))
}

pub(crate) fn ram_disk(blocks: u64) -> Arc<dyn Device> {
    crate::ram::RamDisk::new(
        Geometry::new(512, blocks),
        fabrix_rt::HugePages::No,
        identity("ram"),
    )
    .expect("a RAM disk")
}

/// One step of a random life of a disk of 512-byte blocks.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    operation: Operation,
    lba: u64,
    blocks: u32,
    fill: u8,
    owned: bool,
}

pub(crate) fn steps(disk_blocks: u64, longest: u32) -> impl Strategy<Value = Vec<Step>> {
    let operation = prop_oneof![
        4 => Just(Operation::Read),
        4 => any::<bool>().prop_map(|durable| Operation::Write { durable }),
        1 => Just(Operation::Flush),
        1 => any::<(bool, bool)>().prop_map(|(deallocate, durable)| Operation::WriteZeroes { deallocate, durable }),
        1 => Just(Operation::Deallocate),
    ];
    let step = (operation, 0..disk_blocks, 0..=longest, 1u8.., any::<bool>()).prop_map(
        move |(operation, lba, blocks, fill, owned)| {
            let room = u32::try_from(disk_blocks - lba).unwrap_or(u32::MAX);
            Step {
                operation,
                lba,
                blocks: blocks.min(room),
                fill,
                owned,
            }
        },
    );
    prop::collection::vec(step, 1..24)
}

/// Does every step on the disk and on a `Vec`, and compares what is read, at the end all of it.
pub(crate) fn compare_with_model(front: &mut FrontEnd, device: &Arc<dyn Device>, steps: &[Step]) {
    let disk_bytes = usize::try_from(device.geometry().bytes()).expect("a small disk");
    let mut model = vec![0; disk_bytes];
    let mut channel = front.open(device);
    for step in steps {
        let start = usize::try_from(step.lba).expect("a small disk") * 512;
        let range = start..start + step.blocks as usize * 512;
        let blocks = (step.fill..=u8::MAX).chain(0..=u8::MAX).cycle();
        let pattern: Vec<u8> = blocks
            .flat_map(|fill| [fill; 512])
            .take(range.len())
            .collect();
        let owned = |front: &mut FrontEnd| {
            let mut buf = front.buf(pattern.len(), 0xee);
            buf.bytes_mut().copy_from_slice(&pattern);
            Payload::Owned(buf)
        };
        let payload = match step.operation {
            Operation::Read if step.owned => Payload::Owned(front.buf(range.len(), 0xee)),
            Operation::Read => Payload::Lend,
            Operation::Write { .. } if step.owned => owned(front),
            Operation::Write { .. } => Payload::Borrowed(&pattern),
            _ => Payload::None,
        };
        let gives_buf = matches!(payload, Payload::Owned(_));
        let (status, loan) =
            front.ask(&mut channel, step.operation, step.lba, step.blocks, payload);
        assert_eq!(status, Status::Ok, "{step:?}");
        assert!(
            !gives_buf || matches!(loan, Loan::Buf(_)),
            "{step:?}: the buffer did not come back"
        );
        match step.operation {
            Operation::Read if step.blocks > 0 => {
                assert_eq!(bytes_of(&loan, range.len()), model[range], "{step:?}");
            }
            Operation::Write { .. } => model[range].copy_from_slice(&pattern),
            Operation::WriteZeroes { .. } | Operation::Deallocate => model[range].fill(0),
            _ => {}
        }
    }
    let all = u32::try_from(disk_bytes / 512).expect("a small disk");
    for lba in (0..all).step_by(1024) {
        let blocks = (all - lba).min(1024);
        let read = front
            .read(&mut channel, u64::from(lba), blocks)
            .expect("the disk reads");
        let start = lba as usize * 512;
        assert!(
            read == model[start..start + read.len()],
            "the disk differs from the model"
        );
    }
}

/// What a scripted kernel was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Read {
        start: usize,
        bytes: usize,
        offset: u64,
    },
    Write {
        source: Vec<u8>,
        offset: u64,
        durable: bool,
    },
    ReadRegistered {
        memory: Registered,
        offset: u64,
    },
    WriteRegistered {
        memory: Registered,
        offset: u64,
        durable: bool,
    },
    Sync,
    Allocate {
        how: fabrix_rt::Allocate,
        offset: u64,
        bytes: u64,
    },
}

/// A kernel that gives scripted results, and full ones when the script has ended.
#[derive(Clone, Default)]
pub(crate) struct Kernel {
    script: Rc<RefCell<VecDeque<i32>>>,
    asked: Rc<RefCell<Vec<Asked>>>,
    /// Whether answers are held back.
    silent: Rc<RefCell<bool>>,
    waiting: Rc<RefCell<VecDeque<Submission>>>,
}

impl Kernel {
    pub(crate) fn front_end(&self) -> FrontEnd {
        let shard = Shard::with_driver(&config(), Box::new(self.clone())).expect("a shard");
        FrontEnd::on(shard)
    }

    pub(crate) fn will_answer(&self, results: &[i32]) {
        self.script.borrow_mut().extend(results);
    }

    pub(crate) fn be_silent(&self, silent: bool) {
        *self.silent.borrow_mut() = silent;
    }

    pub(crate) fn was_asked(&self) -> Vec<Asked> {
        self.asked.borrow_mut().split_off(0)
    }
}

impl Driver for Kernel {
    fn turn(
        &mut self,
        submissions: &mut Vec<Submission>,
        endings: &mut Vec<Ending>,
        _until: Until,
    ) -> Nanos {
        self.waiting.borrow_mut().extend(submissions.drain(..));
        while !*self.silent.borrow() {
            let Some((token, op)) = self.waiting.borrow_mut().pop_front() else {
                break;
            };
            let (asked, full) = asked(&op);
            self.asked.borrow_mut().push(asked);
            let result = self.script.borrow_mut().pop_front().unwrap_or(full);
            endings.push((
                token,
                Completion {
                    result,
                    loan: op.into_loan(),
                },
            ));
        }
        Nanos::now()
    }

    fn forget(&mut self, _task: TaskId) {}

    fn in_flight(&self) -> usize {
        self.waiting.borrow().len()
    }
}

fn asked(op: &Op) -> (Asked, i32) {
    let full = |bytes: usize| i32::try_from(bytes).expect("a small operation");
    match op {
        Op::Read {
            start,
            bytes,
            offset,
            ..
        } => (
            Asked::Read {
                start: *start,
                bytes: *bytes,
                offset: *offset,
            },
            full(*bytes),
        ),
        Op::Write {
            buf,
            start,
            bytes,
            offset,
            durable,
            ..
        } => {
            let source = buf.bytes()[*start..*start + *bytes].to_vec();
            (
                Asked::Write {
                    source,
                    offset: *offset,
                    durable: *durable,
                },
                full(*bytes),
            )
        }
        Op::ReadRegistered { memory, offset, .. } => (
            Asked::ReadRegistered {
                memory: *memory,
                offset: *offset,
            },
            full(memory.bytes as usize),
        ),
        Op::WriteRegistered {
            memory,
            offset,
            durable,
            ..
        } => (
            Asked::WriteRegistered {
                memory: *memory,
                offset: *offset,
                durable: *durable,
            },
            full(memory.bytes as usize),
        ),
        Op::Sync { .. } => (Asked::Sync, 0),
        Op::Allocate {
            how, offset, bytes, ..
        } => (
            Asked::Allocate {
                how: *how,
                offset: *offset,
                bytes: *bytes,
            },
            0,
        ),
        other => panic!("a disk asked for {other:?}"),
    }
}
