//! Sending of commands, with the unsolicited data of writes.
//!
//! Source: RFC 7143, sections 4.2.2.1, 11.3 and 11.7.

use zerocopy::FromZeros;
use zerocopy::byteorder::big_endian::U32;

use super::{Initiator, Transfer};
use crate::Slot;
use crate::iscsi::framing::Framing;
use crate::iscsi::pdu::{
    COMMAND_READ, COMMAND_WRITE, FINAL, Lun, Opcode, ScsiCommand, TaskAttribute, U24,
};
use crate::iscsi::serial::precedes;

impl Initiator {
    /// Sends a command and keeps it in `slot`, which must be free.
    ///
    /// Returns `false` and sends nothing if there is no session, if the slot is in use or does not
    /// exist, or if the target's window is closed. `Event::WindowOpened`, or the completion of
    /// another task, follows a closed window.
    pub fn command<F: Framing>(
        &mut self,
        slot: Slot,
        lun: Lun,
        cdb: &[u8; 16],
        transfer: Transfer,
        out: &mut F,
    ) -> bool {
        if !self.is_ready() {
            return false;
        }
        if precedes(self.max_cmd_sn, self.cmd_sn) {
            self.shut_out = true;
            return false;
        }
        let Some(itt) = self.tasks.take(slot, transfer) else {
            return false;
        };
        let (direction, bytes) = match transfer {
            Transfer::Write { bytes } if bytes > 0 => (COMMAND_WRITE, bytes),
            Transfer::Read { bytes } if bytes > 0 => (COMMAND_READ, bytes),
            _ => (0, 0),
        };
        let (immediate, unasked) = match direction {
            COMMAND_WRITE => self.unasked_bytes(bytes),
            _ => (0, 0),
        };
        let mut header = ScsiCommand::new_zeroed();
        header.opcode = Opcode::SCSI_COMMAND.0;
        header.flags = direction | TaskAttribute::SIMPLE.0;
        header.flags |= if unasked == immediate { FINAL } else { 0 };
        header.data_bytes = U24::new(immediate);
        header.lun = lun;
        header.itt = U32::new(itt);
        header.expected_bytes = U32::new(bytes);
        header.cmd_sn = U32::new(self.next_cmd_sn());
        header.exp_stat_sn = U32::new(self.exp_stat_sn);
        header.cdb = *cdb;
        let moves_by_itself = out.command(&header, slot, immediate);
        if unasked > immediate {
            self.send_unsolicited(slot, itt, immediate, unasked, out);
        }
        self.tasks.at(slot).moved = if moves_by_itself { bytes } else { unasked };
        true
    }

    /// Lengths of a write's immediate data, and of all unsolicited data with the immediate data.
    fn unasked_bytes(&self, bytes: u32) -> (u32, u32) {
        let agreed = &self.parameters;
        let first_burst = bytes.min(agreed.first_burst_bytes);
        let immediate = match agreed.immediate_data {
            true => first_burst.min(agreed.target_segment_bytes),
            false => 0,
        };
        match agreed.initial_r2t {
            true => (immediate, immediate),
            false => (immediate, first_burst),
        }
    }

    pub(super) fn next_cmd_sn(&mut self) -> u32 {
        let cmd_sn = self.cmd_sn;
        self.cmd_sn = cmd_sn.wrapping_add(1);
        cmd_sn
    }
}
