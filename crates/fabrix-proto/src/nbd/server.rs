//! Server side of one NBD connection: negotiation, then requests. Up to one request per slot is in
//! progress. Replies are sent in any order.
//!
//! NBD has no flow control. While the connection is full ([`Server::is_full`]) the owner takes no
//! further event until it has answered a request. The machine itself answers a request that cannot
//! be carried out with an error, after it has skipped the request's data. An unreadable stream (a
//! wrong magic, more data than the limit) ends the connection.
//!
//! `server/request.rs` reads requests, `server/check.rs` checks them, `server/pieces.rs` divides
//! requests with more data than the disk's longest transfer, and `server/reply.rs` writes replies.
//! Source: "The NBD protocol", sections "Newstyle negotiation" and "Transmission".

mod check;
mod pieces;
mod reply;
mod request;

use alloc::vec::Vec;

use zerocopy::FromBytes;

pub use super::options::Export;
use super::options::{Chosen, HANDSHAKE_FLAGS, Next, REQUEST_BYTES_MAX, answer, greet, too_long};
use super::spec::{Error, ExtendedRequest, OPTION_MAGIC, OptionHeader, Request};
use crate::{Breach, Consumed, Machine, Pass, Sink, Slot, Violation, Want};
use pieces::{Piece, Progress, Rest};
pub use reply::EXTENTS_MAX;
use reply::Origin;

/// A command for the disk. Offsets and lengths are in bytes, multiples of the block size, and
/// within the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read.
    Read,
    /// Write.
    Write {
        /// True if the reply has to wait until the data is on the medium (FUA).
        durable: bool,
    },
    /// Flush: the reply has to wait until every answered write is on the medium.
    Flush,
    /// Deallocate space.
    Trim {
        /// True if the reply has to wait until the change is on the medium (FUA).
        durable: bool,
    },
    /// Write zeroes.
    WriteZeroes {
        /// True if the disk may deallocate the space.
        may_trim: bool,
        /// True if the reply has to wait until the zeroes are on the medium (FUA).
        durable: bool,
    },
    /// Prefetch a range that the client will read. A hint: only the speed may change.
    Cache,
    /// Report which parts of a range hold data ([`Server::tell_extents`]).
    BlockStatus {
        /// True if the client wants the first extent only.
        one: bool,
    },
}

impl Command {
    /// True if the command transfers data in either direction.
    #[must_use]
    pub const fn moves_data(self) -> bool {
        matches!(self, Self::Read | Self::Write { .. })
    }

    /// True if the command changes the disk's content.
    const fn writes(self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::Trim { .. } | Self::WriteZeroes { .. }
        )
    }
}

/// An extent of `base:allocation`: a range whose bytes share one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes.
    pub bytes: u64,
    /// State: [`state`](super::spec::state).
    pub flags: u32,
}

/// Events for the owner of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Negotiation has ended. Requests follow.
    Ready,
    /// A request with more data than the disk's longest transfer has arrived. [`Server::piece`]
    /// returns its pieces.
    Long,
    /// A request, or a piece of a long request, has begun. The data of a write is still to come. It
    /// goes into the slot's buffer if the slot has one.
    Command {
        /// Slot of the request until its reply.
        slot: Slot,
        /// Command to carry out.
        command: Command,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes, at most the disk's longest transfer for a read or a write. Zero means
        /// that there is nothing to do.
        bytes: u64,
    },
    /// The data of a write has arrived.
    Data {
        /// Slot of the write.
        slot: Slot,
    },
    /// The client disconnects. The owner should still answer the requests in progress. No further
    /// request comes.
    Goodbye,
}

/// One connection.
pub struct Server {
    export: Export,
    state: State,
    chosen: Chosen,
    /// Requests and pieces of long requests that the owner is carrying out, by slot.
    slots: Vec<Option<Piece>>,
    free: Vec<u16>,
    /// Unanswered requests. Each of them but the last has a piece in a slot.
    requests: Vec<Progress>,
    free_requests: Vec<u16>,
    /// Part of the last request that has not begun yet.
    rest: Option<Rest>,
    /// A long read whose data is sent in one run. No other request is answered before its end.
    alone: Option<u16>,
    /// Bytes of data of the reads and writes in slots.
    bytes_in_slots: u64,
}

#[derive(Clone, Copy)]
enum State {
    ClientFlags,
    Option,
    OptionData {
        number: u32,
        bytes: u32,
    },
    SkipOption {
        number: u32,
        left: u32,
    },
    Request,
    Data(Slot),
    /// Data of a refused request is skipped. The error reply follows.
    SkipData {
        left: u32,
        origin: Origin,
        error: Error,
    },
    Over,
}

impl Server {
    /// A connection with at most `slots` requests in progress. The owner calls
    /// [`greet`](Self::greet) first.
    #[must_use]
    pub fn new(export: Export, slots: u16) -> Self {
        Self {
            export,
            state: State::ClientFlags,
            chosen: Chosen::default(),
            slots: (0..slots).map(|_| None).collect(),
            free: (0..slots).rev().collect(),
            requests: (0..slots).map(|_| Progress::default()).collect(),
            free_requests: (0..slots).rev().collect(),
            rest: None,
            alone: None,
            bytes_in_slots: 0,
        }
    }

    /// A connection that starts in the transmission phase, for the kernel's client: the kernel
    /// knows the export already. Replies are simple.
    #[must_use]
    pub fn begun(export: Export, slots: u16) -> Self {
        Self {
            state: State::Request,
            ..Self::new(export, slots)
        }
    }

    /// Sets a new size of the disk. Requests in progress continue.
    pub fn resized(&mut self, bytes: u64) {
        self.export.bytes = bytes;
    }

    /// Sends the server's greeting.
    pub fn greet<S: Sink>(&self, out: &mut S) {
        greet(out);
    }

    /// True while the client still negotiates.
    #[must_use]
    pub fn negotiates(&self) -> bool {
        matches!(
            self.state,
            State::ClientFlags
                | State::Option
                | State::OptionData { .. }
                | State::SkipOption { .. }
        )
    }

    fn after(&mut self, next: Next) -> Option<Event> {
        let event;
        (self.state, event) = match next {
            Next::Option => (State::Option, None),
            Next::Transmission => (State::Request, Some(Event::Ready)),
            Next::Over => (State::Over, Some(Event::Goodbye)),
        };
        event
    }

    fn client_flags(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let flags = bytes
            .iter()
            .fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
        if flags & !u32::from(HANDSHAKE_FLAGS) != 0 {
            let violation = Violation::new(Breach::Unsupported, 0, "unknown flags of a client");
            return Err(violation.found(flags.into()));
        }
        self.chosen.client_flags = u16::try_from(flags).unwrap_or(0);
        self.state = State::Option;
        Ok(())
    }

    fn option<S: Sink>(&mut self, bytes: &[u8], out: &mut S) -> Result<Option<Event>, Violation> {
        let header = OptionHeader::ref_from_bytes(bytes);
        let header = header.ok().filter(|it| it.magic.get() == OPTION_MAGIC);
        let Some(header) = header else {
            let violation =
                Violation::new(Breach::HeaderField, 0, "an option begins with IHAVEOPT");
            return Err(violation.with_header(bytes));
        };
        let (number, bytes) = (header.option.get(), header.length.get());
        if bytes > REQUEST_BYTES_MAX {
            let violation = Violation::new(Breach::Limit, 12, "an option is longer than 32 MiB");
            return Err(violation.found(bytes.into()));
        }
        self.state = match bytes {
            0 => return Ok(self.option_data(number, &[], out)),
            1..=OPTION_BYTES_MAX => State::OptionData { number, bytes },
            left => State::SkipOption { number, left },
        };
        Ok(None)
    }

    fn option_data<S: Sink>(&mut self, number: u32, data: &[u8], out: &mut S) -> Option<Event> {
        let next = answer(&self.export, &mut self.chosen, number, data, out);
        self.after(next)
    }
}

impl Machine for Server {
    type Event = Event;

    fn want(&self) -> Want {
        let bytes = match self.state {
            State::ClientFlags => 4,
            State::Option => size_of::<OptionHeader>(),
            State::OptionData { bytes, .. } => bytes as usize,
            State::SkipOption { left, .. } | State::SkipData { left, .. } => {
                (left as usize).min(SKIP_AT_ONCE)
            }
            State::Request if self.chosen.extended => size_of::<ExtendedRequest>(),
            State::Request => size_of::<Request>(),
            State::Data(slot) => {
                let bytes = self.slots[usize::from(slot.0)].map_or(0, |piece| piece.data_bytes);
                return Want::Payload {
                    slot,
                    offset: 0,
                    bytes,
                    pass: Pass::None,
                };
            }
            State::Over => return Want::Closed,
        };
        Want::Header { bytes }
    }

    fn header<S: Sink>(
        &mut self,
        arrived: &[u8],
        out: &mut S,
    ) -> Result<Consumed<Event>, Violation> {
        let bytes = self.want().header_bytes();
        let header = &arrived[..bytes];
        let skipped = u32::try_from(bytes).unwrap_or(u32::MAX);
        let event = match self.state {
            State::ClientFlags => self.client_flags(header).map(|()| None)?,
            State::Option => self.option(header, out)?,
            State::OptionData { number, .. } => self.option_data(number, header, out),
            State::SkipOption { number, left } => {
                self.state = match left.saturating_sub(skipped) {
                    0 => {
                        too_long(number, out);
                        State::Option
                    }
                    left => State::SkipOption { number, left },
                };
                None
            }
            State::Request => self.request(header, out)?,
            State::SkipData {
                left,
                origin,
                error,
            } => {
                self.skip_data(left.saturating_sub(skipped), origin, error, out);
                None
            }
            State::Data(_) | State::Over => None,
        };
        Ok(Consumed { bytes, event })
    }

    fn payload<S: Sink>(&mut self, _: bool, _: &mut S) -> Result<Option<Event>, Violation> {
        let State::Data(slot) = self.state else {
            return Ok(None);
        };
        self.state = State::Request;
        Ok(Some(Event::Data { slot }))
    }

    /// Closes the connection: NBD has no message for a client that breaks the protocol.
    fn terminate<S: Sink>(&mut self, _violation: &Violation, _out: &mut S) {
        self.state = State::Over;
    }
}

/// Longest option data that the machine reads. Names have at most 4,096 bytes.
const OPTION_BYTES_MAX: u32 = 8 << 10;
const SKIP_AT_ONCE: usize = 4 << 10;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
