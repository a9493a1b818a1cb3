//! What happens in the network: connections begin, pieces arrive, and connections end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use fabrix_rt::{Nanos, errno};

use super::end::{self, End, Stage};
use super::threads::Threads;
use super::{EndId, Habits, ShardId, Tried};
use crate::capture::Segment;
use crate::choices::Choices;
use crate::trace;

#[derive(Debug)]
pub(crate) struct State {
    pub(super) now: Nanos,
    pub(super) habits: Habits,
    pub(super) choices: Choices,
    pub(super) events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    pub(super) next_event: u64,
    pub(super) next_port: u16,
    pub(super) ends: Ends,
    pub(super) listeners: BTreeMap<SocketAddr, Listening>,
    pub(super) next_number: ShardId,
    /// Shards whose operations may go on, by number.
    pub(super) ready: Vec<bool>,
    pub(super) threads: Threads,
    /// Changes with every event: two runs of one seed agree in it.
    pub(super) digest: u64,
}

/// The ends that are not closed. The index is the number.
#[derive(Debug, Default)]
pub(super) struct Ends(Vec<Option<End>>);

impl Ends {
    pub(super) fn add(&mut self, end: End) -> EndId {
        self.0.push(Some(end));
        self.0.len() - 1
    }

    pub(super) fn get(&self, id: EndId) -> Option<&End> {
        self.0.get(id)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: EndId) -> Option<&mut End> {
        self.0.get_mut(id)?.as_mut()
    }

    fn remove(&mut self, id: EndId) {
        self.0[id] = None;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (EndId, &End)> {
        let ends = self.0.iter().enumerate();
        ends.filter_map(|(id, end)| Some((id, end.as_ref()?)))
    }
}

#[derive(Debug, Default)]
pub(super) struct Listening {
    pub(super) shard: ShardId,
    pub(super) backlog: VecDeque<EndId>,
    pub(super) is_shut_down: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The first pieces under way to this end arrive.
    Arrive(EndId),
    /// The request to connect arrives.
    Knock(EndId),
    /// The time for which a thread waits, or an operation of a file, is over.
    Wake(ShardId),
}

impl State {
    /// The time.
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// When the next event is due.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn note(&mut self, word: u64) {
        self.digest = (self.digest.rotate_left(5) ^ word).wrapping_mul(0x517C_C1B7_2722_0A95);
    }

    pub(super) fn plan(&mut self, at: Nanos, event: Event) {
        let number = self.next_event;
        self.next_event += 1;
        self.events.push(Reverse((at, number, event)));
    }

    pub(super) fn latency(&mut self) -> Duration {
        let jitter = u64::try_from(self.habits.jitter.as_nanos()).expect("a short time");
        self.habits.latency + Duration::from_nanos(self.choices.below(jitter + 1))
    }

    /// The shard of an end may have something to do.
    pub(super) fn wake(&mut self, id: EndId) {
        if let Some(shard) = self.ends.get(id).map(|end| end.shard) {
            self.wake_shard(shard);
        }
    }

    /// Something of a shard goes on at a time.
    pub(crate) fn wake_shard_at(&mut self, shard: ShardId, at: Nanos) {
        self.plan(at, Event::Wake(shard));
    }

    pub(crate) fn wake_shard(&mut self, shard: ShardId) {
        if self.ready.len() <= shard {
            self.ready.resize(shard + 1, false);
        }
        self.ready[shard] = true;
        self.threads.wake(shard);
    }

    /// Whether operations of a shard may go on.
    pub(crate) fn is_ready(&self, shard: ShardId) -> bool {
        self.ready.get(shard).is_some_and(|is_ready| *is_ready)
    }

    /// Whether operations of a shard may go on. Forgets it.
    pub(crate) fn take_ready(&mut self, shard: ShardId) -> bool {
        self.ready.get_mut(shard).is_some_and(std::mem::take)
    }

    /// A request to connect arrives at its address.
    pub(super) fn knock(&mut self, id: EndId) {
        let Some(end) = self.ends.get(id) else {
            return;
        };
        let (local, remote) = (end.local, end.remote.expect("it connects"));
        let listening = self.listeners.get(&remote);
        let listening = listening.filter(|listening| !listening.is_shut_down);
        let Some(shard) = listening.map(|listening| listening.shard) else {
            trace::note_segment(local, remote, Segment::Syn);
            trace::note_segment(remote, local, Segment::Rst);
            if let Some(end) = self.ends.get_mut(id) {
                end.stage = Stage::Refused;
            }
            return self.wake(id);
        };
        trace::note_segment(local, remote, Segment::Syn);
        trace::note_segment(remote, local, Segment::Syn);
        trace::note_segment(local, remote, Segment::Bytes(&[]));
        let mut far = End::new(shard, remote);
        (far.remote, far.peer, far.stage) = (Some(local), Some(id), Stage::Connected);
        let far = self.ends.add(far);
        self.stall_with_path(far);
        if let Some(end) = self.ends.get_mut(id) {
            (end.peer, end.stage) = (Some(far), Stage::Connected);
        }
        if let Some(listening) = self.listeners.get_mut(&remote) {
            listening.backlog.push_back(far);
        }
        self.wake(id);
        self.wake(far);
    }

    /// The ends whose bytes come on the path of this one.
    pub(super) fn on_path_of(&self, id: EndId) -> Vec<EndId> {
        let path = self.ends.get(id).map(End::path);
        let ends = self.ends.iter();
        let on_path = ends.filter(|(_, end)| Some(end.path()) == path);
        on_path.map(|(id, _)| id).collect()
    }

    /// A new connection stalls as long as the earlier ones on its path.
    fn stall_with_path(&mut self, id: EndId) {
        let on_path = self.on_path_of(id).into_iter();
        let stalls = on_path.filter_map(|id| Some(self.ends.get(id)?.path_stalled_until));
        let until = stalls.max().unwrap_or_default();
        if let Some(end) = self.ends.get_mut(id) {
            (end.stalled_until, end.path_stalled_until) = (until, until);
        }
    }

    /// Pieces arrive at an end.
    pub(super) fn arrive(&mut self, id: EndId) {
        let now = self.now;
        let Some(end) = self.ends.get_mut(id) else {
            return;
        };
        if end.is_cut {
            return;
        }
        end.arrive(now);
        self.wake(id);
    }

    /// Sends as much as the window takes. Result: bytes taken, or how the operation has ended.
    pub(crate) fn send(&mut self, id: EndId, bytes: &[u8]) -> Result<usize, Tried> {
        let end = self.ends.get(id).ok_or(Tried::Ended(-errno::EBADF))?;
        end.may_send()?;
        let peer = end.peer.ok_or(Tried::Ended(-errno::ENOTCONN))?;
        let Some(far) = self.ends.get(peer) else {
            // The peer has closed. Its answer is a reset, which comes behind what it has sent.
            self.under_way(id, end::Piece::Reset);
            return Ok(bytes.len());
        };
        let room = self.habits.window.saturating_sub(far.unread_bytes());
        let taken = &bytes[..room.min(bytes.len())];
        self.note(word_of(taken));
        if let Some(far) = self.ends.get_mut(peer) {
            far.add_unread(taken);
        }
        let mut rest = taken.len();
        while rest > 0 {
            // The smallest choice is the longest piece, which costs the fewest events.
            let most = self.habits.piece.min(rest);
            let length = most - self.choices.index(most);
            self.under_way(peer, end::Piece::Bytes(length));
            rest -= length;
        }
        Ok(taken.len())
    }

    /// Puts a piece on its way to an end, behind all earlier ones.
    pub(super) fn under_way(&mut self, to: EndId, piece: end::Piece) {
        let latency = self.latency();
        let now = self.now;
        let Some(end) = self.ends.get_mut(to) else {
            return;
        };
        let at = end.push(now.max(end.stalled_until) + latency, piece);
        self.plan(at, Event::Arrive(to));
    }

    pub(super) fn end_stream(&mut self, id: EndId, how: Shutdown) {
        let Some(end) = self.ends.get_mut(id) else {
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
    pub(super) fn reset(&mut self, id: EndId) {
        let Some(end) = self.ends.get_mut(id) else {
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
    pub(super) fn close(&mut self, id: EndId, with_reset: bool) {
        let Some(end) = self.ends.get(id) else {
            return;
        };
        if end.stage == Stage::Connected && (with_reset || end.has_unread()) {
            self.reset(id);
        } else {
            self.end_stream(id, Shutdown::Both);
        }
        self.ends.remove(id);
    }

    /// Nobody listens any more: connections that wait are reset.
    pub(super) fn close_listener(&mut self, address: SocketAddr) {
        let Some(listening) = self.listeners.remove(&address) else {
            return;
        };
        for id in listening.backlog {
            self.close(id, true);
        }
        self.wake_shard(listening.shard);
    }
}

/// A number that depends on all bytes.
fn word_of(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0, |word: u64, chunk| {
        let mut eight = [0; 8];
        eight[..chunk.len()].copy_from_slice(chunk);
        (word.rotate_left(5) ^ u64::from_le_bytes(eight)).wrapping_mul(0x517C_C1B7_2722_0A95)
    })
}
