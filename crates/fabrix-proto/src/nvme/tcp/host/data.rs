//! Data of one connection, on the host's side: R2T and H2CData in one direction, C2HData in the
//! other.
//!
//! The controller gets no byte of a write twice or from outside the write, and stores no byte
//! outside a read. Data that R2Ts have requested waits in [`Granted`] entries, in the R2Ts' order.
//! MAXR2T limits the entries of one command. The entries of a command end with the command.
//!
//! Source: NVM Express TCP Transport Specification 1.1, "Data Transfer PDUs".

use zerocopy::FromBytes;

use super::slots::{Command, Direction};
use super::{Host, Reading};
use crate::nvme::queue::HostEvent;
use crate::nvme::spec::{CompletionEntry, Status};
use crate::nvme::tcp::pdu::{
    CommonHeader, DataHeader, FLAG_LAST, FLAG_SUCCESS, MIN_MAX_H2C_BYTES, PduType, R2tHeader,
};
use crate::nvme::tcp::{self, Fault};
use crate::{Sink, Slot};

impl Host {
    /// Processes a C2HData: the next piece of a read's data.
    #[inline(always)]
    pub(super) fn controller_data(&mut self, head: &[u8]) -> Result<Option<HostEvent>, Fault> {
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

    /// Counts a piece of a read that is in the slot. The last piece may complete the command.
    #[inline(always)]
    pub(super) fn data_arrived(
        &mut self,
        slot: Slot,
        bytes: u32,
        intact: bool,
        completes: bool,
    ) -> Option<HostEvent> {
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

    /// Processes an R2T: queues the next piece of a write's data.
    pub(super) fn ready_to_transfer(&mut self, head: &[u8]) -> Result<Option<HostEvent>, Fault> {
        let header = R2tHeader::read_from_bytes(head).expect("24 bytes");
        let (offset, bytes) = (header.offset_bytes.get(), header.data_bytes.get());
        let most_waiting = self.limits.max_r2t;
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
        if command.r2ts_waiting >= most_waiting {
            return Err(Fault::limit(
                bytes,
                "more R2Ts of one command at once than MAXR2T allows",
            ));
        }
        command.moved += bytes;
        command.r2ts += 1;
        command.r2ts_waiting += 1;
        self.granted.push_back(Granted {
            slot,
            transfer_tag: header.transfer_tag.get(),
            offset_bytes: offset,
            bytes,
        });
        Ok(None)
    }

    /// Sends the next H2CData for the oldest R2T: at most MAXH2CDATA bytes. The last PDU of an R2T
    /// has the LAST flag.
    #[inline(never)]
    pub(super) fn next_data<S: Sink>(&mut self, out: &mut S) -> u32 {
        let Some(granted) = self.granted.front_mut() else {
            return 0;
        };
        let (slot, offset_bytes) = (granted.slot, granted.offset_bytes);
        let transfer_tag = granted.transfer_tag;
        let bytes = granted.bytes.min(self.max_h2c_bytes).min(MAX_PIECE_BYTES);
        granted.offset_bytes += bytes;
        granted.bytes -= bytes;
        let is_last = granted.bytes == 0;
        let command = self.slots.at(slot);
        if is_last {
            command.r2ts_waiting -= 1;
            self.granted.pop_front();
        }
        let (digests, alignment) = (self.digests, self.controller_alignment);
        let mut common = CommonHeader::with_data(PduType::HOST_DATA, digests, alignment, bytes)
            .expect("a piece leaves room in PLEN");
        common.flags |= if is_last { FLAG_LAST } else { 0 };
        let header = DataHeader::new(
            common,
            command.command_id,
            transfer_tag,
            offset_bytes,
            bytes,
        );
        tcp::send_header(header, digests, self.crc32c, out);
        out.payload(slot, offset_bytes, bytes, digests.pass());
        bytes
    }

    /// Discards the unsent data of a command that is answered early. A success would be a
    /// violation: the controller cannot have all data.
    #[inline(never)]
    pub(super) fn take_back(&mut self, slot: Slot, succeeds: bool) -> Result<(), Fault> {
        let command = self.slots.at(slot);
        if succeeds {
            let sentence = "success for a write whose data was not sent yet";
            return Err(Fault::sequence(command.command_id, sentence));
        }
        let of_others = |granted: &Granted| granted.slot != slot;
        let taken = self.granted.iter().filter(|granted| !of_others(granted));
        command.moved -= taken.map(|granted| granted.bytes).sum::<u32>();
        self.granted.retain(of_others);
        Ok(())
    }

    /// The command in progress of a data PDU's command id.
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

/// Data that an R2T has requested and that is not sent yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    slot: Slot,
    transfer_tag: u16,
    offset_bytes: u32,
    bytes: u32,
}

/// Maximum number of R2Ts for a command of this length. The smallest MAXH2CDATA is 4096 bytes, so
/// an honest controller requests at least that much at a time. Without this limit, R2Ts for 4 bytes
/// would make the host send seven times the data.
fn most_r2ts(bytes: u32) -> u32 {
    bytes / MIN_MAX_H2C_BYTES + 2
}

/// Maximum data of one PDU in bytes. MAXH2CDATA may be up to 4 GiB, which exceeds PLEN.
const MAX_PIECE_BYTES: u32 = 1 << 30;
