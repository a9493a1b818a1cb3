//! The requests of one shard at the disk of a cluster. The cluster carries a request out when it
//! arrives there. The shard hears of it later.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use fabrix_block::{Channel, Geometry, Operation, Payload, Request, Status, Submit};
use fabrix_rt::{Buf, Completion, Loan, Nanos, Shard, Task, TaskId, Token};

use super::{ClientId, Cluster, LATEST, State};
use crate::disk::source;
use crate::images::BLOCK;
use crate::trace::{self, Entry};
use crate::workload;
use crate::world::{self, World};

/// Opens a channel of a client.
pub(super) fn open(
    shard: &mut Shard,
    cluster: &Cluster,
    client: ClientId,
    geometry: Geometry,
) -> Box<dyn Channel> {
    let task = shard.reserve();
    let requests = Rc::new(RefCell::new(Requests {
        task,
        cluster: cluster.clone(),
        client,
        slots: Vec::new(),
    }));
    shard.install(task, Rc::clone(&requests) as Rc<RefCell<_>>);
    Box::new(ClusterChannel { requests, geometry })
}

struct ClusterChannel {
    requests: Rc<RefCell<Requests>>,
    geometry: Geometry,
}

/// The requests of a channel in progress.
struct Requests {
    task: TaskId,
    cluster: Cluster,
    client: ClientId,
    slots: Vec<Option<Rc<RefCell<Pending>>>>,
}

/// A request in progress.
struct Pending {
    token: Token,
    client: ClientId,
    /// Number of the client's map when the request was sent.
    map: u64,
    operation: Operation,
    /// Its bytes on the disk.
    range: Range<usize>,
    /// What a write has.
    source: Option<Vec<u8>>,
    /// Where a read goes.
    buf: Option<Buf>,
    arrives_at: Nanos,
    /// The process of the channel has ended.
    is_abandoned: bool,
    ended: Option<Status>,
}

impl Channel for ClusterChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if let Some(status) = request.refusal(&self.geometry) {
            return request.done(status);
        }
        if matches!(request.operation, Operation::CompareAndWrite { .. }) {
            return request.done(Status::Unsupported);
        }
        let mut requests = self.requests.borrow_mut();
        if request.operation.writes() && !requests.has_lock() {
            return request.done(REFUSED);
        }
        let bytes = usize::try_from(request.bytes(&self.geometry)).expect("a transfer");
        let start = usize::try_from(self.geometry.offset(request.lba)).expect("a small disk");
        let source = source(&request, bytes);
        let buf = match request.payload {
            Payload::Owned(buf) => Some(buf),
            Payload::Lend => match shard.take_buf(bytes) {
                Some(buf) => Some(buf),
                None => return Submit::Done(Status::NotReady, Loan::None),
            },
            _ => None,
        };
        let client = requests.client;
        let map = requests.cluster.state().clients[client].map;
        let pending = Pending {
            token: request.token,
            client,
            map,
            operation: request.operation,
            range: start..start + bytes,
            source,
            buf,
            arrives_at: shard.now(),
            is_abandoned: false,
            ended: None,
        };
        requests.begin(shard, pending);
        Submit::Pending
    }
}

impl Requests {
    /// Whether the client has the lock, as far as it knows. Without it, it sends no change.
    fn has_lock(&self) -> bool {
        let mut state = self.cluster.state();
        let client = &mut state.clients[self.client];
        client.is_lost |= !client.has_lock;
        client.has_lock
    }

    fn begin(&mut self, shard: &mut Shard, mut pending: Pending) {
        let [there, back] = self.cluster.state().times();
        pending.arrives_at = shard.now() + there;
        let pending = Rc::new(RefCell::new(pending));
        let world = world::current().expect("a world on this thread");
        plan_arrival(&world, &self.cluster, &pending);
        let slot = self.slots.iter().position(Option::is_none);
        let slot = slot.unwrap_or(self.slots.len());
        match self.slots.get_mut(slot) {
            Some(free) => *free = Some(pending),
            None => self.slots.push(Some(pending)),
        }
        self.cluster.state().clients[self.client].requests += 1;
        self.wait(shard, slot, shard.now() + there + back);
    }

    fn wait(&self, shard: &mut Shard, slot: usize, at: Nanos) {
        let token = Token {
            task: self.task,
            slot: u32::try_from(slot).expect("few requests"),
        };
        shard.set_timer(token, at);
    }

    /// When the answer to a request that has not come yet may be here.
    fn next_look(&self, now: Nanos, pending: &Pending) -> Option<Nanos> {
        let machine = self.cluster.state().clients[self.client].machine;
        let reached = self.cluster.reached_at(machine, now);
        match pending.ended {
            Some(_) if reached == now => None,
            _ => Some(reached.max(pending.arrives_at) + STEP),
        }
    }
}

/// Plans that a request arrives at the cluster.
fn plan_arrival(world: &World, cluster: &Cluster, pending: &Rc<RefCell<Pending>>) {
    let (cluster, pending) = (cluster.clone(), Rc::clone(pending));
    let at = pending.borrow().arrives_at;
    world.plan(at, move |world| arrive(world, &cluster, &pending));
}

/// A request arrives, if its machine reaches the cluster. If not, the process sends it again.
fn arrive(world: &World, cluster: &Cluster, pending: &Rc<RefCell<Pending>>) {
    let client = pending.borrow().client;
    let machine = cluster.state().clients[client].machine;
    let reached = cluster.reached_at(machine, world.now());
    if reached == world.now() {
        let mut pending = pending.borrow_mut();
        pending.ended = Some(cluster.state().carry_out(&mut pending));
    } else if !pending.borrow().is_abandoned {
        pending.borrow_mut().arrives_at = reached + STEP;
        plan_arrival(world, cluster, pending);
    }
}

impl State {
    /// The times in which a request arrives, and its answer.
    fn times(&mut self) -> [Duration; 2] {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).expect("a short time");
        let is_late = self.choices.below(1000) < self.habits.late;
        let latest = if is_late { LATEST } else { Duration::ZERO };
        let whole = self.choices.below(nanos(self.habits.longest + latest) + 1);
        let there = self.choices.below(whole + 1);
        [there, whole - there].map(Duration::from_nanos)
    }

    fn carry_out(&mut self, pending: &mut Pending) -> Status {
        let status = match self.admits(pending.client, pending.map) {
            true => self.take_effect(pending),
            false => REFUSED,
        };
        trace::note(|| pending.entry(&self.bytes).status(status));
        status
    }

    fn take_effect(&mut self, pending: &mut Pending) -> Status {
        let range = pending.range.clone();
        if let Some(buf) = pending.buf.as_mut()
            && pending.operation == Operation::Read
        {
            buf.bytes_mut()[..range.len()].copy_from_slice(&self.bytes[range.clone()]);
        }
        let Some(source) = &pending.source else {
            return Status::Ok;
        };
        let blocks = range.step_by(BLOCK).zip(source.chunks(BLOCK));
        for (start, bytes) in blocks {
            // A range below the granularity of the cluster keeps its data.
            if pending.operation != Operation::Deallocate || self.choices.once_in(2) {
                self.bytes[start..start + BLOCK].copy_from_slice(bytes);
            }
        }
        Status::Ok
    }
}

impl Task for Requests {
    fn completed(&mut self, _shard: &mut Shard, _slot: u32, _completion: Completion) {
        unreachable!("the disk starts no operations");
    }

    /// The answer to a request is here, or is late.
    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        let slot = usize::try_from(slot).expect("an index");
        let pending = Rc::clone(self.slots[slot].as_ref().expect("a timer of a request"));
        let mut pending = pending.borrow_mut();
        if let Some(at) = self.next_look(shard.now(), &pending) {
            return self.wait(shard, slot, at);
        }
        self.slots[slot] = None;
        let status = pending.ended.expect("it has arrived");
        let mut state = self.cluster.state();
        let client = &mut state.clients[self.client];
        client.requests -= 1;
        client.is_lost |= status == REFUSED;
        drop(state);
        let loan = pending.buf.take().map_or(Loan::None, Loan::Buf);
        let result = status.to_result();
        shard.complete(pending.token, Completion { result, loan });
    }
}

/// The process of the channel has ended. What it has sent goes on.
impl Drop for Requests {
    fn drop(&mut self) {
        for pending in self.slots.drain(..).flatten() {
            let mut pending = pending.borrow_mut();
            (pending.buf, pending.is_abandoned) = (None, true);
            self.cluster.state().clients[self.client].requests -= 1;
        }
    }
}

impl Pending {
    /// The cluster has answered the request.
    fn entry(&self, bytes: &[u8]) -> Entry {
        let block = |byte: usize| (byte / BLOCK) as u64;
        let blocks = block(self.range.start)..block(self.range.end);
        let values = workload::values(&bytes[self.range.clone()], blocks.clone());
        let what = format!(
            "answers a {} of client{}",
            self.operation.word(),
            self.client
        );
        Entry::new("cluster", what)
            .blocks(blocks)
            .values(&values.unwrap_or_default())
    }
}

/// What a request ends with whose client was shut out, as that of an image of Ceph does.
const REFUSED: Status = Status::Refused;
/// Delay of what is sent again, and of answers to it.
const STEP: Duration = Duration::from_millis(1);
