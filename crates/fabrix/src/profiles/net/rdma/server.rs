//! The RDMA half of the other end of `bench net`: one thread with one shard for all connections.
//!
//! A client gets memory only after its order was checked. The number of connections, their memory
//! together and the time of each are limited.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use fabrix_rt::{Completion, Nanos, Shard, SpinPolicy, Task, TaskId, Token};
use sys_rdma::{Device, Event, EventKind, Id, Parameters, QueuePair};

use super::super::wire::PATIENCE;
use super::endpoint::{CLOCK, COMPLETIONS, Events, NOT_OVER_LOOPBACK, Nic, shard};
use super::limits::{REQUESTS_MOST, admit};
use super::served::Served;
use super::wire::{Answer, Mode, Order, Refusal};
use crate::cli::terminal::say;
use crate::failure::Failure;

/// Listens for RDMA connections on a thread of its own, until `stop` is set.
///
/// Errors: what this machine lacks, or why it cannot listen there.
pub(in super::super) fn start(
    address: SocketAddr,
    spin: SpinPolicy,
    stop: &Arc<AtomicBool>,
) -> Result<JoinHandle<()>, Failure> {
    let (tell, told) = mpsc::sync_channel(1);
    let stop = Arc::clone(stop);
    let cannot =
        |error: String| Failure::io(format!("cannot listen for RDMA at {address}: {error}"));
    let thread = std::thread::Builder::new()
        .name("rdma".to_owned())
        .spawn(move || serve(address, spin, stop, &tell))
        .map_err(|error| cannot(error.to_string()))?;
    match told.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(cannot(error)),
        Err(_) => Err(cannot("a thread is gone".to_owned())),
    }
}

fn serve(
    address: SocketAddr,
    spin: SpinPolicy,
    stop: Arc<AtomicBool>,
    tell: &mpsc::SyncSender<Result<(), String>>,
) {
    let begun = shard(ARENA_BYTES, spin).and_then(|mut shard| {
        let server = Server::start(&mut shard, address, stop)?;
        Ok((shard, server))
    });
    let began = begun.as_ref().map(|_| ()).map_err(String::clone);
    let _nobody_waits = tell.send(began);
    if let Ok((mut shard, server)) = begun {
        shard.run();
        server.borrow_mut().connections.clear();
    }
}

struct Server {
    stop: Arc<AtomicBool>,
    task: TaskId,
    events: Events,
    listener: Option<Id>,
    nics: Vec<Nic>,
    connections: BTreeMap<usize, Connection>,
    next_key: usize,
}

struct Connection {
    queue: QueuePair,
    served: Served,
    /// When the server ends the connection.
    deadline: Nanos,
    peer: String,
}

impl Task for Server {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let went = match (completion.result, slot) {
            (0, COMPLETIONS) => self.take_completions(shard),
            (0, _) => self.take_events(shard),
            (errno, _) => Err(io::Error::from_raw_os_error(-errno)),
        };
        if let Err(error) = went {
            say(format_args!("RDMA is no longer served: {error}"));
            shard.stop();
        }
    }

    fn expired(&mut self, shard: &mut Shard, _: u32) {
        if self.stop.load(Ordering::Relaxed) {
            shard.stop();
        }
        let now = shard.now();
        self.connections.retain(|_, connection| {
            let in_time = now < connection.deadline;
            if !in_time {
                say(format_args!(
                    "{}: the time of its order is over",
                    connection.peer
                ));
            }
            in_time
        });
        self.set_clock(shard);
    }
}

impl Server {
    fn start(
        shard: &mut Shard,
        address: SocketAddr,
        stop: Arc<AtomicBool>,
    ) -> Result<Rc<RefCell<Self>>, String> {
        let events = Events::open()?;
        // The kernel would let it listen, but no client could connect.
        if address.ip().is_loopback() {
            return Err(format!("{NOT_OVER_LOOPBACK}; {NAME_ANOTHER}"));
        }
        let listener = events.id(LISTENER).map_err(|error| error.to_string())?;
        let listening = listener.listen(address, BACKLOG);
        listening.map_err(|error| cannot_listen(&error))?;
        let task = shard.reserve();
        let server = Rc::new(RefCell::new(Self {
            stop,
            task,
            events,
            listener: Some(listener),
            nics: Vec::new(),
            connections: BTreeMap::new(),
            next_key: LISTENER + 1,
        }));
        shard.install(task, server.clone());
        server.borrow().events.wait(shard, task);
        server.borrow().set_clock(shard);
        Ok(server)
    }

    fn set_clock(&self, shard: &mut Shard) {
        let token = Token {
            task: self.task,
            slot: CLOCK,
        };
        shard.set_timer(token, shard.now() + TICK);
    }

    fn take_events(&mut self, shard: &mut Shard) -> io::Result<()> {
        while let Some(event) = self.events.take()? {
            self.event(shard, event);
        }
        self.events.wait(shard, self.task);
        Ok(())
    }

    fn event(&mut self, shard: &mut Shard, event: Event) {
        match event.kind {
            EventKind::ConnectRequest(id, asked) => self.asked(shard, id, &asked),
            EventKind::Established(_) => {
                if let Some(connection) = self.connections.get_mut(&event.key) {
                    connection.queue.established();
                    connection.deadline = shard.now() + connection.served.time();
                }
            }
            EventKind::Failed(_) | EventKind::Disconnected => {
                self.connections.remove(&event.key);
            }
            EventKind::DeviceRemoved => self.device_is_gone(shard, event.key),
            EventKind::AddressResolved
            | EventKind::RouteResolved
            | EventKind::AddressChanged
            | EventKind::Other(_) => {}
        }
    }

    /// A client asks for a connection.
    fn asked(&mut self, shard: &mut Shard, id: Id, asked: &Parameters) {
        let peer = id.peer_addr();
        let peer = peer.map_or_else(|| "a client".to_owned(), |peer| peer.to_string());
        let admitted = Order::parse(&asked.private_data)
            .and_then(|order| admit(self.connections.values().map(|one| one.served.order), order));
        let refused = match admitted {
            Ok(order) => match self.accept(shard, id, asked, (order, &peer)) {
                Ok(()) => return say(format_args!("a client from {peer} over RDMA")),
                Err((id, error)) => {
                    say(format_args!("{peer}: {error}"));
                    id.map(|id| (id, Refusal::Memory))
                }
            },
            Err(refusal) => Some((id, refusal)),
        };
        if let Some((id, refusal)) = refused {
            let _gone = id.reject(&refusal.private_data());
        }
    }

    /// Accepts a connection. Errors: what the device says, and the id if it can still be rejected.
    fn accept(
        &mut self,
        shard: &mut Shard,
        id: Id,
        asked: &Parameters,
        (order, peer): (Order, &str),
    ) -> Result<(), (Option<Id>, io::Error)> {
        let prepared = id.device().map(Arc::clone).and_then(|device| {
            let served = Served::new(shard, &device, order)?;
            Ok((self.nic_of(shard, &device)?, device, served))
        });
        let (nic, device, served) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err((Some(id), error)),
        };
        let key = self.next_key;
        let sizes = Served::queue_sizes(order);
        let limits = device.limits();
        let reads = asked.responder_resources.min(limits.responder_resources);
        let parameters = Parameters {
            private_data: Answer {
                memory: served.remote(),
                reads: reads.max(1),
            }
            .private_data(),
            responder_resources: reads,
            initiator_depth: asked.initiator_depth.min(limits.initiator_depth),
        };
        let queue = self.nics[nic].queue(shard, id, key, &sizes);
        let accepted = queue.and_then(|mut queue| queue.accept(&parameters).map(|()| queue));
        let queue = accepted.map_err(|error| (None, error))?;
        self.next_key += 1;
        let connection = Connection {
            queue,
            served,
            deadline: shard.now() + PATIENCE,
            peer: peer.to_owned(),
        };
        self.connections.insert(key, connection);
        Ok(())
    }

    /// Index of the device's completion queue, which is made for its first connection.
    fn nic_of(&mut self, shard: &mut Shard, device: &Arc<Device>) -> io::Result<usize> {
        let known = |nic: &Nic| Arc::ptr_eq(nic.device(), device);
        if let Some(index) = self.nics.iter().position(known) {
            return Ok(index);
        }
        self.nics
            .push(Nic::new(shard, device, self.task, REQUESTS_MOST)?);
        Ok(self.nics.len() - 1)
    }

    fn take_completions(&mut self, shard: &mut Shard) -> io::Result<()> {
        for nic in &self.nics {
            while let Some(key) = nic.next_ready()? {
                let Some(connection) = self.connections.get_mut(&key) else {
                    continue;
                };
                if let Err(ended) = connection.take(shard) {
                    let peer = &connection.peer;
                    ended
                        .into_iter()
                        .for_each(|why| say(format_args!("{peer}: {why}")));
                    self.connections.remove(&key);
                }
            }
        }
        Ok(())
    }

    /// Drops all that may belong to the device: the command that removes it waits for that.
    fn device_is_gone(&mut self, shard: &mut Shard, key: usize) {
        self.connections.clear();
        self.nics.drain(..).for_each(|nic| nic.close(shard));
        if key == LISTENER {
            self.listener = None;
            say("the RDMA device has been removed: RDMA is no longer served");
        }
    }
}

impl Connection {
    fn take(&mut self, shard: &mut Shard) -> Result<(), Option<String>> {
        let heard = self.served.take(shard, &mut self.queue)?;
        if heard && self.served.order.mode == Mode::Ping {
            self.deadline = shard.now() + PATIENCE;
        }
        Ok(())
    }
}

impl Served {
    /// Time for which a connection may last. A ping has no end, but must go on.
    fn time(&self) -> Duration {
        match self.order.mode {
            Mode::Ping => PATIENCE,
            _ => PATIENCE + Duration::from_millis(self.order.millis),
        }
    }
}

fn cannot_listen(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => format!("{error}; {NAME_ANOTHER}"),
        ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable => {
            format!("{error}: another program may listen there")
        }
        _ => error.to_string(),
    }
}

const NAME_ANOTHER: &str = "name an address of an RDMA device, or 0.0.0.0";
/// Key of the listener.
const LISTENER: usize = 0;
/// Requests for connections that wait to be looked at.
const BACKLOG: u16 = 64;
/// Limit of the buffers: twice the memory of all connections, because the pool rounds sizes up.
const ARENA_BYTES: usize = 512 << 20;
/// Time between two looks at the interrupt and at the deadlines.
const TICK: Duration = Duration::from_millis(100);
