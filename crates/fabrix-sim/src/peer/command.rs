//! The commands of a peer and their answers, the same for every protocol: reads and writes, changes
//! of reservations, and reports of keys.

use std::ops::Range;

use crate::hosts::Protocol;

/// A command of a peer.
pub(crate) enum Ask {
    /// Reads blocks.
    Read(Range<u64>),
    /// Writes these bytes to blocks.
    Write(Range<u64>, Vec<u8>),
    /// Changes the reservations.
    Change(Change),
    /// Reads the registered keys.
    Report,
}

/// How a command of a peer has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Done, with the bytes of a read.
    Done(Vec<u8>),
    /// The registered keys in order, and the index of the reservation's type if it was reported.
    Keys(Vec<u64>, Option<Option<usize>>),
    /// A reservation, or the lack of a registration, forbids it.
    Conflict,
    /// A field of the command is wrong.
    Invalid,
    /// Another host has aborted it.
    Aborted,
    /// The target could not store a change.
    NotStored,
    /// It was not carried out, and may be sent again.
    Again,
    /// Anything else.
    Failed(String),
}

/// A change, with the host that asks for it and the key that the host names as its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Change {
    pub(crate) host: HostId,
    pub(crate) protocol: Protocol,
    pub(crate) key: u64,
    pub(crate) action: Action,
}

/// A change that a host asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Action {
    /// Registers a key for a host without one.
    Register { new: u64, persist: bool },
    /// Replaces the key.
    Replace { new: u64, persist: bool },
    /// Replaces the key, whatever it is (IEKEY; REGISTER AND IGNORE EXISTING KEY).
    Ignore { new: u64, persist: bool },
    /// Removes the registration.
    Unregister { persist: bool },
    /// Makes a reservation of the type with this index.
    Acquire(usize),
    /// Ends the reservation of the type with this index.
    Release(usize),
    /// Removes all registrations.
    Clear,
    /// Removes the registrations with the key `victim`, and takes over their reservation.
    Preempt {
        victim: u64,
        kind: usize,
        abort: bool,
    },
}

impl Action {
    /// Whether the change can register a key.
    pub(crate) const fn registers(self) -> bool {
        matches!(
            self,
            Self::Register { .. } | Self::Replace { .. } | Self::Ignore { .. }
        )
    }
}

/// Number of a host of the world.
pub(crate) type HostId = usize;
