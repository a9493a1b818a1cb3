//! Identity of a registrant: the TransportID of an initiator port, the common form for all
//! protocols.
//!
//! Initiators are compared byte by byte. Only the code here builds and parses TransportIDs, so that
//! each initiator has exactly one spelling.
//! Source: SPC-4, "TransportID identifiers"; RFC 7143, section 4.4 (initiator port names).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use sha2::{Digest, Sha256};

/// TransportID of an initiator port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Initiator(Arc<[u8]>);

/// An initiator port and the target port that it uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Nexus {
    /// Initiator port.
    pub initiator: Initiator,
    /// Relative target port identifier, from 1. 0 for NVMe, which has no such identifiers.
    pub port: u16,
}

/// A malformed or unsupported TransportID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportIdError {
    /// Byte offset of the fault within the parsed bytes.
    pub offset: usize,
}

impl Initiator {
    /// TransportID of an iSCSI initiator port: iSCSI name and ISID of the session.
    ///
    /// Source: SPC-4, "TransportID for initiator ports using SCSI over iSCSI", format 01b.
    #[must_use]
    pub fn iscsi(name: &str, isid: [u8; 6]) -> Self {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + name.len() + 24);
        bytes.extend_from_slice(&[ISCSI_PORT, 0, 0, 0]);
        bytes.extend(name.bytes().take(NAME_BYTES_MAX));
        bytes.extend_from_slice(SEPARATOR);
        for byte in isid {
            bytes.push(hex(byte >> 4));
            bytes.push(hex(byte & 0x0F));
        }
        Self::close(bytes)
    }

    /// TransportID of an NVMe host, made from its 128-bit host identifier. The protocol identifier
    /// is "no specific protocol".
    #[must_use]
    pub fn nvme(host: [u8; 16]) -> Self {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 20);
        bytes.extend_from_slice(&[NO_SPECIFIC_PROTOCOL, 0, 0, 0]);
        bytes.extend_from_slice(&host);
        Self::close(bytes)
    }

    /// Host identifier for reports to NVMe hosts. An NVMe host has its own identifier. An initiator
    /// of another protocol gets a UUID of version 8 that is made from a hash of its TransportID. No
    /// NVMe host connects with such an identifier.
    ///
    /// Source: RFC 9562, section 5.8.
    #[must_use]
    pub fn host_id(&self) -> [u8; 16] {
        let own = match *self.0 {
            [NO_SPECIFIC_PROTOCOL, ..] => self.0.get(HEADER_BYTES..),
            _ => None,
        };
        if let Some(id) = own.and_then(|body| body.first_chunk::<16>()) {
            return *id;
        }
        let hash: [u8; 32] = Sha256::digest(&self.0).into();
        let mut id = [0; 16];
        id.copy_from_slice(&hash[..16]);
        id[6] = id[6] & 0x0F | 0x80;
        id[8] = id[8] & 0x3F | 0x80;
        id
    }

    /// Terminates the name with NUL, pads it to a multiple of 4 bytes, and writes the length field.
    fn close(mut bytes: Vec<u8>) -> Self {
        bytes.push(0);
        let end = bytes.len().next_multiple_of(4).max(BYTES_MIN);
        bytes.resize(end, 0);
        let additional = u16::try_from(end - HEADER_BYTES).unwrap_or(0);
        bytes[2..4].copy_from_slice(&additional.to_be_bytes());
        Self(bytes.into())
    }

    /// Bytes of the TransportID.
    #[must_use]
    pub fn transport_id(&self) -> &[u8] {
        &self.0
    }

    /// Parses the TransportID at the start of `bytes`. Returns it with the bytes behind it.
    ///
    /// Only iSCSI initiator ports are accepted. A TransportID without ISID names all ports of an
    /// initiator, but a registration belongs to one port.
    ///
    /// # Errors
    /// The offset of the fault, if the TransportID is too short, has another format, or has an
    /// invalid name.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), TransportIdError> {
        let at = |offset| TransportIdError { offset };
        let header = bytes.first_chunk::<HEADER_BYTES>().ok_or_else(|| at(0))?;
        if header[0] != ISCSI_PORT {
            return Err(at(0));
        }
        let additional = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let end = HEADER_BYTES + additional;
        if end < BYTES_MIN || !end.is_multiple_of(4) || end > bytes.len() {
            return Err(at(2));
        }
        let (id, rest) = bytes.split_at(end);
        let initiator = Self::parse_port(&id[HEADER_BYTES..]).ok_or_else(|| at(HEADER_BYTES))?;
        Ok((initiator, rest))
    }

    fn parse_port(padded: &[u8]) -> Option<Self> {
        let text = padded.split(|byte| *byte == 0).next()?;
        let text = core::str::from_utf8(text).ok()?;
        // The last separator counts, because the name may contain the separator.
        let (name, isid) = text.rsplit_once(",i,0x")?;
        let digits = isid.len() == 12 && isid.bytes().all(|byte| byte.is_ascii_hexdigit());
        let isid = u64::from_str_radix(isid, 16).ok().filter(|_| digits)?;
        let [_, _, isid @ ..] = isid.to_be_bytes();
        let fits = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        fits.then(|| Self::iscsi(name, isid))
    }

    /// Restores an initiator from stored bytes. `None` if [`transport_id`](Self::transport_id)
    /// cannot have returned them.
    pub(super) fn stored(bytes: &[u8]) -> Option<Self> {
        let read = match bytes.strip_prefix(&[NO_SPECIFIC_PROTOCOL, 0, 0, 20]) {
            Some(body) => Self::nvme(*body.first_chunk()?),
            None => Self::parse(bytes).ok()?.0,
        };
        (*read.0 == *bytes).then_some(read)
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.0.get(HEADER_BYTES..).unwrap_or_default();
        match core::str::from_utf8(body) {
            Ok(name) => f.write_str(name.trim_end_matches('\0')),
            Err(_) => write!(f, "{body:02x?}"),
        }
    }
}

const fn hex(digit: u8) -> u8 {
    match digit {
        0..=9 => b'0' + digit,
        _ => b'a' + digit - 10,
    }
}

/// Format code 01b and protocol identifier 5h (iSCSI).
const ISCSI_PORT: u8 = 0x45;
const NO_SPECIFIC_PROTOCOL: u8 = 0x0F;
const HEADER_BYTES: usize = 4;
const BYTES_MIN: usize = 24;
/// Maximum length of an iSCSI name in bytes. Source: RFC 7143, section 4.2.7.
const NAME_BYTES_MAX: usize = 223;
const SEPARATOR: &[u8] = b",i,0x";
