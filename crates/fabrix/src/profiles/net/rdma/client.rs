//! One measurement of a client: connects with an order, carries the order out, and ends the
//! connection.
//!
//! Every wait has a limit of its own: the connection manager would wait for an absent server for
//! more than a minute, and a device answers for a stopped one.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fabrix_bench::latency::Recorder;
use fabrix_rt::{Completion, Nanos, Shard, SpinPolicy, Task, TaskId, Token};
use sys_rdma::{Done, Event, EventKind, Id, Parameters, QueuePair};

use super::super::wire::PATIENCE;
use super::endpoint::{CLOCK, COMPLETIONS, Events, Nic, shard};
use super::load::{Load, UNREGISTERED};
use super::ping::Ping;
use super::wire::{Answer, Mode, Order, Refusal};
use crate::failure::{Failure, Kind};

/// What one connection has measured.
pub(super) struct Found {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) latency: Recorder,
    /// The server is one of ours, and takes orders.
    pub(super) is_ours: bool,
    /// Why the measurement has ended early.
    pub(super) early: Option<Failure>,
}

/// Carries an order out on one connection.
///
/// Errors: the connection did not come about.
pub(super) fn measure(
    address: SocketAddr,
    order: Order,
    spin: SpinPolicy,
    stop: &Arc<AtomicBool>,
) -> Result<Found, Failure> {
    let mut shard = shard(ARENA_BYTES, spin).map_err(Failure::io)?;
    let client = Client::start(&mut shard, address, order, stop)?;
    shard.run();
    let mut client = client.borrow_mut();
    client.found()
}

struct Client {
    order: Order,
    stop: Arc<AtomicBool>,
    task: TaskId,
    events: Events,
    /// The connection before it has a queue pair.
    rising: Option<Id>,
    nic: Option<Nic>,
    queue: Option<QueuePair>,
    /// RDMA READs that this end may have in flight.
    reads: u8,
    is_ours: bool,
    /// None: the connection is not established yet.
    role: Option<Role>,
    began: Nanos,
    /// Last time at which the connection has got on.
    heard: Nanos,
    result: Option<Result<(), Failure>>,
}

enum Role {
    Ping(Ping),
    Load(Load),
}

impl Task for Client {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let went = match (completion.result, slot) {
            (0, COMPLETIONS) => self.take_completions(),
            (0, _) => self.take_events(shard),
            (errno, _) => Err(Failure::io(io::Error::from_raw_os_error(-errno))),
        };
        self.settle(shard, went);
    }

    fn expired(&mut self, shard: &mut Shard, _: u32) {
        let went = self.look_at_the_clock();
        self.set_clock(shard);
        self.settle(shard, went);
    }
}

impl Client {
    fn start(
        shard: &mut Shard,
        address: SocketAddr,
        order: Order,
        stop: &Arc<AtomicBool>,
    ) -> Result<Rc<RefCell<Self>>, Failure> {
        let events = Events::open().map_err(not_connected)?;
        let id = events.id(0).map_err(not_connected)?;
        id.resolve(address, None, STEP).map_err(not_connected)?;
        let task = shard.reserve();
        let client = Rc::new(RefCell::new(Self {
            order,
            stop: Arc::clone(stop),
            task,
            events,
            rising: Some(id),
            nic: None,
            queue: None,
            reads: 1,
            is_ours: false,
            role: None,
            began: shard.now(),
            heard: shard.now(),
            result: None,
        }));
        shard.install(task, client.clone());
        let this = client.borrow();
        this.events.wait(shard, task);
        this.set_clock(shard);
        drop(this);
        Ok(client)
    }

    fn set_clock(&self, shard: &mut Shard) {
        let token = Token {
            task: self.task,
            slot: CLOCK,
        };
        shard.set_timer(token, shard.now() + TICK);
    }

    /// Ends a measurement that was interrupted or hears nothing.
    fn look_at_the_clock(&mut self) -> Result<(), Failure> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Failure::io(INTERRUPTED));
        }
        if Nanos::now().since(self.heard) < PATIENCE {
            return Ok(());
        }
        let seconds = PATIENCE.as_secs();
        match self.role {
            None => Err(not_connected(format!(
                "the server does not answer within {seconds} s"
            ))),
            Some(_) => Err(Failure::io(format!(
                "the server has been silent for {seconds} s"
            ))),
        }
    }

    fn take_events(&mut self, shard: &mut Shard) -> Result<(), Failure> {
        while let Some(event) = self.events.take().map_err(Failure::io)? {
            self.event(shard, event)?;
        }
        self.events.wait(shard, self.task);
        Ok(())
    }

    fn event(&mut self, shard: &mut Shard, event: Event) -> Result<(), Failure> {
        match event.kind {
            EventKind::AddressResolved => {
                let id = self.rising.as_ref();
                id.map_or(Ok(()), |id| id.resolve_route(STEP))
                    .map_err(not_connected)
            }
            EventKind::RouteResolved => match self.rising.take() {
                Some(id) => self.connect(shard, id).map_err(|error| no_queue(&error)),
                None => Ok(()),
            },
            EventKind::Established(parameters) => self.established(shard, &parameters),
            EventKind::Failed(failure) if failure.is_by_peer() => {
                match Refusal::parse(&failure.private_data) {
                    Some(refusal) => Err(not_connected(refusal)),
                    None => Err(not_connected(format!("{failure}: {OTHER}"))),
                }
            }
            EventKind::Failed(failure) => Err(not_connected(failure)),
            EventKind::Disconnected => Err(self.lost()),
            EventKind::DeviceRemoved => Err(Failure::io("the RDMA device has been removed")),
            EventKind::ConnectRequest(..) | EventKind::AddressChanged | EventKind::Other(_) => {
                Ok(())
            }
        }
    }

    fn connect(&mut self, shard: &mut Shard, id: Id) -> io::Result<()> {
        let device = Arc::clone(id.device()?);
        let sizes = Load::queue_sizes(self.order);
        let entries = sizes.sends + sizes.receives;
        let nic = Nic::new(shard, &device, self.task, entries)?;
        let mut queue = nic.queue(shard, id, 0, &sizes)?;
        let limits = device.limits();
        let depth = u8::try_from(self.order.depth).unwrap_or(u8::MAX);
        self.reads = limits.initiator_depth.min(depth).max(1);
        queue.connect(&Parameters {
            private_data: self.order.private_data(),
            responder_resources: limits.responder_resources.min(READS_SERVED),
            initiator_depth: self.reads,
        })?;
        self.nic = Some(nic);
        self.queue = Some(queue);
        Ok(())
    }

    fn established(&mut self, shard: &mut Shard, parameters: &Parameters) -> Result<(), Failure> {
        let (Some(queue), Some(nic)) = (&mut self.queue, &self.nic) else {
            return Ok(());
        };
        queue.established();
        let answer = Answer::parse(&parameters.private_data);
        self.is_ours = answer.is_some();
        let role = match (self.order.mode, answer) {
            (Mode::Ping, _) => Ping::new(nic.device(), self.order.bytes)
                .map(Role::Ping)
                .map_err(not_connected)?,
            (_, Some(answer)) => Load::new(shard, self.order, answer, self.reads)
                .map(Role::Load)
                .map_err(not_connected)?,
            (_, None) => return Err(not_connected(OTHER)),
        };
        self.role = Some(role);
        self.began = Nanos::now();
        self.heard = self.began;
        self.go_on(self.began)
    }

    fn take_completions(&mut self) -> Result<(), Failure> {
        let Some(nic) = &self.nic else {
            return Ok(());
        };
        while nic.next_ready().map_err(Failure::io)?.is_some() {}
        let now = Nanos::now();
        while let Some(done) = self.queue.as_mut().and_then(QueuePair::next_done) {
            self.heard = now;
            self.done(done, now)?;
        }
        self.go_on(now)
    }

    fn done(&mut self, done: Done, now: Nanos) -> Result<(), Failure> {
        let Some(queue) = &mut self.queue else {
            return Ok(());
        };
        match (done, &mut self.role) {
            (Done::Received { slot, bytes, .. }, Some(role)) => {
                role.received(queue.message(slot, bytes), now)?;
                queue.post_receive(slot);
            }
            (
                Done::Ended {
                    is_ok: true,
                    memory,
                    ..
                },
                Some(Role::Load(load)),
            ) => load.ended(memory, now),
            (Done::Failed(failure), _) if !failure.is_flush() => {
                return Err(Failure::io(format!("the connection has failed: {failure}")));
            }
            (Done::Failed(_), _) => return Err(self.lost()),
            (Done::Received { .. } | Done::Ended { .. }, _) => {}
        }
        Ok(())
    }

    /// Prepares what is next, or ends the measurement when its time is over.
    fn go_on(&mut self, now: Nanos) -> Result<(), Failure> {
        let (Some(queue), Some(role)) = (&mut self.queue, &mut self.role) else {
            return Ok(());
        };
        let in_time = now < self.began + Duration::from_millis(self.order.millis);
        match role {
            Role::Ping(ping) => ping.fill(queue, in_time),
            Role::Load(load) if in_time => load.fill(queue, now),
            Role::Load(_) => Ok(()),
        }
        .map_err(Failure::io)?;
        if !in_time && role.tally().in_flight() == 0 {
            self.result = Some(Ok(()));
            queue.disconnect();
            return Ok(());
        }
        queue.flush().map_err(|error| {
            Failure::io(format!("the RDMA device takes no more requests: {error}"))
        })
    }

    /// The connection has ended before its time.
    fn lost(&self) -> Failure {
        let ended = "the server has ended the connection";
        match (&self.role, self.is_ours) {
            (None, _) => not_connected(ended),
            (Some(Role::Ping(ping)), false) if ping.tally.latency.summary(&[]).count == 0 => {
                Failure::io(format!(
                    "{ended} without an answer: {OTHER}, or `rping -s` has less room (-S {})",
                    self.order.bytes
                ))
            }
            _ => Failure::io(ended),
        }
    }

    fn settle(&mut self, shard: &mut Shard, went: Result<(), Failure>) {
        if let Err(failure) = went {
            self.result.get_or_insert(Err(failure));
        }
        if self.result.is_some() {
            shard.stop();
        }
    }

    /// The figures. Everything of the connection is dropped.
    fn found(&mut self) -> Result<Found, Failure> {
        drop(self.queue.take());
        let early = self.result.take().and_then(Result::err);
        let Some(role) = &mut self.role else {
            return Err(early.unwrap_or_else(|| not_connected(OTHER)));
        };
        let tally = std::mem::take(role.tally());
        Ok(Found {
            bytes: tally.bytes,
            seconds: self.heard.since(self.began).as_secs_f64(),
            latency: tally.latency,
            is_ours: self.is_ours,
            early,
        })
    }
}

impl Role {
    fn tally(&mut self) -> &mut super::load::Tally {
        match self {
            Self::Ping(ping) => &mut ping.tally,
            Self::Load(load) => &mut load.tally,
        }
    }

    fn received(&mut self, message: &[u8], now: Nanos) -> Result<(), Failure> {
        match self {
            Self::Ping(ping) => ping.received(message, now),
            Self::Load(load) => load.received(message, now).map_err(Failure::io),
        }
    }
}

/// The queue pair cannot be made. Memory that a device knows counts as locked.
fn no_queue(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::OutOfMemory => not_connected(format!("{error}: {UNREGISTERED}")),
        _ => not_connected(error),
    }
}

fn not_connected(sentence: impl std::fmt::Display) -> Failure {
    Failure::new(Kind::Connect, sentence)
}

/// Time for each step of resolving the address.
const STEP: Duration = Duration::from_secs(3);
/// Time between two looks at the interrupt and at the clock.
const TICK: Duration = Duration::from_millis(50);
/// RDMA READs of the server that this end answers at the same time.
const READS_SERVED: u8 = 16;
/// Limit of the buffers: 64 MiB in flight, with room for rounding.
const ARENA_BYTES: usize = 256 << 20;
const INTERRUPTED: &str = "interrupted: what was measured until then is shown";
const OTHER: &str =
    "what answers there is neither `fabrix bench net --server --rdma` nor `rping -s`";
