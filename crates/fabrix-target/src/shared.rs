//! State that all shards of a target share, the configuration of a target, and the orders between
//! shards.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};

use fabrix_proto::nvme::log_page::HealthCounters;
use fabrix_proto::nvme::timing::TimingPage;
use fabrix_rt::{Control, DetachedSocket, Nanos, Remote, TaskId};
use fabrix_transport::rdma::DetachedRequest;

use crate::catalog::CurrentCatalog;
use crate::counters::Counters;
use crate::iscsi::Sessions;
use crate::load::{Load, Loads};
use crate::registry::Registry;
use crate::unauthenticated_peers::{UnauthenticatedPeer, UnauthenticatedPeers};
use crate::{Catalog, Deadlines, Limits, Listen, Notice, ReservationStore};

/// Configuration of a target.
pub struct TargetConfig {
    /// First exports, listeners and access rules.
    pub catalog: Catalog,
    /// Limits of all hosts and initiators.
    pub limits: Limits,
    /// The store of reservations that outlive the process. `None`: reservations end with the
    /// process, and hosts can read that.
    pub reservation_store: Option<Arc<dyn ReservationStore>>,
    /// Whether the I/O of every disk is counted: see [`Target::stats`](crate::Target::stats).
    pub counts: bool,
    /// Most connections of all hosts together.
    pub max_connections: usize,
    /// Most unauthenticated connections of one address (of one /64, in IPv6). A host opens all its
    /// I/O queues before it sends the first Connect: fewer than a few hundred would exclude large
    /// hosts.
    pub max_unauthenticated: usize,
    /// Receives the notices for the operator. Called on the shard of the event.
    pub notify: Box<dyn Fn(&Notice) + Send + Sync>,
}

/// The state that all shards of a target share. No I/O uses it.
pub(crate) struct Shared {
    pub(crate) catalog: CurrentCatalog,
    pub(crate) registry: Registry,
    pub(crate) sessions: Sessions,
    pub(crate) deadlines: Deadlines,
    pub(crate) unauthenticated_peers: Arc<UnauthenticatedPeers>,
    pub(crate) loads: Arc<Loads>,
    /// The counters of each shard.
    pub(crate) counters: Vec<Arc<Counters>>,
    /// Identity of the clock of the timing page: the boot id.
    clock: [u8; 16],
    started: Nanos,
    /// The threads that change the target.
    pub(crate) control: Arc<dyn Control>,
    pub(crate) shards: Vec<Remote>,
    pub(crate) config_tasks: OnceLock<Vec<TaskId>>,
    pub(crate) connections: AtomicUsize,
    max_connections: usize,
    pub(crate) draining: AtomicBool,
    notify: Box<dyn Fn(&Notice) + Send + Sync>,
}

impl Shared {
    /// The shared state, before any shard serves.
    pub(crate) fn new(
        config: TargetConfig,
        deadlines: Deadlines,
        shards: Vec<Remote>,
        control: Arc<dyn Control>,
    ) -> Arc<Self> {
        let (limits, store) = (config.limits, config.reservation_store);
        Arc::new(Self {
            catalog: CurrentCatalog::new(limits, config.counts, store),
            registry: Registry::new(config.max_connections),
            sessions: Sessions::new(),
            deadlines,
            unauthenticated_peers: UnauthenticatedPeers::new(config.max_unauthenticated),
            loads: Loads::new(shards.len()),
            clock: fabrix_rt::topology::boot_id().unwrap_or_default(),
            counters: shards.iter().map(|_| Arc::default()).collect(),
            started: control.now(),
            control,
            shards,
            config_tasks: OnceLock::new(),
            connections: AtomicUsize::new(0),
            max_connections: config.max_connections,
            draining: AtomicBool::new(false),
            notify: config.notify,
        })
    }

    /// Sends an order to the target's part on shard `index`. False: the mailbox was full, and the
    /// order was dropped.
    ///
    /// A dropped order closes the connection that it carries. A shard that is being stopped needs
    /// no order to drain. The sender of a change tries again.
    pub(crate) fn order(&self, index: usize, order: Order) -> bool {
        let config_tasks = self.config_tasks.get().map_or(&[][..], Vec::as_slice);
        config_tasks.get(index).is_some_and(|config_task| {
            self.shards[index]
                .send(*config_task, Box::new(order))
                .is_ok()
        })
    }

    /// The health log: the counters of all shards.
    pub(crate) fn health(&self) -> HealthCounters {
        let hours = (self.control.now() - self.started).as_secs() / 3600;
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

    /// A random number that hosts cannot guess. Zero if the system has no random bytes.
    pub(crate) fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        let drawn = self.control.random(&mut bytes);
        drawn.map_or(0, |()| u64::from_le_bytes(bytes))
    }

    /// Sets the time until which all shards time their commands.
    pub(crate) fn time_until(&self, until: Nanos) {
        self.counters
            .iter()
            .for_each(|counters| counters.time_until(until));
    }

    /// The timing page: the sums of all shards.
    pub(crate) fn timing(&self, now: Nanos) -> TimingPage {
        let left_ns = self.counters[0].timed_for(now);
        let seconds = u32::try_from(left_ns.div_ceil(1_000_000_000)).unwrap_or(u32::MAX);
        let mut page = TimingPage::new(self.clock, seconds);
        for counters in &self.counters {
            counters.add_times(&mut page);
        }
        page
    }

    /// Room for a connection from this address, within the limits. None: there is none, and the
    /// operator was told.
    pub(crate) fn admit(&self, peer: SocketAddr) -> Option<(UnauthenticatedPeer, Load)> {
        if self.connections.load(Ordering::Relaxed) >= self.max_connections {
            self.notice(&Notice::TooManyConnections);
            return None;
        }
        let Some(unauthenticated_peer) = self.unauthenticated_peers.admit(peer.ip()) else {
            self.notice(&Notice::TooManyUnauthenticated { peer });
            return None;
        };
        Some((unauthenticated_peer, self.loads.add()))
    }

    /// Gives a connection to its shard. It counts from here, so that no burst passes the limit.
    pub(crate) fn hand_over(&self, arrival: Arrival) {
        self.connected();
        let shard = arrival.load.shard();
        if !self.order(shard, Order::Adopt(arrival)) {
            self.disconnected();
        }
    }

    pub(crate) fn notice(&self, notice: &Notice) {
        (self.notify)(notice);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
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
    pub(crate) carrier: Carrier,
    pub(crate) peer: SocketAddr,
    /// The listener that accepted it.
    pub(crate) listener: Listen,
    /// Its share of the unauthenticated peers of its address.
    pub(crate) unauthenticated_peer: UnauthenticatedPeer,
    /// Its share of the load of the shard that serves it.
    pub(crate) load: Load,
}

/// What carries a connection, and so its protocol.
pub(crate) enum Carrier {
    NvmeTcp(DetachedSocket),
    Iscsi(DetachedSocket),
    /// The request of a host, and the commands that its queue has at the same time.
    NvmeRdma(Box<DetachedRequest>, u16),
    /// The request of an initiator.
    Iser(Box<DetachedRequest>),
}

/// An order to a shard's part of the target.
pub(crate) enum Order {
    /// Adopt this connection.
    Adopt(Arrival),
    /// Serve the present snapshot.
    Serve(Done),
    /// Announce the served snapshot to hosts.
    Announce(Done),
    /// Keep this while a disk has a command of an ANA group that is refused by now.
    AwaitRefused(Done),
    /// Drain every connection.
    Drain,
    /// Close all connections at once.
    Disconnect(Done),
}

/// A sender that a task drops when it has carried out an order. The receiver sees the last drop.
pub(crate) type Done = mpsc::Sender<()>;
