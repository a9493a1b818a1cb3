//! The PDUs of NVMe/TCP: headers, flags, where padding and digests lie, and the reasons for ending a connection.
//!
//! Layout only, with two small calculations that both sides share (where data begins, how long a PDU is). What a
//! PDU may follow, and what is done with it, stands in `target.rs` and `host.rs`.
//!
//! Source: NVM Express TCP Transport Specification 1.1, section 3.6 "NVMe/TCP PDU Definitions".

use core::mem::{offset_of, size_of};

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The kind of a PDU, its first byte. Open: a peer may send any value.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct PduType(pub u8);

impl PduType {
    /// ICReq: the host's first PDU, its wishes for the connection.
    pub const INITIALIZE_REQUEST: Self = Self(0x00);
    /// ICResp: the controller's first PDU, what both sides now use.
    pub const INITIALIZE_RESPONSE: Self = Self(0x01);
    /// H2CTermReq: the host ends the connection and says why.
    pub const HOST_TERMINATE: Self = Self(0x02);
    /// C2HTermReq: the controller ends the connection and says why.
    pub const CONTROLLER_TERMINATE: Self = Self(0x03);
    /// CapsuleCmd: a submission entry, with or without data.
    pub const COMMAND: Self = Self(0x04);
    /// CapsuleResp: a completion entry.
    pub const RESPONSE: Self = Self(0x05);
    /// H2CData: a piece of a write's data that the controller has asked for.
    pub const HOST_DATA: Self = Self(0x06);
    /// C2HData: a piece of a read's data.
    pub const CONTROLLER_DATA: Self = Self(0x07);
    /// R2T: the controller asks for a piece of a write's data.
    pub const READY_TO_TRANSFER: Self = Self(0x09);

    /// The standard's name of the PDU, for messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::INITIALIZE_REQUEST => "ICReq",
            Self::INITIALIZE_RESPONSE => "ICResp",
            Self::HOST_TERMINATE => "H2CTermReq",
            Self::CONTROLLER_TERMINATE => "C2HTermReq",
            Self::COMMAND => "CapsuleCmd",
            Self::RESPONSE => "CapsuleResp",
            Self::HOST_DATA => "H2CData",
            Self::CONTROLLER_DATA => "C2HData",
            Self::READY_TO_TRANSFER => "R2T",
            _ => "unknown PDU",
        }
    }

    /// The length that the header of this PDU must have (HLEN), in bytes; `None` for an unknown kind.
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
/// FLAGS of H2CData and C2HData: the last PDU of this transfer (LAST_PDU).
pub const FLAG_LAST: u8 = 1 << 2;
/// FLAGS of C2HData: the command succeeded and no CapsuleResp follows (SUCCESS).
pub const FLAG_SUCCESS: u8 = 1 << 3;

/// DGST of ICReq and ICResp: header digests are used (HDGST_ENABLE).
pub const ENABLE_HEADER_DIGEST: u8 = 1 << 0;
/// DGST of ICReq and ICResp: data digests are used (DDGST_ENABLE).
pub const ENABLE_DATA_DIGEST: u8 = 1 << 1;

/// What every PDU begins with (CH).
///
/// 8 bytes, little-endian.
/// Source: NVMe/TCP Transport Specification, "PDU Common Header (CH)".
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct CommonHeader {
    /// PDU-Type.
    pub pdu_type: PduType,
    /// FLAGS: `FLAG_*`, by kind.
    pub flags: u8,
    /// HLEN: the header without its digest, in bytes.
    pub header_bytes: u8,
    /// PDO: where the data begins, in bytes from the first byte of the PDU.
    pub data_offset: u8,
    /// PLEN: the whole PDU with digests, padding and data, in bytes.
    pub total_bytes: U32,
}
const _: () = assert!(size_of::<CommonHeader>() == COMMON_BYTES);
const _: () = assert!(offset_of!(CommonHeader, header_bytes) == 2);
const _: () = assert!(offset_of!(CommonHeader, data_offset) == 3);
const _: () = assert!(offset_of!(CommonHeader, total_bytes) == 4);

/// ICReq: the host opens the connection.
///
/// 128 bytes, little-endian; never with digests.
/// Source: NVMe/TCP Transport Specification, "Initialize Connection Request PDU (ICReq)".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct InitializeRequest {
    /// CH.
    pub common: CommonHeader,
    /// PFV: version of the PDU formats, 0.
    pub format_version: U16,
    /// HPDA: how the host wants the data of C2HData aligned, in units of 4 bytes, counted from zero; 0..=31.
    pub host_alignment: u8,
    /// DGST: `ENABLE_*`, the digests the host wants.
    pub digests: u8,
    /// MAXR2T: how many R2Ts of one command may be outstanding, counted from zero.
    pub max_r2t: U32,
    reserved: [u8; 112],
}
const _: () = assert!(size_of::<InitializeRequest>() == 128);
const _: () = assert!(offset_of!(InitializeRequest, format_version) == 8);
const _: () = assert!(offset_of!(InitializeRequest, host_alignment) == 10);
const _: () = assert!(offset_of!(InitializeRequest, digests) == 11);
const _: () = assert!(offset_of!(InitializeRequest, max_r2t) == 12);

/// ICResp: the controller's answer to ICReq.
///
/// 128 bytes, little-endian; never with digests.
/// Source: NVMe/TCP Transport Specification, "Initialize Connection Response PDU (ICResp)".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct InitializeResponse {
    /// CH.
    pub common: CommonHeader,
    /// PFV: version of the PDU formats, 0.
    pub format_version: U16,
    /// CPDA: how the controller wants the data of CapsuleCmd and H2CData aligned, as HPDA.
    pub controller_alignment: u8,
    /// DGST: `ENABLE_*`, the digests both sides use from now on.
    pub digests: u8,
    /// MAXH2CDATA: the most data one H2CData may carry, in bytes; at least 4096, a multiple of 4.
    pub max_h2c_bytes: U32,
    reserved: [u8; 112],
}
const _: () = assert!(size_of::<InitializeResponse>() == 128);
const _: () = assert!(offset_of!(InitializeResponse, controller_alignment) == 10);
const _: () = assert!(offset_of!(InitializeResponse, digests) == 11);
const _: () = assert!(offset_of!(InitializeResponse, max_h2c_bytes) == 12);

/// H2CTermReq and C2HTermReq: one side ends the connection; up to 128 bytes of the offending header follow.
///
/// 24 bytes, little-endian; never with digests.
/// Source: NVMe/TCP Transport Specification, "Host to Controller Terminate Connection Request PDU".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct TerminateRequest {
    /// CH.
    pub common: CommonHeader,
    /// FES: why; a [`crate::Breach`] says what the numbers mean.
    pub status: U16,
    /// FEI: more about it; the offset of the wrong field for some reasons.
    pub information: U32,
    reserved: [u8; 10],
}
const _: () = assert!(size_of::<TerminateRequest>() == 24);
const _: () = assert!(offset_of!(TerminateRequest, status) == 8);
const _: () = assert!(offset_of!(TerminateRequest, information) == 10);

/// CapsuleCmd without its data.
///
/// 72 bytes, little-endian.
/// Source: NVMe/TCP Transport Specification, "Command Capsule PDU (CapsuleCmd)".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct CommandHeader {
    /// CH.
    pub common: CommonHeader,
    /// CCSQE: the submission entry.
    pub entry: [u8; 64],
}
const _: () = assert!(size_of::<CommandHeader>() == 72 && offset_of!(CommandHeader, entry) == 8);

/// CapsuleResp.
///
/// 24 bytes, little-endian.
/// Source: NVMe/TCP Transport Specification, "Response Capsule PDU (CapsuleResp)".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct ResponseHeader {
    /// CH.
    pub common: CommonHeader,
    /// RCCQE: the completion entry.
    pub entry: [u8; 16],
}
const _: () = assert!(size_of::<ResponseHeader>() == 24 && offset_of!(ResponseHeader, entry) == 8);

/// H2CData and C2HData: a piece of a command's data follows.
///
/// 24 bytes, little-endian.
/// Source: NVMe/TCP Transport Specification, "Host To Controller Data Transfer PDU (H2CData)" and
/// "Controller To Host Data Transfer PDU (C2HData)".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct DataHeader {
    /// CH.
    pub common: CommonHeader,
    /// CCCID: whose data.
    pub command_id: U16,
    /// TTAG of H2CData: quoted from the R2T. Reserved in C2HData.
    pub transfer_tag: U16,
    /// DATAO: from the start of the command's data, in bytes.
    pub offset_bytes: U32,
    /// DATAL: the data in this PDU, in bytes.
    pub data_bytes: U32,
    reserved: [u8; 4],
}
const _: () = assert!(size_of::<DataHeader>() == 24);
const _: () = assert!(offset_of!(DataHeader, command_id) == 8);
const _: () = assert!(offset_of!(DataHeader, transfer_tag) == 10);
const _: () = assert!(offset_of!(DataHeader, offset_bytes) == 12);
const _: () = assert!(offset_of!(DataHeader, data_bytes) == 16);

/// R2T: the controller asks the host for one piece of a write's data.
///
/// 24 bytes, little-endian.
/// Source: NVMe/TCP Transport Specification, "Ready to Transfer PDU (R2T)".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct R2tHeader {
    /// CH.
    pub common: CommonHeader,
    /// CCCID: whose data.
    pub command_id: U16,
    /// TTAG: quoted back by every H2CData.
    pub transfer_tag: U16,
    /// R2TO: from the start of the command's data, in bytes.
    pub offset_bytes: U32,
    /// R2TL: how much is asked for, in bytes.
    pub data_bytes: U32,
    reserved: [u8; 4],
}
const _: () = assert!(size_of::<R2tHeader>() == 24);
const _: () = assert!(offset_of!(R2tHeader, transfer_tag) == 10);
const _: () = assert!(offset_of!(R2tHeader, offset_bytes) == 12);
const _: () = assert!(offset_of!(R2tHeader, data_bytes) == 16);

impl CommonHeader {
    /// The common header of a PDU of this kind without data; an unknown kind counts as 24 bytes long.
    #[must_use]
    pub fn without_data(pdu_type: PduType, digests: Digests) -> Self {
        let mut header = Self::bare(pdu_type, pdu_type.header_bytes().unwrap_or(24));
        if digests.header {
            header.flags = FLAG_HEADER_DIGEST;
            header.total_bytes = U32::new(u32::from(header.header_bytes) + DIGEST_BYTES);
        }
        header
    }

    /// The common header of a PDU of this kind with `data_bytes` of data, aligned as the receiver's HPDA or CPDA asks.
    ///
    /// `None` when the PDU would be longer than PLEN can say.
    #[must_use]
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

    fn bare(pdu_type: PduType, header_bytes: u8) -> Self {
        Self {
            pdu_type,
            flags: 0,
            header_bytes,
            data_offset: 0,
            total_bytes: U32::new(u32::from(header_bytes)),
        }
    }

    /// Where the header and its digest end, in bytes.
    #[must_use]
    pub fn header_end(&self, digests: Digests) -> u32 {
        u32::from(self.header_bytes) + digests.header_bytes()
    }
}

impl InitializeRequest {
    /// An ICReq; `max_r2t` is a plain count here.
    #[must_use]
    pub fn new(host_alignment: u8, digests: Digests, max_r2t: u32) -> Self {
        Self {
            common: CommonHeader::bare(PduType::INITIALIZE_REQUEST, 128),
            format_version: U16::ZERO,
            host_alignment,
            digests: digests.to_wire(),
            max_r2t: U32::new(max_r2t.saturating_sub(1)),
            reserved: [0; 112],
        }
    }
}

impl InitializeResponse {
    /// An ICResp.
    #[must_use]
    pub fn new(controller_alignment: u8, digests: Digests, max_h2c_bytes: u32) -> Self {
        Self {
            common: CommonHeader::bare(PduType::INITIALIZE_RESPONSE, 128),
            format_version: U16::ZERO,
            controller_alignment,
            digests: digests.to_wire(),
            max_h2c_bytes: U32::new(max_h2c_bytes),
            reserved: [0; 112],
        }
    }
}

impl TerminateRequest {
    /// An H2CTermReq or C2HTermReq behind which `quoted_bytes` of the offending header follow.
    #[must_use]
    pub fn new(pdu_type: PduType, status: u16, information: u32, quoted_bytes: u8) -> Self {
        let mut common = CommonHeader::bare(pdu_type, 24);
        common.total_bytes = U32::new(24 + u32::from(quoted_bytes));
        Self {
            common,
            status: U16::new(status),
            information: U32::new(information),
            reserved: [0; 10],
        }
    }
}

impl DataHeader {
    /// An H2CData or C2HData, as `common` says; the length of its data is `data_bytes`.
    #[must_use]
    pub const fn new(
        common: CommonHeader,
        command_id: u16,
        transfer_tag: u16,
        offset_bytes: u32,
        data_bytes: u32,
    ) -> Self {
        Self {
            common,
            command_id: U16::new(command_id),
            transfer_tag: U16::new(transfer_tag),
            offset_bytes: U32::new(offset_bytes),
            data_bytes: U32::new(data_bytes),
            reserved: [0; 4],
        }
    }
}

impl R2tHeader {
    /// An R2T for `data_bytes` from `offset_bytes`.
    #[must_use]
    pub fn new(
        digests: Digests,
        command_id: u16,
        transfer_tag: u16,
        offset_bytes: u32,
        data_bytes: u32,
    ) -> Self {
        Self {
            common: CommonHeader::without_data(PduType::READY_TO_TRANSFER, digests),
            command_id: U16::new(command_id),
            transfer_tag: U16::new(transfer_tag),
            offset_bytes: U32::new(offset_bytes),
            data_bytes: U32::new(data_bytes),
            reserved: [0; 4],
        }
    }
}

/// Which digests a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// CRC32C over each header (HDGST).
    pub header: bool,
    /// CRC32C over the data of each PDU that has data (DDGST).
    pub data: bool,
}

impl Digests {
    /// From the DGST byte of ICReq or ICResp; reserved bits are not looked at.
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

    /// What the header digest adds to a PDU, in bytes.
    #[must_use]
    pub const fn header_bytes(self) -> u32 {
        if self.header { DIGEST_BYTES } else { 0 }
    }

    /// What the data digest adds to a PDU that has data, in bytes.
    #[must_use]
    pub const fn data_bytes(self) -> u32 {
        if self.data { DIGEST_BYTES } else { 0 }
    }
}

/// Where data begins in a PDU (PDO): after the header and its digest, rounded up to the receiver's alignment.
///
/// `alignment` is HPDA or CPDA as on the wire: units of 4 bytes, counted from zero. Above the standard's 31 it
/// counts as 31, so that the answer always fits.
/// Source: NVMe/TCP Transport Specification, "PDU Data Offset", "PDU Padding".
#[must_use]
pub const fn data_offset(header_bytes: u8, header_digest: bool, alignment: u8) -> u8 {
    let units = if alignment > MAX_ALIGNMENT {
        MAX_ALIGNMENT
    } else {
        alignment
    };
    let step = (units + 1) * 4;
    let end = header_bytes.saturating_add(if header_digest { 4 } else { 0 });
    end.div_ceil(step).saturating_mul(step)
}

/// The length of the common header, in bytes.
pub const COMMON_BYTES: usize = 8;
/// The length of a digest, in bytes.
pub const DIGEST_BYTES: u32 = 4;
/// The largest HPDA or CPDA.
pub const MAX_ALIGNMENT: u8 = 31;
/// The smallest MAXH2CDATA a controller may name, in bytes.
pub const MIN_MAX_H2C_BYTES: u32 = 4096;
/// The most of an offending header that a terminate request quotes, in bytes.
pub const MAX_QUOTED_BYTES: usize = 128;
/// In-capsule data of the admin queue and of every fabrics command may be this long whatever IOCCSZ says, in bytes.
pub const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;

#[cfg(test)]
mod tests {
    use super::*;

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
