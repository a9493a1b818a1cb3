//! What all shards of a target share, what it is made of, and the orders that go from one shard to
//! another.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Instant;

use fabrix_proto::nvme::log_page::HealthCounters;
use fabrix_proto::nvme::timing::TimingPage;
use fabrix_rt::{Remote, TaskId};

use crate::catalog::CurrentCatalog;
use crate::counters::Counters;
use crate::iscsi::Sessions;
use crate::registry::Registry;
use crate::unauthenticated_peers::{UnauthenticatedPeer, UnauthenticatedPeers};
use crate::{Catalog, Deadlines, Limits, Notice, Protocol, ReservationStore};

/// What a target serves and to whom.
pub struct TargetConfig {
    /// What is exported at first, where and to whom.
    pub catalog: Catalog,
    /// What all hosts and initiators are limited to.
    pub limits: Limits,
    /// Who stores reservations so that they outlive the process; none: they do not, and hosts are
    /// told so.
    pub reservation_store: Option<Arc<dyn ReservationStore>>,
    /// Whether the I/O of every disk is counted: see [`Target::stats`](crate::Target::stats).
    pub counts: bool,
    /// Connections at most, of all hosts together.
    pub max_connections: usize,
    /// Connections at most of one address (of one /64, in IPv6) that have not said who they are. A
    /// host opens all its I/O queues before it says so on the first: fewer than a few hundred would
    /// keep large hosts out.
    pub max_strangers: usize,
    /// ConnectionOrder what happens that an operator wants to know; called on the shard where it
    /// happens.
    pub notify: Box<dyn Fn(&Notice) + Send + Sync>,
}

/// What all shards of a target share. Nothing here is touched for an I/O.
pub(crate) struct Shared {
    pub(crate) catalog: CurrentCatalog,
    pub(crate) registry: Registry,
    pub(crate) sessions: Sessions,
    pub(crate) deadlines: Deadlines,
    pub(crate) unauthenticated_peers: Arc<UnauthenticatedPeers>,
    /// One for each shard.
    pub(crate) counters: Vec<Arc<Counters>>,
    /// Whose clock timing is by.
    clock: [u8; 16],
    started: Instant,
    pub(crate) shards: Vec<Remote>,
    pub(crate) config_tasks: OnceLock<Vec<TaskId>>,
    pub(crate) connections: AtomicUsize,
    max_connections: usize,
    pub(crate) draining: AtomicBool,
    notify: Box<dyn Fn(&Notice) + Send + Sync>,
}

impl Shared {
    /// What the shards of a target share, before any of them serves.
    pub(crate) fn new(
        config: TargetConfig,
        deadlines: Deadlines,
        shards: Vec<Remote>,
    ) -> Arc<Self> {
        let (limits, store) = (config.limits, config.reservation_store);
        Arc::new(Self {
            catalog: CurrentCatalog::new(limits, config.counts, store),
            registry: Registry::new(config.max_connections),
            sessions: Sessions::new(),
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

/// A connection that was accepted.
pub(crate) struct Arrival {
    pub(crate) stream: TcpStream,
    /// What is spoken on it.
    pub(crate) protocol: Protocol,
    pub(crate) peer: SocketAddr,
    /// Kept until it has said who it is.
    pub(crate) unauthenticated_peer: UnauthenticatedPeer,
}

/// ConnectionOrder to a shard's part of the target.
pub(crate) enum Order {
    /// Keep this connection.
    Adopt(Arrival),
    /// Serve what is exported now.
    Serve(Done),
    /// Tell hosts what is served.
    Announce(Done),
    /// Finish what has begun, then close every connection.
    Drain,
}

/// Held by whoever still has something to do; the other end sees when the last has let go.
pub(crate) type Done = mpsc::Sender<()>;
