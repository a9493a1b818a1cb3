//! The server's side of one connection: negotiation, then requests in any number up to the slots,
//! answered in any order.
//!
//! NBD gives a server no way to say "not so fast". While the connection is full
//! ([`Server::is_full`]) the owner takes no further event until it has answered one. A request that
//! cannot be carried out is answered with its error here. The data that follows a refused request
//! is skipped before. What makes the stream unreadable (a wrong magic, more data than anybody is
//! allowed) ends the connection.
//!
//! How requests arrive is in `server/request.rs`, which of them can be carried out in
//! `server/check.rs`. A request with more data than the disk's longest transfer is carried out in
//! pieces: `server/pieces.rs`. How requests are answered is in `server/reply.rs`.
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

/// What is to be done; offsets and lengths in bytes, multiples of the block, within the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read.
    Read,
    /// Write.
    Write {
        /// Answer when it is on the medium.
        durable: bool,
    },
    /// Answer when all that was answered is on the medium.
    Flush,
    /// Give space back.
    Trim {
        /// Answer when that is on the medium.
        durable: bool,
    },
    /// Write zeroes.
    WriteZeroes {
        /// The space may be given back.
        may_trim: bool,
        /// Answer when they are on the medium.
        durable: bool,
    },
    /// The client is going to read this: a hint, which changes nothing but the speed.
    Cache,
    /// Say which parts hold something ([`Server::tell_extents`]).
    BlockStatus {
        /// The first part only.
        one: bool,
    },
}

impl Command {
    /// Whether its data travels, in either direction.
    #[must_use]
    pub const fn moves_data(self) -> bool {
        matches!(self, Self::Read | Self::Write { .. })
    }

    /// Whether it changes what is on the disk.
    const fn writes(self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::Trim { .. } | Self::WriteZeroes { .. }
        )
    }
}

/// A part of a range that is kept alike: an extent of `base:allocation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// How many bytes.
    pub bytes: u64,
    /// How: [`state`](super::spec::state).
    pub flags: u32,
}

/// What the machine tells its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Negotiation is over, requests come.
    Ready,
    /// A request with more data than the disk's longest transfer has come. [`Server::piece`] gives
    /// its pieces.
    Long,
    /// A request or a piece of one has begun; a write's data is still to come, and goes into the
    /// slot's buffer if it has one.
    Command {
        /// Where it is in progress, until it is answered.
        slot: Slot,
        /// What is to be done.
        command: Command,
        /// First byte.
        offset: u64,
        /// How many bytes; zero: nothing is to be done. A read or a write has the disk's longest
        /// transfer at most.
        bytes: u64,
    },
    /// The data of a write has arrived.
    Data {
        /// Whose.
        slot: Slot,
    },
    /// The client leaves: what is in progress should still be answered, nothing more comes.
    Goodbye,
}

/// One connection.
pub struct Server {
    export: Export,
    state: State,
    chosen: Chosen,
    /// What is with the owner: requests that are one piece, and pieces of long ones.
    slots: Vec<Option<Piece>>,
    free: Vec<u16>,
    /// Requests that were not answered yet. Each but the last has a piece in a slot.
    requests: Vec<Progress>,
    free_requests: Vec<u16>,
    /// What of the last request has not begun yet.
    rest: Option<Rest>,
    /// A long read whose data is sent in one run: nothing else may be answered before its end.
    alone: Option<u16>,
    /// Bytes of the reads and writes in slots.
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
    /// The data of a request that is refused; the answer follows it.
    SkipData {
        left: u32,
        origin: Origin,
        error: Error,
    },
    Over,
}

impl Server {
    /// A connection with so many requests in progress at most. Say [`greet`](Self::greet) first.
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

    /// The same with a client that knows everything already and begins at once: the kernel's.
    /// Replies are simple.
    #[must_use]
    pub fn begun(export: Export, slots: u16) -> Self {
        Self {
            state: State::Request,
            ..Self::new(export, slots)
        }
    }

    /// The disk has another size. Requests in progress go on.
    pub fn resized(&mut self, bytes: u64) {
        self.export.bytes = bytes;
    }

    /// What a server says before it is asked.
    pub fn greet<S: Sink>(&self, out: &mut S) {
        greet(out);
    }

    /// Whether the client has not begun yet.
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

    /// NBD has no goodbye for a client that breaks the rules: the connection is closed.
    fn terminate<S: Sink>(&mut self, _violation: &Violation, _out: &mut S) {
        self.state = State::Over;
    }
}

/// The longest data of an option that is looked at: names have at most 4,096 bytes.
const OPTION_BYTES_MAX: u32 = 8 << 10;
const SKIP_AT_ONCE: usize = 4 << 10;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
