//! Sending of commands: a capsule, with the data of a write if it fits.
//!
//! Source: NVM Express TCP Transport Specification 1.1, "Command Capsules".

use zerocopy::byteorder::little_endian::U16;

use super::Host;
use super::slots::Direction;
use crate::nvme::queue::HostTransfer;
use crate::nvme::spec::{PSDT_SGL, SglDescriptor, SubmissionEntry};
use crate::nvme::tcp;
use crate::nvme::tcp::pdu::{ADMIN_IN_CAPSULE_BYTES, CommandHeader, CommonHeader, PduType};
use crate::{Sink, Slot};

impl Host {
    /// Sends a command and keeps it in `slot`, which must be free. Fills in the command id and the
    /// SGL.
    ///
    /// Returns `false` and sends nothing if the connection is not ready or is over, or if the slot
    /// is in use or does not exist.
    #[inline(always)]
    pub fn command<S: Sink>(
        &mut self,
        slot: Slot,
        entry: &mut SubmissionEntry,
        transfer: HostTransfer,
        out: &mut S,
    ) -> bool {
        if !self.initialized || self.is_closed() {
            return false;
        }
        let (direction, bytes) = match transfer {
            HostTransfer::Write { bytes } if bytes > 0 => (Direction::Write, bytes),
            HostTransfer::Read { bytes } if bytes > 0 => (Direction::Read, bytes),
            _ => (Direction::None, 0),
        };
        let in_capsule = direction == Direction::Write && bytes <= self.in_capsule_limit(entry);
        let Some(command_id) = self.slots.take(slot, direction, bytes, in_capsule) else {
            return false;
        };
        entry.flags = entry.flags & !PSDT_MASK | PSDT_SGL;
        entry.command_id = U16::new(command_id);
        if in_capsule {
            entry.sgl = SglDescriptor::in_capsule(bytes);
            self.send_capsule_with_data(slot, entry, bytes, out);
        } else {
            entry.sgl = SglDescriptor::transport(bytes);
            let common = CommonHeader::without_data(PduType::COMMAND, self.digests);
            self.send_capsule(common, entry, out);
        }
        true
    }

    fn in_capsule_limit(&self, entry: &SubmissionEntry) -> u32 {
        let limit = if entry.is_fabrics() {
            ADMIN_IN_CAPSULE_BYTES
        } else {
            self.in_capsule_bytes
        };
        limit.min(MAX_IN_CAPSULE_BYTES)
    }

    #[inline(always)]
    fn send_capsule<S: Sink>(&self, common: CommonHeader, entry: &SubmissionEntry, out: &mut S) {
        let header = CommandHeader {
            common,
            entry: entry.to_array(),
        };
        tcp::send_header(header, self.digests, self.crc32c, out);
    }

    #[inline(always)]
    fn send_capsule_with_data<S: Sink>(
        &self,
        slot: Slot,
        entry: &SubmissionEntry,
        bytes: u32,
        out: &mut S,
    ) {
        let alignment = self.controller_alignment;
        let common = CommonHeader::with_data(PduType::COMMAND, self.digests, alignment, bytes)
            .expect("in-capsule data is bounded");
        self.send_capsule(common, entry, out);
        out.payload(slot, 0, bytes, self.digests.pass());
    }
}

/// Limit of in-capsule data in bytes, for controllers that offer more.
const MAX_IN_CAPSULE_BYTES: u32 = 1 << 20;
/// PSDT in the flags byte of an entry.
const PSDT_MASK: u8 = 0b1100_0000;
