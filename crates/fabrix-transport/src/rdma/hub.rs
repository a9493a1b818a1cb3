//! The hub of a shard: events of the connection manager, and completions, for the tasks that they
//! concern.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use fabrix_rt::{Completion, File, Loan, Op, Shard, Task, TaskId, Token, errno};
use sys_rdma::{
    CompletionQueue, DetachedId, Device, Event, EventChannel, EventKind, Id, Limits, Parameters,
    QueuePair, QueueSizes,
};

use super::adapter::Adapter;
use super::connecting::Connecting;
use super::listener::RdmaListener;
use super::member::{Entry, Member};
use super::request::RdmaRequest;

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
    channel: EventChannel,
    /// The channel once more, to wait for.
    readable: File,
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
        completions: Rc<CompletionQueue>,
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
        shard.common(Self::new)
    }

    fn new(shard: &mut Shard) -> io::Result<Self> {
        let channel = EventChannel::new().map_err(io::Error::other)?;
        let readable = std::fs::File::from(channel.descriptor()?);
        let task = shard.reserve();
        let inner = Rc::new_cyclic(|me| {
            RefCell::new(Inner {
                task,
                channel,
                readable: File::from(readable),
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
        let id = Id::new(&inner.channel, key)?;
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
    pub fn accept(
        &self,
        shard: &mut Shard,
        id: DetachedId,
        token: Token,
        choose: impl FnOnce(&Limits) -> (QueueSizes, Parameters),
    ) -> io::Result<Member> {
        let key = self.inner.borrow_mut().take_key();
        let id = id.attach(&self.inner.borrow().channel, key)?;
        let hub = Rc::downgrade(&self.inner);
        let entry = Entry { key, hub };
        let (mut member, parameters) = self.member(shard, id, (entry, token), choose)?;
        member.pair().accept(&parameters)?;
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
        let id = Id::new(&inner.channel, key)?;
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
    pub(super) fn established(&self, key: usize, token: Token, member: &mut Member) {
        let completions = Rc::clone(member.pair().completions());
        let connection = Owner::Connection { token, completions };
        self.inner.borrow_mut().owners.insert(key, connection);
    }

    /// A connection with its queue pair, whose first receives are handed to the device.
    pub(super) fn member(
        &self,
        shard: &mut Shard,
        id: Id,
        (entry, token): (Entry, Token),
        choose: impl FnOnce(&Limits) -> (QueueSizes, Parameters),
    ) -> io::Result<(Member, Parameters)> {
        let mut inner = self.inner.borrow_mut();
        let device = Arc::clone(id.device()?);
        let (sizes, parameters) = choose(device.limits());
        let entries = sizes.sends.saturating_add(sizes.receives);
        let adapter = inner.adapter(shard, &device)?;
        let hub = Weak::clone(&inner.me);
        let adapter = &mut inner.adapters[adapter];
        let completions = adapter.completions(shard, entries, &hub)?;
        let memory = adapter.memory();
        let pair = QueuePair::new(id, shard, &completions, &memory, entry.key, &sizes)?;
        let connection = Owner::Connection { token, completions };
        inner.owners.entry(entry.key).or_insert(connection);
        drop(inner);
        let mut member = Member::new(pair, entry);
        let pair = member.pair();
        (0..pair.receives()).for_each(|slot| pair.post_receive(slot));
        pair.flush()?;
        Ok((member, parameters))
    }
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
        let file = self.readable.clone();
        shard.start(token, Op::Readable { file });
    }

    /// Index of the shard's adapter for a device.
    fn adapter(&mut self, shard: &mut Shard, device: &Arc<Device>) -> io::Result<usize> {
        let mut adapters = self.adapters.iter();
        if let Some(index) = adapters.position(|adapter| adapter.is_of(device)) {
            return Ok(index);
        }
        let key = self.take_key();
        let adapter = Adapter::new(shard, &self.channel, device, key)?;
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
                && Rc::ptr_eq(completions, failed)
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

    fn event(&mut self, shard: &mut Shard, event: Event) {
        if let Some(Owner::Connecting { token, events }) = self.owners.get_mut(&event.key)
            && !matches!(event.kind, EventKind::DeviceRemoved)
        {
            events.push_back(event.kind);
            return tell(shard, *token, RDMA_READY);
        }
        match event.kind {
            EventKind::ConnectRequest(id, parameters) => {
                // A request to a listener that is gone is refused: its id is dropped here.
                if let Some(Owner::Listener { token, requests }) = self.owners.get_mut(&event.key) {
                    requests.push_back(RdmaRequest::new(id, parameters));
                    tell(shard, *token, RDMA_READY);
                }
            }
            EventKind::Disconnected | EventKind::Failed(_) | EventKind::AddressChanged => {
                self.take_completions(shard, event.key);
                self.tell(shard, event.key, RDMA_LOST);
            }
            EventKind::DeviceRemoved => self.device_removed(shard, event.key),
            EventKind::AddressResolved
            | EventKind::RouteResolved
            | EventKind::Established(_)
            | EventKind::Other(_) => {}
        }
    }

    /// Tells what has come before the peer has ended a connection: the last message of the peer has
    /// the reason.
    fn take_completions(&mut self, shard: &mut Shard, key: usize) {
        let Some(Owner::Connection { completions, .. }) = self.owners.get(&key) else {
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
        while let Some(event) = self.channel.take()? {
            self.event(shard, event);
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
