//! NVMe reservation commands: four commands, their data, and the report.
//!
//! The reservation state is in [`scsi::reservation`](crate::scsi::reservation), because all
//! protocols share it. `report` writes the report, and `build` builds commands for a host. A host
//! registers by its host identifier, so all its controllers are one registrant. Fabrics use 128-bit
//! host identifiers, so only the extended report exists.
//! Source: NVM Express Base Specification 2.x, "Reservations", "Reservation Register", "Reservation
//! Acquire", "Reservation Release", "Reservation Report command".

mod build;
mod report;

use alloc::vec::Vec;

pub use self::report::{ReportHeader, ReportRegistrant, write_report};
use super::spec::{Opcode, Status, SubmissionEntry};
use super::subsystem::Namespace;
use crate::scsi::reservation::{Initiator, Kind, Nexus, Refusal, Request, Reservations};

/// RREGA: action of Reservation Register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAction {
    /// Registers a key.
    Register,
    /// Removes the registration.
    Unregister,
    /// Replaces the key.
    Replace,
}

/// RACQA: action of Reservation Acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireAction {
    /// Acquires a reservation, if no host holds one.
    Acquire,
    /// Removes registrations of other hosts, and takes over their reservation.
    Preempt {
        /// The controller also aborts the commands of these hosts.
        abort: bool,
    },
}

/// A parsed reservation command, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationCommand {
    /// Reservation Register.
    Register {
        /// RREGA.
        action: RegisterAction,
        /// IEKEY: the current key is not checked.
        ignore_key: bool,
        /// CPTPL: whether reservations persist through power loss from now on. `None`: no change.
        persist: Option<bool>,
    },
    /// Reservation Acquire.
    Acquire {
        /// RACQA.
        action: AcquireAction,
        /// Type of the reservation.
        kind: Kind,
    },
    /// Reservation Release: releases the reservation of this type. `None`: clears all
    /// registrations.
    Release(Option<Kind>),
    /// Reservation Report. The length is in bytes.
    Report(u32),
}

impl ReservationCommand {
    /// Parses a reservation command.
    ///
    /// # Errors
    /// Invalid Field for reserved bits and values, and for IEKEY where it is not allowed; Host
    /// Identifier Inconsistent Format for a report with identifiers of 64 bits.
    pub(super) fn parse(entry: &SubmissionEntry) -> Result<Self, Status> {
        let cdw10 = entry.cdw10.get();
        let (action, ignore_key) = (cdw10 & CDW10_ACTION, cdw10 & CDW10_IEKEY != 0);
        match entry.io_opcode() {
            Opcode::RESERVATION_REGISTER => Self::parse_register(cdw10),
            Opcode::RESERVATION_REPORT => Self::parse_report(entry),
            _ if ignore_key || cdw10 & !(CDW10_ACTION | CDW10_TYPE) != 0 => {
                Err(Status::INVALID_FIELD)
            }
            Opcode::RESERVATION_ACQUIRE => Ok(Self::Acquire {
                action: match action {
                    0 => AcquireAction::Acquire,
                    1 => AcquireAction::Preempt { abort: false },
                    2 => AcquireAction::Preempt { abort: true },
                    _ => return Err(Status::INVALID_FIELD),
                },
                kind: kind(cdw10)?,
            }),
            Opcode::RESERVATION_RELEASE => match action {
                0 => Ok(Self::Release(Some(kind(cdw10)?))),
                1 => Ok(Self::Release(None)),
                _ => Err(Status::INVALID_FIELD),
            },
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    fn parse_register(cdw10: u32) -> Result<Self, Status> {
        if cdw10 & !(CDW10_ACTION | CDW10_IEKEY | 0b11 << 30) != 0 {
            return Err(Status::INVALID_FIELD);
        }
        Ok(Self::Register {
            action: match cdw10 & CDW10_ACTION {
                0 => RegisterAction::Register,
                1 => RegisterAction::Unregister,
                2 => RegisterAction::Replace,
                _ => return Err(Status::INVALID_FIELD),
            },
            ignore_key: cdw10 & CDW10_IEKEY != 0,
            persist: match cdw10 >> 30 {
                0b00 => None,
                0b10 => Some(false),
                0b11 => Some(true),
                _ => return Err(Status::INVALID_FIELD),
            },
        })
    }

    fn parse_report(entry: &SubmissionEntry) -> Result<Self, Status> {
        if entry.cdw11.get() & CDW11_EXTENDED == 0 {
            return Err(Status::HOST_ID_INCONSISTENT);
        }
        // NUMD counts dwords from zero.
        let bytes = entry
            .cdw10
            .get()
            .checked_add(1)
            .and_then(|dwords| dwords.checked_mul(4));
        bytes.map(Self::Report).ok_or(Status::INVALID_FIELD)
    }

    /// Minimum length in bytes of the data that the command moves.
    pub(super) const fn data_bytes(&self) -> u32 {
        match *self {
            Self::Register { .. } | Self::Acquire { .. } => TWO_KEYS_BYTES,
            Self::Release(_) => KEY_BYTES,
            Self::Report(bytes) => bytes,
        }
    }

    /// Maximum length in bytes of the data. Linux sends two keys with Release, of which only the
    /// first has a meaning.
    pub(super) const fn data_bytes_most(&self) -> u32 {
        match *self {
            Self::Release(_) => TWO_KEYS_BYTES,
            _ => self.data_bytes(),
        }
    }

    /// Checks the command against the capabilities of the namespace.
    pub(super) fn check(
        &self,
        namespace: &Namespace,
        max_transfer_bytes: u32,
    ) -> Result<(), Status> {
        match *self {
            Self::Report(bytes) if bytes > max_transfer_bytes => Err(Status::INVALID_FIELD),
            Self::Register {
                persist: Some(true),
                ..
            } if !namespace.stores_reservations => Err(Status::INVALID_FIELD),
            _ => Ok(()),
        }
    }
}

/// A command that changes reservations, with the keys from its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationRequest {
    /// Parsed command.
    pub command: ReservationCommand,
    /// CRKEY: registered key of the host.
    pub key: u64,
    /// NRKEY of Register, PRKEY of Acquire.
    pub other_key: u64,
}

impl ReservationRequest {
    /// Reads the keys from the data of the command.
    #[must_use]
    pub fn new(command: ReservationCommand, data: &[u8]) -> Self {
        let key = |at: usize| {
            let bytes = data.get(at..).and_then(|rest| rest.first_chunk::<8>());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        Self {
            command,
            key: key(0),
            other_key: key(8),
        }
    }

    /// Request for the shared reservation state, depending on its current content.
    ///
    /// # Errors
    /// Reasons that exist only in NVMe. The shared state would accept these requests.
    pub fn request(&self, state: &Reservations, nexus: &Nexus) -> Result<Request, Refusal> {
        let key = self.key;
        match self.command {
            ReservationCommand::Register {
                action,
                ignore_key,
                persist,
            } => {
                let persist = persist.unwrap_or_else(|| state.persists());
                self.register(action, ignore_key, persist, state.key_of(nexus))
            }
            ReservationCommand::Acquire { action, kind } => Ok(match action {
                AcquireAction::Acquire => Request::Reserve { key, kind },
                AcquireAction::Preempt { abort } => Request::Preempt {
                    key,
                    victim: self.other_key,
                    kind,
                    abort,
                },
            }),
            ReservationCommand::Release(Some(kind)) => Ok(Request::Release { key, kind }),
            ReservationCommand::Release(None) => Ok(Request::Clear { key }),
            ReservationCommand::Report(_) => Err(Refusal::Conflict),
        }
    }

    /// `mine` is the registered key of the host. A repeated registration of the same key is
    /// accepted and changes nothing.
    fn register(
        &self,
        action: RegisterAction,
        ignore_key: bool,
        persist: bool,
        mine: Option<u64>,
    ) -> Result<Request, Refusal> {
        let new = match action {
            RegisterAction::Unregister => 0,
            _ if self.other_key == 0 => return Err(Refusal::InvalidKey),
            _ => self.other_key,
        };
        let old = match (action, mine) {
            (RegisterAction::Register, None) => 0,
            (RegisterAction::Register, Some(mine)) if mine == new => {
                return Ok(Request::Persist(persist));
            }
            (RegisterAction::Register, Some(_)) | (_, None) => return Err(Refusal::Conflict),
            (_, Some(mine)) if ignore_key || mine == self.key => mine,
            (_, Some(_)) => return Err(Refusal::Conflict),
        };
        Ok(Request::Register {
            key: old,
            new,
            ignore: false,
            persist,
            all_ports: false,
            also: Vec::new(),
        })
    }
}

/// Status for a refused request.
#[must_use]
pub const fn refused(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Conflict => Status::RESERVATION_CONFLICT,
        Refusal::InvalidRelease | Refusal::InvalidKey | Refusal::InvalidInitiator => {
            Status::INVALID_FIELD
        }
        // NVMe defines no status for too many registrants.
        Refusal::TooManyRegistrants => Status::INTERNAL_ERROR.no_retry(),
    }
}

/// Nexus of an NVMe host. NVMe has no target ports, so the port is 0.
#[must_use]
pub fn nexus(host_id: [u8; 16]) -> Nexus {
    Nexus {
        initiator: Initiator::nvme(host_id),
        port: 0,
    }
}

/// RTYPE in bits 15:8.
fn kind(cdw10: u32) -> Result<Kind, Status> {
    let [_, number, ..] = cdw10.to_le_bytes();
    Kind::from_nvme_type(number).ok_or(Status::INVALID_FIELD)
}

const KEY_BYTES: u32 = 8;
const TWO_KEYS_BYTES: u32 = 16;
/// RREGA, RACQA, RRELA.
const CDW10_ACTION: u32 = 0b111;
/// IEKEY.
const CDW10_IEKEY: u32 = 1 << 3;
/// RTYPE.
const CDW10_TYPE: u32 = 0xFF00;
/// EDS: the extended data structure.
const CDW11_EXTENDED: u32 = 1;
