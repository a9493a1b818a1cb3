//! Reservations of a disk as a pure state machine: who is registered with which key, who holds
//! what, and who may therefore do what. One state serves every protocol that reaches the disk.
//!
//! SCSI's persistent reservations and NVMe's reservations are the same machine with other bytes
//! around it: the types, the conflicts and the notices correspond one to one. So nothing here knows
//! a CDB or a capsule, and an initiator is a name. RESERVE and RELEASE of SPC-2 are here too,
//! because they exclude the others. The state is kept by one owner; a data path keeps a
//! [`Standing`] and asks only the table.
//! Source: SPC-4, "Reservations"; NVM Express Base Specification 2.x, "Reservations".

mod apply;
mod identity;
mod stored;

use alloc::vec::Vec;

pub use identity::{Initiator, Nexus, TransportIdError};
pub use stored::StoredError;

/// Most registrants of one disk: bounds the memory and the data that a peer can make us keep.
pub const REGISTRANTS_MAX: usize = 256;

/// What a command does, as far as reservations of others care.
///
/// Source: SPC-4 and SBC-3, the tables "Commands that are allowed in the presence of various
/// reservations".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Allowed whatever is reserved: INQUIRY, REPORT LUNS, READ CAPACITY.
    Always,
    /// Allowed under persistent reservations, not under RESERVE of SPC-2: TEST UNIT READY.
    Ready,
    /// Reads data or parameters.
    Read,
    /// Changes data or parameters, or makes them durable.
    Write,
    /// RESERVE and RELEASE of SPC-2: [`Reservations::apply`] decides.
    Legacy,
    /// Reads reservations: allowed, but not under RESERVE of SPC-2.
    PersistentIn,
    /// Changes reservations: [`Reservations::apply`] decides, but never under RESERVE of SPC-2.
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
    /// All types.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrants,
        Self::ExclusiveAccessRegistrants,
        Self::WriteExclusiveAll,
        Self::ExclusiveAccessAll,
    ];

    /// NVMe's number of the type (RTYPE): 1 to 6 in order. SCSI's stands in
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

    /// The type with this number.
    #[must_use]
    pub fn from_nvme_type(number: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.nvme_type() == number)
    }

    /// Every registrant holds it.
    #[must_use]
    pub const fn all_registrants(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }

    /// Every registrant may do what the holder may.
    #[must_use]
    pub const fn admits_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Those who are shut out may not even read.
    #[must_use]
    pub const fn excludes_reads(self) -> bool {
        matches!(
            self,
            Self::ExclusiveAccess | Self::ExclusiveAccessRegistrants | Self::ExclusiveAccessAll
        )
    }
}

/// Somebody who registered a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registrant {
    /// Who.
    pub initiator: Initiator,
    /// Through which target port (relative target port identifier); none: through all (ALL_TG_PT).
    pub port: Option<u16>,
    /// The reservation key, never zero.
    pub key: u64,
    /// It made the reservation, or got it. With an all-registrants type every registrant holds it,
    /// whatever this says.
    made_reservation: bool,
}

impl Registrant {
    /// Whether this registration is the one of `nexus`.
    #[must_use]
    pub fn is(&self, nexus: &Nexus) -> bool {
        self.initiator == nexus.initiator && self.port.is_none_or(|port| port == nexus.port)
    }
}

/// What a nexus is towards the reservations of a disk; a data path keeps it until the state
/// changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// It has a key.
    pub registered: bool,
    /// It holds the persistent reservation, if there is one.
    pub holder: bool,
    /// The persistent reservation.
    pub kind: Option<Kind>,
    /// Somebody reserved the disk with RESERVE of SPC-2: true, it was this nexus.
    pub legacy: Option<bool>,
}

impl Standing {
    /// Whether the answer is RESERVATION CONFLICT.
    #[must_use]
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

/// Source: SPC-2, "Commands allowed with reservations". Persistent reservations are refused to the
/// holder, too.
const fn conflicts_with_legacy(mine: bool, access: Access) -> bool {
    match access {
        Access::Always | Access::Legacy => false,
        Access::PersistentIn | Access::PersistentOut => true,
        Access::Ready | Access::Read | Access::Write => !mine,
    }
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// REGISTER; with `ignore` REGISTER AND IGNORE EXISTING KEY.
    Register {
        /// RESERVATION KEY: the one registered so far, zero for none. Not looked at with `ignore`.
        key: u64,
        /// SERVICE ACTION RESERVATION KEY: the new one, zero to unregister.
        new: u64,
        /// Whatever key there was.
        ignore: bool,
        /// APTPL: all of this shall outlive the power.
        persist: bool,
        /// ALL_TG_PT: for all target ports.
        all_ports: bool,
        /// SPEC_I_PT: these initiators as well.
        also: Vec<Initiator>,
    },
    /// RESERVE.
    Reserve {
        /// The key of the nexus.
        key: u64,
        /// The type.
        kind: Kind,
    },
    /// RELEASE.
    Release {
        /// The key of the nexus.
        key: u64,
        /// The type that is thought to be held.
        kind: Kind,
    },
    /// CLEAR: all registrations, and the reservation.
    Clear {
        /// The key of the nexus.
        key: u64,
    },
    /// PREEMPT, and PREEMPT AND ABORT.
    Preempt {
        /// The key of the nexus.
        key: u64,
        /// Whose registrations go; zero: everybody's, where all registrants hold the reservation.
        victim: u64,
        /// Type of the reservation that follows, if the victim held the old one.
        kind: Kind,
        /// The victims' commands are to be aborted.
        abort: bool,
    },
    /// REGISTER AND MOVE.
    Move {
        /// The key of the nexus.
        key: u64,
        /// The key of who gets the reservation.
        new: u64,
        /// UNREG: the nexus gives up its own registration.
        unregister: bool,
        /// APTPL.
        persist: bool,
        /// Who gets it, and through which port.
        to: Nexus,
    },
    /// Whether all of this shall outlive the power from now on: what NVMe says apart from
    /// registering.
    Persist(bool),
    /// RESERVE of SPC-2.
    LegacyReserve,
    /// RELEASE of SPC-2.
    LegacyRelease,
}

/// Why a request changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// RESERVATION CONFLICT.
    Conflict,
    /// What is to be released is of another type.
    InvalidRelease,
    /// The service action reservation key cannot be this.
    InvalidKey,
    /// The reservation cannot be moved there.
    InvalidInitiator,
    /// There are as many registrants as there may be.
    TooManyRegistrants,
}

/// What somebody must be told because of what another did.
///
/// SCSI's unit attentions and NVMe's reservation notifications are the same three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The reservation was taken away, or all was cleared.
    ReservationPreempted,
    /// The reservation was released, or has another type.
    ReservationReleased,
    /// The registration was taken away.
    RegistrationPreempted,
}

/// What follows from a request that was granted. Nothing of it has happened yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// [`Reservations::to_bytes`] is to be on the medium before the answer is sent.
    pub store: bool,
    /// Who is to be told what; a registrant through all ports once.
    pub notices: Vec<(Registrant, Notice)>,
    /// Whose commands are to be aborted, and have ended, before the answer is sent.
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
    /// No registrants, no reservation.
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

    /// Everybody who registered, in order.
    #[must_use]
    pub fn registrants(&self) -> &[Registrant] {
        &self.registrants
    }

    /// The key of `nexus`, if it is registered.
    #[must_use]
    pub fn key_of(&self, nexus: &Nexus) -> Option<u64> {
        let mine = self.registrants.iter().find(|entry| entry.is(nexus));
        mine.map(|entry| entry.key)
    }

    /// The persistent reservation's type.
    #[must_use]
    pub const fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// PRGENERATION: counts changes of registrations since the start.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// PTPL_A: the registrations outlive the power.
    #[must_use]
    pub const fn persists(&self) -> bool {
        self.persist
    }

    /// The one registrant that holds the reservation; none where all do, or nobody.
    #[must_use]
    pub fn sole_holder(&self) -> Option<&Registrant> {
        self.registrants.iter().find(|registrant| {
            registrant.made_reservation && self.kind.is_some_and(|kind| !kind.all_registrants())
        })
    }

    /// Whether this registrant holds the reservation.
    #[must_use]
    pub fn holds(&self, registrant: &Registrant) -> bool {
        self.kind
            .is_some_and(|kind| kind.all_registrants() || registrant.made_reservation)
    }

    /// What `nexus` is towards all this.
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

    /// Whether `nexus` may do what needs `access`; if not, the answer is RESERVATION CONFLICT.
    #[must_use]
    pub fn may(&self, access: Access, nexus: &Nexus) -> bool {
        !self.standing(nexus).conflicts(access)
    }

    /// A nexus is gone: what SPC-2 reserved for it ends, what is persistent stays.
    ///
    /// Source: SPC-2, "The Reserve/Release management method".
    pub fn nexus_lost(&mut self, nexus: &Nexus) {
        self.legacy.take_if(|holder| holder == nexus);
    }

    /// The logical unit was reset: the same, whoever it was.
    pub fn reset(&mut self) {
        self.legacy = None;
    }
}
