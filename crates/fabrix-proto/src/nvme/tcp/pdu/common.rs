//! Common header of all PDUs of NVMe/TCP: type, flags, lengths, and position of the data.
//!
//! Layout, with two small calculations that both sides share: the start of the data, and the length
//! of a PDU.
//!
//! Source: NVM Express TCP Transport Specification 1.1, section 3.6 "NVMe/TCP PDU Definitions".

use zerocopy::byteorder::little_endian::U32;

use crate::Pass;

wire! {
    /// Type of a PDU, its first byte. Open: a peer may send any value.
    pub struct PduType(pub u8);
}

impl PduType {
    /// ICReq: first PDU of the host, with its requests for the connection.
    pub const INITIALIZE_REQUEST: Self = Self(0x00);
    /// ICResp: first PDU of the controller, with the agreed parameters.
    pub const INITIALIZE_RESPONSE: Self = Self(0x01);
    /// H2CTermReq: the host ends the connection, with a reason.
    pub const HOST_TERMINATE: Self = Self(0x02);
    /// C2HTermReq: the controller ends the connection, with a reason.
    pub const CONTROLLER_TERMINATE: Self = Self(0x03);
    /// CapsuleCmd: a submission entry, with or without data.
    pub const COMMAND: Self = Self(0x04);
    /// CapsuleResp: a completion entry.
    pub const RESPONSE: Self = Self(0x05);
    /// H2CData: a piece of a write's data that the controller has requested.
    pub const HOST_DATA: Self = Self(0x06);
    /// C2HData: a piece of a read's data.
    pub const CONTROLLER_DATA: Self = Self(0x07);
    /// R2T: the controller requests a piece of a write's data.
    pub const READY_TO_TRANSFER: Self = Self(0x09);

    /// Required header length (HLEN) of this type in bytes. `None` for an unknown type.
    #[must_use]
    pub const fn header_bytes(self) -> Option<u8> {
        match self {
            Self::INITIALIZE_REQUEST | Self::INITIALIZE_RESPONSE => Some(128),
            Self::COMMAND => Some(72),
            Self::HOST_TERMINATE
            | Self::CONTROLLER_TERMINATE
            | Self::RESPONSE
            | Self::HOST_DATA
            | Self::CONTROLLER_DATA
            | Self::READY_TO_TRANSFER => Some(24),
            _ => None,
        }
    }
}

/// FLAGS: a header digest follows the header (HDGSTF).
pub const FLAG_HEADER_DIGEST: u8 = 1 << 0;
/// FLAGS: a data digest follows the data (DDGSTF).
pub const FLAG_DATA_DIGEST: u8 = 1 << 1;
/// FLAGS of H2CData and C2HData: last PDU of this transfer (LAST_PDU).
pub const FLAG_LAST: u8 = 1 << 2;
/// FLAGS of C2HData: the command succeeded and no CapsuleResp follows (SUCCESS).
pub const FLAG_SUCCESS: u8 = 1 << 3;

/// DGST of ICReq and ICResp: header digests are used (HDGST_ENABLE).
pub const ENABLE_HEADER_DIGEST: u8 = 1 << 0;
/// DGST of ICReq and ICResp: data digests are used (DDGST_ENABLE).
pub const ENABLE_DATA_DIGEST: u8 = 1 << 1;

wire! {
    /// Common header of all PDUs (CH).
    ///
    /// 8 bytes, little-endian.
    /// Source: NVMe/TCP Transport Specification, "PDU Common Header (CH)".
    pub struct CommonHeader: COMMON_BYTES bytes {
        /// PDU-Type.
        pub pdu_type: PduType,
        /// FLAGS: `FLAG_*`, by type.
        pub flags: u8,
        /// HLEN: length of the header without its digest, in bytes.
        pub header_bytes @ 2: u8,
        /// PDO: start of the data, in bytes from the first byte of the PDU.
        pub data_offset @ 3: u8,
        /// PLEN: length of the PDU with digests, padding and data, in bytes.
        pub total_bytes @ 4: U32,
    }
}

impl CommonHeader {
    /// Common header of a PDU without data. An unknown type counts as 24 bytes long.
    #[must_use]
    pub fn without_data(pdu_type: PduType, digests: Digests) -> Self {
        let mut header = Self::bare(pdu_type, pdu_type.header_bytes().unwrap_or(24));
        if digests.header {
            header.flags = FLAG_HEADER_DIGEST;
            header.total_bytes = U32::new(u32::from(header.header_bytes) + DIGEST_BYTES);
        }
        header
    }

    /// Common header of a PDU with `data_bytes` of data, aligned by the receiver's HPDA or CPDA.
    ///
    /// `None` if the length of the PDU exceeds PLEN.
    #[must_use]
    #[inline(always)]
    pub fn with_data(
        pdu_type: PduType,
        digests: Digests,
        alignment: u8,
        data_bytes: u32,
    ) -> Option<Self> {
        let mut header = Self::without_data(pdu_type, digests);
        header.data_offset = data_offset(header.header_bytes, digests.header, alignment);
        if digests.data {
            header.flags |= FLAG_DATA_DIGEST;
        }
        let total = u32::from(header.data_offset).checked_add(data_bytes)?;
        header.total_bytes = U32::new(total.checked_add(digests.data_bytes())?);
        Some(header)
    }

    /// A common header without data, digests and flags.
    pub(super) fn bare(pdu_type: PduType, header_bytes: u8) -> Self {
        Self {
            pdu_type,
            flags: 0,
            header_bytes,
            data_offset: 0,
            total_bytes: U32::new(u32::from(header_bytes)),
        }
    }

    /// End of the header and its digest, in bytes.
    #[must_use]
    pub fn header_end(&self, digests: Digests) -> u32 {
        u32::from(self.header_bytes) + digests.header_bytes()
    }
}

/// Digests of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// CRC32C over each header (HDGST).
    pub header: bool,
    /// CRC32C over the data of each PDU that has data (DDGST).
    pub data: bool,
}

impl Digests {
    /// Computation over the data of a PDU.
    #[must_use]
    pub const fn pass(self) -> Pass {
        Pass::of_digest(self.data)
    }

    /// Digests of the DGST byte of ICReq or ICResp. Reserved bits are ignored.
    #[must_use]
    pub const fn from_wire(byte: u8) -> Self {
        Self {
            header: byte & ENABLE_HEADER_DIGEST != 0,
            data: byte & ENABLE_DATA_DIGEST != 0,
        }
    }

    /// The DGST byte of ICReq or ICResp.
    #[must_use]
    pub const fn to_wire(self) -> u8 {
        (if self.header { ENABLE_HEADER_DIGEST } else { 0 })
            | (if self.data { ENABLE_DATA_DIGEST } else { 0 })
    }

    /// Length of the header digest in bytes, or zero without one.
    #[must_use]
    pub const fn header_bytes(self) -> u32 {
        if self.header { DIGEST_BYTES } else { 0 }
    }

    /// Length of the digest behind a PDU's data in bytes, or zero without one.
    #[must_use]
    pub const fn data_bytes(self) -> u32 {
        if self.data { DIGEST_BYTES } else { 0 }
    }
}

/// Start of the data in a PDU (PDO): the end of the header and its digest, rounded up to the
/// receiver's alignment.
///
/// `alignment` is HPDA or CPDA as on the wire: units of 4 bytes, counted from zero. Values above
/// the standard's 31 count as 31, so that the result always fits.
/// Source: NVMe/TCP Transport Specification, "PDU Data Offset", "PDU Padding".
#[must_use]
pub const fn data_offset(header_bytes: u8, header_digest: bool, alignment: u8) -> u8 {
    let units = if alignment > MAX_ALIGNMENT {
        MAX_ALIGNMENT
    } else {
        alignment
    };
    let end = header_bytes.saturating_add(if header_digest { 4 } else { 0 });
    if units == 0 && end.is_multiple_of(4) {
        // The usual case: nearly all receivers request no alignment. No division.
        return end;
    }
    let step = (units + 1) * 4;
    end.div_ceil(step).saturating_mul(step)
}

/// Length of the common header in bytes.
pub const COMMON_BYTES: usize = 8;
/// Length of a digest in bytes.
pub const DIGEST_BYTES: u32 = 4;
/// Largest HPDA or CPDA.
pub const MAX_ALIGNMENT: u8 = 31;

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn data_begins_after_the_header_and_its_digest() {
        assert_eq!(data_offset(24, false, 0), 24);
        assert_eq!(data_offset(24, true, 0), 28);
        assert_eq!(data_offset(72, true, 0), 76);
    }

    #[test]
    fn data_begins_at_the_alignment_the_receiver_asked_for() {
        assert_eq!(data_offset(24, false, 1), 24);
        assert_eq!(data_offset(24, true, 1), 32);
        assert_eq!(data_offset(24, true, 2), 36);
        assert_eq!(data_offset(24, false, 31), 128);
        assert_eq!(data_offset(72, true, 31), 128);
        assert_eq!(data_offset(72, false, 18), 76);
    }

    #[test]
    fn no_alignment_a_peer_can_ask_for_overflows_the_data_offset() {
        for alignment in 0..=u8::MAX {
            for header_bytes in [24, 72] {
                let offset = data_offset(header_bytes, true, alignment);
                assert!(offset >= header_bytes + 4 && offset <= 144 && offset.is_multiple_of(4));
            }
        }
    }

    #[test]
    fn a_pdu_without_data_has_no_data_offset_and_no_data_digest() {
        let both = Digests {
            header: true,
            data: true,
        };
        let header = CommonHeader::without_data(PduType::COMMAND, both);
        assert_eq!(
            header.as_bytes(),
            [4, FLAG_HEADER_DIGEST, 72, 0, 76, 0, 0, 0]
        );
    }

    #[test]
    fn a_pdu_longer_than_its_length_field_is_not_built() {
        let none = Digests::default();
        let build = |bytes| CommonHeader::with_data(PduType::CONTROLLER_DATA, none, 0, bytes);
        assert!(build(u32::MAX).is_none());
        assert!(build(u32::MAX - 23).is_none());
        assert!(build(u32::MAX - 24).is_some());
    }
}
