//! Messages to the target, and the windows to the data of commands.

use fabrix_proto::Slot;
use fabrix_proto::iscsi::framing::Piece;
use fabrix_proto::iscsi::iser::HEADERS_BYTES;
use fabrix_proto::iscsi::iser::initiator::REQUEST_BYTES_MAX;
use fabrix_proto::iscsi::iser::initiator::framing::{Access as Reach, Requests};
use fabrix_proto::iscsi::iser::message::RemoteMemory;
use sys_rdma::{Access, Unsent, Why};

use crate::rdma::{Exposed, HostPair, UNREGISTERED};
use crate::stream::Ended;

/// The queue pair, and the data of all slots.
pub(super) struct Wire<P> {
    /// None: the connection is closed.
    pub(super) pair: Option<P>,
    slots: Vec<Exposed>,
    /// Messages in progress that are no commands.
    pub(super) others: u32,
    /// Memory for the next message.
    message: Vec<u8>,
    /// Why the connection cannot go on. Told with the next event or flush.
    failure: Option<&'static str>,
}

/// What a token is of.
pub(super) enum Ends {
    /// A message that is no command.
    Message,
    /// The message of a slot's command.
    Command(Slot),
    /// The request that closes a slot's window.
    Window(Slot),
}

impl<P: HostPair> Wire<P> {
    pub(super) fn new(pair: P, slots: u16) -> Self {
        Self {
            pair: Some(pair),
            slots: (0..slots).map(|_| Exposed::default()).collect(),
            others: 0,
            message: Vec::with_capacity(REQUEST_BYTES_MAX),
            failure: None,
        }
    }

    /// The data of a slot.
    pub(super) fn slot(&mut self, slot: Slot) -> &mut Exposed {
        &mut self.slots[usize::from(slot.0)]
    }

    /// Errors: the connection cannot go on.
    pub(super) fn check(&self) -> Result<(), Ended> {
        self.failure.map_or(Ok(()), |why| Err(Ended::rdma(&why)))
    }

    pub(super) fn flush(&mut self) -> Result<(), Ended> {
        self.check()?;
        let flushed = self.pair.as_mut().map_or(Ok(()), P::flush);
        flushed.map_err(|error| Ended::rdma(&error))
    }

    pub(super) fn close(&mut self) {
        if let Some(pair) = self.pair.take() {
            Exposed::close_all(&mut self.slots, pair);
        }
    }

    /// Notes that a request was not begun. A closed connection needs none.
    fn not_begun(&mut self, why: Why) {
        match why {
            Why::Closed => {}
            Why::Unregistered => self.failure = Some(UNREGISTERED),
            Why::Full => self.failure = Some(FULL),
        }
    }

    fn not_sent(&mut self, unsent: &Unsent) {
        self.not_begun(unsent.why);
    }
}

impl<P: HostPair> Requests for &mut Wire<P> {
    fn send(&mut self, headers: &[u8; HEADERS_BYTES], segment: &[u8]) {
        self.message.clear();
        self.message.extend_from_slice(headers);
        self.message.extend_from_slice(segment);
        if self.message.len() > REQUEST_BYTES_MAX {
            self.failure = Some(TOO_LONG);
        }
        if self.others == OTHER_MESSAGES {
            self.failure = Some(FULL);
        }
        let Some(pair) = self.pair.as_mut().filter(|_| self.failure.is_none()) else {
            return;
        };
        match pair.send(&self.message, None, MESSAGE) {
            Ok(()) => self.others += 1,
            Err(unsent) => self.not_sent(&unsent),
        }
    }

    fn send_command(&mut self, slot: Slot, headers: &[u8; HEADERS_BYTES], immediate: u32) {
        let data = match immediate {
            0 => None,
            bytes => self.slots[usize::from(slot.0)].outgoing(0, bytes),
        };
        let Some(pair) = &mut self.pair else {
            return;
        };
        let sent = match data {
            Some(data) => pair.send_with(headers, data, command_token(slot)),
            None => pair.send(headers, None, command_token(slot)),
        };
        if let Err(unsent) = sent {
            self.not_sent(&unsent);
        }
    }

    fn open(&mut self, piece: Piece, access: Reach) -> Option<RemoteMemory> {
        let slot = &mut self.slots[usize::from(piece.slot.0)];
        let (data, access) = match access {
            Reach::Read => {
                let data = slot.outgoing(piece.offset as usize, piece.bytes);
                (data, Access::Read)
            }
            Reach::Write => (slot.incoming(piece.bytes), Access::Write),
        };
        match self
            .pair
            .as_mut()?
            .open_window(piece.slot.0.into(), data?, access)
        {
            Ok(remote) => Some(RemoteMemory {
                key: remote.key,
                address: remote.address,
            }),
            Err(unsent) => {
                self.not_begun(unsent.why);
                self.slot(piece.slot).give_back(unsent.memory);
                None
            }
        }
    }

    fn close(&mut self, slot: Slot) -> bool {
        let Some(pair) = &mut self.pair else {
            return false;
        };
        match pair.close_window(slot.0.into(), window_token(slot)) {
            Ok(Some(memory)) => {
                self.slot(slot).give_back(Some(memory));
                true
            }
            Ok(None) => false,
            // The window stays open until the connection is closed, which gives its memory back.
            Err(why) => {
                self.not_begun(why);
                false
            }
        }
    }
}

/// Token of a message that is no command.
const MESSAGE: u64 = 0;

/// Token of the message of a slot's command.
fn command_token(slot: Slot) -> u64 {
    (u64::from(slot.0) + 1) << 1
}

/// Token of the request that closes a slot's window.
fn window_token(slot: Slot) -> u64 {
    command_token(slot) | 1
}

pub(super) fn ends_of(token: u64) -> Ends {
    let Some(slot) = (token >> 1).checked_sub(1) else {
        return Ends::Message;
    };
    let slot = Slot(u16::try_from(slot).expect("a token of ours"));
    match token & 1 {
        0 => Ends::Command(slot),
        _ => Ends::Window(slot),
    }
}

/// Requests of a command: a window is opened, the message leaves, and the window is closed where
/// the target does not do it. A slot has no other command before all have ended.
pub(super) const REQUESTS_OF_A_COMMAND: u32 = 3;
/// Messages at the same time that are no commands: pings and answers to pings, texts, a Logout.
pub(super) const OTHER_MESSAGES: u32 = 16;

const FULL: &str = "the target does not take the messages of this end";
const TOO_LONG: &str =
    "a text to the target is longer than a message may be: the target asks for too much";
