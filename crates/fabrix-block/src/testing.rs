//! Test helpers of this crate: a front end that submits and waits, a runner for both engines, a
//! model of a disk, and a scripted kernel.

mod kernel;
mod model;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabrix_rt::{
    Buf, Completion, Engine, Loan, Shard, ShardConfig, SpinPolicy, Task, TaskId, Token, Wait,
};

pub(crate) use self::kernel::{Kernel, KernelCall};
pub(crate) use self::model::{compare_with_model, steps};
use crate::geometry::Geometry;
use crate::null::NullDisk;
use crate::{Channel, Device, Identity, Operation, Payload, Request, Status, Submit};

/// A shard with one task that collects completions.
pub(crate) struct FrontEnd {
    pub(crate) shard: Shard,
    task: TaskId,
    endings: Rc<RefCell<Endings>>,
    next_slot: u32,
}

#[derive(Default)]
struct Endings(BTreeMap<u32, (Status, Loan)>);

impl Task for Endings {
    fn completed(&mut self, _shard: &mut Shard, slot: u32, completion: Completion) {
        let status = Status::from_result(completion.result);
        let earlier = self.0.insert(slot, (status, completion.loan));
        assert!(earlier.is_none(), "slot {slot} ended twice");
    }
}

/// Runs a test on every available engine.
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

    /// Submits without waiting. Returns the answer, or the slot to wait for.
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

    /// Runs turns until a slot has completed.
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

    /// Runs turns that do not wait.
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

/// The bytes of a read's loan. A lent range is exactly as long as the read.
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
