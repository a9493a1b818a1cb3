//! Answers: a read's data, a response, or both. An answer may wait for outstanding data.
//!
//! Source: NVM Express TCP Transport Specification 1.1, "Response Capsules" and "SUCCESS flag".

use zerocopy::byteorder::little_endian::U16;

use super::Target;
use super::slots::CommandState;
use crate::nvme::spec::CompletionEntry;
use crate::nvme::tcp;
use crate::nvme::tcp::pdu::{CommonHeader, PduType, ResponseHeader};
use crate::{Sink, Slot};

impl Target {
    /// Answers a command: sends `data_bytes` of the slot's data from its start, then the completion
    /// if one is needed. Fills in the command id and SQHD of `entry`.
    ///
    /// Returns `true` if the slot is free and the answer is in `out`. Returns `false` if granted
    /// data is still arriving: the machine keeps the answer and the slot, discards that data
    /// (`want` still names the slot), and `Released` follows. A slot without an unanswered command
    /// returns `false` without any other effect. For a forgotten event request, the slot is freed
    /// as usual, but nothing is sent.
    ///
    /// `data_bytes` above the host's expected length is a bug of the caller. The rest is not sent.
    #[inline(always)]
    pub fn answer<S: Sink>(
        &mut self,
        slot: Slot,
        entry: CompletionEntry,
        data_bytes: u32,
        out: &mut S,
    ) -> bool {
        let Some(command) = self.slots.get(slot) else {
            return false;
        };
        let (command_id, forgotten) = (command.command_id, command.forgotten);
        match command.state {
            CommandState::Owned { .. } if command.is_arriving() => {
                command.state = CommandState::Answered(entry);
                self.drop_capsule(slot);
                false
            }
            CommandState::Owned { sends, .. } => {
                let expected = if sends { command.bytes } else { 0 };
                debug_assert!(data_bytes <= expected, "more data than the host expects");
                self.slots.remove(slot);
                if forgotten {
                    self.sq_head.advance();
                    return true;
                }
                let data = (data_bytes > 0).then(|| (slot, data_bytes.min(expected)));
                self.complete(command_id, entry, data, out);
                true
            }
            CommandState::Fetching => {
                command.state = CommandState::Answered(entry);
                false
            }
            CommandState::Free | CommandState::Arriving | CommandState::Answered(_) => false,
        }
    }

    /// Suppresses the answers to all event requests in progress.
    ///
    /// The owner calls this when the host shuts the controller down. The host needs no answers
    /// then. SPDK's host does not expect one, and ends the connection.
    pub fn forget_event_requests(&mut self) {
        self.slots.forget_event_requests();
    }

    /// Sends `data`, a response, or both, unless the connection is over.
    #[inline(always)]
    pub(super) fn complete<S: Sink>(
        &mut self,
        command_id: u16,
        mut entry: CompletionEntry,
        data: Option<(Slot, u32)>,
        out: &mut S,
    ) {
        if self.is_closed() {
            return;
        }
        entry.command_id = U16::new(command_id);
        entry.sq_head = U16::new(self.sq_head.advance());
        let says_success = data.is_some() && self.success_flag_fits(&entry);
        if let Some((slot, bytes)) = data {
            self.send_data(slot, command_id, bytes, says_success, out);
        }
        if !says_success {
            self.send_response(&entry, out);
        }
    }

    /// Whether the SUCCESS flag can replace the response: it has no result, and no SQHD.
    fn success_flag_fits(&self, entry: &CompletionEntry) -> bool {
        self.limits.success_flag
            && !self.sq_head.is_used()
            && entry.status().is_success()
            && entry.result.get() == 0
    }

    fn send_response<S: Sink>(&self, entry: &CompletionEntry, out: &mut S) {
        let header = ResponseHeader {
            common: CommonHeader::without_data(PduType::RESPONSE, self.digests),
            entry: entry.to_array(),
        };
        tcp::send_header(header, self.digests, self.crc32c, out);
    }
}
