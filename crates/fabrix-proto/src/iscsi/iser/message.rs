//! The header of messages, and the parts of a message that has arrived.
//!
//! Source: RFC 7145, section 9.

use core::ops::Range;

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros};

use super::{HEADERS_BYTES, ISER_HEADER_BYTES};
use crate::iscsi::pdu::{BHS_BYTES, BasicHeader};
use crate::{Breach, Violation};

wire! {
    /// Header in front of every PDU, 28 bytes.
    pub struct IserHeader: ISER_HEADER_BYTES bytes {
        /// Type of the message, WSV and RSV.
        flags: u8,
        reserved_1: [u8; 3],
        write_stag @ 4: U32,
        write_base: U64,
        read_stag @ 16: U32,
        read_base: U64,
    }
}

/// Memory of the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Steering tag (STag).
    pub key: u32,
    /// Address of the first byte.
    pub address: u64,
}

impl RemoteMemory {
    fn fields(self) -> (U32, U64) {
        (U32::new(self.key), U64::new(self.address))
    }
}

/// What the message of a command says about its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// Memory with a write's data, from the first byte that is not in the message.
    pub write: Option<RemoteMemory>,
    /// Memory for a read's data.
    pub read: Option<RemoteMemory>,
    /// Length of the data in the message, in bytes.
    pub immediate: u32,
}

/// The parts of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What the iSER header says about the data of a command.
    pub tags: Tags,
    /// Basic header segment.
    pub bhs: [u8; BHS_BYTES],
    /// Range of the additional header segments within the message.
    pub additional: Range<usize>,
    /// Range of the data segment within the message.
    pub data: Range<usize>,
}

impl IserHeader {
    /// The header of a message without tags.
    #[must_use]
    pub fn new() -> Self {
        let mut header = Self::new_zeroed();
        header.flags = CONTROL;
        header
    }

    /// The header of a command with these tags.
    #[must_use]
    pub fn with_tags(tags: &Tags) -> Self {
        let mut header = Self::new();
        if let Some(memory) = tags.write {
            header.flags |= WRITE_VALID;
            (header.write_stag, header.write_base) = memory.fields();
        }
        if let Some(memory) = tags.read {
            header.flags |= READ_VALID;
            (header.read_stag, header.read_base) = memory.fields();
        }
        header
    }

    fn tags(&self, immediate: u32) -> Tags {
        let memory = |valid, key: U32, address: U64| {
            (self.flags & valid != 0).then(|| RemoteMemory {
                key: key.get(),
                address: address.get(),
            })
        };
        Tags {
            write: memory(WRITE_VALID, self.write_stag, self.write_base),
            read: memory(READ_VALID, self.read_stag, self.read_base),
            immediate,
        }
    }
}

impl Default for IserHeader {
    fn default() -> Self {
        Self::new()
    }
}

impl Message {
    /// Takes a message apart. Checks its length before it looks at a length inside.
    ///
    /// # Errors
    /// The message is no PDU, or shorter than its own headers say.
    pub fn parse(message: &[u8]) -> Result<Self, Violation> {
        let headers = IserHeader::read_from_prefix(message).ok();
        let headers = headers.and_then(|(header, rest)| Some((header, rest.split_first_chunk()?)));
        let Some((header, (bhs, rest))) = headers else {
            let sentence = "a message is shorter than the 76 bytes of its headers";
            return Err(violation(Breach::HeaderField, message.len(), sentence));
        };
        if header.flags & TYPE != CONTROL {
            let sentence = "a message is no iSCSI PDU";
            return Err(violation(
                Breach::Unsupported,
                header.flags.into(),
                sentence,
            ));
        }
        let basic = BasicHeader::read_from_bytes(bhs).expect("every header has 48 bytes");
        let (additional, data) = (basic.ahs_bytes(), basic.segment_bytes());
        if rest.len() < additional + data {
            let sentence = "a message is shorter than its headers say";
            return Err(violation(Breach::HeaderField, message.len(), sentence).with_header(bhs));
        }
        let start = HEADERS_BYTES + additional;
        Ok(Self {
            tags: header.tags(basic.data_bytes.get()),
            bhs: *bhs,
            additional: HEADERS_BYTES..start,
            data: start..start + data,
        })
    }
}

fn violation(breach: Breach, found: usize, sentence: &'static str) -> Violation {
    Violation::new(breach, 0, sentence).found(u64::try_from(found).unwrap_or(u64::MAX))
}

/// Type of a message: bits of the first byte.
const TYPE: u8 = 0xF0;
/// A message with a PDU. The others are Hello and HelloReply.
const CONTROL: u8 = 0x10;
/// WSV: the fields of the write are valid.
const WRITE_VALID: u8 = 0x08;
/// RSV: the fields of the read are valid.
const READ_VALID: u8 = 0x04;

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    /// A command with 5 bytes of data behind an additional header of 4 bytes.
    fn command(flags: u8) -> [u8; 85] {
        let mut bytes = [0; 85];
        bytes[0] = flags;
        bytes[4..8].copy_from_slice(&[1, 2, 3, 4]);
        bytes[8..16].copy_from_slice(&[0, 0, 0, 0, 0, 1, 0, 8]);
        bytes[16..20].copy_from_slice(&[5, 6, 7, 8]);
        bytes[20..28].copy_from_slice(&[0xFF; 8]);
        bytes[28] = 0x01;
        bytes[32] = 1;
        bytes[35] = 5;
        bytes[76..85].copy_from_slice(&[0, 1, 9, 0, 1, 2, 3, 4, 5]);
        bytes
    }

    #[test]
    fn tags_are_there_only_where_their_bit_says_so() {
        let write = RemoteMemory {
            key: 0x0102_0304,
            address: 0x0001_0008,
        };
        let read = RemoteMemory {
            key: 0x0506_0708,
            address: u64::MAX,
        };
        for (flags, expected) in [
            (0x10, (None, None)),
            (0x18, (Some(write), None)),
            (0x14, (None, Some(read))),
            (0x1C, (Some(write), Some(read))),
            (0x13, (None, None)),
        ] {
            let bytes = command(flags);
            let message = Message::parse(&bytes).expect("a right one");
            assert_eq!((message.tags.write, message.tags.read), expected);
            assert_eq!(message.tags.immediate, 5);
            assert_eq!(message.bhs[0], 1);
            assert_eq!(bytes[message.additional], [0, 1, 9, 0]);
            assert_eq!(bytes[message.data], [1, 2, 3, 4, 5]);
        }
    }

    #[test]
    fn a_message_that_is_cut_anywhere_is_refused() {
        let bytes = command(0x18);
        for length in 0..bytes.len() {
            let violation = Message::parse(&bytes[..length]).expect_err("cut");
            assert!(violation.sentence().contains("shorter"), "{violation}");
        }
    }

    #[test]
    fn filling_behind_the_data_is_ignored() {
        let bytes = [&command(0x10)[..], &[0; 3]].concat();
        let message = Message::parse(&bytes).expect("a right one");
        assert_eq!(message.data, 80..85);
    }

    #[test]
    fn a_message_of_another_type_is_no_pdu() {
        for flags in [0x00, 0x20, 0x30, 0xF8, 0x08] {
            let violation = Message::parse(&command(flags))
                .map(drop)
                .expect_err("no PDU");
            assert_eq!(violation.breach(), Breach::Unsupported);
        }
    }

    #[test]
    fn the_header_of_a_command_has_the_tags_that_it_needs() {
        let memory = |key, address| Some(RemoteMemory { key, address });
        let (write, read) = (memory(0x0102_0304, 0x0001_0008), memory(9, u64::MAX));
        for (write, read) in [(write, None), (None, read), (write, read), (None, None)] {
            let tags = Tags {
                write,
                read,
                immediate: 0,
            };
            let header = IserHeader::with_tags(&tags);
            assert_eq!(header.flags & TYPE, CONTROL);
            assert_eq!(header.tags(0), tags);
        }
    }

    #[test]
    fn the_header_of_a_message_to_the_initiator_has_no_tags() {
        let header = IserHeader::new();
        let mut expected = [0; ISER_HEADER_BYTES];
        expected[0] = 0x10;
        assert_eq!(header.as_bytes(), expected);
    }
}
