//! Deadlines of a connection: the end of the login, and the pings of a silent initiator.
//!
//! [`Target::tick`] gets the time as an argument. Between two ticks, the machine only records that
//! a PDU has arrived.
//!
//! Source: RFC 7143, section 11.19 "NOP-In". The time limit of a login is an addition.

use super::{ConnectionState, Event, Target, TargetLimits};
use crate::Nanos;
use crate::iscsi::framing::Framing;
use crate::iscsi::login::Refusal;
use crate::iscsi::pdu::LoginStatus;

/// Action at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    Login,
    Ping,
    Answer,
}

/// The deadlines of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timers {
    /// End of the login, time of the next ping, or end of the wait for its answer.
    deadline: Nanos,
    due: Due,
    heard: bool,
    pinged: bool,
    /// True after the first Login Request has set the initial CmdSN and StatSN.
    pub(super) numbered: bool,
}

impl Timers {
    pub(super) fn new(limits: &TargetLimits, now: Nanos) -> Self {
        Self {
            deadline: now.plus_ms(limits.login_ms),
            due: Due::Login,
            heard: false,
            pinged: false,
            numbered: false,
        }
    }

    /// Records a PDU from the initiator.
    pub(super) fn hear(&mut self) {
        self.heard = true;
    }

    /// Ends the time limit of the login. Silence counts from the next tick on.
    pub(super) fn log_in(&mut self) {
        self.due = Due::Nothing;
        self.heard = true;
    }

    fn take_due(&mut self, limits: &TargetLimits, now: Nanos) -> Due {
        if self.due != Due::Login && self.heard {
            (self.due, self.pinged) = (Due::Ping, false);
            self.deadline = now.plus_ms(limits.ping_idle_ms);
        }
        self.heard = false;
        if now < self.deadline {
            return Due::Nothing;
        }
        let due = self.due;
        if due == Due::Ping {
            self.due = Due::Answer;
            self.deadline = now.plus_ms(limits.ping_answer_ms);
        }
        due
    }
}

impl Target {
    /// Latest time at which [`Target::tick`] must be called.
    #[must_use]
    pub fn deadline(&self) -> Nanos {
        self.timers.deadline
    }

    /// Ends a login that takes too long (`LoginFailed`), pings a silent initiator, and ends the
    /// connection of an initiator that does not answer (`Silent`).
    pub fn tick<F: Framing>(&mut self, now: Nanos, out: &mut F) -> Option<Event> {
        if self.closed {
            return None;
        }
        match self.timers.take_due(&self.limits, now) {
            Due::Nothing => None,
            Due::Ping => {
                self.ping(out);
                None
            }
            Due::Login => {
                let refusal = self.overdue_login();
                self.refuse_login(refusal.clone(), out);
                Some(Event::LoginFailed(refusal))
            }
            Due::Answer => {
                self.closed = true;
                self.state = ConnectionState::Parted;
                Some(Event::Silent)
            }
        }
    }

    /// Reason for the end of an overdue login. If the target caused the delay, the status does not
    /// blame the initiator, which would not retry.
    fn overdue_login(&self) -> Refusal {
        match &self.state {
            ConnectionState::Login(login) if login.awaits_admission() || login.awaits_number() => {
                let sentence = "the target has not made room for the session in time";
                Refusal::new(LoginStatus::UNAVAILABLE, sentence)
            }
            _ => Refusal::new(LoginStatus::INITIATOR_ERROR, "the login takes too long"),
        }
    }
}
