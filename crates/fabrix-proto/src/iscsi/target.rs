//! The target's side of one iSCSI connection: a login, then commands in, R2T and data out, answers.
//!
//! It knows PDUs, the numbers that both sides count, the slots of the commands in progress, and how
//! much of each write may come. It touches neither the socket nor the user's data, and does not
//! know what carries PDUs: it is an [`Endpoint`], and sends through a [`Framing`]. What a command
//! means, and who may log in, is the adapter's business.
//!
//! The life of a slot: `Command` hands the [`Claim`] on it to the adapter, which may `fetch` a
//! write's data once. `answer` and `abort` consume the claim; `abort`, for task management, frees
//! the slot without an answer. An answer waits until data that is on its way has arrived:
//! `Released` follows then.
//!
//! Every input has one outcome. A PDU that is only unwelcome is answered with Reject, its data
//! skipped. A command outside the window, and data of a task that is gone, are skipped silently, as
//! the standard says. What makes the stream behind it doubtful is a violation: Reject, and the end
//! of the connection.
//!
//! `target/receive.rs` and `target/send.rs` are the two directions; `target/login.rs` leads the
//! login, `target/command.rs` takes commands, `target/data.rs` follows their data,
//! `target/answer.rs` is what is said to them, `target/text.rs` and `target/control.rs` are
//! everything else, `target/tasks.rs` is the table.
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

/// What one connection may use. Decided by the adapter before the first byte.
#[derive(Clone, Copy, Debug)]
pub struct TargetLimits {
    /// Commands in progress that took a CmdSN: the window. At least 1.
    pub window: u16,
    /// Immediate commands in progress beside them; one more is rejected. At least 1.
    pub immediate: u16,
    /// Data of one write, in bytes; a command that has more is answered with INVALID FIELD IN CDB.
    pub max_write_bytes: u32,
    /// A write whose data came with it is handed out as `Inline` up to this, in bytes: the driver
    /// then holds it in one piece where it was received. More comes as `Fetch`, into the slot's
    /// memory.
    pub max_inline_bytes: u32,
    /// What the target wishes in the negotiation.
    pub wishes: Wishes,
    /// How long a login may take, in milliseconds.
    pub login_ms: u64,
    /// After how long a silent initiator is pinged, in milliseconds.
    pub ping_idle_ms: u64,
    /// How long its answer may take, in milliseconds.
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
    /// How many slots the machine uses.
    #[must_use]
    pub fn slots(&self) -> u16 {
        let window = self.window.max(1);
        window.saturating_add(self.immediate.max(1)).min(SLOTS_MAX)
    }
}

/// How a command's data moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// It has none.
    None,
    /// It came with the command, all of it, and is in the slot.
    Inline {
        /// How much, in bytes.
        bytes: u32,
    },
    /// The initiator has it: `fetch` asks for what does not come by itself.
    Fetch {
        /// How much, in bytes.
        bytes: u32,
        /// Some of it comes unasked, right behind this event: the slot must have its memory before
        /// the driver goes on.
        arriving: bool,
    },
    /// The initiator expects it: `answer` sends it.
    Send {
        /// How much at most, in bytes.
        bytes: u32,
    },
}

/// What happened, for the adapter.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody wants to log in: `Target::leading` says who, `Target::admit` answers.
    Authorize,
    /// It has proved what it must. The owner ends an older session of the same initiator and ISID
    /// first, and answers with `Target::enter`: who proves nothing has no effect on the sessions of
    /// others.
    Proved,
    /// The login has failed; the initiator has been told, and the connection is over.
    LoginFailed(Refusal),
    /// The session begins: `Target::session` has its values.
    LoggedIn,
    /// A command has come.
    Command {
        /// The claim on its slot, until it is answered or aborted.
        claim: Claim,
        /// The first 16 bytes of the CDB; longer ones are refused by the machine.
        cdb: [u8; 16],
        /// The logical unit.
        lun: Lun,
        /// How it is to be ordered.
        attribute: TaskAttribute,
        /// How its data moves.
        transfer: Transfer,
        /// `false`: its immediate data does not match its digest. It must not be executed, and is
        /// answered with [`SENSE_CRC_ERROR`].
        intact: bool,
    },
    /// All data of a write is in the slot.
    Fetched {
        /// Whose data.
        slot: Slot,
        /// `false`: a piece did not match its digest, as for `Command`.
        intact: bool,
    },
    /// A slot is free again, after an answer or an abort that had to wait for data.
    Released {
        /// Which one.
        slot: Slot,
    },
    /// Tasks are to be managed; `Target::answer_management` says what became of it.
    TaskManagement {
        /// Which request, for the answer.
        id: ManagementId,
        /// What is to be done.
        function: TaskFunction,
        /// The logical unit.
        lun: Lun,
        /// The task in progress that ABORT TASK names. The adapter may have no claim on it:
        /// `abort_unclaimed` frees it then.
        referenced: Option<Slot>,
    },
    /// The initiator does not answer; the connection is over.
    Silent,
    /// Targets are to be named: `Target::answer_targets`.
    SendTargets(Scope),
    /// The initiator wants to leave: the adapter ends what is in progress and calls
    /// `Target::answer_logout`.
    Logout(LogoutReason),
}

/// The target's side of one connection.
pub struct Target {
    limits: TargetLimits,
    /// The connection is over.
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

/// Where the connection is.
enum ConnectionState {
    Login(Box<Login>),
    FullFeature(Box<Session>),
    /// A login that failed, or a goodbye that was said.
    Parted,
}

/// What becomes of a header.
type Received = framing::Received<Event>;
/// What becomes of a header with all its data.
type Outcome = Result<Option<Event>, Fault>;

impl Received {
    /// An event, and no data segment that anybody wants.
    fn event(event: Option<Event>) -> Self {
        Self::segment(event, Segment::Skipped)
    }

    fn segment(event: Option<Event>, segment: Segment) -> Self {
        Self { event, segment }
    }
}

impl Target {
    /// A connection on which nothing has passed, at `now`.
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
            // Who is not let in costs no table: it is made when the session begins.
            tasks: TaskTable::new(0),
            immediate: 0,
            management: [None; MANAGEMENT_MAX],
            text: TextExchange::default(),
            logout: None,
            timers: Timers::new(&limits, now),
            next_tag: 0,
        }
    }

    /// Who wants to log in, after [`Event::Authorize`], or has.
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

    /// How many slots are in use.
    #[must_use]
    pub fn slots_in_use(&self) -> usize {
        self.tasks.in_use()
    }

    /// The commands that the adapter has and their logical units, for task management of more than
    /// one.
    pub fn commands(&self) -> impl Iterator<Item = (Slot, Lun)> {
        self.tasks.owned()
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

/// Task management requests at once.
const MANAGEMENT_MAX: usize = 8;
/// Slot numbers beyond this would not leave room for a tag that belongs to none.
const SLOTS_MAX: u16 = 0x7FFF;
