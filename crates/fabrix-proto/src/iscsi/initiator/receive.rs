//! Receive direction of the initiator: dispatch of PDUs and of their data segments.
//!
//! This file checks lengths and follows the target's window. The neighbouring files process the
//! responses themselves.
//!
//! Source: RFC 7143, sections 11.2 and 4.2.2.1.

use super::{ConnectionState, Event, Initiator, Outcome, Received};
use crate::Breach;
use crate::iscsi::framing::{Fault, Framing, SEGMENT_BYTES_MAX, Segment};
use crate::iscsi::pdu::{BasicHeader, DataIn, Opcode, Sequence};
use crate::iscsi::serial::precedes;

impl Initiator {
    /// Dispatches a header by its opcode.
    pub(super) fn dispatch<F: Framing>(&mut self, out: &mut F) -> Result<Received, Fault> {
        let basic = &self.basic();
        let kind = basic.kind();
        if matches!(self.state, ConnectionState::Login(_)) {
            check_login(kind)?;
            check_additional(basic)?;
            return self.expect_segment(basic, out);
        }
        check_kind(kind)?;
        check_additional(basic)?;
        let opened = self.take_numbers();
        let mut received = match kind {
            Opcode::DATA_IN => self.data_in()?,
            Opcode::READY_TO_TRANSFER => {
                self.ready_to_transfer(basic, out)?;
                Received::skipped(None)
            }
            _ => self.expect_segment(basic, out)?,
        };
        if opened && received.event.is_none() {
            received.event = Some(Event::WindowOpened);
        }
        Ok(received)
    }

    /// Updates MaxCmdSN, which only grows. Numbers that contradict each other are ignored. Returns
    /// true when a command that was refused may be sent again.
    ///
    /// Source: RFC 7143, section 4.2.2.1.
    pub(super) fn take_numbers(&mut self) -> bool {
        let numbers: Sequence = self.header_as::<DataIn>().sequence;
        let (exp, max) = (numbers.exp_cmd_sn.get(), numbers.max_cmd_sn.get());
        if precedes(max, exp.wrapping_sub(1)) || !precedes(self.max_cmd_sn, max) {
            return false;
        }
        self.max_cmd_sn = max;
        core::mem::take(&mut self.shut_out)
    }

    /// Records the StatSN of a PDU with a status. The next PDU acknowledges it in ExpStatSN.
    pub(super) fn acknowledge(&mut self) {
        let numbers: Sequence = self.header_as::<DataIn>().sequence;
        self.exp_stat_sn = numbers.stat_sn.get().wrapping_add(1);
    }

    /// Expects the data segment of a PDU other than Data-In: short, and received whole.
    fn expect_segment<F: Framing>(
        &mut self,
        basic: &BasicHeader,
        out: &mut F,
    ) -> Result<Received, Fault> {
        let bytes = basic.segment_bytes();
        if bytes > SEGMENT_BYTES_MAX {
            let sentence = "a PDU other than Data-In with more than 8192 bytes of data";
            let found = basic.data_bytes.get();
            return Err(Fault::new(Breach::Limit, 5, found, sentence));
        }
        if bytes == 0 {
            return self.whole(&[], true, out).map(Received::skipped);
        }
        Ok(Received {
            event: None,
            segment: Segment::Whole,
        })
    }

    pub(super) fn whole<F: Framing>(&mut self, data: &[u8], intact: bool, out: &mut F) -> Outcome {
        if matches!(self.state, ConnectionState::Login(_)) {
            return self.login_response(data, out);
        }
        self.control(&self.basic(), data, intact, out)
    }
}

/// Accepts only Login Responses before the end of the login.
fn check_login(kind: Opcode) -> Result<(), Fault> {
    if kind == Opcode::LOGIN_RESPONSE {
        return Ok(());
    }
    let sentence = "something that is no Login Response before the end of the login";
    Err(Fault::new(Breach::Sequence, 0, kind.0.into(), sentence))
}

/// Refuses additional header segments, which only an initiator sends.
fn check_additional(basic: &BasicHeader) -> Result<(), Fault> {
    if basic.ahs_words == 0 {
        return Ok(());
    }
    let sentence = "a PDU with additional header segments, which a target has none of";
    Err(Fault::new(
        Breach::HeaderField,
        4,
        basic.ahs_words.into(),
        sentence,
    ))
}

fn check_kind(kind: Opcode) -> Result<(), Fault> {
    match kind {
        Opcode::NOP_IN
        | Opcode::SCSI_RESPONSE
        | Opcode::TEXT_RESPONSE
        | Opcode::DATA_IN
        | Opcode::LOGOUT_RESPONSE
        | Opcode::READY_TO_TRANSFER
        | Opcode::ASYNC_MESSAGE
        | Opcode::REJECT => Ok(()),
        Opcode::LOGIN_RESPONSE => {
            let sentence = "a Login Response after the login";
            Err(Fault::new(Breach::Sequence, 0, kind.0.into(), sentence))
        }
        Opcode::TASK_MANAGEMENT_RESPONSE => {
            let sentence = "an answer to task management, which nobody asked for";
            Err(Fault::new(Breach::Sequence, 0, kind.0.into(), sentence))
        }
        _ => {
            let sentence = "a PDU of a kind that a target does not send";
            Err(Fault::new(Breach::HeaderField, 0, kind.0.into(), sentence))
        }
    }
}
