//! The simulated RDMA network: connections, and what devices do with the work of queue pairs.
//!
//! The queue pairs are those in memory of the transport. Each request has three moments: the other
//! end carries it out, its own end has the answer, and its message is told. All of them are planned
//! events of the world, in order for each end and direction, and each is late by a choice.
//!
//! - `connections`: ids, listeners, and how connections begin and end.
//! - `work`: requests on their way.
//! - `disturbances`: what happens to connections and devices.
//! - `handles`: what the hub of a shard holds.

mod connections;
mod disturbances;
mod handles;
mod work;

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use fabrix_rt::{Nanos, Shard};
use fabrix_transport::rdma::simulated::SimulatedEnd;
use fabrix_transport::rdma::{EventKind, Hub, Parameters};

pub(crate) use self::disturbances::STATUSES;
use self::handles::ShardNetwork;
use crate::choices::Choices;
use crate::world::World;

/// The RDMA network of a world.
pub(crate) struct Rdma(RefCell<State>);

/// How the network and the devices of a world behave.
#[derive(Clone, Copy, Debug)]
struct Habits {
    /// Shortest time from one end to the other.
    latency: Duration,
    /// Most time that is added to it, drawn for each request.
    jitter: Duration,
    /// Most time from the end of a work to its completion.
    late: Duration,
    /// Time after which a request without an answer fails.
    retry: Duration,
    /// RDMA READs that a device answers at the same time.
    reads: u8,
    /// Messages may invalidate a key of the peer.
    invalidates: bool,
}

struct State {
    habits: Habits,
    choices: Choices,
    next_id: u64,
    next_port: u16,
    ends: BTreeMap<u64, End>,
    news: BTreeMap<usize, News>,
    /// Directions in which everything waits until a time: from a machine to another.
    stalls: BTreeMap<(IpAddr, IpAddr), Nanos>,
    /// Machines whose device is removed.
    removed: BTreeSet<IpAddr>,
    /// Requests for connections are refused until this time.
    refuses_until: Nanos,
    faults: Vec<String>,
}

/// A listener, or one end of a connection.
struct End {
    shard: usize,
    key: usize,
    stage: Stage,
    local: SocketAddr,
    remote: Option<SocketAddr>,
    peer: Option<u64>,
    device: Option<SimulatedEnd>,
    /// Requests that were planned, and those of them that have ended.
    planned: usize,
    ended: usize,
    /// Times of the last event of each kind. Later ones come behind it.
    last: Last,
    /// Nothing arrives at either end any more.
    is_cut: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Last {
    arrival: Nanos,
    answer: Nanos,
    message: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Listening,
    /// This end has asked the peer.
    Asking,
    /// The peer has asked, and has no answer.
    Asked,
    Connected,
    /// This end has ended the connection, or there is none.
    Over,
}

/// What a shard has to be told.
#[derive(Default)]
struct News {
    events: VecDeque<(usize, Told)>,
    ready: VecDeque<usize>,
}

enum Told {
    Request(u64, Parameters),
    Other(EventKind),
}

impl Habits {
    fn draw(choices: &mut Choices) -> Self {
        let latency = choices.between(1, 5_000);
        Self {
            latency: Duration::from_micros(latency),
            jitter: Duration::from_micros(choices.between(0, 5_000)),
            late: Duration::from_micros(choices.between(0, latency)),
            // Longer than commands are at the disk: a host that gives up connects again at once.
            retry: Duration::from_millis(choices.one_of(&[10_000, 7_000])),
            reads: choices.one_of(&[16, 4, 1]),
            invalidates: !choices.once_in(3),
        }
    }
}

impl Rdma {
    pub(crate) fn new(mut choices: Choices) -> Self {
        Self(RefCell::new(State {
            habits: Habits::draw(&mut choices),
            choices,
            next_id: 1,
            next_port: 40_000,
            ends: BTreeMap::new(),
            news: BTreeMap::new(),
            stalls: BTreeMap::new(),
            removed: BTreeSet::new(),
            refuses_until: Nanos::default(),
            faults: Vec::new(),
        }))
    }

    /// Connects a shard to the network.
    pub(crate) fn add_shard(&self, shard: &mut Shard) {
        let number = shard.id();
        self.state().news.insert(number, News::default());
        let network = Rc::new(ShardNetwork::new(number));
        Hub::simulated(shard, network).expect("a driver with pollers");
    }

    /// Ends of connections that are there, and of attempts to connect.
    pub(crate) fn ends(&self) -> usize {
        let state = self.state();
        let ends = state.ends.values();
        ends.filter(|end| end.stage != Stage::Listening).count()
    }

    /// What was wrong.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.state().faults.clone()
    }

    fn state(&self) -> RefMut<'_, State> {
        self.0.borrow_mut()
    }
}

impl State {
    /// When something that leaves a machine now arrives at another one.
    fn arrival(&mut self, world: &World, from: IpAddr, to: IpAddr) -> Nanos {
        let jitter = u64::try_from(self.habits.jitter.as_nanos()).expect("a short time");
        let jitter = Duration::from_nanos(self.choices.below(jitter + 1));
        let stalled = self.stalls.get(&(from, to)).copied().unwrap_or_default();
        world.now().max(stalled) + self.habits.latency + jitter
    }

    /// The same for something that was under way when the direction stalled. None: it does not.
    fn delayed(&mut self, world: &World, from: IpAddr, to: IpAddr) -> Option<Nanos> {
        let stalled = self.stalls.get(&(from, to)).copied().unwrap_or_default();
        (world.now() < stalled).then(|| self.arrival(world, from, to))
    }

    /// When a device tells what it has done now.
    fn told(&mut self, world: &World) -> Nanos {
        let late = u64::try_from(self.habits.late.as_nanos()).expect("a short time");
        world.now() + Duration::from_nanos(self.choices.below(late + 1))
    }

    /// Tells the owner of an end an event.
    fn tell(&mut self, world: &World, id: u64, told: Told) {
        let Some(end) = self.ends.get(&id) else {
            return;
        };
        if let Some(news) = self.news.get_mut(&end.shard) {
            news.events.push_back((end.key, told));
            world.net().state().wake_shard(end.shard);
        }
    }

    /// Tells the owner of an end that there are completions.
    fn tell_ready(&mut self, world: &World, id: u64) {
        let Some(end) = self.ends.get(&id) else {
            return;
        };
        if let Some(news) = self.news.get_mut(&end.shard) {
            if !news.ready.contains(&end.key) {
                news.ready.push_back(end.key);
            }
            world.net().state().wake_shard(end.shard);
        }
    }

    /// The machines of an end and of its peer.
    fn machines(&self, id: u64) -> Option<(IpAddr, IpAddr)> {
        let end = self.ends.get(&id)?;
        Some((end.local.ip(), end.remote?.ip()))
    }
}

/// Adds an event of an end to the digest.
fn note(world: &World, id: u64, kind: u64) {
    world.net().note(world.now().0 ^ (id << 8) ^ kind);
}

impl End {
    fn new(shard: usize, key: usize, local: SocketAddr) -> Self {
        Self {
            shard,
            key,
            stage: Stage::New,
            local,
            remote: None,
            peer: None,
            device: None,
            planned: 0,
            ended: 0,
            last: Last::default(),
            is_cut: false,
        }
    }
}
