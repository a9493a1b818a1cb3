//! Data of one connection, on the controller's side: R2T and H2CData in one direction, C2HData in
//! the other.
//!
//! The controller accepts each byte of a write only if it was requested, once, and in order. One
//! R2T of a command is outstanding at a time, because Linux permits no more (MAXR2T 0).
//!
//! Source: NVM Express TCP Transport Specification 1.1, "Data Transfer PDUs".

use super::slots::CommandState;
use super::{Reading, Target};
use crate::nvme::queue::ControllerEvent;
use crate::nvme::tcp::pdu::{
    CommonHeader, DataHeader, FLAG_LAST, FLAG_SUCCESS, PduType, R2tHeader,
};
use crate::nvme::tcp::{self, Fault, WholeHeader};
use crate::{Sink, Slot};

impl Target {
    /// Requests a write's data, unless the data is already arriving. `Fetched` follows when all of
    /// it is in the slot.
    ///
    /// Called once for a command whose transfer is `Fetch`. After the end of the connection nothing
    /// is sent.
    pub fn fetch<S: Sink>(&mut self, slot: Slot, out: &mut S) {
        let command = self.slots.get(slot);
        let Some(command) = command.filter(|it| {
            matches!(
                it.state,
                CommandState::Owned {
                    fetchable: true,
                    ..
                }
            )
        }) else {
            debug_assert!(false, "{slot:?} has no data to fetch");
            return;
        };
        command.state = CommandState::Fetching;
        if !command.is_arriving() {
            self.grant(slot, out);
        }
    }

    /// Sends the next R2T of a command: for the rest of its data, or for the limit of one R2T.
    fn grant<S: Sink>(&mut self, slot: Slot, out: &mut S) {
        let largest = self.limits.max_r2t_bytes;
        let (closed, digests) = (self.is_closed(), self.digests);
        let Some(command) = self.slots.get(slot) else {
            return;
        };
        let bytes = (command.bytes - command.received).min(largest);
        command.granted = command.received + bytes;
        let header = R2tHeader::new(digests, command.command_id, slot.0, command.received, bytes);
        if !closed {
            tcp::send_header(header, digests, self.crc32c, out);
        }
    }

    /// Start of the data in an H2CData.
    ///
    /// Windows sends PLEN 24 and expects DATAL to count. This function and `host_data` therefore
    /// accept a PLEN that ends with the header. PDO may be 0 then, as in a PDU without data.
    pub(super) fn check_data_lengths(&self, common: &CommonHeader) -> Result<u32, Fault> {
        let (end, total) = (common.header_end(self.digests), common.total_bytes.get());
        if total < u32::from(common.header_bytes) {
            return Err(Fault::field(4, total, "PLEN is shorter than the header"));
        }
        tcp::check_flags(common, self.digests, true, FLAG_LAST)?;
        if total <= end && common.data_offset == 0 {
            return Ok(end);
        }
        tcp::check_data_offset(common, self.digests)?;
        Ok(u32::from(common.data_offset))
    }

    /// Processes an H2CData. It must be the next piece of requested data.
    pub(super) fn host_data(
        &mut self,
        common: &CommonHeader,
        rest: &[u8],
    ) -> Result<Option<ControllerEvent>, Fault> {
        let header: DataHeader = WholeHeader::new(common, rest).parse();
        self.check_host_data_length(&header)?;
        let max_h2c_bytes = self.limits.max_h2c_bytes;
        let slot = Slot(header.transfer_tag.get());
        let (offset, bytes) = (header.offset_bytes.get(), header.data_bytes.get());
        let Some(command) = self
            .slots
            .get(slot)
            .filter(|it| matches!(it.state, CommandState::Fetching | CommandState::Answered(_)))
        else {
            return Err(Fault::sequence(
                slot.0,
                "H2CData with a TTAG that no R2T gave",
            ));
        };
        if header.command_id.get() != command.command_id {
            let sentence = "H2CData with a TTAG that belongs to another command";
            return Err(Fault::sequence(header.command_id.get(), sentence));
        }
        if offset != command.received {
            return Err(Fault::range(
                offset,
                "H2CData does not continue where the last one ended",
            ));
        }
        if bytes > max_h2c_bytes {
            return Err(Fault::limit(
                bytes,
                "H2CData with more data than MAXH2CDATA",
            ));
        }
        if bytes > command.bytes - offset {
            return Err(Fault::range(
                bytes,
                "H2CData past the end of the command's data",
            ));
        }
        if bytes > command.granted - offset {
            return Err(Fault::limit(
                bytes,
                "H2CData past the end of what the R2T asked for",
            ));
        }
        if common.flags & FLAG_LAST != 0 && bytes < command.granted - offset {
            return Err(Fault::field(
                1,
                common.flags,
                "LAST before the end of what the R2T asked for",
            ));
        }
        self.reading = Reading::Data {
            slot,
            offset,
            bytes,
        };
        Ok(None)
    }

    /// Checks DATAL, the valid length, against PLEN. PLEN must agree, or end with the header (see
    /// `check_data_lengths`).
    fn check_host_data_length(&self, header: &DataHeader) -> Result<(), Fault> {
        let (bytes, total) = (header.data_bytes.get(), header.common.total_bytes.get());
        if bytes == 0 {
            return Err(Fault::field(16, bytes, "H2CData without data"));
        }
        let exact = u64::from(header.common.data_offset)
            + u64::from(bytes)
            + u64::from(self.digests.data_bytes());
        if u64::from(total) != exact && total > header.common.header_end(self.digests) {
            return Err(Fault::field(
                4,
                total,
                "PLEN of H2CData is not that of its data",
            ));
        }
        Ok(())
    }

    /// Counts a piece of a write that is in the slot. Sends the next R2T, reports an event to the
    /// owner, or sends the postponed answer.
    ///
    /// The target counts the requested bytes, and does not insist on LAST in the last piece.
    pub(super) fn data_arrived<S: Sink>(
        &mut self,
        slot: Slot,
        bytes: u32,
        intact: bool,
        out: &mut S,
    ) -> Option<ControllerEvent> {
        let command = self.slots.get(slot)?;
        command.received += bytes;
        command.intact &= intact;
        if command.received < command.granted {
            return None;
        }
        let (command_id, intact) = (command.command_id, command.intact);
        match command.state {
            CommandState::Answered(entry) => {
                self.slots.remove(slot);
                self.complete(command_id, entry, None, out);
                Some(ControllerEvent::Released { slot })
            }
            _ if command.received < command.bytes => {
                self.grant(slot, out);
                None
            }
            _ => {
                command.state = CommandState::COMPLETE;
                Some(ControllerEvent::Fetched { slot, intact })
            }
        }
    }

    /// Sends a read's data in one C2HData, which has the LAST flag.
    #[inline(always)]
    pub(super) fn send_data<S: Sink>(
        &self,
        slot: Slot,
        command_id: u16,
        bytes: u32,
        says_success: bool,
        out: &mut S,
    ) {
        let kind = PduType::CONTROLLER_DATA;
        let mut common = CommonHeader::with_data(kind, self.digests, self.host_alignment, bytes)
            .expect("max_data_bytes leaves room in PLEN");
        common.flags |= FLAG_LAST | if says_success { FLAG_SUCCESS } else { 0 };
        let header = DataHeader::new(common, command_id, 0, 0, bytes);
        tcp::send_header(header, self.digests, self.crc32c, out);
        out.payload(slot, 0, bytes, self.digests.pass());
    }
}
