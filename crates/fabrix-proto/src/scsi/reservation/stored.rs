//! Serialization of reservations that persist through power loss (APTPL, PTPL).
//!
//! The caller stores the bytes, and makes them durable before it answers the request. The format is
//! ours and has a version and a checksum. Bytes that do not match are refused as a whole, with a
//! reason: a fenced host that regains its registration by accident destroys data.

use alloc::vec::Vec;
use core::fmt;

use super::{Initiator, Kind, REGISTRANTS_MAX, Registrant, Reservations};
use crate::Crc32c;
use crate::codec::{Reader, Truncated};

/// Reason why stored reservations are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredError {
    /// The bytes are not reservations of this program, or have a newer version.
    Unknown,
    /// The checksum differs.
    Corrupted,
    /// The checksum is right, but the content is invalid. Another program has written the bytes.
    Inconsistent,
}

impl fmt::Display for StoredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "these are not stored reservations of a version known here",
            Self::Corrupted => "the stored reservations do not match their checksum",
            Self::Inconsistent => "the stored reservations contradict themselves",
        })
    }
}

impl core::error::Error for StoredError {}

impl From<Truncated> for StoredError {
    fn from(_: Truncated) -> Self {
        Self::Inconsistent
    }
}

impl Reservations {
    /// Bytes to store. Only a header without registrants if the state does not persist.
    #[must_use]
    pub fn to_bytes(&self, crc32c: Crc32c) -> Vec<u8> {
        self.bytes_if(self.persist, crc32c)
    }

    /// Bytes to store where another process may go on with the disk without a loss of power: with
    /// all registrants, also if the state does not persist.
    #[must_use]
    pub fn to_bytes_for_others(&self, crc32c: Crc32c) -> Vec<u8> {
        self.bytes_if(true, crc32c)
    }

    fn bytes_if(&self, all: bool, crc32c: Crc32c) -> Vec<u8> {
        let mut bytes = Vec::from(*MAGIC);
        let kept: &[Registrant] = if all { &self.registrants } else { &[] };
        let kind = self.kind.filter(|_| all);
        bytes.push(u8::from(self.persist));
        bytes.push(kind.map_or(0, Kind::nvme_type));
        bytes.extend(u16::try_from(kept.len()).unwrap_or(0).to_be_bytes());
        for registrant in kept {
            registrant.append_to(&mut bytes);
        }
        let checksum = crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// Restores the state that [`to_bytes`](Self::to_bytes) or
    /// [`to_bytes_for_others`](Self::to_bytes_for_others) wrote. Any other bytes are refused. The
    /// generation starts at zero, as after power on.
    ///
    /// # Errors
    /// The bytes are foreign, damaged or inconsistent, see [`StoredError`]. The caller must not
    /// export the disk then.
    pub fn from_bytes(bytes: &[u8], crc32c: Crc32c) -> Result<Self, StoredError> {
        if !bytes.starts_with(MAGIC) {
            return Err(StoredError::Unknown);
        }
        let (body, checksum) = bytes
            .split_last_chunk::<4>()
            .ok_or(StoredError::Corrupted)?;
        if crc32c(body).to_be_bytes() != *checksum {
            return Err(StoredError::Corrupted);
        }
        let mut reader = Reader::new(body);
        reader.take(MAGIC.len())?;
        let state = Self::read(&mut reader)?;
        state.check()?;
        let is_ours = state.to_bytes_for_others(crc32c) == bytes;
        is_ours.then_some(state).ok_or(StoredError::Inconsistent)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, StoredError> {
        let [persist, kind] = reader.array()?;
        let count = u16::from_be_bytes(reader.array()?);
        let registrants: Result<Vec<_>, _> = (0..count).map(|_| Registrant::read(reader)).collect();
        Ok(Self {
            registrants: registrants?,
            kind: read_kind(kind)?,
            persist: persist == 1,
            ..Self::new()
        })
    }

    /// Checks the invariants: exactly one registrant made the reservation, or at most one for an
    /// all-registrants type. Keys are not zero. A nexus is registered once.
    fn check(&self) -> Result<(), StoredError> {
        let makers = self
            .registrants
            .iter()
            .filter(|e| e.made_reservation)
            .count();
        let held = match self.kind {
            None => makers == 0,
            Some(kind) if kind.all_registrants() => makers <= 1 && !self.registrants.is_empty(),
            Some(_) => makers == 1,
        };
        let keys = self.registrants.iter().all(|entry| entry.key != 0);
        let few = self.registrants.len() <= REGISTRANTS_MAX;
        let sound = held && keys && few && self.each_registered_once();
        sound.then_some(()).ok_or(StoredError::Inconsistent)
    }

    /// Whether no nexus is registered twice. A registration for all ports excludes registrations of
    /// the same initiator for single ports.
    fn each_registered_once(&self) -> bool {
        let mut ports: Vec<_> = self
            .registrants
            .iter()
            .map(|e| (&e.initiator, e.port))
            .collect();
        ports.sort_unstable();
        ports.windows(2).all(|pair| {
            let [(one, port), (other, other_port)] = pair else {
                return true;
            };
            one != other || port.is_some() && port != other_port
        })
    }
}

impl Registrant {
    fn append_to(&self, bytes: &mut Vec<u8>) {
        let id = self.initiator.transport_id();
        bytes.extend(self.key.to_be_bytes());
        bytes.push(u8::from(self.made_reservation));
        bytes.push(u8::from(self.port.is_none()));
        bytes.extend(self.port.unwrap_or(0).to_be_bytes());
        bytes.extend(u16::try_from(id.len()).unwrap_or(0).to_be_bytes());
        bytes.extend_from_slice(id);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, StoredError> {
        let key = u64::from_be_bytes(reader.array()?);
        let [made, all_ports] = reader.array()?;
        let port = u16::from_be_bytes(reader.array()?);
        let id_bytes = u16::from_be_bytes(reader.array()?);
        let id = reader.take(usize::from(id_bytes))?;
        Ok(Self {
            initiator: Initiator::stored(id).ok_or(StoredError::Inconsistent)?,
            port: (all_ports == 0).then_some(port),
            key,
            made_reservation: made == 1,
        })
    }
}

fn read_kind(number: u8) -> Result<Option<Kind>, StoredError> {
    match number {
        0 => Ok(None),
        number => Kind::from_nvme_type(number)
            .map(Some)
            .ok_or(StoredError::Inconsistent),
    }
}

/// Name and version of the format.
const MAGIC: &[u8; 8] = b"FBXRESV1";
