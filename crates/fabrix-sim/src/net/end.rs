//! One end of a simulated connection.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use fabrix_rt::{Nanos, errno};

use super::{EndId, ShardId, Tried};
use crate::capture::Segment;
use crate::choices::Choices;
use crate::trace;

/// One end of a connection, or of an attempt to connect.
#[derive(Debug)]
pub(super) struct End {
    /// The shard that carries its operations out.
    pub(super) shard: ShardId,
    pub(super) local: SocketAddr,
    pub(super) remote: Option<SocketAddr>,
    pub(super) peer: Option<EndId>,
    pub(super) stage: Stage,
    /// Pieces on their way to this end, with the time of their arrival.
    under_way: VecDeque<(Nanos, Piece)>,
    /// Bytes that were sent to this end and not received, and how many of them have arrived.
    unread: VecDeque<u8>,
    arrived: usize,
    /// The peer sends no more, and all that it has sent has arrived.
    is_at_end: bool,
    pub(super) is_sending_over: bool,
    pub(super) is_receiving_over: bool,
    pub(super) lingers_zero: bool,
    pub(super) is_cut: bool,
    pub(super) stalled_until: Nanos,
    /// The same for new connections on the path of this one.
    pub(super) path_stalled_until: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    New,
    Connecting,
    Refused,
    Connected,
    Reset,
}

/// A part of a stream that arrives at once.
#[derive(Debug)]
pub(super) enum Piece {
    /// So many bytes.
    Bytes(usize),
    End,
    Reset,
}

impl End {
    pub(super) fn new(shard: ShardId, local: SocketAddr) -> Self {
        Self {
            shard,
            local,
            remote: None,
            peer: None,
            stage: Stage::New,
            under_way: VecDeque::new(),
            unread: VecDeque::new(),
            arrived: 0,
            is_at_end: false,
            is_sending_over: false,
            is_receiving_over: false,
            lingers_zero: false,
            is_cut: false,
            stalled_until: Nanos(0),
            path_stalled_until: Nanos(0),
        }
    }

    /// The path on which bytes come: the address of this end, and the machine that sends them.
    pub(super) fn path(&self) -> (SocketAddr, Option<IpAddr>) {
        (self.local, self.remote.map(|remote| remote.ip()))
    }

    /// Bytes that count against the sender's window.
    pub(super) fn unread_bytes(&self) -> usize {
        self.unread.len()
    }

    /// Adds bytes that were sent. Their pieces follow.
    pub(super) fn add_unread(&mut self, bytes: &[u8]) {
        self.unread.extend(bytes);
    }

    pub(super) fn has_unread(&self) -> bool {
        self.arrived > 0
    }

    /// Adds a piece that arrives at `at`, or with the piece before it. Result: that time.
    pub(super) fn push(&mut self, at: Nanos, piece: Piece) -> Nanos {
        let last = self.under_way.back().map_or(Nanos(0), |(at, _)| *at);
        let at = at.max(last);
        self.under_way.push_back((at, piece));
        at
    }

    /// The pieces under way, which have no time any more.
    pub(super) fn take_under_way(&mut self) -> Vec<Piece> {
        self.under_way.drain(..).map(|(_, piece)| piece).collect()
    }

    /// Takes the pieces that are due.
    pub(super) fn arrive(&mut self, now: Nanos) {
        while self.under_way.front().is_some_and(|(at, _)| *at <= now) {
            match self.under_way.pop_front() {
                Some((_, Piece::Bytes(length))) => {
                    self.note_bytes(length);
                    self.arrived += length;
                }
                Some((_, Piece::End)) => {
                    self.note_segment(Segment::Fin);
                    self.is_at_end = true;
                }
                Some((_, Piece::Reset)) => {
                    self.note_segment(Segment::Rst);
                    self.reset();
                }
                None => {}
            }
        }
    }

    /// Records that the next bytes have arrived.
    fn note_bytes(&self, length: usize) {
        if trace::is_on() {
            let next = self.unread.range(self.arrived..self.arrived + length);
            let next: Vec<u8> = next.copied().collect();
            self.note_segment(Segment::Bytes(&next));
        }
    }

    /// Records that a segment from the peer has arrived.
    pub(super) fn note_segment(&self, segment: Segment<'_>) {
        if let Some(remote) = self.remote {
            trace::note_segment(remote, self.local, segment);
        }
    }

    pub(super) fn reset(&mut self) {
        self.stage = Stage::Reset;
        self.arrived = 0;
        self.unread.clear();
        self.under_way.clear();
    }

    /// Receives at least one byte. `shorten`: draws how much of what is there.
    pub(super) fn receive(&mut self, into: &mut [u8], shorten: Option<&mut Choices>) -> Tried {
        if self.stage == Stage::Reset {
            return Tried::Ended(-errno::ECONNRESET);
        }
        if self.is_receiving_over {
            return Tried::Ended(0);
        }
        let mut length = self.arrived.min(into.len());
        if length == 0 {
            return match self.is_at_end {
                true => Tried::Ended(0),
                false => Tried::Waits,
            };
        }
        if let Some(choices) = shorten
            && choices.once_in(4)
        {
            length = 1 + choices.index(length);
        }
        let (front, back) = self.unread.as_slices();
        let first = front.len().min(length);
        into[..first].copy_from_slice(&front[..first]);
        into[first..length].copy_from_slice(&back[..length - first]);
        self.unread.drain(..length);
        self.arrived -= length;
        Tried::Ended(i32::try_from(length).expect("a receive is short"))
    }

    pub(super) fn may_send(&self) -> Result<(), Tried> {
        match self.stage {
            Stage::Reset => Err(Tried::Ended(-errno::ECONNRESET)),
            Stage::Connected if self.is_sending_over => Err(Tried::Ended(-errno::EPIPE)),
            Stage::Connected => Ok(()),
            Stage::New | Stage::Connecting | Stage::Refused => Err(Tried::Ended(-errno::ENOTCONN)),
        }
    }
}
