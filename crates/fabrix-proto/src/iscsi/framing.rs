//! What both sides of a connection do with PDUs, whatever they mean: how one leaves with its
//! digests, whether a header is the one that was sent, and the fault that ends a connection.
//!
//! Source: RFC 7143, sections 11.1, 11.2 and 13.1.

use alloc::vec::Vec;

use zerocopy::{Immutable, IntoBytes};

use super::pdu::{BHS_BYTES, DATA_SEGMENT_MAX, Digests, U24, padding};
use crate::{Breach, Crc32c, Sink, Violation};

/// A broken rule before the header it stood in is quoted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    breach: Breach,
    offset: u32,
    found: u32,
    sentence: &'static str,
}

impl Fault {
    pub(super) const fn new(
        breach: Breach,
        offset: u32,
        found: u32,
        sentence: &'static str,
    ) -> Self {
        Self {
            breach,
            offset,
            found,
            sentence,
        }
    }

    pub(super) fn violation(self, header: &[u8]) -> Violation {
        Violation::new(self.breach, self.offset, self.sentence)
            .found(u64::from(self.found))
            .with_header(header)
    }
}

/// Any header of 48 bytes.
pub(super) trait IntoBytesHeader {
    fn as_header(&self) -> &[u8];
}

impl<T: IntoBytes + Immutable> IntoBytesHeader for T {
    fn as_header(&self) -> &[u8] {
        debug_assert_eq!(size_of::<T>(), BHS_BYTES);
        self.as_bytes()
    }
}

/// The length of a data segment of our own, as headers have it.
pub(super) fn segment_length(data: &[u8]) -> U24 {
    U24::new(u32::try_from(data.len()).unwrap_or(DATA_SEGMENT_MAX))
}

/// Sends a header, and its digest where there are some.
pub(super) fn send_header<S: Sink>(
    header: &impl IntoBytesHeader,
    digests: Digests,
    crc32c: Crc32c,
    out: &mut S,
) {
    let bytes = header.as_header();
    out.bytes(bytes);
    if digests.header {
        out.bytes(&crc32c(bytes).to_le_bytes());
    }
}

/// Sends a PDU with data of our own: short, and by value.
pub(super) fn send<S: Sink>(
    header: &impl IntoBytesHeader,
    data: &[u8],
    digests: Digests,
    crc32c: Crc32c,
    out: &mut S,
) {
    send_header(header, digests, crc32c, out);
    if data.is_empty() {
        return;
    }
    let mut padded: Vec<u8> = data.to_vec();
    padded.resize(data.len() + padding(data.len()), 0);
    let digest = digests.data.then(|| crc32c(&padded));
    padded.extend(digest.iter().flat_map(|digest| digest.to_le_bytes()));
    out.bytes(&padded);
}
