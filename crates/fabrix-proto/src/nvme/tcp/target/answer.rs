//! Answers: a read's data, a response, or both; now, or when data that is on its way has arrived.
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
    /// Answers a command: `data_bytes` of the slot's data from its start, then the completion where
    /// one is needed.
    ///
    /// The command id and SQHD of `entry` are filled in here. The slot is free, and the answer is
    /// in `out`, when this returns `true`. `false`: granted data is still arriving; the machine
    /// keeps the answer and the slot, swallows that data (`want` goes on naming the slot), and
    /// `Released` says when it is over. A slot that is not the adapter's to answer gives `false`
    /// and nothing else. For an event request that was forgotten the slot is free as after
    /// any answer, but nothing is sent.
    ///
    /// `data_bytes` above what the host expects is our own mistake; no more than expected is sent.
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
                    self.advance_sq_head();
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

    /// The host waits for no event any more: what answers its event requests is not sent.
    ///
    /// To be called when it shuts the controller down. It need not be told then, and SPDK's host
    /// takes such an answer for one to nothing, and ends the connection.
    pub fn forget_event_requests(&mut self) {
        self.slots.forget_event_requests();
    }

    /// Sends what answers a command: `data`, a response, or both. After the end of the connection,
    /// nothing.
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
        entry.sq_head = U16::new(self.advance_sq_head());
        let says_success = data.is_some() && self.success_flag_fits(&entry);
        if let Some((slot, bytes)) = data {
            self.send_data(slot, command_id, bytes, says_success, out);
        }
        if !says_success {
            self.send_response(&entry, out);
        }
    }

    /// SQHD as it is after this answer: with each, the host may send one command more.
    ///
    /// It advances when a command ends rather than when it arrives, so that the queue's size also
    /// bounds the commands in progress.
    fn advance_sq_head(&mut self) -> u16 {
        if !self.flow_control {
            return u16::MAX;
        }
        let next = (u32::from(self.sq_head) + 1) % self.queue_entries;
        self.sq_head = u16::try_from(next).unwrap_or(0);
        self.sq_head
    }

    /// SUCCESS says "status 0" and cannot say a result; and with flow control SQHD would be lost.
    fn success_flag_fits(&self, entry: &CompletionEntry) -> bool {
        self.limits.success_flag
            && !self.flow_control
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
