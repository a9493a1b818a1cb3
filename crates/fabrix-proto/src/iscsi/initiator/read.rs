//! How bytes become PDUs: header, its digest, and what is read by whom after it.
//!
//! It knows lengths, digests and the target's window; what a response means stands beside it.
//!
//! Source: RFC 7143, sections 11.2 and 4.2.2.1.

use super::{Event, Initiator, Outcome, Phase, Reading, SEGMENT_BYTES_MAX};
use crate::iscsi::framing::Fault;
use crate::iscsi::pdu::{BasicHeader, DataIn, Opcode, Sequence, padding};
use crate::iscsi::serial::precedes;
use crate::{Breach, Sink};

impl Initiator {
    pub(super) fn basic_header<S: Sink>(&mut self, bytes: &[u8], out: &mut S) -> Outcome {
        self.bhs.copy_from_slice(bytes);
        let basic = self.basic();
        if matches!(self.phase, Phase::Login(_)) {
            return self.login_header(&basic, out);
        }
        if self.digests().header {
            self.reading = Reading::Digest;
            return Ok(None);
        }
        self.dispatch(&basic, out)
    }

    /// Before the end of the login: Login Responses only, of limited length.
    fn login_header<S: Sink>(&mut self, basic: &BasicHeader, out: &mut S) -> Outcome {
        let kind = basic.kind();
        if kind != Opcode::LOGIN_RESPONSE {
            let sentence = "something that is no Login Response before the end of the login";
            return Err(Fault::new(Breach::Sequence, 0, kind.0.into(), sentence));
        }
        check_ahs(basic)?;
        self.read_segment(basic, out)
    }

    /// The digest holds before anything in the header is believed.
    pub(super) fn header_digest<S: Sink>(&mut self, digest: &[u8], out: &mut S) -> Outcome {
        if (self.crc32c)(&self.bhs).to_le_bytes() != *digest {
            let sentence = "a PDU whose header digest differs from its header";
            return Err(Fault::new(Breach::HeaderDigest, 0, 0, sentence));
        }
        self.dispatch(&self.basic(), out)
    }

    /// The header is whole.
    fn dispatch<S: Sink>(&mut self, basic: &BasicHeader, out: &mut S) -> Outcome {
        self.reading = Reading::Basic;
        let kind = basic.kind();
        check_kind(kind)?;
        check_ahs(basic)?;
        let opened = self.take_numbers();
        let told = match kind {
            Opcode::DATA_IN => self.data_in()?,
            Opcode::READY_TO_TRANSFER => self.ready_to_transfer(basic, out)?,
            _ => self.read_segment(basic, out)?,
        };
        Ok(match told {
            None if opened => Some(Event::WindowOpened),
            told => told,
        })
    }

    /// MaxCmdSN only ever grows, and both numbers are ignored where they contradict each other.
    /// True when a command that was refused may come again.
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

    /// A PDU that bears a status was taken: ExpStatSN says so with the next that we send.
    pub(super) fn acknowledge(&mut self) {
        let numbers: Sequence = self.header_as::<DataIn>().sequence;
        self.exp_stat_sn = numbers.stat_sn.get().wrapping_add(1);
    }

    /// Everything but the data of reads: short, and read by the machine itself.
    fn read_segment<S: Sink>(&mut self, basic: &BasicHeader, out: &mut S) -> Outcome {
        let bytes = basic.segment_bytes();
        if bytes > SEGMENT_BYTES_MAX {
            let sentence = "a PDU other than Data-In with more than 8192 bytes of data";
            return Err(Fault::new(
                Breach::Limit,
                5,
                basic.data_bytes.get(),
                sentence,
            ));
        }
        if bytes == 0 {
            return self.whole(basic, &[], true, out);
        }
        let bytes = bytes + self.digests().trailer_bytes(bytes);
        self.reading = Reading::Segment { bytes };
        Ok(None)
    }

    pub(super) fn segment<S: Sink>(&mut self, bytes: &[u8], out: &mut S) -> Outcome {
        self.reading = Reading::Basic;
        let basic = self.basic();
        let data = &bytes[..basic.segment_bytes()];
        let padded = data.len() + padding(data.len());
        let digest = &bytes[padded..];
        let intact = digest.is_empty() || (self.crc32c)(&bytes[..padded]).to_le_bytes() == *digest;
        self.whole(&basic, data, intact, out)
    }

    fn whole<S: Sink>(
        &mut self,
        basic: &BasicHeader,
        data: &[u8],
        intact: bool,
        out: &mut S,
    ) -> Outcome {
        if matches!(self.phase, Phase::Login(_)) {
            return self.login_response(data, out);
        }
        self.control(basic, data, intact, out)
    }
}

/// Additional header segments are the initiator's.
fn check_ahs(basic: &BasicHeader) -> Result<(), Fault> {
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
