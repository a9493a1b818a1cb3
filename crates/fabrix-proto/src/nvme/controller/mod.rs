//! Controller of one association, as a value without I/O.
//!
//! The controller answers every command of the admin queue: properties, Identify, features, log
//! pages, events, keep-alive, abort. Slots come in with commands and go out with answers. The
//! controller reads the exported objects from an [`Authorized`] view for each command, so a
//! replaced inventory is visible at once. Data, clock, I/O commands and I/O queues belong to the
//! caller.
//!
//! The caller has these duties:
//! - compare [`Controller::transfer_bytes`] with the host's SGL;
//! - call [`Controller::execute`] when the data has arrived, then [`Controller::poll_event`] until
//!   it returns `None`;
//! - call [`Controller::check_keep_alive`] at [`Controller::deadline`];
//! - on [`Outcome::Quiesce`] stop the I/O queues and call [`Controller::quiesced`].
//!
//! The reported version is 1.4, because 2.0 requires log pages and ready modes that this controller
//! does not have. The structures that 2.0 adds for hosts (independent of a command set, and the
//! limits of CNS 06h) are answered nevertheless.
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
use super::instance::ControllerInstance;
use super::log_page::{AnaChanges, ErrorRecord, ErrorRing, HealthCounters};
use super::nqn::Nqn;
use super::spec::{FabricsType, Status, SubmissionEntry};
use super::subsystem::{Authorized, Transport};
use super::timing::TimingPage;
use crate::scsi::reservation::Notice;
use crate::{Nanos, Slot};
use events::Events;
use keep_alive::KeepAlive;
use properties::Properties;

pub use events::ASYNC_EVENTS_MAX;
pub use keep_alive::{DISCOVERY_TIMEOUT_MS, GRANULARITY_MS};
pub use properties::{READY_TIMEOUT_MS, VERSION};

/// Kind of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An I/O controller, with namespaces.
    Io,
    /// A discovery controller, with the discovery log.
    Discovery,
}

/// Parameters that are fixed when the target starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerLimits {
    /// Limits of I/O commands. `max_transfer_bytes` limits admin data too and is at least 8192.
    pub io: IoLimits,
    /// What carries the queues. It decides how the data of a command may be described.
    pub transport: Transport,
    /// Maximum length in bytes of data in an I/O command capsule (IOCCSZ).
    pub in_capsule_bytes: u32,
    /// CQT: longest time in milliseconds for which commands of an association may still change the
    /// disk after its end. Zero: unknown.
    pub quiesce_ms: u16,
}

/// Environment of an admin command.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// Objects that the host may use.
    pub view: &'a Authorized,
    /// Counters for the health log.
    pub health: &'a HealthCounters,
    /// Whether reservations of the command's namespace persist through power loss (PTPL). `None` if
    /// the namespace does not exist. Only the Reservation Persistence feature reads the field.
    pub persistence: Option<bool>,
    /// The present instance of the controller, which another controller can reset.
    pub instance: ControllerInstance,
    /// Content of the timing page.
    pub timing: &'a TimingPage,
    /// Whether I/O queues are connected. Their number can then no longer be negotiated.
    pub has_io_queues: bool,
    /// Current time.
    pub now: Nanos,
}

/// Reason for stopping the I/O queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiesce {
    /// The host cleared CC.EN.
    Reset,
    /// The host has requested a shutdown. All writes must become durable too.
    Shutdown,
}

/// Result of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command is answered. `data_bytes` bytes from the start of the page go to the host.
    Complete {
        /// Status of the command.
        status: Status,
        /// Dwords 0 and 1 of the completion.
        result: u64,
        /// Number of bytes of `page` to send. Zero unless the command succeeded.
        data_bytes: u32,
    },
    /// An Asynchronous Event Request. The caller keeps its slot until [`Controller::poll_event`] or
    /// [`Controller::release_held`] returns the slot.
    Held,
    /// Abort found a held event request. The caller answers the slot of the request with
    /// [`Status::ABORT_REQUESTED`], and the Abort with success and result zero.
    Aborted {
        /// Slot of the aborted command.
        held: Slot,
    },
    /// The command is answered with success and result zero. The caller then stops the I/O queues,
    /// waits until their disk requests have ended, answers the slots of
    /// [`Controller::release_held`] with [`Status::ABORT_REQUESTED`], and calls
    /// [`Controller::quiesced`]. The host polls CSTS until then.
    Quiesce(Quiesce),
    /// The command is answered with success. The caller times the commands of all I/O queues for
    /// this long.
    Time {
        /// Time in seconds. Zero turns timing off.
        seconds: u32,
    },
    /// The caller ends this controller, if it is one of the same host at the same subsystem. The
    /// command is answered with success and [`IMMEDIATE_RESET_SUCCESSFUL`] when none of the
    /// commands of the other controller is at a disk any more.
    ///
    /// [`IMMEDIATE_RESET_SUCCESSFUL`]: super::instance::IMMEDIATE_RESET_SUCCESSFUL
    ResetOther(ControllerInstance),
    /// The caller sets whether reservations of this namespace (FFFFFFFFh: of all capable ones)
    /// persist through power loss. The command is answered with success when the setting is
    /// durable.
    Persist {
        /// Namespace id.
        nsid: u32,
        /// Whether the reservations persist.
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

/// Controller of one association.
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
    ana_changes: AnaChanges,
    kept: Kept,
    /// Reservation Notification Mask of the namespaces where it is not zero.
    masks: Vec<(u32, u32)>,
    timestamp: Timestamp,
}

/// Maximum number of entries of a discovery controller's admin queue.
pub const DISCOVERY_QUEUE_ENTRIES: u16 = 128;

/// Maximum number of queue entries (MQES + 1) for hosts with this view. [`Connect::parse`] needs
/// the number.
#[must_use]
pub fn max_queue_entries(view: &Authorized) -> u16 {
    view.subsystem()
        .map_or(DISCOVERY_QUEUE_ENTRIES, |subsystem| {
            subsystem.max_queue_entries
        })
}

impl Controller {
    /// Controller for the `connect` of an admin queue. `view` decides whether it is a discovery
    /// controller.
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
            ana_changes: AnaChanges::default(),
            kept: Kept::default(),
            masks: Vec::new(),
            timestamp: Timestamp::reset(now),
        }
    }

    /// Kind of the controller.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// CNTLID.
    #[must_use]
    pub const fn controller_id(&self) -> u16 {
        self.controller_id
    }

    /// Host of the association.
    #[must_use]
    pub const fn host(&self) -> &Nqn {
        &self.host
    }

    /// Whether the controller is enabled and accepts admin and I/O commands.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.properties.takes_commands()
    }

    /// Length in bytes of the data of an admin command, for comparison with the host's SGL.
    ///
    /// # Errors
    /// The status of the answer: the command is unknown or malformed, or exceeds MDTS.
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

    /// Executes an admin command.
    ///
    /// `data_in` is the data of the command. `page` receives the returned data and has room for
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

    /// Completes the reset or shutdown. All I/O queues are stopped, and their disk requests have
    /// ended.
    pub fn quiesced(&mut self) {
        self.properties.quiesced();
    }

    /// Time of the next call of [`check_keep_alive`](Self::check_keep_alive), if any.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        if self.properties.is_fatal() {
            None
        } else {
            self.keep_alive.deadline()
        }
    }

    /// Renews the keep-alive timer after I/O commands. The caller calls it before
    /// [`check_keep_alive`](Self::check_keep_alive).
    pub const fn io_commands_came(&mut self, now: Nanos) {
        self.keep_alive.renew(now);
    }

    /// Whether the keep-alive timer has expired. The controller is then in fatal status (CSTS.CFS)
    /// and answers with errors only. The caller quiesces the disks and ends the association.
    pub fn check_keep_alive(&mut self, now: Nanos) -> bool {
        if self.keep_alive.is_expired(now) {
            self.properties.fail();
            return true;
        }
        false
    }

    /// Reports that a namespace was added, removed, resized or changed otherwise.
    pub fn namespace_changed(&mut self, nsid: u32) {
        self.events.namespace_changed(nsid);
    }

    /// Reports that an ANA group has another state at the listener of this controller. The caller
    /// executes the next command with a view that has the new state.
    pub fn ana_changed(&mut self, group: u32) {
        self.ana_changes.count(group);
        self.events.ana_changed();
    }

    /// Reports that another host or an initiator changed a reservation that concerns this host.
    pub fn reservation_notice(&mut self, nsid: u32, notice: Notice) {
        if self.kind == Kind::Io && !self.masks_notice(nsid, notice) {
            self.events.reservation_notice(nsid, notice);
        }
    }

    /// Reports that the discovery log of this host has changed.
    pub fn discovery_changed(&mut self) {
        self.events.discovery_changed();
    }

    /// Next event. The caller answers the slot with success and this dword 0. It calls the function
    /// after every command and every change, until the result is `None`.
    pub fn poll_event(&mut self) -> Option<(Slot, u32)> {
        if self.properties.takes_commands() {
            self.events.poll()
        } else {
            None
        }
    }

    /// Removes the held event request whose command id another command uses. Its host has forgotten
    /// the request, so the transport sends no answer. The caller calls the function before it
    /// executes the other command.
    pub fn forgotten(&mut self, command_id: u16) -> Option<Slot> {
        self.events.take(command_id)
    }

    /// Removes one held event request, for an answer with [`Status::ABORT_REQUESTED`]. The caller
    /// calls the function until it returns `None` after the I/O queues have stopped.
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
