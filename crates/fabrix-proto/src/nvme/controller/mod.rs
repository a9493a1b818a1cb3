//! The target side of one association: a controller as a pure value.
//!
//! It answers every command of the admin queue: properties, Identify, features, log pages, events,
//! keep-alive, abort. It knows the state of its controller and nothing of the transport: slots come
//! in with commands and go out with answers. What exists is asked from an [`Authorized`] view each
//! time, so that a replaced inventory shows at once. It moves no data, has no clock, and neither
//! executes I/O commands nor keeps I/O queues.
//!
//! The caller's part: check [`Controller::transfer_bytes`] against the host's SGL, call
//! [`Controller::execute`] when the data are there, then [`Controller::poll_event`] until it is
//! empty; call [`Controller::check_keep_alive`] at [`Controller::deadline`]; on
//! [`Outcome::Quiesce`] stop the I/O queues and call [`Controller::quiesced`].
//!
//! The version is 1.4: 2.0 requires log pages and ready modes that are not here, and what it adds
//! for hosts (the structures independent of a command set, the limits of CNS 06h) is answered to
//! those who ask all the same.
//! Source: NVM Express Base Specification 2.x; NVMe over Fabrics, "Controller Initialization".

mod command;
mod events;
mod feature;
mod identify;
mod keep_alive;
mod log;
mod properties;

use alloc::vec::Vec;

use super::admin::{AdminCommand, NSID_ALL};
use super::command::{COMMAND_BYTES_MAX, IoLimits};
use super::fabrics::{CONNECT_DATA_BYTES, Connect};
use super::features::{Kept, Timestamp};
use super::log_page::{ErrorRecord, ErrorRing, HealthCounters};
use super::nqn::Nqn;
use super::spec::{FabricsType, Status, SubmissionEntry};
use super::subsystem::Authorized;
use super::timing::TimingPage;
use crate::scsi::reservation::Notice;
use crate::{Nanos, Slot};
use events::Events;
use keep_alive::KeepAlive;
use properties::Properties;

pub use events::ASYNC_EVENTS_MAX;
pub use keep_alive::{DISCOVERY_TIMEOUT_MS, GRANULARITY_MS};
pub use properties::{READY_TIMEOUT_MS, VERSION};

/// What a controller is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It serves namespaces.
    Io,
    /// It serves the discovery log.
    Discovery,
}

/// What is decided when the target starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerLimits {
    /// The limits of I/O commands; `max_transfer_bytes` holds for admin data too and is at least
    /// 8192.
    pub io: IoLimits,
    /// Most bytes of data in an I/O command capsule (IOCCSZ).
    pub in_capsule_bytes: u32,
    /// Longest time commands of a lost association may still change the disk (CQT); zero if nobody
    /// knows.
    pub quiesce_ms: u16,
}

/// What a command of the admin queue sees around it.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// What the host may see.
    pub view: &'a Authorized,
    /// What the health log shows.
    pub health: &'a HealthCounters,
    /// Whether reservations of the namespace that the command names outlive the power (PTPL); none
    /// if there is no such namespace. Looked at by the Reservation Persistence feature alone.
    pub persistence: Option<bool>,
    /// What the timing page shows.
    pub timing: &'a TimingPage,
    /// Whether I/O queues are connected: their number cannot be negotiated any more.
    pub has_io_queues: bool,
    /// The time.
    pub now: Nanos,
}

/// Why the I/O queues must be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiesce {
    /// The host cleared CC.EN.
    Reset,
    /// The host asked for a shutdown: make everything durable, too.
    Shutdown,
}

/// What becomes of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answer it; `data_bytes` from the start of the page go to the host.
    Complete {
        /// How it ended.
        status: Status,
        /// Dwords 0 and 1.
        result: u64,
        /// Bytes of `page` to be sent, zero unless it succeeded.
        data_bytes: u32,
    },
    /// An Asynchronous Event Request: keep the slot until [`Controller::poll_event`] or
    /// [`Controller::release_held`] names it.
    Held,
    /// Abort found its command, a held event request: answer that slot with
    /// [`Status::ABORT_REQUESTED`], and this command with success and result zero.
    Aborted {
        /// The slot of the aborted command.
        held: Slot,
    },
    /// Answer it with success and result zero. Then stop the I/O queues, wait until no disk works
    /// for them, answer the slots of [`Controller::release_held`] with [`Status::ABORT_REQUESTED`],
    /// and call [`Controller::quiesced`]: the host polls CSTS until then.
    Quiesce(Quiesce),
    /// Answer it with success, and time the commands of all I/O queues for so long; zero: not any
    /// more.
    Time {
        /// For how many seconds.
        seconds: u32,
    },
    /// Make reservations of this namespace (FFFFFFFFh: of all that can) outlive the power, or not;
    /// answer it with success when that is on the medium.
    Persist {
        /// Which namespace.
        nsid: u32,
        /// Whether they shall.
        persist: bool,
    },
}

impl Outcome {
    const fn failed(status: Status) -> Self {
        Self::Complete {
            status,
            result: 0,
            data_bytes: 0,
        }
    }

    const fn result(result: u64) -> Self {
        Self::Complete {
            status: Status::SUCCESS,
            result,
            data_bytes: 0,
        }
    }

    const fn data(data_bytes: u32) -> Self {
        Self::Complete {
            status: Status::SUCCESS,
            result: 0,
            data_bytes,
        }
    }
}

/// The controller of one association.
#[derive(Debug)]
pub struct Controller {
    kind: Kind,
    controller_id: u16,
    host: Nqn,
    host_id: [u8; 16],
    limits: ControllerLimits,
    max_io_queues: u16,
    max_queue_entries: u16,
    properties: Properties,
    keep_alive: KeepAlive,
    events: Events,
    errors: ErrorRing,
    kept: Kept,
    /// Reservation Notification Mask of the namespaces where it is not zero.
    masks: Vec<(u32, u32)>,
    timestamp: Timestamp,
}

/// Entries of a discovery controller's admin queue, at most.
pub const DISCOVERY_QUEUE_ENTRIES: u16 = 128;

/// How many entries a queue may have (MQES + 1) for hosts with this view: what [`Connect::parse`]
/// wants to know.
#[must_use]
pub fn max_queue_entries(view: &Authorized) -> u16 {
    view.subsystem()
        .map_or(DISCOVERY_QUEUE_ENTRIES, |subsystem| {
            subsystem.max_queue_entries
        })
}

impl Controller {
    /// The controller that an admin queue's `connect` makes; `view` is what it was authorized for,
    /// and decides whether this is a discovery controller.
    #[must_use]
    pub fn new(
        view: &Authorized,
        controller_id: u16,
        connect: &Connect,
        limits: ControllerLimits,
        now: Nanos,
    ) -> Self {
        debug_assert!(
            limits.io.max_transfer_bytes >= 8192,
            "MDTS cannot say less than 8192 bytes"
        );
        let io = &limits.io;
        debug_assert!(
            io.max_transfer_bytes.max(io.max_write_zeroes_bytes) <= COMMAND_BYTES_MAX,
            "NLB cannot count what MDTS or WZSL would allow"
        );
        let kind = if view.is_discovery() {
            Kind::Discovery
        } else {
            Kind::Io
        };
        let max_queue_entries = max_queue_entries(view);
        Self {
            kind,
            controller_id,
            host: connect.host.clone(),
            host_id: connect.host_id,
            limits,
            max_io_queues: view
                .subsystem()
                .map_or(0, |subsystem| subsystem.max_io_queues),
            max_queue_entries,
            properties: Properties::new(kind, max_queue_entries),
            keep_alive: KeepAlive::new(kind, connect.keep_alive_ms, now),
            events: Events::new(kind),
            errors: ErrorRing::default(),
            kept: Kept::default(),
            masks: Vec::new(),
            timestamp: Timestamp::reset(now),
        }
    }

    /// What it is for.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// CNTLID.
    #[must_use]
    pub const fn controller_id(&self) -> u16 {
        self.controller_id
    }

    /// Whose it is.
    #[must_use]
    pub const fn host(&self) -> &Nqn {
        &self.host
    }

    /// Whether it is enabled and takes commands: admin ones, and those of I/O queues.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.properties.takes_commands()
    }

    /// Bytes of data that an admin queue's command moves, to be compared with the host's SGL.
    ///
    /// # Errors
    /// The status to answer with: the command is unknown or malformed, or wants more than MDTS
    /// allows.
    pub fn transfer_bytes(&self, entry: &SubmissionEntry) -> Result<u32, Status> {
        if entry.is_fabrics() {
            let connect = entry.fabrics_type() == FabricsType::CONNECT;
            return Ok(if connect { CONNECT_DATA_BYTES } else { 0 });
        }
        let bytes = AdminCommand::parse(entry)?.data_bytes();
        match u32::try_from(bytes) {
            Ok(bytes) if bytes <= self.limits.io.max_transfer_bytes => Ok(bytes),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Executes a command of the admin queue.
    ///
    /// `data_in` is what came with it; `page` takes what goes back, and has room for
    /// [`transfer_bytes`](Self::transfer_bytes).
    pub fn execute(
        &mut self,
        slot: Slot,
        entry: &SubmissionEntry,
        around: &Surroundings<'_>,
        data_in: &[u8],
        page: &mut [u8],
    ) -> Outcome {
        if self.check_keep_alive(around.now) {
            return Outcome::failed(Status::KEEP_ALIVE_EXPIRED);
        }
        self.keep_alive.renew(around.now);
        let outcome = if entry.is_fabrics() {
            self.fabrics(entry, around.now)
        } else {
            self.admin(slot, entry, around, data_in, page)
        };
        outcome.unwrap_or_else(Outcome::failed)
    }

    /// All I/O queues are stopped and no disk works for them any more: the reset or shutdown is
    /// complete.
    pub fn quiesced(&mut self) {
        self.properties.quiesced();
    }

    /// When [`check_keep_alive`](Self::check_keep_alive) must be called next, if ever.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        if self.properties.is_fatal() {
            None
        } else {
            self.keep_alive.deadline()
        }
    }

    /// Commands have come on I/O queues: the host lives. To be said before
    /// [`check_keep_alive`](Self::check_keep_alive) is asked.
    pub const fn io_commands_came(&mut self, now: Nanos) {
        self.keep_alive.renew(now);
    }

    /// Whether the host was silent for too long. Once it is true the controller is in fatal status
    /// (CSTS.CFS) and answers nothing but errors: end the association, quiescing the disks first.
    pub fn check_keep_alive(&mut self, now: Nanos) -> bool {
        if self.keep_alive.is_expired(now) {
            self.properties.fail();
            return true;
        }
        false
    }

    /// A namespace was added, removed, resized or otherwise changed.
    pub fn namespace_changed(&mut self, nsid: u32) {
        self.events.namespace_changed(nsid);
    }

    /// Another host, or an initiator, changed a reservation that this host had to do with.
    pub fn reservation_notice(&mut self, nsid: u32, notice: Notice) {
        if self.kind == Kind::Io && !self.masks_notice(nsid, notice) {
            self.events.reservation_notice(nsid, notice);
        }
    }

    /// What the discovery log shows this host has changed.
    pub fn discovery_changed(&mut self) {
        self.events.discovery_changed();
    }

    /// The next event to be told: answer the slot with success and this dword 0. Call until it is
    /// `None`, after every command and every change.
    pub fn poll_event(&mut self) -> Option<(Slot, u32)> {
        if self.properties.takes_commands() {
            self.events.poll()
        } else {
            None
        }
    }

    /// Takes back the held event request whose command id has come with another command: its host
    /// has forgotten it, and the transport sends no answer to it. Call before the other command is
    /// executed.
    pub fn forgotten(&mut self, command_id: u16) -> Option<Slot> {
        self.events.take(command_id)
    }

    /// Takes back one held event request, to be answered with [`Status::ABORT_REQUESTED`]; call
    /// until it is `None` when the I/O queues were stopped.
    pub fn release_held(&mut self) -> Option<Slot> {
        self.events.release()
    }

    /// Adds an error to the log.
    pub fn record_error(&mut self, record: &ErrorRecord) {
        self.errors.push(record);
    }
}

/// Whether a namespace id stands for the whole controller.
const fn means_controller(nsid: u32) -> bool {
    nsid == 0 || nsid == NSID_ALL
}
