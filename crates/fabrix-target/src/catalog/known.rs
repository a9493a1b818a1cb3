//! The disks that a host knows by their numbers since it connected.
//!
//! A host reads the identity of a disk once, and then trusts the number. Its commands must never
//! reach another disk under that number, also if the number was free for a while. So the connection
//! of such a host ends, and the host reads the new identity when it connects again.

use std::collections::BTreeMap;

/// The disks that a host knows: UUIDs by namespace id or logical unit number.
#[derive(Default)]
pub(crate) struct KnownDisks(BTreeMap<u32, [u8; 16]>);

/// What a host knows of a disk that it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing: the number is new.
    Nothing,
    /// This disk.
    ThisDisk,
    /// Another disk under this number.
    OtherDisk,
}

impl KnownDisks {
    /// The host sees a disk under a number. Result: what the host has known.
    pub(crate) fn sees(&mut self, number: u32, uuid: [u8; 16]) -> Known {
        match self.0.insert(number, uuid) {
            None => Known::Nothing,
            Some(known) if known == uuid => Known::ThisDisk,
            Some(_) => Known::OtherDisk,
        }
    }
}

/// Why a connection ends that knows another disk under a number.
pub(crate) const OTHER_DISK: &str =
    "one of its numbers is another disk now; it reads which when it connects again";
