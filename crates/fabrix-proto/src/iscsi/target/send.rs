//! Common parts of the target's PDUs: sequence numbers, tags, and Reject.
//!
//! Source: RFC 7143, sections 11.4.8 to 11.4.10 and 11.17.

use zerocopy::FromZeros;
use zerocopy::byteorder::big_endian::U32;

use super::Target;
use crate::iscsi::framing::{Framing, segment_length, send};
use crate::iscsi::pdu::{FINAL, NO_TAG, Opcode, Reject, RejectReason, Sequence};
use crate::{Breach, Violation};

impl Target {
    /// Sequence numbers of a PDU that carries a status and consumes a StatSN.
    pub(super) fn status_sequence(&mut self) -> Sequence {
        let sequence = self.plain_sequence();
        self.stat_sn = self.stat_sn.wrapping_add(1);
        sequence
    }

    /// Sequence numbers of a PDU that carries no status.
    pub(super) fn plain_sequence(&self) -> Sequence {
        Sequence {
            stat_sn: U32::new(self.stat_sn),
            exp_cmd_sn: U32::new(self.window.exp_cmd_sn()),
            max_cmd_sn: U32::new(self.window.max_cmd_sn()),
        }
    }

    /// Rejects the last PDU.
    pub(super) fn send_reject<F: Framing>(&mut self, reason: RejectReason, out: &mut F) {
        if self.closed {
            return;
        }
        let quoted = self.bhs;
        self.send_reject_of(reason, &quoted, out);
    }

    pub(super) fn send_reject_of<F: Framing>(
        &mut self,
        reason: RejectReason,
        quoted: &[u8],
        out: &mut F,
    ) {
        let mut header = Reject::new_zeroed();
        header.opcode = Opcode::REJECT.0;
        header.flags = FINAL;
        header.reason = reason as u8;
        header.data_bytes = segment_length(quoted);
        header.itt = U32::new(NO_TAG);
        header.sequence = self.status_sequence();
        send(&header, quoted, out);
    }

    /// A target transfer tag, not used for the last 65535 tags. `index`: slot or `TAG_OF_NO_SLOT`.
    pub(super) fn new_tag(&mut self, index: u16) -> u32 {
        self.next_tag = self.next_tag.wrapping_add(1);
        u32::from(index) << 16 | u32::from(self.next_tag)
    }

    /// Sends the Reject of a violation, except for a damaged header, whose content is unreliable.
    pub(super) fn say_goodbye<F: Framing>(&mut self, violation: &Violation, out: &mut F) {
        let reason = match violation.breach() {
            Breach::HeaderDigest => return,
            Breach::HeaderField => RejectReason::InvalidField,
            Breach::Unsupported => RejectReason::CommandNotSupported,
            Breach::Sequence | Breach::DataRange | Breach::Limit => RejectReason::Protocol,
        };
        self.send_reject_of(reason, violation.header(), out);
    }
}
