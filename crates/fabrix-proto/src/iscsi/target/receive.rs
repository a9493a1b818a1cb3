//! Receive direction of the target: dispatch of PDUs and of their data segments.
//!
//! This file checks lengths, additional headers and the position of a request in the window. The
//! neighbouring files process the requests themselves.
//!
//! Source: RFC 7143, sections 11.2 and 4.2.2.1.

use super::{ConnectionState, Fault, Outcome, Received, Target};
use crate::Breach;
use crate::codec::Reader;
use crate::iscsi::framing::{Framing, SEGMENT_BYTES_MAX, Segment};
use crate::iscsi::pdu::{AdditionalHeader, BasicHeader, Opcode, RejectReason};
use crate::iscsi::serial::WindowPosition;

impl Target {
    /// Dispatches a header by its opcode.
    pub(super) fn dispatch<F: Framing>(
        &mut self,
        additional: &[u8],
        out: &mut F,
    ) -> Result<Received, Fault> {
        let basic = &self.basic();
        if matches!(self.state, ConnectionState::Login(_)) {
            return Ok(self.login_header(basic, out));
        }
        check_additional(additional)?;
        self.check_lengths(basic)?;
        if self.logout.is_some() {
            return Ok(Received::event(None));
        }
        let kind = basic.kind();
        if kind == Opcode::DATA_OUT {
            return self.data_out();
        }
        if takes_cmd_sn(kind) && !self.enters(basic)? {
            return Ok(Received::event(None));
        }
        match kind {
            Opcode::SCSI_COMMAND => self.scsi_command(!additional.is_empty(), out),
            Opcode::NOP_OUT | Opcode::TEXT_REQUEST if basic.segment_bytes() > 0 => {
                Ok(self.expect_segment(basic, out))
            }
            _ => self.control(basic, &[], out).map(Received::event),
        }
    }

    fn check_lengths(&self, basic: &BasicHeader) -> Result<(), Fault> {
        let bytes = basic.data_bytes.get();
        if bytes > self.parameters.target_segment_bytes {
            let sentence = "a data segment longer than MaxRecvDataSegmentLength";
            return Err(Fault::new(Breach::Limit, 5, bytes, sentence));
        }
        if basic.ahs_words != 0 && basic.kind() != Opcode::SCSI_COMMAND {
            let sentence = "additional header segments at a PDU that has none";
            let words = u32::from(basic.ahs_words);
            return Err(Fault::new(Breach::HeaderField, 4, words, sentence));
        }
        Ok(())
    }

    /// Whether the target accepts a request by its CmdSN. An accepted request enters the window.
    ///
    /// Immediate requests do not enter the window, and their CmdSN is ignored: Linux sends pings
    /// with an old CmdSN.
    fn enters(&mut self, basic: &BasicHeader) -> Result<bool, Fault> {
        if basic.is_immediate() {
            return Ok(true);
        }
        match self.window.place(basic.cmd_sn.get()) {
            WindowPosition::Next => self.window.enter(),
            WindowPosition::Outside => return Ok(false),
            WindowPosition::Gap => {
                let sentence = "CmdSN leaves out a command, which on one connection never comes";
                let found = basic.cmd_sn.get();
                return Err(Fault::new(Breach::Sequence, 24, found, sentence));
            }
        }
        Ok(true)
    }

    /// Takes a request that did not become a task out of the window.
    pub(super) fn leave(&mut self, basic: &BasicHeader) {
        if !basic.is_immediate() {
            self.window.leave();
        }
    }

    /// Expects the data segment of a text or ping: short, and received whole.
    fn expect_segment<F: Framing>(&mut self, basic: &BasicHeader, out: &mut F) -> Received {
        if basic.segment_bytes() > SEGMENT_BYTES_MAX {
            self.leave(basic);
            self.send_reject(RejectReason::InvalidField, out);
            return Received::event(None);
        }
        Received::segment(None, Segment::Whole)
    }

    pub(super) fn whole_segment<F: Framing>(
        &mut self,
        data: &[u8],
        intact: bool,
        out: &mut F,
    ) -> Outcome {
        if let ConnectionState::Login(_) = self.state {
            return Ok(self.login_segment(data, out));
        }
        let basic = self.basic();
        if !intact {
            self.leave(&basic);
            self.send_reject(RejectReason::DataDigest, out);
            return Ok(None);
        }
        self.control(&basic, data, out)
    }
}

fn check_additional(segments: &[u8]) -> Result<(), Fault> {
    let mut reader = Reader::new(segments);
    while reader.remaining() > 0 {
        if AdditionalHeader::read(&mut reader).is_err() {
            let sentence = "an additional header segment that ends behind the list";
            return Err(Fault::new(Breach::HeaderField, 4, 0, sentence));
        }
    }
    Ok(())
}

/// Whether requests of this opcode carry a CmdSN. False for unknown opcodes.
fn takes_cmd_sn(kind: Opcode) -> bool {
    matches!(
        kind,
        Opcode::NOP_OUT
            | Opcode::SCSI_COMMAND
            | Opcode::TASK_MANAGEMENT_REQUEST
            | Opcode::TEXT_REQUEST
            | Opcode::LOGOUT_REQUEST
    )
}
