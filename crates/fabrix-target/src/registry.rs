//! The controllers of a target, and the connections of each, for all shards.
//!
//! A controller is its admin connection and its I/O connections, which may be on any shard. When
//! the admin connection ends, the I/O connections get an order to end. The registry is locked when
//! a connection begins or ends, and never for an I/O.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fabrix_proto::nvme::instance::ControllerInstance;
use fabrix_proto::nvme::log_page::ErrorRecord;
use fabrix_rt::{Full, Remote, TaskId};

use crate::lock::lock;
use crate::shared::Done;

/// The address of a connection: its shard, and its task there.
#[derive(Clone)]
pub(crate) struct ConnectionAddress {
    pub(crate) shard: Remote,
    /// Index of the shard among the target's shards.
    pub(crate) index: usize,
    pub(crate) task: TaskId,
}

impl ConnectionAddress {
    /// Whether both are the same connection. Each shard numbers its own tasks.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.index, self.task) == (other.index, other.task)
    }

    /// Sends the connection a message. A connection that is gone by then drops it.
    ///
    /// # Errors
    /// The shard's mailbox is full.
    pub(crate) fn send<T: Send + 'static>(&self, message: T) -> Result<(), Full> {
        self.shard.send(self.task, Box::new(message))
    }
}

/// An order of another task to a connection.
#[derive(Clone)]
pub(crate) enum ConnectionOrder {
    /// Answer the commands in progress, refuse new ones, close.
    Drain,
    /// Close at once, for this reason.
    Close(&'static str),
    /// Close at once, because the host has reset the controller over another one. Keep this until
    /// no command is at a disk.
    Reset(Arc<()>),
    /// All I/O connections of this controller have ended.
    Quiesced,
    /// The served snapshot has changed.
    Served,
    /// The announced snapshot has changed: tell the host.
    Announced,
    /// Keep this while a disk has a command of an ANA group that is refused by now.
    AwaitRefused(Done),
    /// A disk has a notice for the host.
    Noticed,
    /// A round of [`catch_up`](crate::catch_up) has ended.
    CaughtUp,
}

/// The identity of a host in its Connect command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostName {
    pub(crate) nqn: String,
    pub(crate) id: [u8; 16],
}

/// Why an I/O queue may not join a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinError {
    /// The host has no such controller at this subsystem.
    UnknownController,
    /// The controller is not enabled.
    NotReady,
    /// The queue id was not granted, or another queue has it.
    QueueId,
}

/// Why a controller may not reset another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResetError {
    /// The host has and had no such controller at this subsystem, as far as the target remembers.
    Unknown,
    /// Another controller resets it already.
    InProgress,
}

/// Whether commands have arrived on the I/O queues of a controller since the last check of its
/// keep-alive timer. Every I/O queue reads this for each command and seldom writes it, so it has
/// its own cache lines.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Traffic(AtomicBool);

impl Traffic {
    /// Notes the arrival of a command.
    pub(crate) fn note(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a command has arrived since the last call.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

struct Association {
    host: HostName,
    subsystem: String,
    most_queues: u16,
    admin: ConnectionAddress,
    /// The instance since the host has enabled the controller last. Zeroes before.
    instance: ControllerInstance,
    enabled: bool,
    /// Another controller resets this one: it ends, and gets no more queues.
    is_reset: bool,
    /// True while the admin connection waits for the I/O connections to end.
    quiescing: bool,
    /// Failed commands of the I/O queues that the error log has not taken yet.
    errors: Vec<ErrorRecord>,
    queues: BTreeMap<u16, ConnectionAddress>,
    traffic: Arc<Traffic>,
}

impl Association {
    /// Lets no queue join any more. Returns all connections.
    fn begin_reset(&mut self) -> Vec<ConnectionAddress> {
        (self.is_reset, self.enabled) = (true, false);
        let queues = self.queues.values();
        queues.chain([&self.admin]).cloned().collect()
    }
}

/// All controllers of a target.
pub(crate) struct Registry {
    inner: Mutex<Inner>,
}

struct Inner {
    controllers: BTreeMap<u16, Association>,
    /// The I/O connections that have ended alone or with their controller, and may still have
    /// commands at disks.
    ending: Vec<Ending>,
    /// The last instances that are over.
    ended: VecDeque<Instance>,
    /// CIU of the last instance with each controller id. Zero: there was none.
    uniquifiers: Vec<u8>,
    next: u16,
    most: usize,
}

impl Inner {
    /// A free id of a range, the one after the last that was given away if possible.
    fn free_id(&mut self, ids: &RangeInclusive<u16>) -> Option<u16> {
        let (least, most) = (*ids.start(), *ids.end());
        let from = if ids.contains(&self.next) {
            self.next
        } else {
            least
        };
        let mut in_turn = (from..=most).chain(least..from);
        let id = in_turn.find(|id| !self.controllers.contains_key(id))?;
        self.next = id.saturating_add(1);
        Some(id)
    }
}

/// An I/O connection that has ended.
struct Ending {
    of: Instance,
    address: ConnectionAddress,
}

/// An instance of a controller, and the host and subsystem to which it belongs.
#[derive(Clone, PartialEq, Eq)]
struct Instance {
    host: HostName,
    subsystem: String,
    controller: ControllerInstance,
}

impl Instance {
    fn of(association: &Association) -> Self {
        Self {
            host: association.host.clone(),
            subsystem: association.subsystem.clone(),
            controller: association.instance,
        }
    }
}

impl Inner {
    /// The next instance with a controller id.
    fn next_instance(&mut self, controller_id: u16, random: u64) -> ControllerInstance {
        let uniquifier = &mut self.uniquifiers[usize::from(controller_id)];
        *uniquifier = uniquifier.checked_add(1).unwrap_or(1);
        ControllerInstance {
            controller_id,
            uniquifier: *uniquifier,
            random: random.max(1),
        }
    }

    /// Remembers an instance that is over. A controller that was never enabled had none.
    fn remember(&mut self, instance: Instance) {
        if instance.controller.random == 0 {
            return;
        }
        if self.ended.len() == ENDED_KEPT {
            self.ended.pop_front();
        }
        self.ended.push_back(instance);
    }
}

/// Highest controller id: the standard reserves those above.
const LAST_CONTROLLER_ID: u16 = 0xffef;

impl Registry {
    /// A registry for at most `most` controllers at a time.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                controllers: BTreeMap::new(),
                ending: Vec::new(),
                ended: VecDeque::new(),
                uniquifiers: vec![0; usize::from(LAST_CONTROLLER_ID) + 1],
                next: 1,
                most,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Calls `function` with a controller. None: the controller has ended.
    fn with<R>(&self, controller: u16, function: impl FnOnce(&mut Association) -> R) -> Option<R> {
        self.lock().controllers.get_mut(&controller).map(function)
    }

    /// Number of controllers.
    pub(crate) fn len(&self) -> usize {
        self.lock().controllers.len()
    }

    /// Adds a controller for `host` with an id of `ids`, with up to `most_queues` I/O queues. None:
    /// the target has as many controllers as allowed, or no id is left.
    pub(crate) fn admit(
        &self,
        (host, subsystem): (HostName, &str),
        (ids, most_queues): (&RangeInclusive<u16>, u16),
        admin: ConnectionAddress,
    ) -> Option<(u16, Arc<Traffic>)> {
        let mut inner = self.lock();
        if inner.controllers.len() >= inner.most {
            return None;
        }
        let id = inner.free_id(ids)?;
        let traffic = Arc::<Traffic>::default();
        let association = Association {
            host,
            subsystem: subsystem.to_owned(),
            most_queues,
            admin,
            instance: ControllerInstance {
                controller_id: id,
                ..ControllerInstance::default()
            },
            enabled: false,
            is_reset: false,
            quiescing: false,
            errors: Vec::new(),
            queues: BTreeMap::new(),
            traffic: Arc::clone(&traffic),
        };
        inner.controllers.insert(id, association);
        Some((id, traffic))
    }

    /// Sets whether I/O queues may connect to the controller. Returns the new instance if this
    /// enables the controller. `random` yields its CIRN.
    pub(crate) fn enable(
        &self,
        controller: u16,
        enabled: bool,
        random: impl FnOnce() -> u64,
    ) -> Option<ControllerInstance> {
        let mut inner = self.lock();
        let association = inner.controllers.get_mut(&controller)?;
        let enabled = enabled && !association.is_reset;
        let was_enabled = std::mem::replace(&mut association.enabled, enabled);
        if was_enabled || !enabled {
            return None;
        }
        let former = Instance::of(association);
        inner.remember(former);
        let instance = inner.next_instance(controller, random());
        let association = inner.controllers.get_mut(&controller)?;
        association.instance = instance;
        Some(instance)
    }

    /// Name of the controller's host. None: the controller has ended.
    pub(crate) fn host(&self, controller: u16) -> Option<String> {
        self.with(controller, |association| association.host.nqn.clone())
    }

    /// Whether I/O queues have joined the controller.
    pub(crate) fn has_queues(&self, controller: u16) -> bool {
        self.with(controller, |association| !association.queues.is_empty())
            .unwrap_or(false)
    }

    /// Begins a reset or shutdown. Returns the I/O connections, which have to close, or `None` if
    /// there are none. The admin connection gets an order when the last one has left.
    pub(crate) fn quiesce(&self, controller: u16) -> Option<Vec<ConnectionAddress>> {
        self.with(controller, |association| {
            association.enabled = false;
            association.quiescing = !association.queues.is_empty();
            let queues = association.queues.values().cloned();
            association.quiescing.then(|| queues.collect())
        })
        .flatten()
    }

    /// Makes an I/O connection queue `qid` of a controller.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub(crate) fn join(
        &self,
        controller: u16,
        host: &HostName,
        subsystem: &str,
        qid: u16,
        address: ConnectionAddress,
    ) -> Result<Arc<Traffic>, JoinError> {
        let mut inner = self.lock();
        let association = inner
            .controllers
            .get_mut(&controller)
            .filter(|a| a.host == *host && a.subsystem == subsystem)
            .ok_or(JoinError::UnknownController)?;
        if !association.enabled {
            return Err(JoinError::NotReady);
        }
        if qid == 0 || qid > association.most_queues || association.queues.contains_key(&qid) {
            return Err(JoinError::QueueId);
        }
        association.queues.insert(qid, address);
        Ok(Arc::clone(&association.traffic))
    }

    /// The connections of a host to a subsystem that may still have commands in progress: those of
    /// its controllers, and of controllers that have ended.
    pub(crate) fn connections_of(
        &self,
        host: &HostName,
        subsystem: &str,
    ) -> Vec<ConnectionAddress> {
        let inner = self.lock();
        let controllers = inner.controllers.values();
        let controllers = controllers.filter(|it| it.host == *host && it.subsystem == subsystem);
        let of_controllers = controllers.flat_map(|it| it.queues.values().chain([&it.admin]));
        let ending = inner.ending.iter();
        let ending = ending.filter(|it| it.of.host == *host && it.of.subsystem == subsystem);
        let ending = ending.map(|it| &it.address);
        of_controllers.chain(ending).cloned().collect()
    }

    /// Removes an I/O connection that has ended from its controller. Its requests at disks have
    /// ended or were abandoned. Returns the admin connection if a reset or shutdown has waited for
    /// this. [`gone`](Self::gone) follows.
    ///
    /// `address` identifies the connection: another controller may have the id by now.
    pub(crate) fn leave(
        &self,
        controller: u16,
        qid: u16,
        address: &ConnectionAddress,
    ) -> Option<ConnectionAddress> {
        let mut inner = self.lock();
        let Inner {
            controllers,
            ending,
            ..
        } = &mut *inner;
        let association = controllers.get_mut(&controller)?;
        let queue = association.queues.get(&qid);
        if queue.is_some_and(|queue| queue.is(address))
            && let Some(address) = association.queues.remove(&qid)
        {
            let of = Instance::of(association);
            ending.push(Ending { of, address });
        }
        let over = association.quiescing && association.queues.is_empty();
        association.quiescing &= !over;
        over.then(|| association.admin.clone())
    }

    /// Forgets a connection that has no request at a disk any more, abandoned ones included.
    pub(crate) fn gone(&self, address: &ConnectionAddress) {
        self.lock().ending.retain(|it| !it.address.is(address));
    }

    /// Begins the reset of a controller over another one, `over`, of the same host and subsystem.
    /// Returns the connections that have to end. A controller that is over already has those that
    /// may still have commands at disks.
    ///
    /// # Errors
    /// See [`ResetError`].
    pub(crate) fn reset(
        &self,
        over: u16,
        impacted: ControllerInstance,
    ) -> Result<Vec<ConnectionAddress>, ResetError> {
        let mut inner = self.lock();
        let Inner {
            controllers,
            ending,
            ended,
            ..
        } = &mut *inner;
        let asking = controllers.get(&over).ok_or(ResetError::Unknown)?;
        let wanted = Instance {
            controller: impacted,
            ..Instance::of(asking)
        };
        let found = controllers.get_mut(&impacted.controller_id);
        let mut connections = match found.filter(|it| Instance::of(it) == wanted) {
            _ if impacted.random == 0 => return Err(ResetError::Unknown),
            Some(association) if association.is_reset => return Err(ResetError::InProgress),
            Some(association) => association.begin_reset(),
            None if ended.contains(&wanted) => Vec::new(),
            None => return Err(ResetError::Unknown),
        };
        let ending = ending.iter().filter(|it| it.of == wanted);
        connections.extend(ending.map(|it| it.address.clone()));
        Ok(connections)
    }

    /// Keeps a command that failed at its disk for the controller's error log.
    pub(crate) fn failed(&self, controller: u16, error: ErrorRecord) {
        self.with(controller, |Association { errors, .. }| {
            if errors.len() == ERRORS_KEPT {
                errors.remove(0);
            }
            errors.push(error);
        });
    }

    /// Takes the commands that have failed since the last call.
    pub(crate) fn take_errors(&self, controller: u16) -> Vec<ErrorRecord> {
        self.with(controller, |association| {
            std::mem::take(&mut association.errors)
        })
        .unwrap_or_default()
    }

    /// Removes a controller whose admin connection has ended. Returns its I/O connections.
    pub(crate) fn dismiss(&self, controller: u16) -> Vec<ConnectionAddress> {
        let mut inner = self.lock();
        let Some(association) = inner.controllers.remove(&controller) else {
            return Vec::new();
        };
        let of = Instance::of(&association);
        let queues: Vec<_> = association.queues.into_values().collect();
        inner.ending.extend(queues.iter().map(|queue| Ending {
            of: of.clone(),
            address: queue.clone(),
        }));
        inner.remember(of);
        queues
    }
}

/// Instances that are remembered after their end. A host that loses a connection asks for the reset
/// at once, and a target has fewer controllers than this.
const ENDED_KEPT: usize = 1024;
/// Entries that an error log shows.
const ERRORS_KEPT: usize = 64;
