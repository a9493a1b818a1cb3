//! PDUs of NVMe/TCP: headers, flags, and the limits of their fields.
//!
//! Layout only. `pdu/common.rs` has the common header, and the position of data, padding and
//! digests. `target.rs` and `host.rs` process the PDUs.
//!
//! Source: NVM Express TCP Transport Specification 1.1, section 3.6 "NVMe/TCP PDU Definitions".

mod common;

use zerocopy::byteorder::little_endian::{U16, U32};

pub use self::common::*;

wire! {
    /// ICReq: the host opens the connection.
    ///
    /// 128 bytes, little-endian; never with digests.
    /// Source: NVMe/TCP Transport Specification, "Initialize Connection Request PDU (ICReq)".
    pub struct InitializeRequest: 128 bytes {
        /// CH.
        pub common: CommonHeader,
        /// PFV: version of the PDU formats, 0.
        pub format_version @ 8: U16,
        /// HPDA: alignment that the host requests for the data of C2HData, in units of 4 bytes,
        /// counted from zero; 0..=31.
        pub host_alignment @ 10: u8,
        /// DGST: `ENABLE_*`, the digests that the host requests.
        pub digests @ 11: u8,
        /// MAXR2T: maximum number of outstanding R2Ts of one command, counted from zero.
        pub max_r2t @ 12: U32,
        reserved: [u8; 112],
    }

    /// ICResp: the controller's answer to ICReq.
    ///
    /// 128 bytes, little-endian; never with digests.
    /// Source: NVMe/TCP Transport Specification, "Initialize Connection Response PDU (ICResp)".
    pub struct InitializeResponse: 128 bytes {
        /// CH.
        pub common: CommonHeader,
        /// PFV: version of the PDU formats, 0.
        pub format_version: U16,
        /// CPDA: alignment that the controller requests for CapsuleCmd and H2CData, as HPDA.
        pub controller_alignment @ 10: u8,
        /// DGST: `ENABLE_*`, the digests of both sides from now on.
        pub digests @ 11: u8,
        /// MAXH2CDATA: maximum data length of one H2CData in bytes; at least 4096, a multiple of 4.
        pub max_h2c_bytes @ 12: U32,
        reserved: [u8; 112],
    }

    /// H2CTermReq and C2HTermReq: one side ends the connection; up to 128 bytes of the offending
    /// header follow.
    ///
    /// 24 bytes, little-endian; never with digests.
    /// Source: NVMe/TCP Transport Specification, "Host to Controller Terminate Connection Request
    /// PDU".
    pub struct TerminateRequest: 24 bytes {
        /// CH.
        pub common: CommonHeader,
        /// FES: reason; see [`crate::Breach`] for the values.
        pub status @ 8: U16,
        /// FEI: for some reasons, the offset of the wrong field.
        pub information @ 10: U32,
        reserved: [u8; 10],
    }

    /// CapsuleCmd without its data.
    ///
    /// 72 bytes, little-endian.
    /// Source: NVMe/TCP Transport Specification, "Command Capsule PDU (CapsuleCmd)".
    pub struct CommandHeader: 72 bytes {
        /// CH.
        pub common: CommonHeader,
        /// CCSQE: the submission entry.
        pub entry @ 8: [u8; 64],
    }

    /// CapsuleResp.
    ///
    /// 24 bytes, little-endian.
    /// Source: NVMe/TCP Transport Specification, "Response Capsule PDU (CapsuleResp)".
    pub struct ResponseHeader: 24 bytes {
        /// CH.
        pub common: CommonHeader,
        /// RCCQE: the completion entry.
        pub entry @ 8: [u8; 16],
    }

    /// H2CData and C2HData: header in front of a piece of a command's data.
    ///
    /// 24 bytes, little-endian.
    /// Source: NVMe/TCP Transport Specification, "Host To Controller Data Transfer PDU (H2CData)"
    /// and "Controller To Host Data Transfer PDU (C2HData)".
    pub struct DataHeader: 24 bytes {
        /// CH.
        pub common: CommonHeader,
        /// CCCID: command identifier of the data.
        pub command_id @ 8: U16,
        /// TTAG of H2CData: the tag of the R2T. Reserved in C2HData.
        pub transfer_tag @ 10: U16,
        /// DATAO: offset in bytes from the start of the command's data.
        pub offset_bytes @ 12: U32,
        /// DATAL: length of the data in this PDU, in bytes.
        pub data_bytes @ 16: U32,
        reserved: [u8; 4],
    }

    /// R2T: the controller requests one piece of a write's data.
    ///
    /// 24 bytes, little-endian.
    /// Source: NVMe/TCP Transport Specification, "Ready to Transfer PDU (R2T)".
    pub struct R2tHeader: 24 bytes {
        /// CH.
        pub common: CommonHeader,
        /// CCCID: command identifier of the data.
        pub command_id: U16,
        /// TTAG: tag that every H2CData repeats.
        pub transfer_tag @ 10: U16,
        /// R2TO: offset in bytes from the start of the command's data.
        pub offset_bytes @ 12: U32,
        /// R2TL: length of the requested data in bytes.
        pub data_bytes @ 16: U32,
        reserved: [u8; 4],
    }
}

impl InitializeRequest {
    /// An ICReq. `max_r2t` is a plain count here.
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
    /// An H2CTermReq or C2HTermReq in front of `quoted_bytes` of the offending header.
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
    /// An H2CData or C2HData with this common header and `data_bytes` of data.
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

/// Smallest valid MAXH2CDATA in bytes.
pub const MIN_MAX_H2C_BYTES: u32 = 4096;
/// Maximum length in bytes of the header that a terminate request quotes.
pub const MAX_QUOTED_BYTES: usize = 128;
/// Maximum in-capsule data of the admin queue and of every Fabrics command in bytes, independent of
/// IOCCSZ.
pub const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;
