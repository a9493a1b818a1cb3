//! PDUs of iSCSI: the common header, opcodes, additional header segments, padding and digests.
//!
//! Layout only, with the small calculations that follow from it. `login.rs` and `target.rs` process
//! the PDUs. `request.rs` and `response.rs` have the layouts of the two directions, `outcome.rs`
//! the values in responses.
//!
//! Source: RFC 7143, section 11 "iSCSI PDU Formats".

/// Declares the headers of PDUs: 48 bytes each, big-endian.
///
/// A header gives the name of its flags byte, then four groups of fields: bytes 2 and 3, bytes 8 to
/// 15, bytes 20 to 23, and the rest. The macro adds the fields that all headers have, and the
/// sequence numbers of a `request`, of an `unnumbered` request or of a `response`.
macro_rules! header {
    (@request $($header:tt)*) => {
        header! { @fields {
            /// CmdSN.
            pub cmd_sn @ 24: U32,
            /// ExpStatSN: next status that the initiator expects.
            pub exp_stat_sn: U32,
        } $($header)* }
    };
    (@unnumbered $($header:tt)*) => {
        header! { @fields {
            reserved_24 @ 24: [u8; 4],
            /// ExpStatSN: next status that the initiator expects.
            pub exp_stat_sn: U32,
        } $($header)* }
    };
    (@response $($header:tt)*) => {
        header! { @fields {
            /// StatSN, ExpCmdSN and MaxCmdSN.
            pub sequence @ 24: Sequence,
        } $($header)* }
    };
    (@fields { $($numbers:tt)* } [$($about:tt)*] $name:ident {
        $(#[$flags_about:meta])*
        $flags:ident;
        $($(#[$about2:meta])* $seen2:vis $field2:ident $(@ $offset2:literal)?: $type2:ty),*;
        $($(#[$about8:meta])* $seen8:vis $field8:ident $(@ $offset8:literal)?: $type8:ty),*;
        $($(#[$about20:meta])* $seen20:vis $field20:ident $(@ $offset20:literal)?: $type20:ty),*;
        $($(#[$rest_about:meta])* $rest_seen:vis $rest:ident $(@ $at:literal)?: $rest_type:ty),*;
    }) => {
        wire! {
            $($about)*
            pub struct $name: 48 bytes {
                /// I and the opcode.
                pub opcode: u8,
                $(#[$flags_about])*
                pub $flags: u8,
                $($(#[$about2])* $seen2 $field2 $(@ $offset2)?: $type2,)*
                /// TotalAHSLength, in units of 4 bytes.
                pub ahs_words @ 4: u8,
                /// DataSegmentLength, in bytes.
                pub data_bytes: U24,
                $($(#[$about8])* $seen8 $field8 $(@ $offset8)?: $type8,)*
                /// Initiator Task Tag (ITT), or `NO_TAG`.
                pub itt @ 16: U32,
                $($(#[$about20])* $seen20 $field20 $(@ $offset20)?: $type20,)*
                $($numbers)*
                $($(#[$rest_about])* $rest_seen $rest $(@ $at)?: $rest_type,)*
            }
        }
    };
    ($($(#[$about:meta])* $kind:ident $name:ident { $($fields:tt)* })*) => {
        $(header! { @$kind [$(#[$about])*] $name { $($fields)* } })*
    };
}

mod outcome;
mod request;
mod response;

pub use outcome::*;
pub use request::*;
pub use response::*;

use zerocopy::byteorder::big_endian::U32;

use crate::Pass;
use crate::codec::{Reader, Truncated, round_up};

wire! {
    /// The kind of a PDU, without the bit for immediate delivery. Open: a peer may send any value.
    /// Opcode of a PDU, without the bit for immediate delivery. Open: a peer may send any value.
    /// Source: RFC 7143, section 11.2.1.2.
    pub struct Opcode(pub u8);
}

impl Opcode {
    /// NOP-Out: a ping, or the answer to one.
    pub const NOP_OUT: Self = Self(0x00);
    /// SCSI Command.
    pub const SCSI_COMMAND: Self = Self(0x01);
    /// SCSI Task Management Function Request.
    pub const TASK_MANAGEMENT_REQUEST: Self = Self(0x02);
    /// Login Request.
    pub const LOGIN_REQUEST: Self = Self(0x03);
    /// Text Request.
    pub const TEXT_REQUEST: Self = Self(0x04);
    /// SCSI Data-Out: a piece of a write's data.
    pub const DATA_OUT: Self = Self(0x05);
    /// Logout Request.
    pub const LOGOUT_REQUEST: Self = Self(0x06);
    /// SNACK Request: request to send PDUs again.
    pub const SNACK_REQUEST: Self = Self(0x10);
    /// NOP-In: a ping, or the answer to one.
    pub const NOP_IN: Self = Self(0x20);
    /// SCSI Response.
    pub const SCSI_RESPONSE: Self = Self(0x21);
    /// SCSI Task Management Function Response.
    pub const TASK_MANAGEMENT_RESPONSE: Self = Self(0x22);
    /// Login Response.
    pub const LOGIN_RESPONSE: Self = Self(0x23);
    /// Text Response.
    pub const TEXT_RESPONSE: Self = Self(0x24);
    /// SCSI Data-In: a piece of a read's data.
    pub const DATA_IN: Self = Self(0x25);
    /// Logout Response.
    pub const LOGOUT_RESPONSE: Self = Self(0x26);
    /// Ready To Transfer: the target requests a piece of a write's data.
    pub const READY_TO_TRANSFER: Self = Self(0x31);
    /// Asynchronous Message.
    pub const ASYNC_MESSAGE: Self = Self(0x32);
    /// Reject.
    pub const REJECT: Self = Self(0x3F);

    /// The opcode in the first byte of a PDU.
    #[must_use]
    pub const fn of(first_byte: u8) -> Self {
        Self(first_byte & 0x3F)
    }
}

/// I: bit of the first byte. Immediate delivery: the request consumes no CmdSN.
pub const IMMEDIATE: u8 = 0x40;
/// F: bit of the second byte. Last PDU of a sequence.
pub const FINAL: u8 = 0x80;
/// C: bit of the second byte of Login and Text PDUs. The text continues in the next PDU.
pub const CONTINUE: u8 = 0x40;
/// Reserved value of ITT and TTT: no task, no transfer.
pub const NO_TAG: u32 = u32::MAX;
/// Length of a basic header segment in bytes.
pub const BHS_BYTES: usize = 48;
/// Length of a digest in bytes.
pub const DIGEST_BYTES: usize = 4;
/// Data segments are padded to a multiple of this many bytes.
pub const PADDING_UNIT: usize = 4;
/// Maximum DataSegmentLength in bytes. The field has 24 bits.
pub const DATA_SEGMENT_MAX: u32 = (1 << 24) - 1;

wire! {
    /// An unsigned number of 24 bits, big-endian.
    pub struct U24([u8; 3]);
}

impl U24 {
    /// The number for the wire. A larger value is a bug of the caller, and becomes the largest
    /// possible number.
    #[must_use]
    pub fn new(value: u32) -> Self {
        debug_assert!(value <= DATA_SEGMENT_MAX);
        let [_, high, middle, low] = value.min(DATA_SEGMENT_MAX).to_be_bytes();
        Self([high, middle, low])
    }

    /// The value.
    #[must_use]
    pub const fn get(self) -> u32 {
        u32::from_be_bytes([0, self.0[0], self.0[1], self.0[2]])
    }
}

wire! {
    /// A logical unit number in SAM's 8-byte format. The owner of the connection maps it to a disk.
    #[derive(Default)]
    pub struct Lun(pub [u8; 8]);
}

impl Lun {
    /// LUN of logical unit `number` (at most 16383) in peripheral or flat space addressing.
    #[must_use]
    pub fn flat(number: u16) -> Self {
        let [high, low] = number.to_be_bytes();
        let method = if number < 256 { 0 } else { 0x40 };
        Self([method | high, low, 0, 0, 0, 0, 0, 0])
    }
}

wire! {
    /// Basic header segment (BHS), as far as all opcodes share it.
    ///
    /// 48 bytes, big-endian.
    /// Source: RFC 7143, section 11.2.1.
    pub struct BasicHeader: BHS_BYTES bytes {
        /// I and the opcode.
        pub opcode: u8,
        /// F and the flags of the opcode.
        pub flags: u8,
        specific: [u8; 2],
        /// TotalAHSLength: additional header segments, in units of 4 bytes.
        pub ahs_words @ 4: u8,
        /// DataSegmentLength: the data without padding and digest, in bytes.
        pub data_bytes @ 5: U24,
        /// LUN, or a field of the opcode.
        pub lun @ 8: Lun,
        /// Initiator Task Tag (ITT).
        pub itt @ 16: U32,
        /// Target Transfer Tag (TTT), or a field of the opcode.
        pub ttt: U32,
        /// CmdSN, absent in Data-Out and SNACK.
        pub cmd_sn @ 24: U32,
        /// ExpStatSN.
        pub exp_stat_sn: U32,
        rest: [u8; 16],
    }
}

impl BasicHeader {
    /// Opcode of the PDU.
    #[must_use]
    pub const fn kind(&self) -> Opcode {
        Opcode::of(self.opcode)
    }

    /// I: the PDU consumes no CmdSN.
    #[must_use]
    pub const fn is_immediate(&self) -> bool {
        self.opcode & IMMEDIATE != 0
    }

    /// F.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        self.flags & FINAL != 0
    }

    /// Length of the additional header segments in bytes, at most 1020.
    #[must_use]
    pub fn ahs_bytes(&self) -> usize {
        usize::from(self.ahs_words) * 4
    }

    /// Length of the data segment without padding, in bytes.
    #[must_use]
    pub const fn segment_bytes(&self) -> usize {
        self.data_bytes.get() as usize
    }
}

/// Number of bytes of padding behind a data segment.
///
/// Source: RFC 7143, section 11.1 "iSCSI PDU Length and Padding".
#[must_use]
pub fn padding(data_bytes: usize) -> usize {
    round_up(data_bytes, PADDING_UNIT).map_or(0, |end| end - data_bytes)
}

/// Digests of a connection in its full-feature phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// CRC32C over BHS and AHS.
    pub header: bool,
    /// CRC32C over each data segment and its padding.
    pub data: bool,
}

impl Digests {
    /// Computation over the data of a PDU.
    #[must_use]
    pub const fn pass(self) -> Pass {
        Pass::of_digest(self.data)
    }

    /// Length of the header digest in bytes, or zero without one.
    #[must_use]
    pub const fn header_bytes(self) -> usize {
        if self.header { DIGEST_BYTES } else { 0 }
    }

    /// Length in bytes of padding and digest behind a data segment of `data_bytes`. Zero for an
    /// empty segment.
    #[must_use]
    pub fn trailer_bytes(self, data_bytes: usize) -> usize {
        let digest = if self.data { DIGEST_BYTES } else { 0 };
        match data_bytes {
            0 => 0,
            _ => padding(data_bytes) + digest,
        }
    }
}

/// One additional header segment (AHS).
///
/// Source: RFC 7143, section 11.2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdditionalHeader<'a> {
    /// The CDB from its 17th byte on, including its padding.
    ExtendedCdb(&'a [u8]),
    /// The Expected Bidirectional Read Data Length.
    BidirectionalRead(u32),
    /// A segment of another type.
    Unknown(u8),
}

impl<'a> AdditionalHeader<'a> {
    /// Reads the next segment of the list.
    ///
    /// # Errors
    /// [`Truncated`] if a segment is longer than the list, or too short for its type.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, Truncated> {
        let length = usize::from(u16::from_be_bytes(reader.array()?));
        let kind = reader.u8()?;
        let body = reader.take(length + padding(length + AHS_FIXED_BYTES))?;
        let mut body = Reader::new(body);
        body.take(1)?; // reserved, or type specific
        match kind {
            1 => Ok(Self::ExtendedCdb(body.take(body.remaining())?)),
            2 => Ok(Self::BidirectionalRead(u32::from_be_bytes(body.array()?))),
            other => Ok(Self::Unknown(other)),
        }
    }
}

/// Length of AHSLength and AHSType in bytes. AHSLength does not count them.
const AHS_FIXED_BYTES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_padded_to_four_bytes_and_nothing_is_not() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(padding), [0, 3, 2, 1, 0, 3]);
        let both = Digests {
            header: true,
            data: true,
        };
        assert_eq!([0, 1, 4].map(|bytes| both.trailer_bytes(bytes)), [0, 7, 4]);
        assert_eq!(Digests::default().trailer_bytes(5), 3);
    }

    #[test]
    fn an_extended_cdb_is_read_with_its_padding() {
        let bytes = [0, 17, 1, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];
        let mut reader = Reader::new(&bytes);
        let header = AdditionalHeader::read(&mut reader);
        assert_eq!(header, Ok(AdditionalHeader::ExtendedCdb(&[9; 16])));
        assert_eq!(reader.remaining(), 0);
    }

    #[test]
    fn a_segment_longer_than_the_list_is_truncated() {
        for bytes in [&[0, 9, 1, 0][..], &[0xFF, 0xFF, 2, 0, 1], &[0], &[0, 0, 2]] {
            assert!(AdditionalHeader::read(&mut Reader::new(bytes)).is_err());
        }
    }

    #[test]
    fn a_lun_of_up_to_255_is_in_peripheral_addressing() {
        assert_eq!(Lun::flat(5).0, [0, 5, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Lun::flat(0x123).0, [0x41, 0x23, 0, 0, 0, 0, 0, 0]);
    }
}
