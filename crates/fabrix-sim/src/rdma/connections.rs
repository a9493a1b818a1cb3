//! Ids and listeners, and how connections begin and end: the connection manager of all machines.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use fabrix_transport::rdma::simulated::SimulatedEnd;
use fabrix_transport::rdma::{EventKind, Failure, Limits, Parameters, Step};

use super::{End, Rdma, Stage, Told, note};
use crate::net::address_of;
use crate::world::World;

impl Rdma {
    pub(super) fn open(&self, shard: usize, key: usize) -> u64 {
        let mut state = self.state();
        let id = state.next_id;
        state.next_id += 1;
        let local = SocketAddr::new(address_of(shard), 0);
        state.ends.insert(id, End::new(shard, key, local));
        id
    }

    /// An id moves to another shard. What its peer has done meanwhile is told there.
    pub(super) fn attach(&self, world: &World, id: u64, (shard, key): (usize, usize)) {
        let mut state = self.state();
        let is_removed = match state.ends.get_mut(&id) {
            Some(end) => {
                (end.shard, end.key) = (shard, key);
                end.local.ip()
            }
            None => return,
        };
        if state.removed.contains(&is_removed) {
            state.tell(world, id, Told::Other(EventKind::DeviceRemoved));
        }
    }

    pub(super) fn has_news(&self, shard: usize) -> bool {
        let state = self.state();
        let news = state.news.get(&shard);
        news.is_some_and(|news| !news.events.is_empty() || !news.ready.is_empty())
    }

    pub(super) fn next_event(&self, shard: usize) -> Option<(usize, Told)> {
        self.state().news.get_mut(&shard)?.events.pop_front()
    }

    pub(super) fn next_ready(&self, shard: usize) -> Option<usize> {
        self.state().news.get_mut(&shard)?.ready.pop_front()
    }

    pub(super) fn forget_shard(&self, world: &Rc<World>, shard: usize) {
        let news = self.state().news.remove(&shard);
        for (_, told) in news.into_iter().flat_map(|news| news.events) {
            if let Told::Request(id, _) = told {
                self.destroy(world, id);
            }
        }
    }

    pub(super) fn addresses(&self, id: u64) -> Option<(Option<SocketAddr>, Option<SocketAddr>)> {
        let state = self.state();
        let end = state.ends.get(&id)?;
        Some((Some(end.local), end.remote))
    }

    pub(super) fn limits(&self) -> Limits {
        let habits = self.state().habits;
        Limits {
            work_requests: 16_384,
            ranges: 16,
            read_ranges: 16,
            completions: 65_536,
            responder_resources: habits.reads,
            initiator_depth: habits.reads,
            invalidates: habits.invalidates,
            windows: true,
            is_iwarp: false,
            is_soft_roce: false,
        }
    }

    pub(super) fn has_device(&self, id: u64, device: SimulatedEnd) {
        if let Some(end) = self.state().ends.get_mut(&id) {
            end.device = Some(device);
        }
    }

    pub(super) fn listen(&self, id: u64, address: SocketAddr) -> io::Result<()> {
        let mut state = self.state();
        if state.removed.contains(&address.ip()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if state.listener(address).is_some() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let end = state.ends.get_mut(&id).expect("the id is there");
        (end.local, end.stage) = (address, Stage::Listening);
        Ok(())
    }

    pub(super) fn resolve(&self, world: &World, id: u64, (to, from): (SocketAddr, Option<IpAddr>)) {
        let mut state = self.state();
        let port = state.next_port;
        state.next_port += 1;
        let end = state.ends.get_mut(&id).expect("the id is there");
        let from = from.unwrap_or_else(|| end.local.ip());
        end.local = SocketAddr::new(from, port);
        end.remote = Some(to);
        drop(state);
        self.tell_soon(world, id, EventKind::AddressResolved, Step::Address);
    }

    pub(super) fn resolve_route(&self, world: &World, id: u64) {
        self.tell_soon(world, id, EventKind::RouteResolved, Step::Route);
    }

    /// Tells what this machine finds out by itself, or that its device is gone.
    fn tell_soon(&self, world: &World, id: u64, kind: EventKind, step: Step) {
        let at = self.state().told(world);
        world.plan(at, move |world| {
            let mut state = world.rdma().state();
            let local = state.ends.get(&id).map(|end| end.local.ip());
            let kind = match local.is_some_and(|local| state.removed.contains(&local)) {
                true => failed(step, NO_DEVICE, &[]),
                false => kind,
            };
            state.tell(world, id, Told::Other(kind));
        });
    }

    pub(super) fn connect(&self, world: &World, id: u64, parameters: &Parameters) {
        let mut state = self.state();
        let Some((from, to)) = state.machines(id) else {
            return;
        };
        let at = state.arrival(world, from, to);
        state.ends.get_mut(&id).expect("it has machines").stage = Stage::Asking;
        let parameters = seen_by_the_peer(parameters, REQUEST_BYTES);
        world.plan(at, move |world| world.rdma().knock(world, id, parameters));
        self.fail_later(world, id, UNANSWERED);
    }

    /// The request to connect arrives at its address.
    fn knock(&self, world: &World, id: u64, parameters: Parameters) {
        let mut state = self.state();
        let Some((from, to)) = state.machines(id) else {
            return;
        };
        if let Some(at) = state.delayed(world, from, to) {
            return world.plan(at, move |world| world.rdma().knock(world, id, parameters));
        }
        let asking = &state.ends[&id];
        if asking.is_cut || asking.stage != Stage::Asking || state.removed.contains(&to) {
            return;
        }
        note(world, id, 5);
        let (local, remote) = (asking.local, asking.remote.expect("it asks somebody"));
        if world.now() < state.refuses_until {
            drop(state);
            return self.refuse(world, (id, to, from), (STALE, &[]));
        }
        let Some(listener) = state.listener(remote) else {
            drop(state);
            return self.refuse(world, (id, to, from), (NOBODY_LISTENS, &[]));
        };
        let asked = state.next_id;
        state.next_id += 1;
        let shard = state.ends[&listener].shard;
        let mut end = End::new(shard, 0, remote);
        (end.remote, end.peer, end.stage) = (Some(local), Some(id), Stage::Asked);
        state.ends.insert(asked, end);
        state.ends.get_mut(&id).expect("it asks").peer = Some(asked);
        state.tell(world, listener, Told::Request(asked, parameters));
    }

    /// A connection that is not established after a time does not come about.
    fn fail_later(&self, world: &World, id: u64, after: Duration) {
        world.plan(world.now() + after, move |world| {
            let mut state = world.rdma().state();
            let end = state.ends.get_mut(&id);
            if let Some(end) = end.filter(|end| end.stage == Stage::Asking) {
                end.stage = Stage::Over;
                let kind = failed(Step::Unreachable, TIMED_OUT, &[]);
                state.tell(world, id, Told::Other(kind));
            }
        });
    }

    /// An end that was asked for a connection refuses it.
    pub(super) fn reject(&self, world: &World, id: u64, private_data: &[u8]) {
        let mut state = self.state();
        let machines = state.machines(id);
        let end = state.ends.get_mut(&id);
        let Some(end) = end.filter(|end| end.stage == Stage::Asked) else {
            return;
        };
        end.stage = Stage::Over;
        let (peer, is_cut) = (end.peer.expect("it was asked"), end.is_cut);
        drop(state);
        if let Some((from, to)) = machines.filter(|_| !is_cut) {
            self.refuse(world, (peer, from, to), (BY_PROGRAM, private_data));
        }
    }

    /// A rejection is on its way to an end.
    fn refuse(
        &self,
        world: &World,
        (to, from, at): (u64, IpAddr, IpAddr),
        (reason, private_data): (i32, &[u8]),
    ) {
        let at = self.state().arrival(world, from, at);
        let private_data = padded(private_data, REJECT_BYTES);
        world.plan(at, move |world| {
            let mut state = world.rdma().state();
            let end = state.ends.get_mut(&to);
            if let Some(end) = end.filter(|end| end.stage == Stage::Asking && !end.is_cut) {
                end.stage = Stage::Over;
                let kind = failed(Step::Rejected, reason, &private_data);
                state.tell(world, to, Told::Other(kind));
            }
        });
    }

    pub(super) fn accept(&self, world: &World, id: u64, parameters: &Parameters) {
        let mut state = self.state();
        let Some((from, to)) = state.machines(id) else {
            return;
        };
        let at = state.arrival(world, from, to);
        state.ends.get_mut(&id).expect("it has machines").stage = Stage::Connected;
        let parameters = seen_by_the_peer(parameters, ACCEPT_BYTES);
        world.plan(at, move |world| {
            world.rdma().accepted(world, id, parameters);
        });
    }

    /// The acceptance arrives at the end that has asked. It tells the other one so, which may have
    /// the first message before.
    fn accepted(&self, world: &World, id: u64, parameters: Parameters) {
        let mut state = self.state();
        let Some((from, to)) = state.machines(id) else {
            return;
        };
        if let Some(at) = state.delayed(world, from, to) {
            return world.plan(at, move |world| {
                world.rdma().accepted(world, id, parameters);
            });
        }
        note(world, id, 6);
        let (peer, is_cut) = (state.ends[&id].peer.expect("asked"), state.ends[&id].is_cut);
        let back = state.arrival(world, to, from);
        let asking = state.ends.get_mut(&peer).filter(|_| !is_cut);
        let kind = match asking.filter(|end| end.stage == Stage::Asking) {
            Some(asking) => {
                asking.stage = Stage::Connected;
                let kind = EventKind::Established(parameters);
                state.tell(world, peer, Told::Other(kind));
                EventKind::Established(Parameters::default())
            }
            None if is_cut => failed(Step::Unreachable, TIMED_OUT, &[]),
            None => failed(Step::Rejected, NOT_THERE, &[]),
        };
        let after = if is_cut { UNANSWERED } else { Duration::ZERO };
        world.plan(back + after, move |world| {
            world.rdma().state().tell(world, id, Told::Other(kind));
        });
    }

    /// An end ends its connection, and its peer hears of it.
    pub(super) fn disconnect(&self, world: &World, id: u64) {
        let mut state = self.state();
        let Some((from, to)) = state.machines(id) else {
            return;
        };
        let at = state.arrival(world, from, to);
        let end = state.ends.get_mut(&id).expect("it has machines");
        if end.stage != Stage::Connected {
            return;
        }
        end.stage = Stage::Over;
        let peer = end.peer.filter(|_| !end.is_cut);
        if let Some(peer) = peer {
            world.plan(at, move |world| world.rdma().peer_has_left(world, peer));
        }
    }

    /// An end hears that its peer has ended the connection.
    fn peer_has_left(&self, world: &World, id: u64) {
        let mut state = self.state();
        let Some((to, from)) = state.machines(id).filter(|_| !state.ends[&id].is_cut) else {
            return;
        };
        if let Some(at) = state.delayed(world, from, to) {
            return world.plan(at, move |world| world.rdma().peer_has_left(world, id));
        }
        note(world, id, 7);
        state.tell(world, id, Told::Other(EventKind::Disconnected));
    }

    /// The owner of an id has dropped it.
    pub(super) fn destroy(&self, world: &World, id: u64) {
        self.reject(world, id, &[]);
        self.disconnect(world, id);
        self.state().ends.remove(&id);
    }
}

impl super::State {
    fn listener(&self, address: SocketAddr) -> Option<u64> {
        let listens = |end: &End| end.stage == Stage::Listening && end.local == address;
        let mut ends = self.ends.iter();
        ends.find(|(_, end)| listens(end)).map(|(id, _)| *id)
    }
}

fn failed(step: Step, status: i32, private_data: &[u8]) -> EventKind {
    EventKind::Failed(Failure {
        step,
        status,
        private_data: private_data.to_vec(),
    })
}

/// What one end says, as the other one sees it.
fn seen_by_the_peer(said: &Parameters, bytes: usize) -> Parameters {
    Parameters {
        private_data: padded(&said.private_data, bytes),
        responder_resources: said.initiator_depth,
        initiator_depth: said.responder_resources,
    }
}

/// Private data with the zeroes that RoCE appends.
fn padded(private_data: &[u8], bytes: usize) -> Vec<u8> {
    let mut padded = private_data.to_vec();
    padded.resize(bytes.max(private_data.len()), 0);
    padded
}

/// Bytes of private data of each message (InfiniBand Architecture Specification, volume 1, section
/// 12.6; the connection manager uses 36 of those of a request).
const REQUEST_BYTES: usize = 56;
const ACCEPT_BYTES: usize = 196;
const REJECT_BYTES: usize = 148;
/// The connection manager repeats a message for so long.
const UNANSWERED: Duration = Duration::from_secs(20);
/// Invalid service id.
const NOBODY_LISTENS: i32 = 8;
/// Stale connection: the peer still has an older one.
const STALE: i32 = 10;
/// Consumer reject.
const BY_PROGRAM: i32 = 28;
/// Invalid communication id.
const NOT_THERE: i32 = 4;
/// -ENODEV.
const NO_DEVICE: i32 = -19;
/// -ETIMEDOUT.
const TIMED_OUT: i32 = -110;
