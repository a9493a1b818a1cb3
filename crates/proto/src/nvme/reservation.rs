//! Reservations as NVMe hosts ask for them: four commands, their data, and the report.
//!
//! The state is the one in [`scsi::reservation`](crate::scsi::reservation), which serves every protocol; here are the
//! bytes around it. A host is its host identifier, so all of its controllers are one registrant. Over fabrics host
//! identifiers have 128 bits, so only the extended form of the report exists.
//! Source: NVM Express Base Specification 2.x, "Reservations", "Reservation Register", "Reservation Acquire",
//! "Reservation Release", "Reservation Report command".

use alloc::vec::Vec;
use core::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

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
    /// Takes registrations, and the reservation, away from others; with `abort` also their commands.
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
        /// CPTPL: whether reservations shall outlive the power from now on, where it says something.
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
    /// Invalid Field for reserved bits and values, and for IEKEY where it is not allowed; Host Identifier Inconsistent
    /// Format for a report with identifiers of 64 bits.
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

    /// Bytes of data that may come with it: Linux sends two keys with Release, of which one means something.
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

    /// `mine` is the key of who asks. Registering the same key again is no error, and changes nothing.
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

/// The head of the extended Reservation Status data structure, 64 bytes.
///
/// Source: NVM Express Base Specification 2.x, "Reservation Status Extended Data Structure".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct ReportHeader {
    /// GEN: counts changes of registrations.
    pub generation: U32,
    /// RTYPE: the type; zero where nobody holds a reservation.
    pub kind: u8,
    /// REGSTRNT: how many registrants follow.
    pub registrants: U16,
    reserved_7: [u8; 2],
    /// PTPLS: 1 where all of this outlives the power.
    pub persists: u8,
    reserved_10: [u8; 54],
}
const _: () = assert!(
    size_of::<ReportHeader>() == 64
        && offset_of!(ReportHeader, kind) == 4
        && offset_of!(ReportHeader, registrants) == 5
        && offset_of!(ReportHeader, persists) == 9
);

/// One registrant of the extended Reservation Status data structure, 64 bytes.
///
/// Source: NVM Express Base Specification 2.x, "Registrant Extended Data Structure".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct ReportRegistrant {
    /// CNTLID: FFFFh, because controllers are made when hosts connect.
    pub controller_id: U16,
    /// RCSTS: bit 0, it holds the reservation.
    pub status: u8,
    reserved_3: [u8; 5],
    /// RKEY.
    pub key: U64,
    /// HOSTID.
    pub host_id: [u8; 16],
    reserved_32: [u8; 32],
}
const _: () = assert!(
    size_of::<ReportRegistrant>() == 64
        && offset_of!(ReportRegistrant, status) == 2
        && offset_of!(ReportRegistrant, key) == 8
        && offset_of!(ReportRegistrant, host_id) == 16
);

/// Writes the report, as far as `page` reaches; what follows it is zeroes. Registrants of other protocols are listed
/// with [`Initiator::host_id`].
pub fn write_report(state: &Reservations, page: &mut [u8]) {
    page.fill(0);
    let mut header = ReportHeader::new_zeroed();
    header.generation = U32::new(state.generation());
    header.kind = state.kind().map_or(0, Kind::nvme_type);
    header.registrants = U16::new(u16::try_from(state.registrants().len()).unwrap_or(u16::MAX));
    header.persists = u8::from(state.persists());
    let records = state.registrants().iter().map(|registrant| {
        let mut record = ReportRegistrant::new_zeroed();
        record.controller_id = U16::new(u16::MAX);
        record.status = u8::from(state.holds(registrant));
        record.key = U64::new(registrant.key);
        record.host_id = registrant.initiator.host_id();
        record
    });
    let (head, rest) = page.split_at_mut(page.len().min(size_of::<ReportHeader>()));
    head.copy_from_slice(&header.as_bytes()[..head.len()]);
    for (place, record) in rest.chunks_mut(size_of::<ReportRegistrant>()).zip(records) {
        place.copy_from_slice(&record.as_bytes()[..place.len()]);
    }
}

/// The commands a host sends. The transport fills in the SGL and the command id.
impl SubmissionEntry {
    /// Reservation Register; 16 bytes of data: CRKEY and NRKEY.
    #[must_use]
    pub fn reservation_register(
        nsid: u32,
        action: RegisterAction,
        ignore_key: bool,
        persist: Option<bool>,
    ) -> Self {
        let action = match action {
            RegisterAction::Register => 0,
            RegisterAction::Unregister => 1,
            RegisterAction::Replace => 2,
        };
        let persist = match persist {
            None => 0,
            Some(false) => 0b10 << 30,
            Some(true) => 0b11 << 30,
        };
        let ignore = if ignore_key { CDW10_IEKEY } else { 0 };
        Self::reservation(
            Opcode::RESERVATION_REGISTER,
            nsid,
            action | ignore | persist,
        )
    }

    /// Reservation Acquire; 16 bytes of data: CRKEY and PRKEY.
    #[must_use]
    pub fn reservation_acquire(nsid: u32, action: AcquireAction, kind: Kind) -> Self {
        let action = match action {
            AcquireAction::Acquire => 0,
            AcquireAction::Preempt { abort: false } => 1,
            AcquireAction::Preempt { abort: true } => 2,
        };
        let kind = u32::from(kind.nvme_type()) << 8;
        Self::reservation(Opcode::RESERVATION_ACQUIRE, nsid, action | kind)
    }

    /// Reservation Release, of all registrations where no type is given; 8 bytes of data: CRKEY.
    #[must_use]
    pub fn reservation_release(nsid: u32, kind: Option<Kind>) -> Self {
        let dword = kind.map_or(1, |kind| u32::from(kind.nvme_type()) << 8);
        Self::reservation(Opcode::RESERVATION_RELEASE, nsid, dword)
    }

    /// Reservation Report, extended; `bytes` come back, a multiple of 4.
    #[must_use]
    pub fn reservation_report(nsid: u32, bytes: u32) -> Self {
        let dwords = (bytes / 4).saturating_sub(1);
        let mut entry = Self::reservation(Opcode::RESERVATION_REPORT, nsid, dwords);
        entry.cdw11 = U32::new(CDW11_EXTENDED);
        entry
    }

    fn reservation(opcode: Opcode, nsid: u32, cdw10: u32) -> Self {
        let mut entry = Self::new(opcode.0);
        entry.nsid = U32::new(nsid);
        entry.cdw10 = U32::new(cdw10);
        entry
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
