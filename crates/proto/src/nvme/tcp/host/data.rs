//! Data of one connection, on the host's side: R2T and H2CData in one direction, C2HData in the other.
//!
//! The rule that everything here serves: the controller gets no byte of a write twice or from outside it, and
//! puts none outside a read. What an R2T asks for is handed out at once, so that of each command one R2T at most
//! is outstanding, whatever was offered.
//!
//! Source: NVM Express TCP Transport Specification 1.1, "Data Transfer PDUs".

use zerocopy::FromBytes;

use super::slots::{Command, Direction};
use super::{Event, Host, Reading};
use crate::nvme::spec::{CompletionEntry, Status};
use crate::nvme::tcp::pdu::{
    CommonHeader, DataHeader, FLAG_LAST, FLAG_SUCCESS, MIN_MAX_H2C_BYTES, PduType, R2tHeader,
};
use crate::nvme::tcp::{self, Fault};
use crate::{Sink, Slot};

impl Host {
    /// C2HData: the next piece of a read's data.
    #[inline(always)]
    pub(super) fn controller_data(&mut self, head: &[u8]) -> Result<Option<Event>, Fault> {
        let header = DataHeader::read_from_bytes(head).expect("24 bytes");
        self.check_controller_data_length(&header)?;
        let flags = header.common.flags;
        let (offset, bytes) = (header.offset_bytes.get(), header.data_bytes.get());
        let (slot, command) = self.in_progress(
            header.command_id.get(),
            "C2HData for a command that is not in progress",
        )?;
        if command.direction != Direction::Read {
            let sentence = "C2HData for a command that does not read";
            return Err(Fault::sequence(header.command_id.get(), sentence));
        }
        if command.last {
            return Err(Fault::sequence(
                offset,
                "C2HData after the one that said LAST",
            ));
        }
        if offset != command.moved {
            return Err(Fault::range(
                offset,
                "C2HData does not continue where the last one ended",
            ));
        }
        if bytes > command.bytes - command.moved {
            return Err(Fault::range(
                bytes,
                "C2HData with more data than the command asked for",
            ));
        }
        if flags & FLAG_SUCCESS != 0 && flags & FLAG_LAST == 0 {
            return Err(Fault::field(1, flags, "C2HData says SUCCESS but not LAST"));
        }
        command.last = flags & FLAG_LAST != 0;
        let completes = flags & FLAG_SUCCESS != 0;
        self.reading = Reading::Data {
            slot,
            offset,
            bytes,
            completes,
        };
        Ok(None)
    }

    fn check_controller_data_length(&self, header: &DataHeader) -> Result<(), Fault> {
        let (bytes, total) = (header.data_bytes.get(), header.common.total_bytes.get());
        if bytes == 0 {
            return Err(Fault::field(16, bytes, "C2HData without data"));
        }
        let exact = u64::from(header.common.data_offset)
            + u64::from(bytes)
            + u64::from(self.digests.data_bytes());
        if u64::from(total) != exact {
            return Err(Fault::field(
                4,
                total,
                "PLEN of C2HData is not that of its data",
            ));
        }
        Ok(())
    }

    /// A piece of a read's data is in the slot; the last may be the answer too.
    #[inline(always)]
    pub(super) fn data_arrived(
        &mut self,
        slot: Slot,
        bytes: u32,
        intact: bool,
        completes: bool,
    ) -> Option<Event> {
        let command = self.slots.at(slot);
        command.moved += bytes;
        command.intact &= intact;
        if !completes {
            return None;
        }
        let mut entry = CompletionEntry::new(Status::SUCCESS, 0);
        entry.command_id.set(command.command_id);
        Some(self.complete(slot, entry))
    }

    /// R2T: hands out the next piece of a write's data.
    pub(super) fn ready_to_transfer<S: Sink>(
        &mut self,
        head: &[u8],
        out: &mut S,
    ) -> Result<Option<Event>, Fault> {
        let header = R2tHeader::read_from_bytes(head).expect("24 bytes");
        let (offset, bytes) = (header.offset_bytes.get(), header.data_bytes.get());
        let (slot, command) = self.in_progress(
            header.command_id.get(),
            "R2T for a command that is not in progress",
        )?;
        if command.direction != Direction::Write {
            let sentence = "R2T for a command without data to be asked for";
            return Err(Fault::sequence(header.command_id.get(), sentence));
        }
        if bytes == 0 {
            return Err(Fault::field(16, bytes, "R2T for no data"));
        }
        if offset != command.moved {
            return Err(Fault::range(
                offset,
                "R2T does not continue where the last one ended",
            ));
        }
        if bytes > command.bytes - command.moved {
            return Err(Fault::range(
                bytes,
                "R2T past the end of the command's data",
            ));
        }
        if command.r2ts >= most_r2ts(command.bytes) {
            return Err(Fault::limit(
                bytes,
                "more R2Ts than the command's data can need",
            ));
        }
        command.moved += bytes;
        command.r2ts += 1;
        self.send_data(slot, &header, out);
        Ok(None)
    }

    /// The data that an R2T asks for, in as many H2CData as MAXH2CDATA makes of it.
    fn send_data<S: Sink>(&self, slot: Slot, r2t: &R2tHeader, out: &mut S) {
        let (mut offset, mut left) = (r2t.offset_bytes.get(), r2t.data_bytes.get());
        while left > 0 {
            let bytes = left.min(self.max_h2c_bytes).min(MAX_PIECE_BYTES);
            left -= bytes;
            let alignment = self.controller_alignment;
            let kind = PduType::HOST_DATA;
            let mut common = CommonHeader::with_data(kind, self.digests, alignment, bytes)
                .expect("a piece leaves room in PLEN");
            common.flags |= if left == 0 { FLAG_LAST } else { 0 };
            let (command_id, transfer_tag) = (r2t.command_id.get(), r2t.transfer_tag.get());
            let header = DataHeader::new(common, command_id, transfer_tag, offset, bytes);
            tcp::send_header(header, self.digests, self.crc32c, out);
            out.payload(slot, offset, bytes, self.digests.data);
            offset += bytes;
        }
    }

    /// The command in progress that a PDU about data names.
    #[inline(always)]
    fn in_progress(
        &mut self,
        command_id: u16,
        otherwise: &'static str,
    ) -> Result<(Slot, &mut Command), Fault> {
        let slot = self
            .slots
            .find(command_id)
            .ok_or_else(|| Fault::sequence(command_id, otherwise))?;
        Ok((slot, self.slots.at(slot)))
    }
}

/// How many R2Ts a command of so many bytes can need, of a controller that takes at least 4096 at a time as
/// MAXH2CDATA promises: without this bound, R2Ts for 4 bytes each would make us send seven times the data.
fn most_r2ts(bytes: u32) -> u32 {
    bytes / MIN_MAX_H2C_BYTES + 2
}

/// MAXH2CDATA may be up to 4 GiB; a piece is never above this, so that PLEN can say it.
const MAX_PIECE_BYTES: u32 = 1 << 30;
