//! The initiator's side of one iSCSI connection: a login, then commands out, data both ways,
//! answers in.
//!
//! It knows PDUs, the numbers that both sides count, the slots of the tasks in progress, and how
//! much of each task's data has moved. It touches neither the socket nor the data, and does not
//! know what carries PDUs: it is an [`Endpoint`], and sends through a [`Framing`]. The owner
//! chooses the slot of a task. The slot is free again with `Completed`, or with the connection.
//!
//! The target is not trusted: it can end this connection, and nothing more. It cannot make the
//! machine write outside the data of a task that reads, send outside the data of a task that
//! writes, answer a task twice, or ask for so many small pieces, or so many answers to pings, that
//! we would drown in what we owe it.
//!
//! StatSN is followed and not insisted on: TCP loses nothing, and at error recovery level 0 a gap
//! could not be repaired. There is no task management: a task without an answer costs the
//! connection, and the login that follows has the same ISID, which ends the old session with all
//! its tasks (RFC 7143, section 6.3.5).
//!
//! `initiator/command.rs` sends commands, `initiator/receive.rs` takes PDUs,
//! `initiator/login.rs` the login, `initiator/data.rs` follows data, `initiator/control.rs` is
//! everything else, `initiator/targets.rs` reads what there is, `initiator/tasks.rs` is the table.
//! `target.rs` is the mirror.
//!
//! Source: RFC 7143.

mod command;
mod control;
mod data;
mod login;
mod receive;
mod targets;
mod tasks;

use alloc::boxed::Box;
use alloc::vec::Vec;

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros};

use self::login::{Login, Request};
pub use self::login::{LoginConfig, LoginFailure};
pub use self::targets::{DiscoveredPortal, DiscoveredTarget};
use self::tasks::{Task, TaskTable};
use super::framing::{self, Endpoint, Fault, Framing, Piece, Segment};
use super::keys::Parameters;
use super::pdu::{AsyncEvent, BHS_BYTES, BasicHeader, Digests, IMMEDIATE, LoginRequest, Opcode};
use super::text::{TextBuffer, TextError};
use crate::{Slot, Violation};

/// How a task's data moves, seen from the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// It has none.
    None,
    /// The slot's data goes to the target.
    Write {
        /// How much, in bytes.
        bytes: u32,
    },
    /// The target's data goes to the slot.
    Read {
        /// How much at most, in bytes.
        bytes: u32,
    },
}

/// What happened, for the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The session has begun: commands may be sent, as far as the target's window goes.
    LoggedIn,
    /// There will be no session; the connection is over.
    LoginFailed(Box<LoginFailure>),
    /// A task was answered, and its slot is free. Sense data, if there are any, are in
    /// [`Initiator::sense`].
    Completed {
        /// Which one.
        slot: Slot,
        /// How it ended.
        outcome: TaskOutcome,
    },
    /// The target takes commands again, after one was refused for want of room.
    WindowOpened,
    /// Our ping was answered.
    Pong,
    /// The answer to [`Initiator::send_targets`] is in [`Initiator::targets`].
    Text,
    /// The target says something unasked.
    Said(AsyncEvent),
    /// The target has ended tasks that were not asked to end (event 5): none of them will be
    /// answered.
    TasksEnded,
    /// The target did not take a PDU of ours, for this reason.
    Rejected(u8),
    /// Our logout was answered; the connection is over.
    LoggedOut,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskOutcome {
    /// `false`: the target could not carry it out, and `status` means nothing.
    pub delivered: bool,
    /// SCSI status.
    pub status: u8,
    /// How much data has moved, less what the target says has not; a command that ended well with
    /// less than it has is the owner's to refuse.
    pub data_bytes: u32,
    /// `false`: data of this task, or its sense data, did not match their digest.
    pub intact: bool,
}

/// The initiator's side of one connection.
pub struct Initiator {
    /// The connection is over.
    closed: bool,
    /// Basic header segment of the last PDU.
    bhs: [u8; BHS_BYTES],
    state: ConnectionState,
    parameters: Parameters,
    cmd_sn: u32,
    max_cmd_sn: u32,
    exp_stat_sn: u32,
    /// A command was refused because the window was closed.
    shut_out: bool,
    tasks: TaskTable,
    sense: [u8; SENSE_BYTES_MAX],
    sense_bytes: usize,
    text: TextBuffer,
    /// Pings of the target that are still answered before the next [`Initiator::renew`].
    pings_left: u8,
    tags: u16,
}

/// Where the connection is.
enum ConnectionState {
    Login(Box<Login>),
    FullFeature,
}

/// What becomes of a header.
type Received = framing::Received<Event>;
/// What becomes of a header with all its data.
type Outcome = Result<Option<Event>, Fault>;

impl Received {
    /// An event, and no data segment that anybody wants.
    fn skipped(event: Option<Event>) -> Self {
        let segment = Segment::Skipped;
        Self { event, segment }
    }
}

impl Initiator {
    /// A connection on which no byte has passed; `start` sends the first. At most 4096 slots are
    /// used.
    #[must_use]
    pub fn new(max_slots: u16, login: LoginConfig) -> Self {
        Self {
            closed: false,
            bhs: [0; BHS_BYTES],
            state: ConnectionState::Login(Box::new(Login::new(login))),
            parameters: Parameters::default(),
            cmd_sn: 1,
            max_cmd_sn: 0,
            exp_stat_sn: 0,
            shut_out: false,
            tasks: TaskTable::new(max_slots.clamp(1, MAX_SLOTS)),
            sense: [0; SENSE_BYTES_MAX],
            sense_bytes: 0,
            text: TextBuffer::with_limits(LIST_BYTES_MAX, LIST_PDUS_MAX),
            pings_left: PINGS_ANSWERED,
            tags: 0,
        }
    }

    /// Opens the connection: the first Login Request.
    pub fn start<F: Framing>(&mut self, out: &mut F) {
        if let ConnectionState::Login(login) = &mut self.state {
            let request = login.first();
            self.send_login(&request, out);
        }
    }

    /// Whether the session has begun and is not over.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.state, ConnectionState::FullFeature) && !self.closed
    }

    /// What both sides agreed on; the standard's defaults before that.
    #[must_use]
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Sense data of the task that was [`Event::Completed`] last; empty when it had none.
    #[must_use]
    pub fn sense(&self) -> &[u8] {
        &self.sense[..self.sense_bytes]
    }

    /// The targets of the text that came with [`Event::Text`].
    ///
    /// # Errors
    /// It has not the form of such a list.
    pub fn targets(&self) -> Result<Vec<DiscoveredTarget>, TextError> {
        targets::read(self.text.bytes())
    }

    /// How many slots hold a task that is not answered.
    #[must_use]
    pub fn slots_in_use(&self) -> usize {
        self.tasks.in_use()
    }

    fn send_login<F: Framing>(&mut self, request: &Request, out: &mut F) {
        let mut header = LoginRequest::new_zeroed();
        header.opcode = Opcode::LOGIN_REQUEST.0 | IMMEDIATE;
        header.flags = request.flags;
        header.data_bytes = framing::segment_length(&request.text);
        header.isid = request.isid;
        header.tsih = U16::new(0);
        header.itt = U32::new(LOGIN_TAG);
        header.cmd_sn = U32::new(self.cmd_sn);
        header.exp_stat_sn = U32::new(self.exp_stat_sn);
        framing::send(&header, &request.text, out);
    }

    fn basic(&self) -> BasicHeader {
        self.header_as()
    }

    /// The last header, as one of its kinds.
    fn header_as<T: FromBytes>(&self) -> T {
        T::read_from_bytes(&self.bhs).expect("every header has 48 bytes")
    }

    fn fail(&mut self, fault: Fault) -> Violation {
        self.closed = true;
        fault.violation(&self.bhs)
    }

    /// Frees a slot and says how its task ended.
    fn complete(&mut self, slot: Slot, delivered: bool, status: u8, residual: u32) -> Event {
        let Task {
            moved,
            bytes,
            intact,
            ..
        } = self.tasks.free(slot);
        let outcome = TaskOutcome {
            delivered,
            status,
            data_bytes: moved.min(bytes.saturating_sub(residual)),
            intact,
        };
        Event::Completed { slot, outcome }
    }
}

impl Endpoint for Initiator {
    type Event = Event;

    #[inline(always)]
    fn is_closed(&self) -> bool {
        self.closed
    }

    #[inline(always)]
    fn digests(&self) -> Digests {
        match self.state {
            ConnectionState::FullFeature => self.parameters.digests,
            ConnectionState::Login(_) => Digests::default(),
        }
    }

    fn takes_additional_headers(&self) -> bool {
        false
    }

    fn pdu<F: Framing>(
        &mut self,
        header: &[u8; BHS_BYTES],
        _additional: &[u8],
        out: &mut F,
    ) -> Result<Received, Violation> {
        self.bhs = *header;
        let received = self.dispatch(out);
        received.map_err(|fault| self.fail(fault))
    }

    fn segment<F: Framing>(
        &mut self,
        data: &[u8],
        intact: bool,
        out: &mut F,
    ) -> Result<Option<Event>, Violation> {
        let outcome = self.whole(data, intact, out);
        outcome.map_err(|fault| self.fail(fault))
    }

    fn arrived<F: Framing>(&mut self, piece: Piece, intact: bool, _out: &mut F) -> Option<Event> {
        self.data_arrived(piece, intact)
    }

    /// iSCSI has no goodbye of an initiator: the connection just ends.
    fn terminate<F: Framing>(&mut self, _violation: &Violation, _out: &mut F) {
        self.closed = true;
    }
}

/// The most sense data that are kept, in bytes.
const SENSE_BYTES_MAX: usize = 252;
/// Slot numbers beyond this would not leave room for tags that belong to none.
const MAX_SLOTS: u16 = 4096;
/// Pings of the target that are answered without a [`Initiator::renew`] in between; honest ones
/// come every few seconds.
const PINGS_ANSWERED: u8 = 64;
/// The longest list of targets that is taken, in bytes: some thousands of them.
const LIST_BYTES_MAX: usize = 512 << 10;
const LIST_PDUS_MAX: u8 = 255;
/// The task tag of a login, which has the connection to itself.
const LOGIN_TAG: u32 = 0;
