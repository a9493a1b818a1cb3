//! What a connection waits for, and until when.
//!
//! Time comes in as an argument of [`Target::tick`]; between two ticks it is only noted that
//! something was heard.
//!
//! Source: RFC 7143, section 11.19 "NOP-In"; the login's limit is our own.

use super::{ConnectionState, Event, Target, TargetLimits};
use crate::Nanos;
use crate::iscsi::framing::Framing;
use crate::iscsi::login::Refusal;
use crate::iscsi::pdu::LoginStatus;

/// What a tick brings.
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
    /// The login must be over by then; or the initiator is pinged, or its answer must have come.
    deadline: Nanos,
    due: Due,
    heard: bool,
    pinged: bool,
    /// The first login request has said where to count from.
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

    /// Something has come from the initiator.
    pub(super) fn hear(&mut self) {
        self.heard = true;
    }

    /// The login is over: from the next tick on, silence counts.
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
    /// When [`Target::tick`] has something to do, at the latest.
    #[must_use]
    pub fn deadline(&self) -> Nanos {
        self.timers.deadline
    }

    /// Looks at the clock: ends a login that takes too long, pings an initiator that is silent, and
    /// ends the connection of one that does not answer. `LoginFailed` is yielded for both ends.
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

    /// Why a login ends whose time is over. An initiator that waits for us is not told that the
    /// error is its own: it would not try again.
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
