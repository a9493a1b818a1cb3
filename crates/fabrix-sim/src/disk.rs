//! A simulated disk: every request takes effect at one instant between its
//! submission and its end, and both instants are choices.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabrix_block::{
    Channel, Deallocate, Device, Durability, Geometry, Identity, OpenError, Operation, Payload,
    Request, Status, Submit,
};
use fabrix_rt::{Buf, Completion, Loan, Shard, Task, TaskId, Token};

use crate::choices::Choices;

/// A disk of a world.
pub(crate) struct SimDisk {
    geometry: Geometry,
    identity: Identity,
    state: Arc<Mutex<State>>,
}

struct State {
    /// What reads see.
    image: Vec<u8>,
    choices: Choices,
    longest: Duration,
}

impl SimDisk {
    /// A disk of zeroes. `longest`: the most time that a request takes.
    pub(crate) fn new(blocks: u64, longest: Duration, choices: Choices) -> Arc<Self> {
        let mut geometry = Geometry::new(BLOCK_BYTES, blocks);
        geometry.volatile_cache = true;
        geometry.durability = Durability::Device;
        geometry.deallocate = Deallocate::Zeroes;
        let bytes = usize::try_from(geometry.bytes()).expect("a small disk");
        Arc::new(Self {
            geometry,
            identity: Identity::derive("simulated", "simulated", "Simulated disk"),
            state: Arc::new(Mutex::new(State {
                image: vec![0; bytes],
                choices,
                longest,
            })),
        })
    }

    /// The bytes that reads see.
    pub(crate) fn image(&self) -> Vec<u8> {
        let state = self.state.lock().expect("no panic in a disk");
        state.image.clone()
    }
}

impl Device for SimDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let task = shard.reserve();
        let requests = Rc::new(RefCell::new(Requests {
            task,
            state: Arc::clone(&self.state),
            slots: Vec::new(),
        }));
        shard.install(task, Rc::clone(&requests) as Rc<RefCell<_>>);
        Ok(Box::new(SimChannel {
            requests,
            geometry: self.geometry.clone(),
        }))
    }
}

struct SimChannel {
    requests: Rc<RefCell<Requests>>,
    geometry: Geometry,
}

/// The requests of a channel in progress.
struct Requests {
    task: TaskId,
    state: Arc<Mutex<State>>,
    slots: Vec<Option<Pending>>,
}

struct Pending {
    token: Token,
    operation: Operation,
    start: usize,
    bytes: usize,
    /// The bytes of a write.
    source: Vec<u8>,
    /// Where a read goes.
    buf: Option<Buf>,
    ends_after: Duration,
    ended: Option<Status>,
}

impl Channel for SimChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if let Some(status) = request.refusal(&self.geometry) {
            return request.done(status);
        }
        let bytes = usize::try_from(request.bytes(&self.geometry)).expect("a transfer");
        let start = usize::try_from(self.geometry.offset(request.lba)).expect("a small disk");
        let source = request
            .payload
            .source()
            .map(<[u8]>::to_vec)
            .unwrap_or_default();
        let buf = match request.payload {
            Payload::Owned(buf) => Some(buf),
            Payload::Lend => match shard.take_buf(bytes) {
                Some(buf) => Some(buf),
                None => return Submit::Done(Status::NotReady, Loan::None),
            },
            _ => None,
        };
        let pending = Pending {
            token: request.token,
            operation: request.operation,
            start,
            bytes,
            source,
            buf,
            ends_after: Duration::ZERO,
            ended: None,
        };
        self.requests.borrow_mut().begin(shard, pending);
        Submit::Pending
    }
}

impl Requests {
    fn begin(&mut self, shard: &mut Shard, mut pending: Pending) {
        let mut state = self.state.lock().expect("no panic in a disk");
        let longest = u64::try_from(state.longest.as_nanos()).expect("a short time");
        let whole = state.choices.below(longest + 1);
        let first = state.choices.below(whole + 1);
        drop(state);
        pending.ends_after = Duration::from_nanos(whole - first);
        let slot = self.slots.iter().position(Option::is_none);
        let slot = slot.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(pending);
        self.wait(shard, slot, Duration::from_nanos(first));
    }

    fn wait(&self, shard: &mut Shard, slot: usize, time: Duration) {
        let token = Token {
            task: self.task,
            slot: u32::try_from(slot).expect("few requests"),
        };
        let at = shard.now() + time;
        shard.set_timer(token, at);
    }
}

impl Task for Requests {
    fn completed(&mut self, _shard: &mut Shard, _slot: u32, _completion: Completion) {
        unreachable!("the disk starts no operations");
    }

    /// The request takes effect, or it ends.
    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        let slot = usize::try_from(slot).expect("an index");
        let pending = self.slots[slot].as_mut().expect("a timer of a request");
        if let Some(status) = pending.ended {
            let pending = self.slots[slot].take().expect("it is there");
            let completion = Completion {
                result: status.to_result(),
                loan: pending.buf.map_or(Loan::None, Loan::Buf),
            };
            return shard.complete(pending.token, completion);
        }
        let mut state = self.state.lock().expect("no panic in a disk");
        pending.ended = Some(state.take_effect(pending));
        drop(state);
        let left = pending.ends_after;
        self.wait(shard, slot, left);
    }
}

impl State {
    fn take_effect(&mut self, pending: &mut Pending) -> Status {
        let range = pending.start..pending.start + pending.bytes;
        match pending.operation {
            Operation::Read => {
                let buf = pending.buf.as_mut().expect("a read has a buffer");
                buf.bytes_mut()[..pending.bytes].copy_from_slice(&self.image[range]);
            }
            Operation::Write { .. } => {
                self.image[range].copy_from_slice(&pending.source[..pending.bytes]);
            }
            Operation::WriteZeroes { .. } | Operation::Deallocate => self.image[range].fill(0),
            Operation::Flush => {}
            Operation::CompareAndWrite { .. } => return Status::Unsupported,
        }
        Status::Ok
    }
}

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: u32 = 512;
