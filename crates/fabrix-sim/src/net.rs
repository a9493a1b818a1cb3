//! A simulated network with TCP's rules: bytes arrive in order, late, and in pieces of any size; a
//! slow reader stops the sender; a connection can be reset, stalled in one direction, or cut
//! without a word.
//!
//! The network knows addresses and bytes. `driver` carries operations of shards out on it.

mod end;
mod socket;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fabrix_rt::simulated::{SimulatedListener, SimulatedSocket};
use fabrix_rt::{Nanos, errno};

use self::end::{End, Stage};
use self::socket::ListeningSocket;
pub(crate) use self::socket::StreamSocket;
use crate::choices::Choices;

/// Number of one end of a connection. It is never used again.
pub(crate) type EndId = u64;

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

#[derive(Debug)]
struct State {
    now: Nanos,
    habits: Habits,
    choices: Choices,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    next_event: u64,
    next_end: EndId,
    next_port: u16,
    ends: BTreeMap<EndId, End>,
    listeners: BTreeMap<SocketAddr, Listening>,
    /// Shards whose operations may go on.
    ready: BTreeSet<usize>,
    /// Changes with every event: two runs of one seed agree in it.
    digest: u64,
}

#[derive(Debug, Default)]
struct Listening {
    shard: usize,
    backlog: VecDeque<EndId>,
    is_shut_down: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The first pieces under way to this end arrive.
    Arrive(EndId),
    /// The request to connect arrives.
    Knock(EndId),
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
        Self(Arc::new(Mutex::new(State {
            now: Nanos(1_000_000_000),
            habits,
            choices,
            events: BinaryHeap::new(),
            next_event: 0,
            next_end: 1,
            next_port: 40_000,
            ends: BTreeMap::new(),
            listeners: BTreeMap::new(),
            ready: BTreeSet::new(),
            digest: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
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
    }

    /// When the next event is due.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        self.state().events.peek().map(|Reverse((at, ..))| *at)
    }

    /// Carries out the first event, which is due.
    pub(crate) fn carry_out_event(&self) {
        let mut state = self.state();
        if let Some(Reverse((at, number, event))) = state.events.pop() {
            state.note(at.0 ^ number);
            match event {
                Event::Arrive(end) => state.arrive(end),
                Event::Knock(end) => state.knock(end),
            }
        }
    }

    /// Whether operations of a shard may go on. Forgets it.
    pub(crate) fn take_ready(&self, shard: usize) -> bool {
        self.state().ready.remove(&shard)
    }

    /// Whether operations of a shard may go on.
    pub(crate) fn is_ready(&self, shard: usize) -> bool {
        self.state().ready.contains(&shard)
    }

    /// Adds something that happened outside of the network to the digest.
    pub(crate) fn note(&self, word: u64) {
        self.state().note(word);
    }

    /// The digest of all events until now.
    pub(crate) fn digest(&self) -> u64 {
        self.state().digest
    }

    /// A socket that is not connected.
    pub(crate) fn socket(&self, shard: usize, from: Option<IpAddr>) -> Box<dyn SimulatedSocket> {
        let mut state = self.state();
        let own = IpAddr::V4(Ipv4Addr::new(10, 1, 0, u8::try_from(shard).unwrap_or(255)));
        state.next_port += 1;
        let local = SocketAddr::new(from.unwrap_or(own), state.next_port);
        let id = state.add(End::new(shard, local));
        drop(state);
        Box::new(StreamSocket::new(self, id))
    }

    /// A socket that listens.
    ///
    /// Errors: `AddrInUse`.
    pub(crate) fn listen(
        &self,
        shard: usize,
        address: SocketAddr,
    ) -> io::Result<Box<dyn SimulatedListener>> {
        let mut state = self.state();
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

    /// Begins to connect.
    pub(crate) fn connect(&self, id: EndId, address: SocketAddr) {
        let mut state = self.state();
        let latency = state.latency();
        let now = state.now;
        if let Some(end) = state.ends.get_mut(&id) {
            end.remote = Some(address);
            end.stage = Stage::Connecting;
        }
        state.plan(now + latency, Event::Knock(id));
    }

    /// Whether a connect has ended.
    pub(crate) fn try_connect(&self, id: EndId) -> Tried {
        let state = self.state();
        match state.ends.get(&id).map(|end| end.stage) {
            Some(Stage::Connecting) => Tried::Waits,
            Some(Stage::Connected) => Tried::Ended(0),
            Some(Stage::Refused) => Tried::Ended(-errno::ECONNREFUSED),
            _ => Tried::Ended(-errno::ECONNRESET),
        }
    }

    /// Accepts a connection, for `shard`.
    pub(crate) fn try_accept(&self, shard: usize, address: SocketAddr) -> Result<EndId, Tried> {
        let mut state = self.state();
        let Some(listening) = state.listeners.get_mut(&address) else {
            return Err(Tried::Ended(-errno::EINVAL));
        };
        if listening.is_shut_down {
            return Err(Tried::Ended(-errno::EINVAL));
        }
        let id = listening.backlog.pop_front().ok_or(Tried::Waits)?;
        if let Some(end) = state.ends.get_mut(&id) {
            end.shard = shard;
        }
        Ok(id)
    }

    /// The socket of an accepted connection.
    pub(crate) fn accepted(&self, id: EndId) -> Box<dyn SimulatedSocket> {
        Box::new(StreamSocket::new(self, id))
    }

    /// Tells that a shard carries out the operations of an end from now on.
    pub(crate) fn belongs_to(&self, id: EndId, shard: usize) {
        if let Some(end) = self.state().ends.get_mut(&id) {
            end.shard = shard;
        }
    }

    /// Receives into `into`.
    pub(crate) fn try_receive(&self, id: EndId, into: &mut [u8]) -> Tried {
        let mut state = self.state();
        let state = &mut *state;
        let Some(end) = state.ends.get_mut(&id) else {
            return Tried::Ended(-errno::EBADF);
        };
        let shorten = state.habits.short_receives.then_some(&mut state.choices);
        let tried = end.receive(into, shorten);
        if let (Tried::Ended(1..), Some(peer)) = (&tried, end.peer) {
            // The window is open again.
            state.wake(peer);
        }
        tried
    }

    /// Sends as much as the window takes. Result: bytes taken, or how the operation has ended.
    pub(crate) fn try_send(&self, id: EndId, bytes: &[u8]) -> Result<usize, Tried> {
        self.state().send(id, bytes)
    }

    /// Ends the connection of an end as a lost machine does: nothing arrives any more in either
    /// direction, and nobody hears of it.
    pub(crate) fn cut(&self, id: EndId) {
        let mut state = self.state();
        let peer = state.ends.get(&id).and_then(|end| end.peer);
        for id in [Some(id), peer].into_iter().flatten() {
            if let Some(end) = state.ends.get_mut(&id) {
                end.is_cut = true;
            }
        }
    }

    /// Resets a connection: both ends see it, one of them after a latency.
    pub(crate) fn reset(&self, id: EndId) {
        self.state().reset(id);
    }

    /// Delays everything that is under way or will be sent to an end until a time. Then the pieces
    /// arrive one after the other.
    pub(crate) fn stall(&self, id: EndId, until: Nanos) {
        let mut state = self.state();
        let Some(end) = state.ends.get_mut(&id) else {
            return;
        };
        end.stalled_until = end.stalled_until.max(until);
        let pieces = end.take_under_way();
        for piece in pieces {
            state.under_way(id, piece);
        }
    }

    /// Ends of connections that are there, in the order in which they were made.
    pub(crate) fn connected(&self) -> Vec<EndId> {
        let state = self.state();
        let connected = |(id, end): (&EndId, &End)| (end.stage == Stage::Connected).then_some(*id);
        state.ends.iter().filter_map(connected).collect()
    }

    /// Number of ends that are not closed.
    pub(crate) fn ends(&self) -> usize {
        self.state().ends.len()
    }
}

impl State {
    fn note(&mut self, word: u64) {
        self.digest = (self.digest.rotate_left(5) ^ word).wrapping_mul(0x517C_C1B7_2722_0A95);
    }

    fn add(&mut self, end: End) -> EndId {
        let id = self.next_end;
        self.next_end += 1;
        self.ends.insert(id, end);
        id
    }

    fn plan(&mut self, at: Nanos, event: Event) {
        let number = self.next_event;
        self.next_event += 1;
        self.events.push(Reverse((at, number, event)));
    }

    fn latency(&mut self) -> Duration {
        let jitter = u64::try_from(self.habits.jitter.as_nanos()).expect("a short time");
        self.habits.latency + Duration::from_nanos(self.choices.below(jitter + 1))
    }

    /// The shard of an end may have something to do.
    fn wake(&mut self, id: EndId) {
        if let Some(end) = self.ends.get(&id) {
            self.ready.insert(end.shard);
        }
    }

    /// A request to connect arrives at its address.
    fn knock(&mut self, id: EndId) {
        let Some(end) = self.ends.get(&id) else {
            return;
        };
        let (local, remote) = (end.local, end.remote.expect("it connects"));
        let listening = self.listeners.get(&remote);
        let listening = listening.filter(|listening| !listening.is_shut_down);
        let Some(shard) = listening.map(|listening| listening.shard) else {
            if let Some(end) = self.ends.get_mut(&id) {
                end.stage = Stage::Refused;
            }
            return self.wake(id);
        };
        let mut far = End::new(shard, remote);
        (far.remote, far.peer, far.stage) = (Some(local), Some(id), Stage::Connected);
        let far = self.add(far);
        if let Some(end) = self.ends.get_mut(&id) {
            (end.peer, end.stage) = (Some(far), Stage::Connected);
        }
        if let Some(listening) = self.listeners.get_mut(&remote) {
            listening.backlog.push_back(far);
        }
        self.wake(id);
        self.wake(far);
    }

    /// Pieces arrive at an end.
    fn arrive(&mut self, id: EndId) {
        let now = self.now;
        let Some(end) = self.ends.get_mut(&id) else {
            return;
        };
        if end.is_cut {
            return;
        }
        let word = end.arrive(now);
        self.note(word);
        self.wake(id);
    }

    fn send(&mut self, id: EndId, bytes: &[u8]) -> Result<usize, Tried> {
        let end = self.ends.get(&id).ok_or(Tried::Ended(-errno::EBADF))?;
        end.may_send()?;
        let peer = end.peer.ok_or(Tried::Ended(-errno::ENOTCONN))?;
        let Some(far) = self.ends.get(&peer) else {
            // The peer has closed: it answers with a reset.
            self.reset(id);
            return Err(Tried::Ended(-errno::EPIPE));
        };
        let room = self.habits.window.saturating_sub(far.unread_bytes());
        let taken = room.min(bytes.len());
        let mut rest = &bytes[..taken];
        while !rest.is_empty() {
            let most = self.habits.piece.min(rest.len()) as u64;
            let length = usize::try_from(self.choices.between(1, most)).expect("a length");
            let (piece, later) = rest.split_at(length);
            self.under_way(peer, end::Piece::Bytes(piece.to_vec()));
            rest = later;
        }
        Ok(taken)
    }

    /// Puts a piece on its way to an end, behind all earlier ones.
    fn under_way(&mut self, to: EndId, piece: end::Piece) {
        let latency = self.latency();
        let now = self.now;
        let Some(end) = self.ends.get_mut(&to) else {
            return;
        };
        let at = end.push(now.max(end.stalled_until) + latency, piece);
        self.plan(at, Event::Arrive(to));
    }

    fn end_stream(&mut self, id: EndId, how: Shutdown) {
        let Some(end) = self.ends.get_mut(&id) else {
            return;
        };
        if end.stage != Stage::Connected {
            end.stage = Stage::Reset;
            return self.wake(id);
        }
        let sends = how != Shutdown::Read && !std::mem::replace(&mut end.is_sending_over, true);
        if how != Shutdown::Write {
            end.is_receiving_over = true;
        }
        let peer = end.peer;
        self.wake(id);
        if let (true, Some(peer)) = (sends, peer) {
            self.under_way(peer, end::Piece::End);
        }
    }

    /// Resets at this end now, and at the peer when the reset arrives there.
    fn reset(&mut self, id: EndId) {
        let Some(end) = self.ends.get_mut(&id) else {
            return;
        };
        end.reset();
        let peer = end.peer;
        self.wake(id);
        if let Some(peer) = peer {
            self.under_way(peer, end::Piece::Reset);
        }
    }

    /// The last handle of an end is gone. Unread bytes or `with_reset` reset the connection.
    fn close(&mut self, id: EndId, with_reset: bool) {
        let Some(end) = self.ends.get(&id) else {
            return;
        };
        if end.stage == Stage::Connected && (with_reset || end.has_unread()) {
            self.reset(id);
        } else {
            self.end_stream(id, Shutdown::Both);
        }
        self.ends.remove(&id);
    }

    /// Nobody listens any more: connections that wait are reset.
    fn close_listener(&mut self, address: SocketAddr) {
        let Some(listening) = self.listeners.remove(&address) else {
            return;
        };
        for id in listening.backlog {
            self.close(id, true);
        }
        self.ready.insert(listening.shard);
    }
}
