//! Sends the PDUs of an initiator as messages, and lets the target reach the data of its tasks.

use zerocopy::IntoBytes;

use super::Tasks;
use crate::Slot;
use crate::iscsi::framing::{Framing, Header, Piece, ReadData};
use crate::iscsi::iser::message::{IserHeader, RemoteMemory, Tags};
use crate::iscsi::iser::{HEADERS_BYTES, ISER_HEADER_BYTES};
use crate::iscsi::pdu::{BHS_BYTES, COMMAND_READ, COMMAND_WRITE, ReadyToTransfer, ScsiCommand};

/// Carries messages to the target, and lets the target reach data.
pub trait Requests {
    /// Sends a message. Both parts are copied before the call returns.
    fn send(&mut self, headers: &[u8; HEADERS_BYTES], segment: &[u8]);

    /// Sends the message of a slot's command, with the first `immediate` bytes of the slot's data.
    /// [`IserInitiator::sent`](super::IserInitiator::sent) follows.
    fn send_command(&mut self, slot: Slot, headers: &[u8; HEADERS_BYTES], immediate: u32);

    /// Opens the slot's window to a piece of its data, for the message that follows. None: the
    /// connection cannot go on.
    fn open(&mut self, piece: Piece, access: Access) -> Option<RemoteMemory>;

    /// Closes the window of a slot. True: it is closed. False: the target has not done it, and
    /// [`IserInitiator::closed`](super::IserInitiator::closed) follows.
    fn close(&mut self, slot: Slot) -> bool;
}

impl<R: Requests> Requests for &mut R {
    fn send(&mut self, headers: &[u8; HEADERS_BYTES], segment: &[u8]) {
        (**self).send(headers, segment);
    }

    fn send_command(&mut self, slot: Slot, headers: &[u8; HEADERS_BYTES], immediate: u32) {
        (**self).send_command(slot, headers, immediate);
    }

    fn open(&mut self, piece: Piece, access: Access) -> Option<RemoteMemory> {
        (**self).open(piece, access)
    }

    fn close(&mut self, slot: Slot) -> bool {
        (**self).close(slot)
    }
}

/// What the target does with the data in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads the data of a write.
    Read,
    /// Writes the data of a read.
    Write,
}

/// Sends the PDUs of an initiator.
pub struct InitiatorFraming<'a, R> {
    tasks: &'a mut Tasks,
    out: R,
}

impl<'a, R: Requests> InitiatorFraming<'a, R> {
    pub(super) fn new(tasks: &'a mut Tasks, out: R) -> Self {
        Self { tasks, out }
    }

    /// Opens the window that a command needs. None: the connection cannot go on.
    fn tags(&mut self, header: &ScsiCommand, slot: Slot, immediate: u32) -> Option<Tags> {
        let mut tags = Tags {
            immediate,
            ..Tags::default()
        };
        let bytes = header.expected_bytes.get();
        let piece = Piece {
            slot,
            offset: immediate,
            bytes: bytes.saturating_sub(immediate),
        };
        match header.flags & (COMMAND_READ | COMMAND_WRITE) {
            COMMAND_READ => tags.read = Some(self.out.open(piece, Access::Write)?),
            // The address is that of the data behind the immediate data.
            COMMAND_WRITE if piece.bytes > 0 => {
                tags.write = Some(self.out.open(piece, Access::Read)?);
            }
            _ => {}
        }
        Some(tags)
    }
}

impl<R: Requests> Framing for InitiatorFraming<'_, R> {
    fn pdu(&mut self, header: &[u8; BHS_BYTES], segment: &[u8]) {
        self.out.send(&headers(&IserHeader::new(), header), segment);
    }

    fn payload(&mut self, _: &[u8; BHS_BYTES], _: Slot, _: u32, _: u32) {
        debug_assert!(false, "InitialR2T is Yes, and there are no R2Ts");
    }

    fn command(&mut self, header: &ScsiCommand, slot: Slot, immediate: u32) -> bool {
        if let Some(tags) = self.tags(header, slot, immediate) {
            let task = self.tasks.of(slot);
            task.key = tags.read.or(tags.write).map(|memory| memory.key);
            task.sends = true;
            let headers = headers(&IserHeader::with_tags(&tags), header.as_header());
            self.out.send_command(slot, &headers, immediate);
        }
        true
    }

    fn task(&mut self, _: Slot) {
        debug_assert!(false, "an initiator receives no command");
    }

    fn response(&mut self, _: Slot, _: &[u8; BHS_BYTES], _: &[u8]) {
        debug_assert!(false, "an initiator sends no response");
    }

    fn fetch(&mut self, _: Slot, _: &ReadyToTransfer) -> bool {
        debug_assert!(false, "an initiator sends no R2T");
        true
    }

    fn send(&mut self, _: Slot, _: &ReadData<'_>) -> Option<u32> {
        debug_assert!(false, "an initiator sends no Data-In");
        None
    }
}

fn headers(iser: &IserHeader, bhs: &[u8; BHS_BYTES]) -> [u8; HEADERS_BYTES] {
    let mut headers = [0; HEADERS_BYTES];
    headers[..ISER_HEADER_BYTES].copy_from_slice(iser.as_bytes());
    headers[ISER_HEADER_BYTES..].copy_from_slice(bhs);
    headers
}
