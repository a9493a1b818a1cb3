//! Requests in progress: the content of the slots, and the division of requests with more data than
//! the disk's longest transfer.
//!
//! A client that has not requested the block sizes may send requests of 32 MiB ("Size
//! constraints"). The server divides such a request into pieces of the disk's longest transfer.
//! Each piece has a slot like a request.
//!
//! - Pieces of a write begin one after the other, as the data arrives.
//! - Pieces of a read are sent as chunks in any order, if the client has agreed to structured
//!   replies.
//! - A simple reply, and the reply to a read with `NBD_CMD_FLAG_DF`, has one run of data. The disk
//!   reads these pieces one by one, and the connection does nothing else meanwhile.
//!
//! So no connection ever holds more than [`BYTES_MAX`] and one piece.

use super::reply::Origin;
use super::request::RequestHeader;
use super::{Command, Event, Server, State};
use crate::Slot;
use crate::nbd::spec::{Error, command_flag};

/// A request or a piece of a request that the owner is carrying out.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    /// Index of the request in `requests`.
    pub(super) request: u16,
    pub(super) offset: u64,
    /// Bytes of data to transfer, in either direction.
    pub(super) data_bytes: u32,
}

/// An unanswered request.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    pub(super) origin: Origin,
    pub(super) answer: Answer,
    /// Bytes of the whole request.
    pub(super) bytes: u64,
    /// Number of pieces in slots.
    pieces: u16,
    /// First error of any piece.
    pub(super) error: Option<Error>,
    /// True if a part of the reply's data has been sent.
    pub(super) answered_in_part: bool,
}

/// Form of a reply.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Answer {
    /// No data: a simple reply, or a chunk of an extended reply.
    #[default]
    Simple,
    /// One run of data.
    Data,
    /// Chunks of data.
    Chunks,
    /// One chunk of extents.
    Extents,
}

/// Part of a long request that has not begun yet.
#[derive(Clone, Copy)]
pub(super) struct Rest {
    request: u16,
    command: Command,
    offset: u64,
    bytes: u64,
}

impl Server {
    /// True while the owner has to answer a request before it takes an event or begins a piece.
    #[must_use]
    pub fn is_full(&self) -> bool {
        if matches!(self.state, State::Data(_)) {
            return false; // the data of a write has its slot already
        }
        match self.alone {
            Some(_) => self.in_progress() > 0,
            None => self.free.is_empty() || self.bytes_in_slots >= BYTES_MAX,
        }
    }

    /// Number of requests and pieces in progress.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Begins the next piece of a long request ([`Event::Long`]). Returns `None` if no piece is
    /// left, or if the data of the piece before is still to come. The owner calls this before it
    /// takes a further event, and not while the connection is full.
    pub fn piece(&mut self) -> Option<Event> {
        if matches!(self.state, State::Data(_) | State::Over) {
            return None;
        }
        let rest = self.rest.take()?;
        let bytes = rest.bytes.min(self.piece_bytes());
        if rest.bytes > bytes {
            self.rest = Some(Rest {
                offset: rest.offset + bytes,
                bytes: rest.bytes - bytes,
                ..rest
            });
        }
        Some(self.begin_piece(rest.request, rest.command, rest.offset, bytes))
    }

    pub(super) fn begin(&mut self, asked: &RequestHeader, command: Command) -> Event {
        let number = self
            .free_requests
            .pop()
            .expect("each request but the last has a slot, and there is a free one");
        let (offset, bytes) = (asked.origin.offset, asked.length);
        let is_long = command.moves_data() && bytes > self.piece_bytes();
        let in_one = asked.flags & command_flag::DF != 0;
        let answer = match command {
            Command::Read if self.chosen.structured && !(is_long && in_one) => Answer::Chunks,
            Command::Read => Answer::Data,
            Command::BlockStatus { .. } => Answer::Extents,
            _ => Answer::Simple,
        };
        self.requests[usize::from(number)] = Progress {
            origin: asked.origin,
            answer,
            bytes,
            ..Progress::default()
        };
        if !is_long {
            return self.begin_piece(number, command, offset, bytes);
        }
        self.alone = (answer == Answer::Data).then_some(number);
        self.rest = Some(Rest {
            request: number,
            command,
            offset,
            bytes,
        });
        Event::Long
    }

    fn begin_piece(&mut self, request: u16, command: Command, offset: u64, bytes: u64) -> Event {
        let index = self
            .free
            .pop()
            .expect("the owner takes no event while the connection is full");
        let slot = Slot(index);
        self.requests[usize::from(request)].pieces += 1;
        let data = if command.moves_data() { bytes } else { 0 };
        self.bytes_in_slots += data;
        self.slots[usize::from(index)] = Some(Piece {
            request,
            offset,
            // The data fits: a piece with data is at most the disk's longest transfer.
            data_bytes: u32::try_from(data).unwrap_or(u32::MAX),
        });
        if matches!(command, Command::Write { .. }) && bytes > 0 {
            self.state = State::Data(slot);
        }
        Event::Command {
            slot,
            command,
            offset,
            bytes,
        }
    }

    /// Removes a piece from its slot.
    pub(super) fn end_piece(&mut self, slot: Slot) -> Option<Piece> {
        let piece = self.slots.get_mut(usize::from(slot.0))?.take()?;
        self.free.push(slot.0);
        self.requests[usize::from(piece.request)].pieces -= 1;
        self.bytes_in_slots -= u64::from(piece.data_bytes);
        Some(piece)
    }

    /// Frees a request if its last piece has ended. Returns false if other pieces are left.
    pub(super) fn end_request(&mut self, number: u16) -> bool {
        let goes_on = self.rest.is_some_and(|rest| rest.request == number);
        let progress = self.requests[usize::from(number)];
        if goes_on || progress.pieces > 0 {
            return false;
        }
        self.free_requests.push(number);
        self.alone.take_if(|alone| *alone == number);
        true
    }

    /// Drops the part of a request that has not begun yet.
    pub(super) fn drop_rest(&mut self, number: u16) {
        self.rest.take_if(|rest| rest.request == number);
    }

    /// Longest piece: the disk's longest transfer, in whole blocks.
    fn piece_bytes(&self) -> u64 {
        let (most, block) = (self.export.most_bytes, self.export.block_bytes);
        (most - most % block).max(block).into()
    }
}

/// Bytes of data of the reads and writes in slots at which the connection is full: 128 requests of
/// 64 KiB.
const BYTES_MAX: u64 = 8 << 20;
