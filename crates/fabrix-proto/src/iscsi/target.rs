//! Target side of one iSCSI connection: login, commands, R2T, data and responses.
//!
//! The machine tracks PDUs, sequence numbers, the slots of the commands in progress, and the data
//! that each write may receive. Sockets, user data and the transport are outside: the machine is an
//! [`Endpoint`], and sends through a [`Framing`]. The owner of the connection interprets commands
//! and decides which initiators may log in.
//!
//! The life of a slot: `Command` hands the [`Claim`] on the slot to the owner, which may call
//! `fetch` once for a write's data. `answer` and `abort` consume the claim. `abort`, for task
//! management, frees the slot without an answer. An answer waits until outstanding data has
//! arrived. `Released` follows then.
//!
//! Every input has one outcome:
//!
//! - The target answers an unacceptable PDU with Reject, and skips its data.
//! - The target silently skips a command outside the window and the data of an ended task, as the
//!   standard requires.
//! - Input after which the byte stream cannot be trusted is a violation: the target sends Reject
//!   and ends the connection.
//!
//! `target/receive.rs` and `target/send.rs` are the two directions. `target/login.rs` leads the
//! login, `target/command.rs` receives commands, `target/data.rs` moves their data, and
//! `target/answer.rs` answers them. `target/text.rs` and `target/control.rs` process all other
//! requests. `target/tasks.rs` is the table of tasks.
//!
//! Source: RFC 7143.

mod answer;
mod command;
mod control;
mod data;
mod login;
mod receive;
mod send;
mod tasks;
mod text;
mod timers;

use alloc::boxed::Box;
use core::mem;

use zerocopy::FromBytes;

pub use self::answer::{Answer, SENSE_BYTES_MAX, SENSE_CRC_ERROR};
use self::control::{Logout, Management};
pub use self::control::{LogoutReason, ManagementId};
use self::tasks::TaskTable;
pub use self::text::Scope;
use self::text::TextExchange;
use self::timers::Timers;
use super::framing::{self, Endpoint, Fault, Framing, Piece, Segment};
use super::keys::{Parameters, Wishes};
use super::login::{Leading, Login, Refusal, Session};
use super::pdu::{
    BHS_BYTES, BasicHeader, Digests, LoginStatus, Lun, RejectReason, TaskAttribute, TaskFunction,
};
use super::serial::Window;
use crate::{Claim, Nanos, Slot, Violation};

/// Limits of one connection. The owner sets them before the first byte arrives.
#[derive(Clone, Copy, Debug)]
pub struct TargetLimits {
    /// Maximum number of commands in progress that took a CmdSN (the window). At least 1.
    pub window: u16,
    /// Maximum number of immediate commands in progress. The target rejects further ones. At least
    /// 1.
    pub immediate: u16,
    /// Maximum data length of one write in bytes. A longer command is answered with INVALID FIELD
    /// IN CDB.
    pub max_write_bytes: u32,
    /// Maximum length in bytes of immediate data that the owner gets as `Inline`, in one piece in
    /// the receive buffer. Longer writes are handed out as `Fetch` and need the slot's memory.
    pub max_inline_bytes: u32,
    /// Values that the target proposes in the negotiation.
    pub wishes: Wishes,
    /// Time limit of a login in milliseconds.
    pub login_ms: u64,
    /// Time in milliseconds after which a silent initiator is pinged.
    pub ping_idle_ms: u64,
    /// Time limit in milliseconds for the answer to a ping.
    pub ping_answer_ms: u64,
}

impl Default for TargetLimits {
    fn default() -> Self {
        Self {
            window: 128,
            immediate: 8,
            max_write_bytes: 8 << 20,
            max_inline_bytes: 64 << 10,
            wishes: Wishes::default(),
            login_ms: 15_000,
            ping_idle_ms: 15_000,
            ping_answer_ms: 30_000,
        }
    }
}

impl TargetLimits {
    /// Number of slots that the machine uses.
    #[must_use]
    pub fn slots(&self) -> u16 {
        let window = self.window.max(1);
        window.saturating_add(self.immediate.max(1)).min(SLOTS_MAX)
    }
}

/// Data movement of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The command has no data.
    None,
    /// All data came with the command and is in the slot.
    Inline {
        /// Length in bytes.
        bytes: u32,
    },
    /// The initiator has the data. `fetch` requests the part that is not unsolicited.
    Fetch {
        /// Length in bytes.
        bytes: u32,
        /// Whether unsolicited data follows this event directly. The slot needs its memory before
        /// the stream continues.
        arriving: bool,
    },
    /// The initiator expects data, and `answer` sends it.
    Send {
        /// Maximum length in bytes.
        bytes: u32,
    },
}

/// Event for the owner of the connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// An initiator wants to log in. `Target::leading` names the initiator, and `Target::admit`
    /// answers.
    Authorize,
    /// The initiator is authenticated. The owner first ends an older session of the same initiator
    /// and ISID, then calls `Target::enter`. An initiator that is not authenticated therefore has
    /// no effect on the sessions of others.
    Proved,
    /// The login has failed. The initiator has received the reason, and the connection is over.
    LoginFailed(Refusal),
    /// The session has begun. `Target::session` returns its parameters.
    LoggedIn,
    /// A command has arrived.
    Command {
        /// The claim on its slot, until it is answered or aborted.
        claim: Claim,
        /// First 16 bytes of the CDB. The target refuses longer CDBs.
        cdb: [u8; 16],
        /// The logical unit.
        lun: Lun,
        /// Task attribute.
        attribute: TaskAttribute,
        /// Data movement.
        transfer: Transfer,
        /// False if the immediate data does not match its digest. The owner must not execute the
        /// command and answers with [`SENSE_CRC_ERROR`].
        intact: bool,
    },
    /// All data of a write is in the slot.
    Fetched {
        /// Slot of the write.
        slot: Slot,
        /// False if a piece did not match its digest, as for `Command`.
        intact: bool,
    },
    /// A slot is free again. The answer or the abort had to wait for data.
    Released {
        /// Slot that is free.
        slot: Slot,
    },
    /// A task management request. `Target::answer_management` reports the result.
    TaskManagement {
        /// Identifier of the request, for the answer.
        id: ManagementId,
        /// Requested function.
        function: TaskFunction,
        /// The logical unit.
        lun: Lun,
        /// Task in progress that ABORT TASK names. The owner may have no claim on it:
        /// `abort_unclaimed` frees it then.
        referenced: Option<Slot>,
    },
    /// The initiator does not answer pings. The connection is over.
    Silent,
    /// The initiator requests a list of targets. `Target::answer_targets` answers.
    SendTargets(Scope),
    /// The initiator requests a logout. The owner ends the commands in progress and calls
    /// `Target::answer_logout`.
    Logout(LogoutReason),
}

/// The target's side of one connection.
pub struct Target {
    limits: TargetLimits,
    /// True when the connection is over.
    closed: bool,
    /// Basic header segment of the last PDU.
    bhs: [u8; BHS_BYTES],
    state: ConnectionState,
    parameters: Parameters,
    window: Window,
    stat_sn: u32,
    tasks: TaskTable,
    immediate: u16,
    management: [Option<Management>; MANAGEMENT_MAX],
    text: TextExchange,
    logout: Option<Logout>,
    timers: Timers,
    next_tag: u16,
}

/// State of the connection.
enum ConnectionState {
    Login(Box<Login>),
    FullFeature(Box<Session>),
    /// The login has failed, or the session has ended.
    Parted,
}

/// Result of processing a header.
type Received = framing::Received<Event>;
/// Result of processing a header with all its data.
type Outcome = Result<Option<Event>, Fault>;

impl Received {
    /// An event. The PDU has no data segment to receive.
    fn event(event: Option<Event>) -> Self {
        Self::segment(event, Segment::Skipped)
    }

    fn segment(event: Option<Event>, segment: Segment) -> Self {
        Self { event, segment }
    }
}

impl Target {
    /// A connection without traffic, at `now`.
    #[must_use]
    pub fn new(limits: TargetLimits, now: Nanos) -> Self {
        Self {
            limits,
            closed: false,
            bhs: [0; BHS_BYTES],
            state: ConnectionState::Login(Box::new(Login::new(limits.wishes))),
            parameters: Parameters::default(),
            window: Window::new(0, limits.window),
            stat_sn: 0,
            // The table is made when the session begins, so a refused initiator costs no table.
            tasks: TaskTable::new(0),
            immediate: 0,
            management: [None; MANAGEMENT_MAX],
            text: TextExchange::default(),
            logout: None,
            timers: Timers::new(&limits, now),
            next_tag: 0,
        }
    }

    /// Initiator that wants to log in, after [`Event::Authorize`], or that has logged in.
    #[must_use]
    pub fn leading(&self) -> Option<&Leading> {
        match &self.state {
            ConnectionState::Login(login) => login.leading(),
            ConnectionState::FullFeature(session) => Some(&session.leading),
            ConnectionState::Parted => None,
        }
    }

    /// The session, once it has begun.
    #[must_use]
    pub fn session(&self) -> Option<&Session> {
        match &self.state {
            ConnectionState::FullFeature(session) => Some(session),
            ConnectionState::Login(_) | ConnectionState::Parted => None,
        }
    }

    /// Number of slots in use.
    #[must_use]
    pub fn slots_in_use(&self) -> usize {
        self.tasks.in_use()
    }

    /// Commands that the owner executes, with their logical units, for task management of several
    /// tasks.
    pub fn commands(&self) -> impl Iterator<Item = (Slot, Lun)> {
        self.tasks.owned()
    }

    /// Answered commands whose response waits for outstanding data, with their logical units. Task
    /// management and a logout end them too, by [`Target::abort_unclaimed`].
    pub fn answered(&self) -> impl Iterator<Item = (Slot, Lun)> {
        self.tasks.answered()
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
}

impl Endpoint for Target {
    type Event = Event;

    #[inline(always)]
    fn is_closed(&self) -> bool {
        self.closed
    }

    #[inline(always)]
    fn digests(&self) -> Digests {
        match self.state {
            ConnectionState::FullFeature(_) => self.parameters.digests,
            ConnectionState::Login(_) | ConnectionState::Parted => Digests::default(),
        }
    }

    #[inline(always)]
    fn takes_additional_headers(&self) -> bool {
        !matches!(self.state, ConnectionState::Login(_))
    }

    fn pdu<F: Framing>(
        &mut self,
        header: &[u8; BHS_BYTES],
        additional: &[u8],
        out: &mut F,
    ) -> Result<Received, Violation> {
        self.bhs = *header;
        self.timers.hear();
        let received = self.dispatch(additional, out);
        received.map_err(|fault| self.fail(fault))
    }

    fn segment<F: Framing>(
        &mut self,
        data: &[u8],
        intact: bool,
        out: &mut F,
    ) -> Result<Option<Event>, Violation> {
        let outcome = self.whole_segment(data, intact, out);
        outcome.map_err(|fault| self.fail(fault))
    }

    fn arrived<F: Framing>(&mut self, piece: Piece, intact: bool, out: &mut F) -> Option<Event> {
        if !intact {
            self.send_reject(RejectReason::DataDigest, out);
        }
        self.piece_arrived(piece, intact, out)
    }

    fn terminate<F: Framing>(&mut self, violation: &Violation, out: &mut F) {
        self.closed = true;
        match mem::replace(&mut self.state, ConnectionState::Parted) {
            ConnectionState::Parted => {}
            ConnectionState::Login(_) => {
                let status = LoginStatus::INITIATOR_ERROR;
                self.refuse_login(Refusal::new(status, violation.sentence()), out);
            }
            full => {
                self.state = full;
                self.say_goodbye(violation, out);
                self.state = ConnectionState::Parted;
            }
        }
    }
}

/// Maximum number of concurrent task management requests.
const MANAGEMENT_MAX: usize = 8;
/// Maximum number of slots. One target transfer tag remains that belongs to no slot.
const SLOTS_MAX: u16 = 0x7FFF;
