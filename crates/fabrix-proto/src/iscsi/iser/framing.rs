//! Sends the PDUs of a target as messages, and moves the data of its tasks by RDMA.

use zerocopy::IntoBytes;

use super::message::{IserHeader, RemoteMemory, Tags};
use super::{HEADERS_BYTES, ISER_HEADER_BYTES, TaskTags};
use crate::Slot;
use crate::iscsi::framing::{Framing, Piece, ReadData};
use crate::iscsi::pdu::{BHS_BYTES, ReadyToTransfer, ScsiCommand};

/// Carries messages to the initiator, and data in both directions.
pub trait Messages {
    /// Sends a message. It arrives after all messages and data before it. The parts of the message
    /// are copied before the call returns.
    fn send(&mut self, message: Outgoing<'_>);

    /// Reads a piece of a slot's data from the initiator's memory into the slot's memory.
    fn read(&mut self, piece: Piece, from: RemoteMemory);
}

/// A message to the initiator, with what goes with it.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Data of a read, to be written before the message arrives.
    pub data: Option<WrittenData>,
    /// Both headers.
    pub headers: [u8; HEADERS_BYTES],
    /// Data segment, with its padding.
    pub segment: &'a [u8],
    /// Tag of the initiator that the message invalidates.
    pub invalidate: Option<u32>,
}

/// Data of a read: the first bytes of a slot's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenData {
    /// Slot of the read.
    pub slot: Slot,
    /// Length, in bytes.
    pub bytes: u32,
    /// Memory of the initiator for the data.
    pub to: RemoteMemory,
}

/// Sends the PDUs of a target.
pub struct IserFraming<'a, M> {
    tags: &'a mut TaskTags,
    /// Data that goes with the response that follows.
    data: Option<WrittenData>,
    out: M,
}

impl<'a, M: Messages> IserFraming<'a, M> {
    pub(super) fn new(tags: &'a mut TaskTags, out: M) -> Self {
        Self {
            tags,
            data: None,
            out,
        }
    }

    fn send_message(&mut self, header: &[u8; BHS_BYTES], segment: &[u8], invalidate: Option<u32>) {
        let mut headers = [0; HEADERS_BYTES];
        headers[..ISER_HEADER_BYTES].copy_from_slice(IserHeader::new().as_bytes());
        headers[ISER_HEADER_BYTES..].copy_from_slice(header);
        self.out.send(Outgoing {
            data: self.data.take(),
            headers,
            segment,
            invalidate,
        });
    }
}

impl TaskTags {
    fn of(&mut self, slot: Slot) -> &mut Tags {
        &mut self.of_slots[usize::from(slot.0)]
    }
}

impl<M: Messages> Framing for IserFraming<'_, M> {
    fn pdu(&mut self, header: &[u8; BHS_BYTES], segment: &[u8]) {
        self.send_message(header, segment, None);
    }

    fn payload(&mut self, _: &[u8; BHS_BYTES], _: Slot, _: u32, _: u32) {
        debug_assert!(false, "a target sends no PDU with a slot's data");
    }

    fn command(&mut self, _: &ScsiCommand, _: Slot, _: u32) -> bool {
        debug_assert!(false, "a target sends no command");
        true
    }

    fn task(&mut self, slot: Slot) {
        *self.tags.of(slot) = self.tags.of_message;
    }

    /// Invalidates the tag of the read, or else that of the write, if the command had one.
    fn response(&mut self, slot: Slot, header: &[u8; BHS_BYTES], segment: &[u8]) {
        let tags = core::mem::take(self.tags.of(slot));
        let tag = tags.read.or(tags.write).filter(|_| self.tags.invalidates);
        self.send_message(header, segment, tag.map(|memory| memory.key));
    }

    /// The tag of a write begins behind the immediate data.
    fn fetch(&mut self, slot: Slot, r2t: &ReadyToTransfer) -> bool {
        let tags = self.tags.of(slot);
        let Some(from) = tags.write else {
            return false;
        };
        let (offset, bytes) = (r2t.buffer_offset.get(), r2t.desired_bytes.get());
        let behind = u64::from(offset.saturating_sub(tags.immediate));
        let from = RemoteMemory {
            address: from.address.wrapping_add(behind),
            ..from
        };
        let piece = Piece {
            slot,
            offset,
            bytes,
        };
        self.out.read(piece, from);
        true
    }

    fn send(&mut self, slot: Slot, read: &ReadData<'_>) -> Option<u32> {
        let bytes = read.bytes;
        let memory = self.tags.of(slot).read;
        self.data = memory.map(|to| WrittenData { slot, bytes, to });
        Some(0)
    }
}
