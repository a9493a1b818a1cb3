//! NVMe over TCP: both sides of one connection as machines without I/O.
//!
//! [`pdu`] has the layouts. [`target`] and [`host`] have the rules of each side. This file has the
//! parts that both sides share: conversion of faults to violations, the checks of a header that do
//! not depend on its type, and the sending of headers.
//!
//! Source: NVM Express TCP Transport Specification 1.1.

pub mod host;
pub mod pdu;
pub mod target;

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use self::pdu::{
    COMMON_BYTES, CommonHeader, Digests, FLAG_DATA_DIGEST, FLAG_HEADER_DIGEST, MAX_QUOTED_BYTES,
    PduType, TerminateRequest,
};
use crate::{Breach, Crc32c, Sink, Violation};

/// Reason in the peer's terminate request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminateReason {
    /// FES. [`Breach::from_fes`] translates it.
    pub status: u16,
    /// FEI: for some reasons, the offset of the field at fault.
    pub information: u32,
}

impl fmt::Display for TerminateReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (status, offset) = (self.status, self.information);
        write!(f, "fatal error status {status}, field offset {offset}")
    }
}

/// A violation without the header that it quotes. Small, because every step may return one.
#[derive(Clone, Copy, Debug)]
struct Fault {
    breach: Breach,
    offset: u32,
    found: u64,
    sentence: &'static str,
}

impl Fault {
    /// A field of the header, `offset` bytes from its start, has an invalid value.
    fn field(offset: u32, found: impl Into<u64>, sentence: &'static str) -> Self {
        Self {
            breach: Breach::HeaderField,
            offset,
            found: found.into(),
            sentence,
        }
    }

    /// A field of the header requests a legal feature that is not supported.
    fn unsupported(offset: u32, found: impl Into<u64>, sentence: &'static str) -> Self {
        Self {
            breach: Breach::Unsupported,
            offset,
            found: found.into(),
            sentence,
        }
    }

    /// The PDU is not allowed now.
    fn sequence(found: impl Into<u64>, sentence: &'static str) -> Self {
        Self {
            breach: Breach::Sequence,
            offset: 0,
            found: found.into(),
            sentence,
        }
    }

    /// Data outside the requested range.
    fn range(found: impl Into<u64>, sentence: &'static str) -> Self {
        Self {
            breach: Breach::DataRange,
            offset: 0,
            found: found.into(),
            sentence,
        }
    }

    /// More than the agreed limit.
    fn limit(found: impl Into<u64>, sentence: &'static str) -> Self {
        Self {
            breach: Breach::Limit,
            offset: 0,
            found: found.into(),
            sentence,
        }
    }

    /// The violation for the owner of the machine, with the quoted header.
    fn violation(self, header: &[u8]) -> Violation {
        Violation::new(self.breach, self.offset, self.sentence)
            .found(self.found)
            .with_header(header)
    }
}

/// Whole header of a PDU that was received in parts, for its digest or for a violation's quote.
struct WholeHeader {
    bytes: [u8; MAX_QUOTED_BYTES],
    length: usize,
}

impl WholeHeader {
    /// Joins a common header and the bytes behind it. Bytes behind the header's end are left out.
    fn new(common: &CommonHeader, rest: &[u8]) -> Self {
        Self::join(common, rest, &[])
    }

    /// Joins a common header and two parts behind it.
    fn join(common: &CommonHeader, middle: &[u8], rest: &[u8]) -> Self {
        let mut whole = Self {
            bytes: [0; MAX_QUOTED_BYTES],
            length: 0,
        };
        let limit = usize::from(common.header_bytes).clamp(COMMON_BYTES, MAX_QUOTED_BYTES);
        for part in [common.as_bytes(), middle, rest] {
            let taken = part.len().min(limit - whole.length);
            whole.bytes[whole.length..whole.length + taken].copy_from_slice(&part[..taken]);
            whole.length += taken;
        }
        whole
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The header as the structure of its type. Missing bytes are zero.
    fn parse<T: FromBytes>(&self) -> T {
        let (header, _) = T::read_from_prefix(&self.bytes).expect("no header is above 128 bytes");
        header
    }
}

/// Checks the length field and the flags of ICReq and ICResp, which have no digest. Returns the end
/// of the header.
fn check_initialize(common: &CommonHeader) -> Result<u32, Fault> {
    let (end, total) = (u32::from(common.header_bytes), common.total_bytes.get());
    if total != end {
        return Err(Fault::field(
            4,
            total,
            "PLEN of ICReq and ICResp must be 128",
        ));
    }
    if common.flags != 0 {
        return Err(Fault::field(
            1,
            common.flags,
            "ICReq and ICResp have no flags",
        ));
    }
    Ok(end)
}

/// Checks the length field of a terminate request. Returns the end of its header.
fn check_terminate(common: &CommonHeader) -> Result<u32, Fault> {
    let total = common.total_bytes.get();
    if (24..=MAX_TERMINATE_BYTES).contains(&total) {
        return Ok(common.header_bytes.into());
    }
    Err(Fault::field(
        4,
        total,
        "PLEN of a terminate request must be 24 to 152",
    ))
}

/// Checks HLEN, which depends only on the type of the PDU.
fn check_header_length(common: &CommonHeader) -> Result<(), Fault> {
    if common.pdu_type.header_bytes() == Some(common.header_bytes) {
        return Ok(());
    }
    Err(Fault::field(
        2,
        common.header_bytes,
        "HLEN is not the length of this kind of header",
    ))
}

/// Checks the digest flags against the agreed digests. `more`: other valid flags of this type.
fn check_flags(
    common: &CommonHeader,
    digests: Digests,
    has_data: bool,
    more: u8,
) -> Result<(), Fault> {
    let flags = common.flags;
    if flags & !(FLAG_HEADER_DIGEST | FLAG_DATA_DIGEST | more) != 0 {
        return Err(Fault::field(1, flags, "a reserved flag is set"));
    }
    if (flags & FLAG_HEADER_DIGEST != 0) != digests.header {
        return Err(Fault::field(
            1,
            flags,
            "the header digest flag is not as agreed",
        ));
    }
    let data_digest = flags & FLAG_DATA_DIGEST != 0;
    if has_data && data_digest != digests.data || data_digest && !digests.data {
        return Err(Fault::field(
            1,
            flags,
            "the data digest flag is not as agreed",
        ));
    }
    Ok(())
}

/// Checks that data begins after the header and its digest, at a multiple of 4. More padding than
/// requested is harmless.
fn check_data_offset(common: &CommonHeader, digests: Digests) -> Result<(), Fault> {
    let offset = common.data_offset;
    if u32::from(offset) < common.header_end(digests) || !offset.is_multiple_of(4) {
        return Err(Fault::field(
            3,
            offset,
            "PDO points into the header or is no multiple of 4",
        ));
    }
    Ok(())
}

/// Compares a header with the digest at the start of `after`.
fn check_header_digest(header: &[u8], after: &[u8], crc32c: Crc32c) -> Result<(), Fault> {
    let found = after.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    if found == Some(crc32c(header)) {
        return Ok(());
    }
    Err(Fault {
        breach: Breach::HeaderDigest,
        offset: 0,
        found: found.unwrap_or(0).into(),
        sentence: "the header digest is not that of the header",
    })
}

/// Sends a header, its digest, and the padding up to its PDO, as one piece.
#[inline(always)]
fn send_header<H: IntoBytes + Immutable + Copy, S: Sink>(
    header: H,
    digests: Digests,
    crc32c: Crc32c,
    out: &mut S,
) {
    let bytes = header.as_bytes();
    if !digests.header && usize::from(bytes[3]) <= bytes.len() {
        return out.bytes(bytes);
    }
    send_padded(header, digests, crc32c, out);
}

/// Sends a header with digest or padding. The header is passed by value: a reference would keep the
/// caller's header in memory, where the processor waits when small writes precede large reads.
#[inline(never)]
fn send_padded<H: IntoBytes + Immutable + Copy, S: Sink>(
    header: H,
    digests: Digests,
    crc32c: Crc32c,
    out: &mut S,
) {
    let header = header.as_bytes();
    let mut padded = [0; MAX_PADDED_HEADER_BYTES];
    padded[..header.len()].copy_from_slice(header);
    let mut end = header.len();
    if digests.header {
        padded[end..end + 4].copy_from_slice(&crc32c(header).to_le_bytes());
        end += 4;
    }
    out.bytes(&padded[..end.max(usize::from(header[3]))]);
}

/// Sends the terminate request of one side.
fn send_terminate<S: Sink>(pdu_type: PduType, violation: &Violation, out: &mut S) {
    let quoted = violation.header();
    let quoted_bytes = u8::try_from(quoted.len()).expect("a violation quotes at most 128 bytes");
    let header = TerminateRequest::new(pdu_type, violation.fes(), violation.fei(), quoted_bytes);
    out.bytes(header.as_bytes());
    if !quoted.is_empty() {
        out.bytes(quoted);
    }
}

/// Maximum length in bytes of H2CTermReq and C2HTermReq: 24 bytes and the quoted header.
const MAX_TERMINATE_BYTES: u32 = 152;
/// Exceeds the largest PDO of any alignment (144 bytes), see `pdu::data_offset`.
const MAX_PADDED_HEADER_BYTES: usize = 256;
