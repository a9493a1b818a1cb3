//! PDUs that are neither commands nor their data: responses, pings, text, logout, and asynchronous
//! messages of the target.
//!
//! Source: RFC 7143, sections 11.4, 11.9 to 11.11, 11.13 to 11.15, 11.17 to 11.19.

use zerocopy::FromZeros;
use zerocopy::byteorder::big_endian::{U16, U32};

use super::data::residual;
use super::login::Next;
use super::tasks::Errand;
use super::{ConnectionState, Event, Initiator, Outcome, PINGS_ANSWERED, SENSE_BYTES_MAX};
use crate::Breach;
use crate::iscsi::framing::{self, Fault, Framing, Header};
use crate::iscsi::pdu::{
    AsyncEvent, AsyncMessage, BasicHeader, CONTINUE, FINAL, IMMEDIATE, LoginResponse,
    LogoutRequest, NO_TAG, NopIn, NopOut, Opcode, Reject, RejectReason, ScsiResponse, TextRequest,
    TextResponse,
};
use crate::iscsi::text::TextWriter;

impl Initiator {
    /// Pings the target. [`Event::Pong`] follows. Returns `false` without a session.
    pub fn ping<F: Framing>(&mut self, out: &mut F) -> bool {
        if !self.is_ready() {
            return false;
        }
        let mut header = self.nop_out();
        header.itt = U32::new(Errand::Ping.tag(self.next_tag()));
        header.ttt = U32::new(NO_TAG);
        out.pdu(header.as_header(), &[]);
        true
    }

    /// Lets the machine answer `PINGS_ANSWERED` more pings of the target. The owner of the
    /// connection calls this every few seconds.
    pub fn renew(&mut self) {
        self.pings_left = PINGS_ANSWERED;
    }

    /// Requests the list of targets. [`Event::Text`] follows. Returns `false` without a session, or
    /// with a closed window.
    pub fn send_targets<F: Framing>(&mut self, out: &mut F) -> bool {
        if !self.is_ready() || crate::iscsi::serial::precedes(self.max_cmd_sn, self.cmd_sn) {
            return false;
        }
        let mut text = TextWriter::default();
        text.pair("SendTargets", "All");
        self.text.clear();
        let tag = Errand::Text.tag(self.next_tag());
        self.send_text(tag, NO_TAG, &text.into_bytes(), out);
        true
    }

    /// Ends the session. [`Event::LoggedOut`] follows. Returns `false` without a session. Nothing
    /// is sent afterwards, also by a second call.
    pub fn logout<F: Framing>(&mut self, out: &mut F) -> bool {
        if self.is_leaving {
            return true;
        }
        if !self.is_ready() {
            return false;
        }
        self.is_leaving = true;
        let mut header = LogoutRequest::new_zeroed();
        header.opcode = Opcode::LOGOUT_REQUEST.0 | IMMEDIATE;
        header.reason = FINAL; // with reason 0: close the session
        header.itt = U32::new(Errand::Logout.tag(self.next_tag()));
        header.cid = U16::new(0);
        header.cmd_sn = U32::new(self.cmd_sn);
        header.exp_stat_sn = U32::new(self.exp_stat_sn);
        out.pdu(header.as_header(), &[]);
        true
    }

    fn send_text<F: Framing>(&mut self, itt: u32, ttt: u32, text: &[u8], out: &mut F) {
        let mut header = TextRequest::new_zeroed();
        header.opcode = Opcode::TEXT_REQUEST.0;
        header.flags = FINAL;
        header.data_bytes = framing::segment_length(text);
        header.itt = U32::new(itt);
        header.ttt = U32::new(ttt);
        header.cmd_sn = U32::new(self.next_cmd_sn());
        header.exp_stat_sn = U32::new(self.exp_stat_sn);
        framing::send(&header, text, out);
    }

    fn nop_out(&self) -> NopOut {
        let mut header = NopOut::new_zeroed();
        header.opcode = Opcode::NOP_OUT.0 | IMMEDIATE;
        header.flags = FINAL;
        header.cmd_sn = U32::new(self.cmd_sn);
        header.exp_stat_sn = U32::new(self.exp_stat_sn);
        header
    }

    fn next_tag(&mut self) -> u16 {
        self.tags = self.tags.wrapping_add(1);
        self.tags
    }

    /// Processes one complete Login Response.
    pub(super) fn login_response<F: Framing>(&mut self, data: &[u8], out: &mut F) -> Outcome {
        let header: LoginResponse = self.header_as();
        let ConnectionState::Login(login) = &mut self.state else {
            return Ok(None);
        };
        let next = login.response(&header, data);
        self.acknowledge();
        match next {
            Ok(Next::Say(request)) => {
                self.send_login(&request, out);
                Ok(None)
            }
            Ok(Next::Done(parameters)) => {
                self.parameters = parameters;
                self.state = ConnectionState::FullFeature;
                self.take_numbers();
                Ok(Some(Event::LoggedIn))
            }
            Err(failure) => {
                self.closed = true;
                Ok(Some(Event::LoginFailed(failure)))
            }
        }
    }

    /// Processes a response that is not data, with its data segment.
    pub(super) fn control<F: Framing>(
        &mut self,
        basic: &BasicHeader,
        data: &[u8],
        intact: bool,
        out: &mut F,
    ) -> Outcome {
        let kind = basic.kind();
        if kind == Opcode::SCSI_RESPONSE {
            return self.scsi_response(data, intact).map(Some);
        }
        if !intact && kind != Opcode::NOP_IN {
            let sentence = "a PDU whose data digest differs from its data";
            return Err(Fault::new(Breach::HeaderDigest, 0, kind.0.into(), sentence));
        }
        match kind {
            Opcode::NOP_IN => self.nop_in(out),
            Opcode::TEXT_RESPONSE => self.text_response(data, out),
            Opcode::LOGOUT_RESPONSE => self.logout_response(basic),
            Opcode::ASYNC_MESSAGE => Ok(self.async_message()),
            _ => Ok(self.reject()),
        }
    }

    /// Completes the task that a SCSI Response names.
    fn scsi_response(&mut self, data: &[u8], intact: bool) -> Result<Event, Fault> {
        let header: ScsiResponse = self.header_as();
        let (slot, task) = self.in_progress(header.itt.get())?;
        task.intact &= intact;
        self.acknowledge();
        let sense = sense_of(data);
        let kept = sense.len().min(SENSE_BYTES_MAX);
        self.sense[..kept].copy_from_slice(&sense[..kept]);
        self.sense_bytes = kept;
        let residual = residual(header.flags, header.residual);
        Ok(self.complete(slot, header.response == 0, header.status, residual))
    }

    /// Processes the answer to a ping, or answers a ping of the target.
    fn nop_in<F: Framing>(&mut self, out: &mut F) -> Outcome {
        let header: NopIn = self.header_as();
        let itt = header.itt.get();
        if itt != NO_TAG {
            if !Errand::Ping.has(itt) {
                let sentence = "NOP-In for a ping that was not sent";
                return Err(Fault::new(Breach::Sequence, 16, itt, sentence));
            }
            self.acknowledge();
            return Ok(Some(Event::Pong));
        }
        if header.ttt.get() == NO_TAG {
            return Ok(None);
        }
        self.pings_left = self.pings_left.checked_sub(1).ok_or_else(|| {
            let sentence = "more pings than anybody can want answered";
            Fault::new(Breach::Limit, 20, header.ttt.get(), sentence)
        })?;
        let mut answer = self.nop_out();
        answer.itt = U32::new(NO_TAG);
        answer.ttt = header.ttt;
        answer.lun = header.lun;
        out.pdu(answer.as_header(), &[]);
        Ok(None)
    }

    fn text_response<F: Framing>(&mut self, data: &[u8], out: &mut F) -> Outcome {
        let header: TextResponse = self.header_as();
        let (itt, ttt) = (header.itt.get(), header.ttt.get());
        if !Errand::Text.has(itt) {
            let sentence = "a Text Response that was not asked for";
            return Err(Fault::new(Breach::Sequence, 16, itt, sentence));
        }
        self.acknowledge();
        let goes_on = header.flags & CONTINUE != 0 || header.flags & FINAL == 0;
        let whole = self.text.push(data, goes_on).map_err(|error| {
            let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
            Fault::new(Breach::Limit, 5, length, error.sentence())
        })?;
        if whole {
            return Ok(Some(Event::Text));
        }
        self.send_text(itt, ttt, &[], out);
        Ok(None)
    }

    fn logout_response(&mut self, basic: &BasicHeader) -> Outcome {
        if !Errand::Logout.has(basic.itt.get()) {
            let sentence = "a Logout Response that was not asked for";
            return Err(Fault::new(Breach::Sequence, 16, basic.itt.get(), sentence));
        }
        self.closed = true;
        Ok(Some(Event::LoggedOut))
    }

    /// Reports an Asynchronous Message. Events without consequences for the initiator (0, 4 and
    /// those of vendors) are ignored.
    fn async_message(&mut self) -> Option<Event> {
        let header: AsyncMessage = self.header_as();
        self.acknowledge();
        let (time2wait_s, time2retain_s) = (header.parameter2.get(), header.parameter3.get());
        let said = match header.event {
            1 => AsyncEvent::LogoutRequested {
                within_s: header.parameter3.get(),
            },
            2 => AsyncEvent::ConnectionDropped {
                time2wait_s,
                time2retain_s,
            },
            3 => AsyncEvent::SessionDropped {
                time2wait_s,
                time2retain_s,
            },
            5 => return Some(Event::TasksEnded),
            _ => return None,
        };
        Some(Event::Said(said))
    }

    /// Reports a Reject, unless its reason is a data digest error: the target answers that command
    /// separately. No answer follows any other rejected PDU.
    fn reject(&mut self) -> Option<Event> {
        let header: Reject = self.header_as();
        self.acknowledge();
        let is_data = header.reason == RejectReason::DataDigest as u8;
        (!is_data).then_some(Event::Rejected(header.reason))
    }
}

/// Sense data in the segment of a SCSI Response, behind its length of two bytes.
fn sense_of(data: &[u8]) -> &[u8] {
    let Some((length, rest)) = data.split_first_chunk::<2>() else {
        return &[];
    };
    let length = usize::from(u16::from_be_bytes(*length));
    &rest[..length.min(rest.len())]
}
