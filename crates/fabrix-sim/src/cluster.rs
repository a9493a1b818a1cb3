//! A storage cluster as Ceph is one, as far as a group of gateways needs it: a disk, a state that
//! all gateways change in turn, a beat of each, and clients that can be shut out.
//!
//! The cluster has a map, whose number grows. Shutting a client out makes a new map. What keeps the
//! disk (an OSD in Ceph) learns of a new map late, or by a request: a request carries the number of
//! the newest map that its client had when it was sent. It refuses the requests of clients that are
//! shut out in its map, and only those. So a client that has shut another one out needs the newest
//! map before it writes.
//!
//! The exclusive lock is the clients' own affair, as in Ceph: a client without the lock sends no
//! change, and learns late that another one has taken it. The disk does not know the lock. A lock
//! is taken only from a client that was shut out.
//!
//! Requests that have been sent go on after the end of their process, and while it stands still. A
//! machine that is cut off from the cluster sends what is not there yet when it is back, if the
//! process still exists.

mod channel;
mod disk;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fabrix_gateways::GatewayNumber;
use fabrix_rt::Nanos;

pub(crate) use self::disk::ClusterDisk;
use crate::backing;
use crate::choices::Choices;
use crate::images::BLOCK;
use crate::trace::{self, Entry};
use crate::world::World;

/// A cluster. A copy is the same one.
#[derive(Clone)]
pub(crate) struct Cluster(Arc<Mutex<State>>);

/// How a cluster behaves.
#[derive(Clone, Debug)]
pub(crate) struct ClusterHabits {
    /// Blocks of the disk.
    pub(crate) blocks: u64,
    /// Most time that a request takes.
    pub(crate) longest: Duration,
    /// Of 1000 requests, how many take up to [`LATEST`] longer.
    pub(crate) late: u64,
    /// Most time in which what keeps the disk learns of a new map by itself.
    pub(crate) news: Duration,
    /// Most time in which a client learns that another one has taken the lock.
    pub(crate) lock_news: Duration,
    /// Most time of a request of the group's own client, there and back.
    pub(crate) travel: Duration,
}

/// Number of a client.
type ClientId = usize;

struct State {
    habits: ClusterHabits,
    choices: Choices,
    /// What the disk holds.
    bytes: Vec<u8>,
    /// The state of the group, with its version.
    group: Option<(u64, String)>,
    beats: BTreeMap<GatewayNumber, String>,
    /// Number of the newest map.
    newest: u64,
    /// Number of the map that the disk has.
    known: u64,
    /// Clients that are shut out, each with the first map that says so.
    shut_out: BTreeMap<ClientId, u64>,
    clients: Vec<Client>,
    /// Who has the exclusive lock.
    lock: Option<ClientId>,
    /// Until when each machine does not reach the cluster.
    cut_off: BTreeMap<usize, Nanos>,
}

/// A client of a gateway's disk.
struct Client {
    machine: usize,
    /// Number of its map.
    map: u64,
    has_lock: bool,
    /// The cluster has refused it.
    is_lost: bool,
    /// Its requests in progress whose process exists.
    requests: usize,
}

impl ClusterHabits {
    /// Habits of a seed.
    pub(crate) fn draw(blocks: u64, choices: &mut Choices) -> Self {
        let up_to = |choices: &mut Choices, all: &[u64]| Duration::from_millis(choices.one_of(all));
        Self {
            blocks,
            longest: backing::longest(choices),
            late: choices.one_of(&[0, 0, 50, 300]),
            news: up_to(choices, &[1, 300, 20_000]),
            lock_news: up_to(choices, &[1, 300, 20_000]),
            travel: up_to(choices, &[2, 20, 20, 300]),
        }
    }

    /// The mean of what requests are late.
    pub(crate) fn lateness(&self) -> Duration {
        LATEST * u32::try_from(self.late).expect("a part of 1000") / 1000
    }
}

impl Cluster {
    /// A cluster with a disk of zeroes.
    pub(crate) fn new(habits: ClusterHabits, choices: Choices) -> Self {
        let blocks = usize::try_from(habits.blocks).expect("a small disk");
        Self(Arc::new(Mutex::new(State {
            habits,
            choices,
            bytes: vec![0; blocks * BLOCK],
            group: None,
            beats: BTreeMap::new(),
            newest: 1,
            known: 1,
            shut_out: BTreeMap::new(),
            clients: Vec::new(),
            lock: None,
            cut_off: BTreeMap::new(),
        })))
    }

    /// What the disk holds.
    pub(crate) fn image(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    /// A machine does not reach the cluster before a time.
    pub(crate) fn cut_off(&self, machine: usize, until: Nanos) {
        let mut state = self.state();
        let at = state.cut_off.entry(machine).or_default();
        *at = until.max(*at);
    }

    /// The first time from `now` on at which a machine reaches the cluster.
    pub(crate) fn reached_at(&self, machine: usize, now: Nanos) -> Nanos {
        let state = self.state();
        let at = state.cut_off.get(&machine).copied();
        at.unwrap_or_default().max(now)
    }

    /// The times in which a request of the group's own client arrives, and its answer.
    pub(crate) fn travel(&self) -> [Duration; 2] {
        let state = &mut *self.state();
        let most = u64::try_from(state.habits.travel.as_micros()).expect("a short time");
        [(); 2].map(|()| Duration::from_micros(state.choices.between(500, most / 2)))
    }

    /// A number below `limit`, which is a choice of the cluster.
    pub(crate) fn draw(&self, limit: u64) -> u64 {
        self.state().choices.below(limit)
    }

    /// The state of the group with its version.
    pub(crate) fn group(&self) -> Option<(u64, String)> {
        self.state().group.clone()
    }

    /// Replaces the state of this version. False: it has another version.
    pub(crate) fn replace(&self, version: Option<u64>, text: String) -> bool {
        let mut state = self.state();
        let there = state.group.as_ref().map(|(version, _)| *version);
        if there != version {
            return false;
        }
        trace::note(|| Entry::new("cluster", format!("stores: {}", text.replace('\n', "; "))));
        state.group = Some((version.unwrap_or(0) + 1, text));
        true
    }

    /// Stores a beat.
    pub(crate) fn beat(&self, number: GatewayNumber, beat: String) {
        self.state().beats.insert(number, beat);
    }

    /// The beats that are there, of these gateways.
    pub(crate) fn beats(&self, numbers: &[GatewayNumber]) -> Vec<(GatewayNumber, String)> {
        let state = self.state();
        let found = |number: &GatewayNumber| Some((*number, state.beats.get(number)?.clone()));
        numbers.iter().filter_map(found).collect()
    }

    /// Shuts a client out by its address. The disk learns of that later.
    pub(crate) fn shut_out(&self, world: &World, address: &str) {
        let state = &mut *self.state();
        let number = address.strip_prefix(ADDRESS).and_then(|it| it.parse().ok());
        let client: ClientId = number.expect("an address of a client");
        if state.shut_out.contains_key(&client) {
            return;
        }
        state.newest += 1;
        state.shut_out.insert(client, state.newest);
        trace::note(|| Entry::new("cluster", format!("shuts {address} out")));
        let most = u64::try_from(state.habits.news.as_nanos()).expect("a short time");
        let time = Duration::from_nanos(state.choices.below(most + 1));
        let (cluster, map) = (self.clone(), state.newest);
        world.plan(world.now() + time, move |_| {
            let mut state = cluster.state();
            state.known = state.known.max(map);
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic in a cluster")
    }
}

impl State {
    fn connect(&mut self, machine: usize) -> ClientId {
        self.clients.push(Client {
            machine,
            map: self.newest,
            has_lock: false,
            is_lost: false,
            requests: 0,
        });
        self.clients.len() - 1
    }

    /// Whether the disk admits a request of a client that has this map. Each of them has the newer
    /// map of both afterwards.
    fn admits(&mut self, client: ClientId, map: u64) -> bool {
        self.known = self.known.max(map);
        let refused_from = self.shut_out.get(&client);
        let refuses = refused_from.is_some_and(|from| *from <= self.known);
        let client = &mut self.clients[client];
        client.map = client.map.max(self.known);
        !refuses
    }

    /// A request of a client for the lock. False: the client is shut out.
    fn admits_now(&mut self, client: ClientId) -> bool {
        let map = self.clients[client].map;
        let admits = self.admits(client, map);
        self.clients[client].is_lost |= !admits;
        admits
    }
}

/// Address of a client, before its number.
const ADDRESS: &str = "client";
/// What a late request takes longer, at most.
const LATEST: Duration = Duration::from_secs(8);
