//! Login phase of a connection: requests, responses, and two decisions of the owner.
//!
//! This file processes the PDUs of the login; `iscsi::login` processes their text. Every failure
//! here ends with a Login Response that names the reason, and with the end of the connection.
//!
//! Source: RFC 7143, sections 6.3, 11.12 and 11.13.

use alloc::boxed::Box;
use core::num::NonZeroU16;

use zerocopy::FromZeros;
use zerocopy::byteorder::big_endian::{U16, U32};

use super::tasks::TaskTable;
use super::{ConnectionState, Event, Received, Target};
use crate::iscsi::framing::{Framing, SEGMENT_BYTES_MAX, Segment, segment_length, send};
use crate::iscsi::login::{Admission, Refusal, Response, Session, Step};
use crate::iscsi::pdu::{BasicHeader, LoginRequest, LoginResponse, LoginStatus, Opcode};
use crate::iscsi::serial::Window;

impl Target {
    /// Answers [`Event::Authorize`]: admits or refuses the initiator of [`Target::leading`].
    ///
    /// Returns `LoggedIn` or `LoginFailed`, or nothing while the login continues.
    pub fn admit<F: Framing>(&mut self, admission: Admission, out: &mut F) -> Option<Event> {
        let ConnectionState::Login(login) = &mut self.state else {
            return None;
        };
        if self.closed || !login.awaits_admission() {
            return None;
        }
        let step = login.admit(admission);
        self.take_step(step, out)
    }

    /// Answers [`Event::Proved`]: the session begins with this number (TSIH), unique among all
    /// sessions of the target, or is refused with this status.
    ///
    /// Returns `LoggedIn` or `LoginFailed`, or nothing if the login has ended meanwhile.
    pub fn enter<F: Framing>(
        &mut self,
        number: Result<NonZeroU16, LoginStatus>,
        out: &mut F,
    ) -> Option<Event> {
        let ConnectionState::Login(login) = &mut self.state else {
            return None;
        };
        if self.closed || !login.awaits_number() {
            return None;
        }
        let step = login.enter(number);
        self.take_step(step, out)
    }

    /// Processes a header in the login phase. Only Login Requests of limited length are valid.
    pub(super) fn login_header<F: Framing>(
        &mut self,
        basic: &BasicHeader,
        out: &mut F,
    ) -> Received {
        let bytes = basic.segment_bytes();
        let event = if basic.kind() != Opcode::LOGIN_REQUEST {
            let sentence = "a PDU other than a Login Request before the end of the login";
            let refusal = Refusal::new(LoginStatus::INVALID_DURING_LOGIN, sentence);
            self.take_step(Step::Refuse(refusal), out)
        } else if bytes > SEGMENT_BYTES_MAX || basic.ahs_words != 0 {
            let sentence = "a Login Request of more than 8192 bytes, or with additional headers";
            let refusal = Refusal::new(LoginStatus::INITIATOR_ERROR, sentence);
            self.take_step(Step::Refuse(refusal), out)
        } else if bytes == 0 {
            self.login_segment(&[], out)
        } else {
            return Received::segment(None, Segment::Whole);
        };
        Received::event(event)
    }

    pub(super) fn login_segment<F: Framing>(&mut self, data: &[u8], out: &mut F) -> Option<Event> {
        let header: LoginRequest = self.header_as();
        let ConnectionState::Login(login) = &mut self.state else {
            return None;
        };
        // The first request sets the initial CmdSN and StatSN. Login Requests consume no CmdSN.
        if !self.timers.numbered {
            self.timers.numbered = true;
            self.window = Window::new(header.cmd_sn.get(), self.limits.window);
            self.stat_sn = header.exp_stat_sn.get();
        }
        let step = login.request(&header, data);
        self.take_step(step, out)
    }

    fn take_step<F: Framing>(&mut self, step: Step, out: &mut F) -> Option<Event> {
        match step {
            Step::Respond(response) => {
                self.send_login(&response, LoginStatus::SUCCESS, out);
                None
            }
            Step::Authorize => Some(Event::Authorize),
            Step::Proved => Some(Event::Proved),
            Step::Complete(response, session) => {
                self.send_login(&response, LoginStatus::SUCCESS, out);
                self.log_in(session);
                Some(Event::LoggedIn)
            }
            Step::Refuse(refusal) => {
                let response = Response {
                    text: refusal.text.clone(),
                    ..Response::default()
                };
                self.send_login(&response, refusal.status, out);
                self.closed = true;
                self.state = ConnectionState::Parted;
                Some(Event::LoginFailed(refusal))
            }
        }
    }

    fn log_in(&mut self, session: Box<Session>) {
        self.parameters = session.parameters;
        self.tasks = TaskTable::new(self.limits.slots());
        self.timers.log_in();
        self.state = ConnectionState::FullFeature(session);
    }

    fn send_login<F: Framing>(&mut self, response: &Response, status: LoginStatus, out: &mut F) {
        let request: LoginRequest = self.header_as();
        let mut header = LoginResponse::new_zeroed();
        header.opcode = Opcode::LOGIN_RESPONSE.0;
        header.flags = response.flags;
        header.data_bytes = segment_length(&response.text);
        header.isid = request.isid;
        header.tsih = U16::new(response.tsih);
        header.itt = U32::new(request.itt.get());
        header.sequence = self.status_sequence();
        header.status = U16::new(status.0);
        send(&header, &response.text, out);
    }

    /// Ends a connection that is not logged in, after a violation or a timeout.
    pub(super) fn refuse_login<F: Framing>(&mut self, refusal: Refusal, out: &mut F) {
        let _ = self.take_step(Step::Refuse(refusal), out);
    }
}
