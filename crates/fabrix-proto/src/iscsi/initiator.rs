//! Initiator side of one iSCSI connection: login, commands, data in both directions, responses.
//!
//! The machine tracks PDUs, sequence numbers, the slots of the tasks in progress, and the moved
//! data of each task. Sockets, user data and the transport are outside: the machine is an
//! [`Endpoint`], and sends through a [`Framing`]. The owner of the connection chooses the slot of a
//! task. The slot is free again with `Completed`, or with the end of the connection.
//!
//! The target is not trusted. The worst that it can do is end this connection. The machine never
//! writes outside the data of a read, sends outside the data of a write, or completes a task twice.
//! The number of R2Ts per command and of answered pings is limited.
//!
//! The initiator follows StatSN and tolerates gaps: TCP loses nothing, and error recovery level 0
//! could not repair a gap. There is no task management. A task without an answer costs the
//! connection, and the next login has the same ISID, which ends the old session with all its tasks
//! (RFC 7143, section 6.3.5).
//!
//! `initiator/command.rs` sends commands, `initiator/receive.rs` dispatches PDUs,
//! `initiator/login.rs` leads the login, and `initiator/data.rs` moves data.
//! `initiator/control.rs` processes all other PDUs. `initiator/targets.rs` parses lists of targets,
//! and `initiator/tasks.rs` is the table of tasks. `target.rs` is the mirror.
//!
//! Source: RFC 7143.
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

/// Data movement of a task, seen from the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The task has no data.
    None,
    /// The initiator sends the slot's data.
    Write {
        /// Length in bytes.
        bytes: u32,
    },
    /// The target sends data into the slot.
    Read {
        /// Maximum length in bytes.
        bytes: u32,
    },
}

/// Event for the owner of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The session has begun. Commands may be sent as far as the target's window allows.
    LoggedIn,
    /// The login has failed. The connection is over.
    LoginFailed(Box<LoginFailure>),
    /// A task has ended, and its slot is free. [`Initiator::sense`] returns its sense data, if any.
    Completed {
        /// Slot of the task.
        slot: Slot,
        /// Outcome of the task.
        outcome: TaskOutcome,
    },
    /// The window is open again, after it was too full for a command.
    WindowOpened,
    /// The target has answered a ping.
    Pong,
    /// The answer to [`Initiator::send_targets`] is in [`Initiator::targets`].
    Text,
    /// The target has sent an Asynchronous Message.
    Said(AsyncEvent),
    /// The target has terminated all tasks of its own accord (event 5) and answers none of them.
    TasksEnded,
    /// The target has rejected a PDU for this reason.
    Rejected(u8),
    /// The target has answered the logout. The connection is over.
    LoggedOut,
}

/// Outcome of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskOutcome {
    /// False if the target could not execute the command. `status` is then invalid.
    pub delivered: bool,
    /// SCSI status.
    pub status: u8,
    /// Length in bytes of the moved data, less the residual that the target reports. The owner has
    /// to refuse a successful command with less data than it needs.
    pub data_bytes: u32,
    /// False if data or sense data of this task did not match the digest.
    pub intact: bool,
}

/// The initiator's side of one connection.
pub struct Initiator {
    /// True when the connection is over.
    closed: bool,
    /// The Logout was sent.
    is_leaving: bool,
    /// Basic header segment of the last PDU.
    bhs: [u8; BHS_BYTES],
    state: ConnectionState,
    parameters: Parameters,
    cmd_sn: u32,
    max_cmd_sn: u32,
    exp_stat_sn: u32,
    /// True after a command was refused because the window was closed.
    shut_out: bool,
    tasks: TaskTable,
    sense: [u8; SENSE_BYTES_MAX],
    sense_bytes: usize,
    text: TextBuffer,
    /// Number of pings that are answered before the next [`Initiator::renew`].
    pings_left: u8,
    tags: u16,
}

/// State of the connection.
enum ConnectionState {
    Login(Box<Login>),
    FullFeature,
}

/// Result of processing a header.
type Received = framing::Received<Event>;
/// Result of processing a header with all its data.
type Outcome = Result<Option<Event>, Fault>;

impl Received {
    /// An event. The PDU has no data segment to receive.
    fn skipped(event: Option<Event>) -> Self {
        let segment = Segment::Skipped;
        Self { event, segment }
    }
}

impl Initiator {
    /// A connection without traffic. `start` sends the first PDU. The number of slots is limited to
    /// 4096.
    #[must_use]
    pub fn new(max_slots: u16, login: LoginConfig) -> Self {
        Self {
            closed: false,
            is_leaving: false,
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

    /// Opens the connection with the first Login Request.
    pub fn start<F: Framing>(&mut self, out: &mut F) {
        if let ConnectionState::Login(login) = &mut self.state {
            let request = login.first();
            self.send_login(&request, out);
        }
    }

    /// Whether the session has begun, and neither has ended nor was asked to end.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let has_begun = matches!(self.state, ConnectionState::FullFeature);
        has_begun && !self.closed && !self.is_leaving
    }

    /// Negotiated parameters, or the standard's defaults before the negotiation.
    #[must_use]
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Sense data of the task that was [`Event::Completed`] last; empty when it had none.
    #[must_use]
    pub fn sense(&self) -> &[u8] {
        &self.sense[..self.sense_bytes]
    }

    /// Targets in the text of [`Event::Text`].
    ///
    /// # Errors
    /// The text is not a list of targets.
    pub fn targets(&self) -> Result<Vec<DiscoveredTarget>, TextError> {
        targets::read(self.text.bytes())
    }

    /// Sets the sense data again that a task had when it was answered: the owner learns of its end
    /// later.
    pub(super) fn restore_sense(&mut self, sense: &[u8]) {
        self.sense_bytes = sense.len().min(SENSE_BYTES_MAX);
        self.sense[..self.sense_bytes].copy_from_slice(&sense[..self.sense_bytes]);
    }

    /// Number of slots with unanswered tasks.
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

    /// The last header, read as a specific type.
    fn header_as<T: FromBytes>(&self) -> T {
        T::read_from_bytes(&self.bhs).expect("every header has 48 bytes")
    }

    fn fail(&mut self, fault: Fault) -> Violation {
        self.closed = true;
        fault.violation(&self.bhs)
    }

    /// Frees a slot and returns the outcome of its task.
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

    /// An initiator just closes the connection. iSCSI has no PDU for a violation by the target.
    fn terminate<F: Framing>(&mut self, _violation: &Violation, _out: &mut F) {
        self.closed = true;
    }
}

/// Maximum length in bytes of the sense data that is kept.
const SENSE_BYTES_MAX: usize = 252;
/// Maximum number of slots. Some task tags remain that belong to no slot.
const MAX_SLOTS: u16 = 4096;
/// Number of pings that are answered between two calls of [`Initiator::renew`]. An honest target
/// sends one every few seconds.
const PINGS_ANSWERED: u8 = 64;
/// Maximum length in bytes of a list of targets: room for some thousand targets.
const LIST_BYTES_MAX: usize = 512 << 10;
const LIST_PDUS_MAX: u8 = 255;
/// Task tag of the login. No other task exists during a login.
const LOGIN_TAG: u32 = 0;
