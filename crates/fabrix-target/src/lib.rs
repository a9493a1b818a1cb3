//! Exports: disks on one side, connections of hosts on the other.
//!
//! Knows which disk is which namespace, who may see it, and what a command of the protocol means
//! for a disk. Touches sockets and disks through `transport` and `block` only, and never the
//! initiator (`host`): a disk that is itself remote is composed in the program.
//!
//! A [`Target`] listens on one shard and spreads connections over all of them; what the shards
//! share is a registry of controllers, touched when connections come and go. What is exported,
//! where and to whom is a [`Catalog`], which can be changed while the target runs:
//! [`Target::change`].

mod catalog;
mod change;
mod channels;
mod config;
mod context;
mod counters;
mod disk;
mod iscsi;
mod lifecycle;
mod local;
mod notice;
mod nvme;
mod port;
mod registry;
mod requests;
mod unauthenticated_peers;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use fabrix_proto::nvme::log_page::HealthCounters;
use fabrix_proto::nvme::timing::TimingPage;
use fabrix_rt::{Remote, TaskId};

pub use catalog::{Catalog, Export, IscsiTargetConfig, SubsystemConfig};
pub use config::{Deadlines, Limits, Listen, Protocol, TargetConfig, TargetError};
pub use disk::{Receipt, ReservationStore};
pub use fabrix_proto::iscsi::auth::PolicyError;
pub use fabrix_proto::nvme::subsystem::NAMESPACES_MAX;
pub use fabrix_proto::portal::Portal;
pub use iscsi::{Chap, Initiators};
pub use notice::{End, Notice};
pub use nvme::DISCOVERY_PORT;
pub use unauthenticated_peers::origin;

use catalog::CurrentCatalog;
use local::{ConfigTask, Order};
use registry::Registry;
use unauthenticated_peers::UnauthenticatedPeers;

/// A running target. Dropping it does not stop it: [`Target::drain`] does.
pub struct Target {
    shared: Arc<Shared>,
    /// Held while something changes.
    changing: Mutex<()>,
    ports: Mutex<Vec<(TaskId, Listen)>>,
}

/// What all shards of a target share. Nothing here is touched for an I/O.
pub(crate) struct Shared {
    pub(crate) catalog: CurrentCatalog,
    pub(crate) registry: Registry,
    pub(crate) sessions: iscsi::Sessions,
    pub(crate) deadlines: Deadlines,
    pub(crate) unauthenticated_peers: Arc<UnauthenticatedPeers>,
    /// One for each shard.
    counters: Vec<Arc<counters::Counters>>,
    /// Whose clock timing is by.
    clock: [u8; 16],
    started: Instant,
    shards: Vec<Remote>,
    config_tasks: OnceLock<Vec<TaskId>>,
    connections: AtomicUsize,
    max_connections: usize,
    draining: AtomicBool,
    notify: Box<dyn Fn(&Notice) + Send + Sync>,
}

impl Shared {
    /// What the shards of a target share, before any of them serves.
    fn new(config: TargetConfig, deadlines: Deadlines, shards: Vec<Remote>) -> Arc<Self> {
        let (limits, store) = (config.limits, config.reservation_store);
        Arc::new(Self {
            catalog: CurrentCatalog::new(limits, config.counts, store),
            registry: Registry::new(config.max_connections),
            sessions: iscsi::Sessions::new(),
            deadlines,
            unauthenticated_peers: UnauthenticatedPeers::new(config.max_strangers),
            clock: fabrix_rt::topology::boot_id().unwrap_or_default(),
            counters: shards.iter().map(|_| Arc::default()).collect(),
            started: Instant::now(),
            shards,
            config_tasks: OnceLock::new(),
            connections: AtomicUsize::new(0),
            max_connections: config.max_connections,
            draining: AtomicBool::new(false),
            notify: config.notify,
        })
    }

    /// Gives an order to the target's part on shard `index`, counted around; false when it was
    /// dropped.
    ///
    /// A shard whose mailbox is full cannot take one more connection, and one that is being stopped
    /// needs no order to drain: the order is dropped, and with it a connection closed, which says
    /// so to the host. Who orders a change tries again.
    pub(crate) fn order(&self, index: usize, order: Order) -> bool {
        let config_tasks = self.config_tasks.get().map_or(&[][..], Vec::as_slice);
        let index = index % config_tasks.len().max(1);
        config_tasks.get(index).is_some_and(|config_task| {
            self.shards[index]
                .send(*config_task, Box::new(order))
                .is_ok()
        })
    }

    /// What all shards have counted, for the health log.
    pub(crate) fn health(&self) -> HealthCounters {
        let hours = self.started.elapsed().as_secs() / 3600;
        let mut health = HealthCounters {
            power_cycles: 1,
            power_on_hours: hours,
            ..HealthCounters::default()
        };
        self.counters
            .iter()
            .for_each(|counters| counters.add_to(&mut health));
        health
    }

    /// Commands of all shards are timed until then.
    pub(crate) fn time_until(&self, until: fabrix_rt::Nanos) {
        self.counters
            .iter()
            .for_each(|counters| counters.time_until(until));
    }

    /// What the timing page shows.
    pub(crate) fn timing(&self, now: fabrix_rt::Nanos) -> TimingPage {
        let left_ns = self.counters[0].timed_for(now);
        let seconds = u32::try_from(left_ns.div_ceil(1_000_000_000)).unwrap_or(u32::MAX);
        let mut page = TimingPage::new(self.clock, seconds);
        for counters in &self.counters {
            counters.add_times(&mut page);
        }
        page
    }

    pub(crate) fn notice(&self, notice: &Notice) {
        (self.notify)(notice);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Whether one more connection fits.
    pub(crate) fn may_connect(&self) -> bool {
        self.connections.load(Ordering::Relaxed) < self.max_connections
    }

    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Target {
    /// Starts listening; connections are kept by `shards`, the first of which accepts.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn start(config: TargetConfig, shards: Vec<Remote>) -> Result<Self, TargetError> {
        Self::start_with(config, Deadlines::default(), shards)
    }

    /// The same with other deadlines than the usual ones.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn start_with(
        config: TargetConfig,
        deadlines: Deadlines,
        shards: Vec<Remote>,
    ) -> Result<Self, TargetError> {
        let wanted = config.catalog.clone();
        let shared = Shared::new(config, deadlines, shards);
        let config_tasks = shared
            .shards
            .iter()
            .enumerate()
            .map(|(index, shard)| config_task(shard, index, &shared))
            .collect::<Result<_, _>>()?;
        shared.config_tasks.get_or_init(|| config_tasks);
        let target = Self {
            shared,
            changing: Mutex::new(()),
            ports: Mutex::default(),
        };
        target.change(|catalog| {
            *catalog = wanted;
            Ok(())
        })?;
        Ok(target)
    }

    /// Connections now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// iSCSI sessions now, discovery included.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.shared.sessions.len()
    }

    /// Controllers now: hosts that are connected, discovery included.
    #[must_use]
    pub fn controllers(&self) -> usize {
        self.shared.registry.len()
    }

    /// Takes no more connections, and tells those that are there to finish what they have begun and
    /// close.
    pub fn drain(&self) {
        self.shared.draining.store(true, Ordering::SeqCst);
        self.close_all();
        for index in 0..self.shared.shards.len() {
            let _stopped = self.shared.order(index, Order::Drain);
        }
    }

    /// Tells every port to listen no more, and waits for none.
    fn close_all(&self) {
        let (done, _nobody_waits) = mpsc::channel();
        for (port, _) in &*self.ports() {
            // A port that is not told accepts once more, sees that we drain, and does not go on.
            let close = port::Close(done.clone());
            let _not_told = self.shared.shards[0].send(*port, Box::new(close));
        }
    }

    fn ports(&self) -> MutexGuard<'_, Vec<(TaskId, Listen)>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets up the target's part on a shard.
fn config_task(shard: &Remote, index: usize, shared: &Arc<Shared>) -> Result<TaskId, TargetError> {
    let (tell, told) = mpsc::sync_channel(1);
    let shared = Arc::clone(shared);
    let setup = move |shard: &mut fabrix_rt::Shard| {
        let _gone = tell.send(ConfigTask::install(shard, index, shared));
    };
    shard
        .run(Box::new(setup))
        .map_err(|_full| TargetError::Stopped)?;
    told.recv().map_err(|_gone| TargetError::Stopped)
}

/// Whether there can be a socket for `new` beside those for `others`.
fn check_free(others: &[Listen], new: &Listen) -> Result<(), String> {
    let conflict = others.iter().find_map(|other| new.conflict(other));
    conflict.map_or(Ok(()), Err)
}

/// Opens a port on the accepting shard. The port of a process that was killed is free only when the
/// kernel has torn down its rings, a moment after the process is gone: one that is in use is tried
/// again for that long.
fn listen(at: Listen, shared: &Arc<Shared>) -> Result<(TaskId, Listen), TargetError> {
    let until = Instant::now() + PORT_PATIENCE;
    loop {
        match try_listen(at, shared) {
            Err(TargetError::Listen(_, error))
                if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until =>
            {
                thread::sleep(PORT_RETRY);
            }
            outcome => return outcome,
        }
    }
}

/// Tries it once and waits for the outcome.
fn try_listen(at: Listen, shared: &Arc<Shared>) -> Result<(TaskId, Listen), TargetError> {
    let first = shared.shards.first().ok_or(TargetError::Stopped)?;
    let (tell, told) = mpsc::sync_channel(1);
    let shared = Arc::clone(shared);
    first
        .run(Box::new(move |shard| {
            let _gone = tell.send(port::Port::open(shard, at, shared));
        }))
        .map_err(|_full| TargetError::Stopped)?;
    told.recv()
        .map_err(|_gone| TargetError::Stopped)?
        .map_err(|error| TargetError::Listen(at.portal.address, error))
}

/// How long a port in use is tried again, and how often.
const PORT_PATIENCE: Duration = Duration::from_millis(500);
const PORT_RETRY: Duration = Duration::from_millis(10);
