//! The full-feature phase without commands and their data: pings, task management, logout, and
//! asynchronous messages of the target.
//!
//! Source: RFC 7143, sections 11.5, 11.6, 11.9, 11.14, 11.15, 11.18 and 11.19.

use zerocopy::FromZeros;
use zerocopy::byteorder::big_endian::{U16, U32};

use super::{Event, Fault, Outcome, Target};
use crate::Breach;
use crate::iscsi::framing::{Framing, Header, segment_length, send};
use crate::iscsi::pdu::{
    AsyncEvent, AsyncMessage, BasicHeader, FINAL, LogoutOutcome, LogoutRequest, LogoutResponse,
    NO_TAG, NopIn, Opcode, RejectReason, TaskFunction, TaskManagementOutcome,
    TaskManagementRequest, TaskManagementResponse,
};

/// Identifier of a task management request that is not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagementId(u8);

/// A task management request that the owner of the connection is processing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Management {
    itt: u32,
    immediate: bool,
}

/// Scope of a logout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogoutReason {
    /// The session.
    CloseSession,
    /// The connection, which is the session's only one.
    CloseConnection,
}

/// A logout that the owner of the connection is processing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logout {
    itt: u32,
}

impl Target {
    /// Processes a request that is not a command, with its data.
    pub(super) fn control<F: Framing>(
        &mut self,
        basic: &BasicHeader,
        data: &[u8],
        out: &mut F,
    ) -> Outcome {
        let has_data = basic.segment_bytes() > 0;
        match basic.kind() {
            Opcode::NOP_OUT => self.nop_out(basic, data, out),
            Opcode::TEXT_REQUEST => return self.text_request(basic, data, out),
            Opcode::TASK_MANAGEMENT_REQUEST | Opcode::LOGOUT_REQUEST if has_data => {
                self.leave(basic);
                self.send_reject(RejectReason::InvalidField, out);
            }
            Opcode::TASK_MANAGEMENT_REQUEST => return Ok(self.task_management(basic, out)),
            Opcode::LOGOUT_REQUEST => return Ok(self.logout(basic, out)),
            Opcode::LOGIN_REQUEST => {
                let sentence = "a Login Request after the login";
                return Err(Fault::new(Breach::Sequence, 0, 3, sentence));
            }
            Opcode::SNACK_REQUEST => self.send_reject(RejectReason::Snack, out),
            _ => self.send_reject(RejectReason::CommandNotSupported, out),
        }
        Ok(None)
    }

    /// Answers a ping with its own data, cut to the length that the initiator accepts. An answer to
    /// one of the target's pings (ITT 0xFFFFFFFF) needs no answer.
    fn nop_out<F: Framing>(&mut self, basic: &BasicHeader, data: &[u8], out: &mut F) {
        self.leave(basic);
        if basic.itt.get() == NO_TAG {
            return;
        }
        let most = self.parameters.initiator_segment_bytes as usize;
        let data = &data[..data.len().min(most)];
        let mut header = nop_in();
        header.itt = basic.itt;
        header.ttt = U32::new(NO_TAG);
        header.lun = basic.lun;
        header.data_bytes = segment_length(data);
        header.sequence = self.status_sequence();
        send(&header, data, out);
    }

    /// Pings the initiator. The ping consumes no StatSN.
    pub fn ping<F: Framing>(&mut self, out: &mut F) {
        if self.session().is_none() {
            return;
        }
        let mut header = nop_in();
        header.itt = U32::new(NO_TAG);
        header.ttt = U32::new(self.new_tag(TAG_OF_NO_SLOT));
        header.sequence = self.plain_sequence();
        out.pdu(header.as_header(), &[]);
    }

    /// Sends an asynchronous message.
    pub fn say<F: Framing>(&mut self, event: AsyncEvent, out: &mut F) {
        if self.session().is_none() {
            return;
        }
        let cid = self.session().map_or(0, |session| session.leading.cid);
        let (number, parameters) = async_parameters(event, cid);
        let mut header = AsyncMessage::new_zeroed();
        header.opcode = Opcode::ASYNC_MESSAGE.0;
        header.flags = FINAL;
        header.itt = U32::new(NO_TAG);
        header.event = number;
        header.parameter1 = U16::new(parameters[0]);
        header.parameter2 = U16::new(parameters[1]);
        header.parameter3 = U16::new(parameters[2]);
        header.sequence = self.status_sequence();
        out.pdu(header.as_header(), &[]);
    }

    // ---- task management

    /// Answers a request at once if the decision does not need the owner of the connection.
    fn task_management<F: Framing>(&mut self, basic: &BasicHeader, out: &mut F) -> Option<Event> {
        let request: TaskManagementRequest = self.header_as();
        let function = TaskFunction(request.function & 0x7F);
        let referenced = self.tasks.find(request.referenced_itt.get());
        let at_once = match function {
            _ if self.is_discovery() => Some(TaskManagementOutcome::Rejected),
            TaskFunction::TASK_REASSIGN => Some(TaskManagementOutcome::ReassignNotSupported),
            TaskFunction::ABORT_TASK if referenced.is_none() => {
                Some(TaskManagementOutcome::NoSuchTask)
            }
            TaskFunction(1..=7) => None,
            TaskFunction(_) => Some(TaskManagementOutcome::NotSupported),
        };
        let management = Management {
            itt: basic.itt.get(),
            immediate: basic.is_immediate(),
        };
        if let Some(outcome) = at_once {
            self.finish_management(management, outcome, out);
            return None;
        }
        let Some(index) = self.management.iter().position(Option::is_none) else {
            self.leave(basic);
            self.send_reject(RejectReason::TooManyImmediate, out);
            return None;
        };
        self.management[index] = Some(management);
        Some(Event::TaskManagement {
            id: ManagementId(u8::try_from(index).ok()?),
            function,
            lun: request.lun,
            referenced: referenced.filter(|_| function == TaskFunction::ABORT_TASK),
        })
    }

    /// Answers a task management request. The caller has first ended all tasks that it concerns, by
    /// [`abort`](Target::abort) or an answer.
    pub fn answer_management<F: Framing>(
        &mut self,
        id: ManagementId,
        outcome: TaskManagementOutcome,
        out: &mut F,
    ) {
        let place = self.management.get_mut(usize::from(id.0));
        if let Some(management) = place.and_then(Option::take) {
            self.finish_management(management, outcome, out);
        }
    }

    fn finish_management<F: Framing>(
        &mut self,
        management: Management,
        outcome: TaskManagementOutcome,
        out: &mut F,
    ) {
        if !management.immediate {
            self.window.leave();
        }
        if self.closed {
            return;
        }
        let mut header = TaskManagementResponse::new_zeroed();
        header.opcode = Opcode::TASK_MANAGEMENT_RESPONSE.0;
        header.flags = FINAL;
        header.response = outcome as u8;
        header.itt = U32::new(management.itt);
        header.sequence = self.status_sequence();
        out.pdu(header.as_header(), &[]);
    }

    // ---- logout

    fn logout<F: Framing>(&mut self, basic: &BasicHeader, out: &mut F) -> Option<Event> {
        let request: LogoutRequest = self.header_as();
        self.leave(basic);
        let cid = self.session().map(|session| session.leading.cid);
        let itt = basic.itt.get();
        let reason = match request.reason & 0x7F {
            0 => LogoutReason::CloseSession,
            1 if Some(request.cid.get()) == cid => LogoutReason::CloseConnection,
            1 => {
                self.send_logout(itt, LogoutOutcome::NoSuchConnection, out);
                return None;
            }
            2 => {
                self.send_logout(itt, LogoutOutcome::RecoveryNotSupported, out);
                return None;
            }
            _ => {
                self.send_reject(RejectReason::InvalidField, out);
                return None;
            }
        };
        self.logout = Some(Logout { itt });
        Some(Event::Logout(reason))
    }

    /// Answers a logout and ends the connection. All commands in progress have ended before.
    pub fn answer_logout<F: Framing>(&mut self, out: &mut F) {
        let Some(logout) = self.logout.take().filter(|_| !self.closed) else {
            return;
        };
        self.send_logout(logout.itt, LogoutOutcome::Closed, out);
        self.closed = true;
        self.state = super::ConnectionState::Parted;
    }

    fn send_logout<F: Framing>(&mut self, itt: u32, outcome: LogoutOutcome, out: &mut F) {
        let mut header = LogoutResponse::new_zeroed();
        header.opcode = Opcode::LOGOUT_RESPONSE.0;
        header.flags = FINAL;
        header.response = outcome as u8;
        header.itt = U32::new(itt);
        header.sequence = self.status_sequence();
        header.time2wait = U16::new(self.parameters.time2wait_s);
        header.time2retain = U16::new(self.parameters.time2retain_s);
        out.pdu(header.as_header(), &[]);
    }

    pub(super) fn is_discovery(&self) -> bool {
        self.session()
            .is_some_and(|session| session.leading.discovery)
    }
}

fn nop_in() -> NopIn {
    let mut header = NopIn::new_zeroed();
    header.opcode = Opcode::NOP_IN.0;
    header.flags = FINAL;
    header
}

/// Number and three parameters of an event.
fn async_parameters(event: AsyncEvent, cid: u16) -> (u8, [u16; 3]) {
    match event {
        AsyncEvent::LogoutRequested { within_s } => (1, [0, 0, within_s]),
        AsyncEvent::ConnectionDropped {
            time2wait_s,
            time2retain_s,
        } => (2, [cid, time2wait_s, time2retain_s]),
        AsyncEvent::SessionDropped {
            time2wait_s,
            time2retain_s,
        } => (3, [0, time2wait_s, time2retain_s]),
    }
}

/// Index in the tags of pings and texts, which belong to no slot.
pub(super) const TAG_OF_NO_SLOT: u16 = 0x7FFF;
