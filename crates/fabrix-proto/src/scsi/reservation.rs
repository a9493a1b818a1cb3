//! Reservations of a disk as a state machine without I/O: the registered keys, the reservation, and
//! the resulting rights. All protocols that reach the disk share one state.
//!
//! SCSI persistent reservations and NVMe reservations are the same state machine: types, conflicts
//! and notices correspond one to one. The code here therefore knows neither CDBs nor capsules, and
//! identifies an initiator by its name. RESERVE and RELEASE of SPC-2 are here too, because they
//! exclude persistent reservations. One owner keeps the state. A data path keeps only its
//! [`Standing`] and checks each command against the conflict table.
//! Source: SPC-4, "Reservations"; NVM Express Base Specification 2.x, "Reservations".

mod apply;
mod identity;
mod stored;

use alloc::vec::Vec;

pub use identity::{Initiator, Nexus, TransportIdError};
pub use stored::StoredError;

/// Maximum number of registrants per disk. The limit bounds the memory and the stored data that a
/// peer can make the target keep.
pub const REGISTRANTS_MAX: usize = 256;

/// Access class of a command: decides whether another nexus's reservation forbids the command.
///
/// Source: SPC-4 and SBC-3, the tables "Commands that are allowed in the presence of various
/// reservations".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Allowed under every reservation: INQUIRY, REPORT LUNS, READ CAPACITY.
    Always,
    /// Allowed under persistent reservations, but not under RESERVE of SPC-2: TEST UNIT READY.
    Ready,
    /// Reads data or parameters.
    Read,
    /// Changes data or parameters, or makes them durable.
    Write,
    /// RESERVE and RELEASE of SPC-2. [`Reservations::apply`] decides.
    Legacy,
    /// Reads the reservations. Allowed, except under RESERVE of SPC-2.
    PersistentIn,
    /// Changes the reservations. [`Reservations::apply`] decides, but RESERVE of SPC-2 forbids the
    /// command.
    PersistentOut,
}

/// Type of a persistent reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Write Exclusive.
    WriteExclusive,
    /// Exclusive Access.
    ExclusiveAccess,
    /// Write Exclusive, Registrants Only.
    WriteExclusiveRegistrants,
    /// Exclusive Access, Registrants Only.
    ExclusiveAccessRegistrants,
    /// Write Exclusive, All Registrants.
    WriteExclusiveAll,
    /// Exclusive Access, All Registrants.
    ExclusiveAccessAll,
}

impl Kind {
    /// All types, in the order of NVMe's numbers.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrants,
        Self::ExclusiveAccessRegistrants,
        Self::WriteExclusiveAll,
        Self::ExclusiveAccessAll,
    ];

    /// NVMe's number of the type (RTYPE): 1 to 6, in order of declaration. SCSI's numbers are in
    /// [`persistent`](super::persistent).
    ///
    /// Source: NVM Express Base Specification 2.x, "Reservation Type Encoding".
    #[must_use]
    pub const fn nvme_type(self) -> u8 {
        match self {
            Self::WriteExclusive => 1,
            Self::ExclusiveAccess => 2,
            Self::WriteExclusiveRegistrants => 3,
            Self::ExclusiveAccessRegistrants => 4,
            Self::WriteExclusiveAll => 5,
            Self::ExclusiveAccessAll => 6,
        }
    }

    /// The type with this RTYPE number, if it exists.
    #[must_use]
    pub fn from_nvme_type(number: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.nvme_type() == number)
    }

    /// Whether every registrant holds a reservation of this type.
    #[must_use]
    pub const fn all_registrants(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }

    /// Whether every registrant has the rights of the holder.
    #[must_use]
    pub const fn admits_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Whether the reservation forbids reads to nexuses without rights. Otherwise it forbids only
    /// writes.
    #[must_use]
    pub const fn excludes_reads(self) -> bool {
        matches!(
            self,
            Self::ExclusiveAccess | Self::ExclusiveAccessRegistrants | Self::ExclusiveAccessAll
        )
    }
}

/// A registration: an initiator with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registrant {
    /// Initiator that registered.
    pub initiator: Initiator,
    /// Relative target port identifier of the registration. `None`: the registration is for all
    /// target ports (ALL_TG_PT).
    pub port: Option<u16>,
    /// The reservation key, never zero.
    pub key: u64,
    /// True for the registrant that reserved, preempted, or was handed the reservation. With an
    /// all-registrants type every registrant holds the reservation, and the flag does not matter.
    made_reservation: bool,
}

impl Registrant {
    /// Whether this registration belongs to `nexus`.
    #[must_use]
    pub fn is(&self, nexus: &Nexus) -> bool {
        self.initiator == nexus.initiator && self.port.is_none_or(|port| port == nexus.port)
    }
}

/// Rights of one nexus under the reservations of a disk. A data path keeps the value until the
/// state changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The nexus has registered a key.
    pub registered: bool,
    /// The nexus holds the persistent reservation.
    pub holder: bool,
    /// Type of the persistent reservation, if there is one.
    pub kind: Option<Kind>,
    /// RESERVE of SPC-2: `Some(true)` if this nexus reserved the disk, `Some(false)` if another
    /// did, `None` if nobody did.
    pub legacy: Option<bool>,
}

impl Standing {
    /// Whether a command of class `access` is answered with RESERVATION CONFLICT.
    #[must_use]
    #[inline(always)]
    pub const fn conflicts(&self, access: Access) -> bool {
        match self.legacy {
            Some(mine) => conflicts_with_legacy(mine, access),
            None => self.conflicts_with_persistent(access),
        }
    }

    const fn conflicts_with_persistent(&self, access: Access) -> bool {
        let Some(kind) = self.kind else {
            return false;
        };
        let admitted = self.holder || self.registered && kind.admits_registrants();
        match access {
            Access::Read => !admitted && kind.excludes_reads(),
            Access::Write => !admitted,
            _ => false,
        }
    }
}

/// Conflict table for RESERVE of SPC-2. Persistent reservation commands are refused to every nexus,
/// the holder included.
///
/// Source: SPC-2, "Commands allowed with reservations".
const fn conflicts_with_legacy(mine: bool, access: Access) -> bool {
    match access {
        Access::Always | Access::Legacy => false,
        Access::PersistentIn | Access::PersistentOut => true,
        Access::Ready | Access::Read | Access::Write => !mine,
    }
}

/// Request to change the reservations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// REGISTER, or REGISTER AND IGNORE EXISTING KEY with `ignore`.
    Register {
        /// RESERVATION KEY: the currently registered key, zero for none. Unused with `ignore`.
        key: u64,
        /// SERVICE ACTION RESERVATION KEY: the new key, zero to unregister.
        new: u64,
        /// REGISTER AND IGNORE EXISTING KEY: `key` is not checked.
        ignore: bool,
        /// APTPL: the state persists through power loss.
        persist: bool,
        /// ALL_TG_PT: the registration is for all target ports.
        all_ports: bool,
        /// SPEC_I_PT: further initiators to register with the new key.
        also: Vec<Initiator>,
    },
    /// RESERVE.
    Reserve {
        /// Registered key of the nexus.
        key: u64,
        /// Type of the new reservation.
        kind: Kind,
    },
    /// RELEASE.
    Release {
        /// Registered key of the nexus.
        key: u64,
        /// Expected type of the reservation.
        kind: Kind,
    },
    /// CLEAR: removes all registrations and the reservation.
    Clear {
        /// Registered key of the nexus.
        key: u64,
    },
    /// PREEMPT, and PREEMPT AND ABORT.
    Preempt {
        /// Registered key of the nexus.
        key: u64,
        /// Key of the registrations to remove. Zero removes all other registrations, if the
        /// reservation is of an all-registrants type.
        victim: u64,
        /// Type of the new reservation, if the victims held the old one.
        kind: Kind,
        /// PREEMPT AND ABORT: the caller aborts the commands of the victims.
        abort: bool,
    },
    /// REGISTER AND MOVE.
    Move {
        /// Registered key of the nexus.
        key: u64,
        /// Key of the nexus that receives the reservation.
        new: u64,
        /// UNREG: removes the registration of the requesting nexus.
        unregister: bool,
        /// APTPL: the state persists through power loss.
        persist: bool,
        /// Nexus that receives the reservation.
        to: Nexus,
    },
    /// NVMe's Reservation Persistence feature: whether the state persists through power loss. SCSI
    /// sets the same flag while registering.
    Persist(bool),
    /// RESERVE of SPC-2.
    LegacyReserve,
    /// RELEASE of SPC-2.
    LegacyRelease,
}

/// Reason why a request was refused. A refused request has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// RESERVATION CONFLICT.
    Conflict,
    /// RELEASE names another type than the type of the reservation.
    InvalidRelease,
    /// The new key is invalid: zero, where a key is required.
    InvalidKey,
    /// The named initiator cannot be registered, or cannot receive the reservation.
    InvalidInitiator,
    /// The disk already has [`REGISTRANTS_MAX`] registrants.
    TooManyRegistrants,
}

/// Notice to a registrant about a change that another nexus made.
///
/// SCSI reports a notice as a unit attention, NVMe as a reservation notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The reservation was preempted, or all registrations were cleared.
    ReservationPreempted,
    /// The reservation was released, or its type has changed.
    ReservationReleased,
    /// The registration was removed.
    RegistrationPreempted,
}

/// Duties of the caller after a granted request. [`Reservations::apply`] changes only the state and
/// does none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// True if the caller has to store [`Reservations::to_bytes`] on the medium before it answers.
    pub store: bool,
    /// Registrants to notify. A registration for all ports appears once.
    pub notices: Vec<(Registrant, Notice)>,
    /// Registrants whose commands the caller aborts. The answer waits until these commands have
    /// ended.
    pub abort: Vec<Registrant>,
}

/// The reservations of one disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    registrants: Vec<Registrant>,
    kind: Option<Kind>,
    legacy: Option<Nexus>,
    generation: u32,
    persist: bool,
}

impl Reservations {
    /// A state without registrants and without reservation.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            registrants: Vec::new(),
            kind: None,
            legacy: None,
            generation: 0,
            persist: false,
        }
    }

    /// All registrants, in the order of registration.
    #[must_use]
    pub fn registrants(&self) -> &[Registrant] {
        &self.registrants
    }

    /// Key of `nexus`, if it is registered.
    #[must_use]
    pub fn key_of(&self, nexus: &Nexus) -> Option<u64> {
        let mine = self.registrants.iter().find(|entry| entry.is(nexus));
        mine.map(|entry| entry.key)
    }

    /// Type of the persistent reservation, if there is one.
    #[must_use]
    pub const fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// PRGENERATION: number of registration changes since the start, modulo 2^32.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// PTPL_A: the state persists through power loss.
    #[must_use]
    pub const fn persists(&self) -> bool {
        self.persist
    }

    /// Registrant that holds the reservation alone. `None` if there is no reservation, or if all
    /// registrants hold it.
    #[must_use]
    pub fn sole_holder(&self) -> Option<&Registrant> {
        self.registrants.iter().find(|registrant| {
            registrant.made_reservation && self.kind.is_some_and(|kind| !kind.all_registrants())
        })
    }

    /// Whether `registrant` holds the reservation.
    #[must_use]
    pub fn holds(&self, registrant: &Registrant) -> bool {
        self.kind
            .is_some_and(|kind| kind.all_registrants() || registrant.made_reservation)
    }

    /// Rights of `nexus` under the current state.
    #[must_use]
    pub fn standing(&self, nexus: &Nexus) -> Standing {
        let mine = self.registrants.iter().find(|entry| entry.is(nexus));
        Standing {
            registered: mine.is_some(),
            holder: mine.is_some_and(|entry| self.holds(entry)),
            kind: self.kind,
            legacy: self.legacy.as_ref().map(|holder| holder == nexus),
        }
    }

    /// Whether `nexus` may execute a command of class `access`. If not, the answer is RESERVATION
    /// CONFLICT.
    #[must_use]
    pub fn may(&self, access: Access, nexus: &Nexus) -> bool {
        !self.standing(nexus).conflicts(access)
    }

    /// Ends the SPC-2 reservation of a lost nexus. Persistent reservations stay.
    ///
    /// Source: SPC-2, "The Reserve/Release management method".
    pub fn nexus_lost(&mut self, nexus: &Nexus) {
        self.legacy.take_if(|holder| holder == nexus);
    }

    /// Ends the SPC-2 reservation of any nexus after a logical unit reset. Persistent reservations
    /// stay.
    pub fn reset(&mut self) {
        self.legacy = None;
    }
}
