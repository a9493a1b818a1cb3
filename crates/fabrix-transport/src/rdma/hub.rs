//! The hub of a shard: events of the connection manager, and completions, for the tasks that they
//! concern.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use fabrix_rt::{Completion, Loan, Shard, Task, TaskId, Token, errno};
use sys_rdma::{CompletionQueue, Device, EventKind, Id, Limits, Parameters, QueuePair, QueueSizes};

use super::adapter::Adapter;
use super::connecting::Connecting;
use super::listener::RdmaListener;
use super::manager::{CmEvent, CmId, DetachedCmId, Manager};
use super::member::{Entry, Member, QueuePairKind};
use super::pair::Pair as _;
use super::request::RdmaRequest;
use super::simulated::{SimulatedId, SimulatedNetwork, SimulatedPair};

/// Result of a completion for a task: there is something to take.
pub const RDMA_READY: i32 = 0;
/// Result of a completion for a task: the peer has ended the connection.
pub const RDMA_LOST: i32 = 1;

/// The RDMA connections of one shard. All tasks of a shard share one hub ([`Hub::of`]).
pub struct Hub {
    inner: Rc<RefCell<Inner>>,
}

/// State of a hub. It is the task that waits for events of the connection manager.
pub(super) struct Inner {
    task: TaskId,
    manager: Manager,
    owners: BTreeMap<usize, Owner>,
    next_key: usize,
    adapters: Vec<Adapter>,
    /// The hub itself, for the tasks of completion queues and for members.
    me: Weak<RefCell<Self>>,
}

/// Whom the events with a key concern.
enum Owner {
    Listener {
        token: Token,
        requests: VecDeque<RdmaRequest>,
    },
    /// A connection of this end that is not established. Its task takes the events.
    Connecting {
        token: Token,
        events: VecDeque<EventKind>,
    },
    Connection {
        token: Token,
        /// None: the completions of a simulated network.
        completions: Option<Rc<CompletionQueue>>,
    },
    Adapter(Arc<Device>),
}

impl Owner {
    fn token(&self) -> Option<Token> {
        match self {
            Self::Listener { token, .. }
            | Self::Connecting { token, .. }
            | Self::Connection { token, .. } => Some(*token),
            Self::Adapter(_) => None,
        }
    }
}

impl Hub {
    /// The hub of a shard.
    ///
    /// # Errors
    /// What RDMA lacks on this machine, in a sentence.
    pub fn of(shard: &mut Shard) -> io::Result<Rc<Self>> {
        shard.common(|shard| Self::new(shard, Manager::verbs()?))
    }

    /// Gives a shard without a hub one in a simulated network.
    ///
    /// # Errors
    /// The shard's driver has no pollers.
    pub fn simulated(shard: &mut Shard, network: Rc<dyn SimulatedNetwork>) -> io::Result<Rc<Self>> {
        shard.common(|shard| Self::new(shard, Manager::Simulated(network)))
    }

    fn new(shard: &mut Shard, manager: Manager) -> io::Result<Self> {
        let task = shard.reserve();
        if let Some(poller) = manager.poller() {
            shard.add_poller(Token { task, slot: 0 }, poller)?;
        }
        let inner = Rc::new_cyclic(|me| {
            RefCell::new(Inner {
                task,
                manager,
                owners: BTreeMap::new(),
                next_key: 1,
                adapters: Vec::new(),
                me: Weak::clone(me),
            })
        });
        shard.install(task, Rc::clone(&inner) as Rc<RefCell<dyn Task>>);
        inner.borrow().wait(shard);
        Ok(Self { inner })
    }

    /// Listens at an address. `token` is told of requests ([`RDMA_READY`]), and with a negative
    /// errno that the device of the address goes away: the listener must be dropped then.
    ///
    /// # Errors
    /// As of [`Id::listen`].
    pub fn listen(
        &self,
        address: SocketAddr,
        backlog: u16,
        token: Token,
    ) -> io::Result<RdmaListener> {
        let mut inner = self.inner.borrow_mut();
        let key = inner.take_key();
        let id = inner.manager.id(key)?;
        id.listen(address, backlog)?;
        let requests = VecDeque::new();
        inner
            .owners
            .insert(key, Owner::Listener { token, requests });
        Ok(RdmaListener::new(id, key, Weak::clone(&inner.me)))
    }

    /// Accepts the connection of a request. `choose` says its sizes and parameters, which the
    /// device limits. The first receives are handed to the device before the peer is answered.
    ///
    /// `token` is told of completions ([`RDMA_READY`]), of the end by the peer ([`RDMA_LOST`]), and
    /// with a negative errno of the end of the device: the member must be dropped then.
    ///
    /// # Errors
    /// `OutOfMemory` without buffers or locked memory, and what the device says. The peer is
    /// refused then.
    pub(crate) fn accept(
        &self,
        shard: &mut Shard,
        id: DetachedCmId,
        token: Token,
        choose: impl FnOnce(&Limits) -> (QueueSizes, Parameters),
    ) -> io::Result<Member> {
        let key = self.inner.borrow_mut().take_key();
        let id = self.inner.borrow().manager.attach(id, key)?;
        let hub = Rc::downgrade(&self.inner);
        let entry = Entry { key, hub };
        let (mut member, parameters) = self.member(shard, id, (entry, token), choose)?;
        member.accept(&parameters)?;
        Ok(member)
    }

    /// Begins a connection to a peer. `token` is told of each event ([`RDMA_READY`]), then as of
    /// [`Hub::accept`]. `step` is the most time for the address and for the route.
    ///
    /// # Errors
    /// As of [`Id::resolve`].
    pub fn connect(
        self: &Rc<Self>,
        to: SocketAddr,
        from: Option<IpAddr>,
        step: Duration,
        token: Token,
    ) -> io::Result<Connecting> {
        let mut inner = self.inner.borrow_mut();
        let key = inner.take_key();
        let id = inner.manager.id(key)?;
        id.resolve(to, from, step)?;
        let events = VecDeque::new();
        inner
            .owners
            .insert(key, Owner::Connecting { token, events });
        let hub = Weak::clone(&inner.me);
        let entry = Entry { key, hub };
        Ok(Connecting::new(Rc::clone(self), (id, entry), (token, step)))
    }

    /// The next event of a connection that is not established.
    pub(super) fn next_event(&self, key: usize) -> Option<EventKind> {
        match self.inner.borrow_mut().owners.get_mut(&key) {
            Some(Owner::Connecting { events, .. }) => events.pop_front(),
            _ => None,
        }
    }

    /// A connection is established: the hub tells only its end and its completions from now on.
    pub(super) fn established(&self, key: usize, token: Token, member: &Member) {
        let completions = member.completions();
        let connection = Owner::Connection { token, completions };
        self.inner.borrow_mut().owners.insert(key, connection);
    }

    /// A connection with its queue pair, whose first receives are handed to the device.
    pub(super) fn member(
        &self,
        shard: &mut Shard,
        id: CmId,
        (entry, token): (Entry, Token),
        choose: impl FnOnce(&Limits) -> (QueueSizes, Parameters),
    ) -> io::Result<(Member, Parameters)> {
        let mut inner = self.inner.borrow_mut();
        let (pair, parameters) = match id {
            CmId::Verbs(id) => inner.queue_pair(shard, id, entry.key, choose)?,
            CmId::Simulated(id) => simulated_pair(id, choose),
        };
        let mut member = Member::new(pair, entry);
        let completions = member.completions();
        let connection = Owner::Connection { token, completions };
        inner.owners.entry(member.key()).or_insert(connection);
        drop(inner);
        (0..member.receives()).for_each(|slot| member.post_receive(slot));
        member.flush()?;
        Ok((member, parameters))
    }
}

/// The queue pair of an id of a simulated network.
fn simulated_pair(
    id: Box<dyn SimulatedId>,
    choose: impl FnOnce(&Limits) -> (QueueSizes, Parameters),
) -> (QueuePairKind, Parameters) {
    let (sizes, parameters) = choose(&id.limits());
    let pair = SimulatedPair::new(&sizes);
    id.has_pair(&pair);
    (QueuePairKind::Simulated(pair, id), parameters)
}

impl Inner {
    fn take_key(&mut self) -> usize {
        let key = self.next_key;
        self.next_key += 1;
        key
    }

    fn wait(&self, shard: &mut Shard) {
        let token = Token {
            task: self.task,
            slot: 0,
        };
        self.manager.wait(shard, token);
    }

    /// The queue pair of an id of the connection manager.
    fn queue_pair(
        &mut self,
        shard: &mut Shard,
        id: Id,
        key: usize,
        choose: impl FnOnce(&Limits) -> (QueueSizes, Parameters),
    ) -> io::Result<(QueuePairKind, Parameters)> {
        let device = Arc::clone(id.device()?);
        let (sizes, parameters) = choose(device.limits());
        let entries = sizes.sends.saturating_add(sizes.receives);
        let adapter = self.adapter(shard, &device)?;
        let hub = Weak::clone(&self.me);
        let adapter = &mut self.adapters[adapter];
        let completions = adapter.completions(shard, entries, &hub)?;
        let memory = adapter.memory();
        let pair = QueuePair::new(id, shard, &completions, &memory, key, &sizes)?;
        Ok((QueuePairKind::Verbs(pair), parameters))
    }

    /// Index of the shard's adapter for a device.
    fn adapter(&mut self, shard: &mut Shard, device: &Arc<Device>) -> io::Result<usize> {
        let mut adapters = self.adapters.iter();
        if let Some(index) = adapters.position(|adapter| adapter.is_of(device)) {
            return Ok(index);
        }
        let key = self.take_key();
        let adapter = Adapter::new(shard, self.manager.channel()?, device, key)?;
        self.owners.insert(key, Owner::Adapter(Arc::clone(device)));
        self.adapters.push(adapter);
        Ok(self.adapters.len() - 1)
    }

    /// The owner of a key needs no news any more.
    pub(super) fn forget(&mut self, key: usize) {
        self.owners.remove(&key);
    }

    pub(super) fn next_request(&mut self, key: usize) -> Option<RdmaRequest> {
        match self.owners.get_mut(&key) {
            Some(Owner::Listener { requests, .. }) => requests.pop_front(),
            _ => None,
        }
    }

    /// The connection with this key has completions to take.
    pub(super) fn ready(&mut self, shard: &mut Shard, key: usize) {
        self.tell(shard, key, RDMA_READY);
    }

    /// A completion queue tells no more completions: its connections have failed.
    pub(super) fn queue_failed(
        &mut self,
        shard: &mut Shard,
        failed: &Rc<CompletionQueue>,
        error: &io::Error,
    ) {
        let errno = error.raw_os_error().unwrap_or(errno::EIO);
        for owner in self.owners.values() {
            if let Owner::Connection { token, completions } = owner
                && completions
                    .as_ref()
                    .is_some_and(|it| Rc::ptr_eq(it, failed))
            {
                tell(shard, *token, -errno);
            }
        }
    }

    fn tell(&self, shard: &mut Shard, key: usize, result: i32) {
        if let Some(token) = self.owners.get(&key).and_then(Owner::token) {
            tell(shard, token, result);
        }
    }

    fn event(&mut self, shard: &mut Shard, key: usize, event: CmEvent) {
        match event {
            // A request to a listener that is gone is refused: its id is dropped here.
            CmEvent::Request(id, parameters) => {
                if let Some(Owner::Listener { token, requests }) = self.owners.get_mut(&key) {
                    requests.push_back(RdmaRequest::new(id, parameters));
                    tell(shard, *token, RDMA_READY);
                }
            }
            CmEvent::Other(EventKind::DeviceRemoved) => self.device_removed(shard, key),
            CmEvent::Other(kind) => self.event_of_connection(shard, key, kind),
        }
    }

    fn event_of_connection(&mut self, shard: &mut Shard, key: usize, kind: EventKind) {
        if let Some(Owner::Connecting { token, events }) = self.owners.get_mut(&key) {
            events.push_back(kind);
            return tell(shard, *token, RDMA_READY);
        }
        if let EventKind::Disconnected | EventKind::Failed(_) | EventKind::AddressChanged = kind {
            self.take_completions(shard, key);
            self.tell(shard, key, RDMA_LOST);
        }
    }

    /// Tells what has come before the peer has ended a connection: the last message of the peer has
    /// the reason.
    fn take_completions(&mut self, shard: &mut Shard, key: usize) {
        let Some(Owner::Connection {
            completions: Some(completions),
            ..
        }) = self.owners.get(&key)
        else {
            return;
        };
        let completions = Rc::clone(completions);
        // A failure is told by the task of the completion queue.
        while let Ok(Some(ready)) = completions.next_ready() {
            self.ready(shard, ready);
        }
    }

    /// Each user of the device gets an event of its own and drops what it has.
    fn device_removed(&mut self, shard: &mut Shard, key: usize) {
        if let Some(Owner::Adapter(device)) = self.owners.get(&key) {
            let of_device = |adapter: &mut Adapter| adapter.is_of(device);
            let gone: Vec<Adapter> = self.adapters.extract_if(.., of_device).collect();
            self.owners.remove(&key);
            for adapter in gone {
                adapter.remove(shard);
            }
        } else {
            self.tell(shard, key, -errno::ENODEV);
        }
    }

    fn take_events(&mut self, shard: &mut Shard) -> io::Result<()> {
        while let Some((key, event)) = self.manager.next_event()? {
            self.event(shard, key, event);
        }
        while let Some(key) = self.manager.next_ready() {
            self.ready(shard, key);
        }
        Ok(())
    }
}

impl Task for Inner {
    fn completed(&mut self, shard: &mut Shard, _: u32, completion: Completion) {
        let went = match completion.result {
            0.. => self.take_events(shard),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        };
        match went {
            Ok(()) => self.wait(shard),
            // No event will come any more, so no connection can be left to itself.
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(errno::EIO);
                for token in self.owners.values().filter_map(Owner::token) {
                    tell(shard, token, -errno);
                }
            }
        }
    }
}

fn tell(shard: &mut Shard, token: Token, result: i32) {
    let loan = Loan::None;
    shard.complete(token, Completion { result, loan });
}
