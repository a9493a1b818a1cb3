//! Which controllers exist, and which connections belong to them: the one thing that the shards of
//! a target share.
//!
//! Knows controller ids, host names and where connections live; touched only when a connection is
//! made or ends, never for an I/O. A controller is its admin connection and its I/O connections,
//! which may be on any shard; when the admin connection goes, the others are told to go.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabrix_proto::nvme::log_page::ErrorRecord;
use fabrix_rt::{Full, Remote, TaskId};

/// Where a connection lives: its shard and its task there.
#[derive(Clone)]
pub(crate) struct ConnectionAddress {
    pub(crate) shard: Remote,
    /// Which of the target's shards that is.
    pub(crate) index: usize,
    pub(crate) task: TaskId,
}

impl ConnectionAddress {
    /// Whether this is the same connection: tasks have numbers of their own within their shard.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.index, self.task) == (other.index, other.task)
    }

    /// Sends the connection a message. A connection that is gone by then drops it.
    ///
    /// # Errors
    /// Its shard's mailbox has no room now.
    pub(crate) fn send<T: Send + 'static>(&self, message: T) -> Result<(), Full> {
        self.shard.send(self.task, Box::new(message))
    }
}

/// What other tasks tell a connection.
#[derive(Clone, Copy)]
pub(crate) enum ConnectionOrder {
    /// Finish what has begun, take nothing more, close.
    Drain,
    /// Close at once, for this reason.
    Close(&'static str),
    /// The I/O connections of this controller are gone.
    Quiesced,
    /// What I/O queues and sessions see has changed.
    Served,
    /// What admin queues see has changed, and hosts are to be told.
    Announced,
    /// Something happened to a disk of which hosts are to be told.
    Noticed,
}

/// Who the host said it is, in Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostName {
    pub(crate) nqn: String,
    pub(crate) id: [u8; 16],
}

/// Why an I/O queue may not join a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinError {
    /// No such controller, or not this host's, or not this subsystem's.
    UnknownController,
    /// The controller is not enabled.
    NotReady,
    /// The queue id was not granted, or is in use.
    QueueId,
}

/// Whether commands have come on I/O queues of a controller since its keep-alive timer asked last.
/// Alone in its cache lines: every I/O queue reads it for each command, and seldom writes it.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Traffic(AtomicBool);

impl Traffic {
    /// A command has come.
    pub(crate) fn note(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Whether any has come since this was asked last.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

struct Association {
    host: HostName,
    subsystem: String,
    most_queues: u16,
    admin: ConnectionAddress,
    enabled: bool,
    /// The admin connection waits for the I/O connections to be gone.
    quiescing: bool,
    /// Failed commands of its I/O queues that its error log has not seen yet.
    errors: Vec<ErrorRecord>,
    queues: BTreeMap<u16, ConnectionAddress>,
    traffic: Arc<Traffic>,
}

/// All controllers of a target.
pub(crate) struct Registry {
    inner: Mutex<Inner>,
}

struct Inner {
    controllers: HashMap<u16, Association>,
    next: u16,
    most: usize,
}

/// Controller ids above this are reserved by the standard.
const LAST_CONTROLLER_ID: u16 = 0xffef;

impl Registry {
    /// A registry for at most `most` controllers at a time.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                controllers: HashMap::new(),
                next: 1,
                most,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A shard that panicked left the table as it was: every change below is one insertion or
        // removal.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many controllers there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().controllers.len()
    }

    /// A new controller for `host`, with up to `most_queues` I/O queues; None when there are too
    /// many.
    pub(crate) fn admit(
        &self,
        host: HostName,
        subsystem: &str,
        most_queues: u16,
        admin: ConnectionAddress,
    ) -> Option<(u16, Arc<Traffic>)> {
        let mut inner = self.lock();
        if inner.controllers.len() >= inner.most {
            return None;
        }
        let mut id = inner.next;
        while inner.controllers.contains_key(&id) {
            id = if id >= LAST_CONTROLLER_ID { 1 } else { id + 1 };
        }
        inner.next = if id >= LAST_CONTROLLER_ID { 1 } else { id + 1 };
        let traffic = Arc::<Traffic>::default();
        let association = Association {
            host,
            subsystem: subsystem.to_owned(),
            most_queues,
            admin,
            enabled: false,
            quiescing: false,
            errors: Vec::new(),
            queues: BTreeMap::new(),
            traffic: Arc::clone(&traffic),
        };
        inner.controllers.insert(id, association);
        Some((id, traffic))
    }

    /// Whether I/O queues may connect to the controller.
    pub(crate) fn enable(&self, controller: u16, enabled: bool) {
        if let Some(association) = self.lock().controllers.get_mut(&controller) {
            association.enabled = enabled;
        }
    }

    /// The host of a controller, by name; none when it has gone.
    pub(crate) fn host(&self, controller: u16) -> Option<String> {
        let inner = self.lock();
        let association = inner.controllers.get(&controller)?;
        Some(association.host.nqn.clone())
    }

    /// Whether I/O queues have joined the controller.
    pub(crate) fn has_queues(&self, controller: u16) -> bool {
        let inner = self.lock();
        let association = inner.controllers.get(&controller);
        association.is_some_and(|association| !association.queues.is_empty())
    }

    /// The controller is reset or shut down: its I/O connections, to be told to close. The admin
    /// connection is told when the last has left; None when there is none.
    pub(crate) fn quiesce(&self, controller: u16) -> Option<Vec<ConnectionAddress>> {
        let mut inner = self.lock();
        let association = inner.controllers.get_mut(&controller)?;
        association.enabled = false;
        association.quiescing = !association.queues.is_empty();
        association
            .quiescing
            .then(|| association.queues.values().cloned().collect())
    }

    /// An I/O connection becomes queue `qid` of a controller.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub(crate) fn join(
        &self,
        controller: u16,
        host: &HostName,
        subsystem: &str,
        qid: u16,
        place: ConnectionAddress,
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
        association.queues.insert(qid, place);
        Ok(Arc::clone(&association.traffic))
    }

    /// An I/O connection has ended, and nothing of it is at a disk. If its controller waited for
    /// that: whom to tell.
    ///
    /// The task says which connection: by now the controller's id may mean another one.
    pub(crate) fn leave(
        &self,
        controller: u16,
        qid: u16,
        task: TaskId,
    ) -> Option<ConnectionAddress> {
        let mut inner = self.lock();
        let association = inner.controllers.get_mut(&controller)?;
        if association
            .queues
            .get(&qid)
            .is_some_and(|place| place.task == task)
        {
            association.queues.remove(&qid);
        }
        let over = association.quiescing && association.queues.is_empty();
        association.quiescing &= !over;
        over.then(|| association.admin.clone())
    }

    /// A command of an I/O queue has failed at its disk: kept for the controller's error log, which
    /// shows the last few.
    pub(crate) fn failed(&self, controller: u16, error: ErrorRecord) {
        if let Some(association) = self.lock().controllers.get_mut(&controller) {
            if association.errors.len() == ERRORS_KEPT {
                association.errors.remove(0);
            }
            association.errors.push(error);
        }
    }

    /// What has failed since this was last asked.
    pub(crate) fn take_errors(&self, controller: u16) -> Vec<ErrorRecord> {
        self.lock()
            .controllers
            .get_mut(&controller)
            .map_or_else(Vec::new, |a| std::mem::take(&mut a.errors))
    }

    /// The admin connection has ended and with it the controller.
    pub(crate) fn dismiss(&self, controller: u16) -> Vec<ConnectionAddress> {
        self.lock()
            .controllers
            .remove(&controller)
            .map_or_else(Vec::new, |a| a.queues.into_values().collect())
    }
}

/// As many as an error log shows.
const ERRORS_KEPT: usize = 64;
