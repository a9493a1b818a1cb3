//! A simulated network with TCP's rules: bytes arrive in order, late, and in pieces of any size; a
//! slow reader stops the sender; a connection can be reset, stalled in one direction, or cut
//! without a word.
//!
//! The network knows addresses and bytes. `driver` carries operations of shards out on it.

mod end;
mod operations;
mod socket;
mod state;
mod threads;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fabrix_rt::Nanos;
use fabrix_rt::simulated::{SimulatedListener, SimulatedSocket};

use self::end::{End, Stage};
use self::socket::ListeningSocket;
pub(crate) use self::socket::StreamSocket;
pub(crate) use self::state::State;
use self::state::{Ends, Event, Listening};
use self::threads::Threads;
use crate::capture::Segment;
use crate::choices::Choices;
use crate::trace;

/// Number of a shard, or of a thread that waits. It is never used again.
pub(crate) type ShardId = usize;

/// Number of one end of a connection. It is never used again.
pub(crate) type EndId = usize;

/// The network, shared by the sockets, the drivers and the world.
#[derive(Clone, Debug)]
pub(crate) struct Net(Arc<Mutex<State>>);

/// How the network of one world behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// Shortest time from one end to the other.
    pub(crate) latency: Duration,
    /// Most time that is added to it, drawn for each piece.
    pub(crate) jitter: Duration,
    /// Most bytes of a connection that are under way or unread in one direction.
    pub(crate) window: usize,
    /// Longest piece of a stream that arrives at once.
    pub(crate) piece: usize,
    /// Whether a receive returns less than has arrived, now and then.
    pub(crate) short_receives: bool,
}

impl Habits {
    /// Habits of a seed.
    pub(crate) fn draw(choices: &mut Choices) -> Self {
        let small = |bytes: u64| usize::try_from(bytes).expect("small");
        Self {
            latency: Duration::from_micros(choices.between(1, 5_000)),
            jitter: Duration::from_micros(choices.between(0, 5_000)),
            window: small(choices.one_of(&[1 << 12, 1 << 14, 1 << 16, 1 << 20])),
            // Few worlds have the shortest pieces, which cost the most turns.
            piece: small(
                choices.one_of(&[7, 100, 500, 500, 1460, 1460, 1460, 9000, 9000, 9000, 65_536]),
            ),
            short_receives: choices.once_in(2),
        }
    }

    /// The same for long transfers, which would take too many turns in short pieces.
    pub(crate) fn for_long_transfers(self) -> Self {
        Self {
            window: self.window.max(1 << 16),
            piece: self.piece.max(16_384),
            ..self
        }
    }
}

/// What an attempt to go on with an operation brought.
#[derive(Debug)]
pub(crate) enum Tried {
    /// It waits.
    Waits,
    /// It has ended with this result.
    Ended(i32),
}

impl Net {
    /// A network without connections.
    pub(crate) fn new(habits: Habits, choices: Choices) -> Self {
        let now = Nanos(1_000_000_000);
        trace::set_time(now);
        Self(Arc::new(Mutex::new(State {
            now,
            habits,
            choices,
            events: BinaryHeap::new(),
            next_event: 0,
            next_port: 40_000,
            ends: Ends::default(),
            listeners: BTreeMap::new(),
            next_number: 0,
            ready: Vec::new(),
            threads: Threads::default(),
            digest: 0,
        })))
    }

    /// The network for some calls one after the other.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic while the network changes")
    }

    /// The time.
    pub(crate) fn now(&self) -> Nanos {
        self.state().now
    }

    /// Moves the time forward.
    pub(crate) fn advance_to(&self, now: Nanos) {
        let mut state = self.state();
        debug_assert!(now >= state.now, "time goes forward");
        state.now = now;
        trace::set_time(now);
    }

    /// Carries out the first event, which is due.
    pub(crate) fn carry_out_event(&self) {
        let mut state = self.state();
        if let Some(Reverse((at, number, event))) = state.events.pop() {
            state.note(at.0 ^ number);
            match event {
                Event::Arrive(end) => state.arrive(end),
                Event::Knock(end) => state.knock(end),
                Event::Wake(number) => state.wake_shard(number),
            }
        }
    }

    /// Whether operations of a shard may go on.
    pub(crate) fn is_ready(&self, shard: ShardId) -> bool {
        self.state().is_ready(shard)
    }

    /// Adds something that happened outside of the network to the digest.
    pub(crate) fn note(&self, word: u64) {
        self.state().note(word);
    }

    /// A number for a shard, or for a thread that waits.
    pub(crate) fn take_number(&self) -> ShardId {
        let mut state = self.state();
        state.next_number += 1;
        state.next_number - 1
    }

    /// The digest of all events until now.
    pub(crate) fn digest(&self) -> u64 {
        self.state().digest
    }

    /// A socket that is not connected.
    pub(crate) fn socket(&self, shard: ShardId, from: Option<IpAddr>) -> Box<dyn SimulatedSocket> {
        let mut state = self.state();
        state.next_port += 1;
        let address = from.unwrap_or_else(|| address_of(shard));
        let local = SocketAddr::new(address, state.next_port);
        let id = state.ends.add(End::new(shard, local));
        drop(state);
        Box::new(StreamSocket::new(self, id))
    }

    /// A socket that listens. Port 0: one that is free.
    ///
    /// Errors: `AddrInUse`.
    pub(crate) fn listen(
        &self,
        shard: ShardId,
        address: SocketAddr,
    ) -> io::Result<Box<dyn SimulatedListener>> {
        let mut state = self.state();
        let mut address = address;
        if address.port() == 0 {
            state.next_port += 1;
            address.set_port(state.next_port);
        }
        if state.listeners.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let listening = Listening {
            shard,
            ..Listening::default()
        };
        state.listeners.insert(address, listening);
        drop(state);
        Ok(Box::new(ListeningSocket::new(self, address)))
    }

    /// The socket of an accepted connection.
    pub(crate) fn accepted(&self, id: EndId) -> Box<dyn SimulatedSocket> {
        Box::new(StreamSocket::new(self, id))
    }

    /// Ends the connection of an end as a lost machine does: nothing arrives any more in either
    /// direction, and nobody hears of it.
    pub(crate) fn cut(&self, id: EndId) {
        let mut state = self.state();
        let peer = state.ends.get(id).and_then(|end| end.peer);
        for id in [Some(id), peer].into_iter().flatten() {
            if let Some(end) = state.ends.get_mut(id) {
                end.is_cut = true;
            }
        }
    }

    /// Whether the connection of an end was cut.
    pub(crate) fn is_cut(&self, id: EndId) -> bool {
        self.state().ends.get(id).is_some_and(|end| end.is_cut)
    }

    /// Cuts all connections on the path of an end.
    pub(crate) fn cut_path(&self, id: EndId) {
        let on_path = self.state().on_path_of(id);
        on_path.into_iter().for_each(|id| self.cut(id));
    }

    /// Resets all connections on the path of an end.
    pub(crate) fn reset_path(&self, id: EndId) {
        let on_path = self.state().on_path_of(id);
        on_path.into_iter().for_each(|id| self.reset(id));
    }

    /// Resets a connection: both ends see it, one of them after a latency.
    pub(crate) fn reset(&self, id: EndId) {
        let mut state = self.state();
        if let Some(end) = state.ends.get(id) {
            end.note_segment(Segment::Rst);
        }
        state.reset(id);
    }

    /// Delays everything that is under way or will be sent to an end until a time. Then the pieces
    /// arrive one after the other.
    pub(crate) fn stall(&self, id: EndId, until: Nanos) {
        let mut state = self.state();
        let Some(end) = state.ends.get_mut(id) else {
            return;
        };
        end.stalled_until = end.stalled_until.max(until);
        let pieces = end.take_under_way();
        for piece in pieces {
            state.under_way(id, piece);
        }
    }

    /// As [`stall`](Self::stall), for every connection between the two machines in this direction,
    /// also for those that begin meanwhile: they have one path.
    pub(crate) fn stall_path(&self, id: EndId, until: Nanos) {
        let on_path = self.state().on_path_of(id);
        for id in on_path {
            if let Some(end) = self.state().ends.get_mut(id) {
                end.path_stalled_until = end.path_stalled_until.max(until);
            }
            self.stall(id, until);
        }
    }

    /// As [`stall_path`](Self::stall_path), in both directions of the connections that are there.
    pub(crate) fn isolate_path(&self, id: EndId, until: Nanos) {
        self.stall_path(id, until);
        let on_path = self.state().on_path_of(id).into_iter();
        let peers: Vec<_> = on_path.filter_map(|id| self.peer(id)).collect();
        peers.into_iter().for_each(|peer| self.stall(peer, until));
    }

    /// Ends of connections that are there, in the order in which they were made.
    pub(crate) fn connected(&self) -> Vec<EndId> {
        let state = self.state();
        let connected = |(id, end): (EndId, &End)| (end.stage == Stage::Connected).then_some(id);
        state.ends.iter().filter_map(connected).collect()
    }

    /// The other end of a connection, while it is there.
    pub(crate) fn peer(&self, id: EndId) -> Option<EndId> {
        self.state().ends.get(id)?.peer
    }

    /// The address of the peer of an end.
    pub(crate) fn peer_address(&self, id: EndId) -> Option<SocketAddr> {
        self.state().ends.get(id)?.remote
    }

    /// Whether a machine has an end whose peer is or was this address.
    pub(crate) fn has_peer(&self, address: IpAddr) -> bool {
        let state = self.state();
        let mut remotes = state.ends.iter().filter_map(|(_, end)| end.remote);
        remotes.any(|remote| remote.ip() == address)
    }

    /// The address of an end.
    pub(crate) fn address(&self, id: EndId) -> Option<SocketAddr> {
        self.state().ends.get(id).map(|end| end.local)
    }

    /// An end in words: its connection, and the direction that ends there.
    pub(crate) fn name(&self, id: EndId) -> String {
        let state = self.state();
        let end = state.ends.get(id);
        match end.and_then(|end| Some((end.remote?, end.local))) {
            Some((remote, local)) => format!("connection {remote} -> {local}"),
            None => format!("end {id}"),
        }
    }

    /// Number of ends that are not closed.
    pub(crate) fn ends(&self) -> usize {
        self.state().ends.iter().count()
    }
}

/// The address from which a shard connects.
pub(crate) fn address_of(shard: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 1, 0, u8::try_from(shard).unwrap_or(255)))
}
