//! Reservations as NVMe hosts ask for them: four commands, their data, and the report.
//!
//! The state is the one in [`scsi::reservation`](crate::scsi::reservation), which serves every
//! protocol; here are the bytes around it (`report`: what comes back; `build`: what a host sends).
//! A host is its host identifier, so all of its controllers are one registrant. Over fabrics host
//! identifiers have 128 bits, so only the extended form of the report exists.
//! Source: NVM Express Base Specification 2.x, "Reservations", "Reservation Register", "Reservation
//! Acquire", "Reservation Release", "Reservation Report command".

mod build;
mod report;

use alloc::vec::Vec;

pub use self::report::{ReportHeader, ReportRegistrant, write_report};
use super::spec::{Opcode, Status, SubmissionEntry};
use super::subsystem::Namespace;
use crate::scsi::reservation::{Initiator, Kind, Nexus, Refusal, Request, Reservations};

/// What Reservation Register does (RREGA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAction {
    /// Registers a key.
    Register,
    /// Unregisters.
    Unregister,
    /// Replaces the key.
    Replace,
}

/// What Reservation Acquire does (RACQA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireAction {
    /// Acquires a reservation that nobody holds.
    Acquire,
    /// Takes registrations, and the reservation, away from others; with `abort` also their
    /// commands.
    Preempt {
        /// The commands of those hosts end.
        abort: bool,
    },
}

/// A reservation command without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationCommand {
    /// Reservation Register.
    Register {
        /// What it does.
        action: RegisterAction,
        /// IEKEY: whatever key there was.
        ignore_key: bool,
        /// CPTPL: whether reservations shall outlive the power from now on, where it says
        /// something.
        persist: Option<bool>,
    },
    /// Reservation Acquire.
    Acquire {
        /// What it does.
        action: AcquireAction,
        /// The type.
        kind: Kind,
    },
    /// Reservation Release: releases the reservation of this type; none: clears everything.
    Release(Option<Kind>),
    /// Reservation Report, so many bytes of it.
    Report(u32),
}

impl ReservationCommand {
    /// Reads a reservation command.
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

    /// Bytes of data that the command moves at least.
    pub(super) const fn data_bytes(&self) -> u32 {
        match *self {
            Self::Register { .. } | Self::Acquire { .. } => TWO_KEYS_BYTES,
            Self::Release(_) => KEY_BYTES,
            Self::Report(bytes) => bytes,
        }
    }

    /// Bytes of data that may come with it: Linux sends two keys with Release, of which one means
    /// something.
    pub(super) const fn data_bytes_most(&self) -> u32 {
        match *self {
            Self::Release(_) => TWO_KEYS_BYTES,
            _ => self.data_bytes(),
        }
    }

    /// What the namespace allows.
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

/// A command that changes reservations, with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationRequest {
    /// The command.
    pub command: ReservationCommand,
    /// CRKEY: the key of who asks.
    pub key: u64,
    /// NRKEY of Register, PRKEY of Acquire.
    pub other_key: u64,
}

impl ReservationRequest {
    /// A command and the data that came with it.
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

    /// What this means for the shared state as it is now.
    ///
    /// # Errors
    /// What NVMe refuses and the shared state would not.
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

    /// `mine` is the key of who asks. Registering the same key again is no error, and changes
    /// nothing.
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

/// The answer to a host whose request was refused.
#[must_use]
pub const fn refused(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Conflict => Status::RESERVATION_CONFLICT,
        Refusal::InvalidRelease | Refusal::InvalidKey | Refusal::InvalidInitiator => {
            Status::INVALID_FIELD
        }
        // There is no status for it.
        Refusal::TooManyRegistrants => Status::INTERNAL_ERROR.no_retry(),
    }
}

/// A host as a registrant; the port of NVMe is 0.
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
