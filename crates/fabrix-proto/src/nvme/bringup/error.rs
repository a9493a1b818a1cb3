//! Errors of a bring-up: a sentence for the user, and a kind for the caller that decides about a
//! retry.
//!
//! Source: NVM Express Base Specification 2.x, "Connect Command", status codes.

use alloc::borrow::Cow;
use alloc::format;
use core::fmt;

use crate::nvme::spec::{CompletionEntry, Status};

/// Kind of a bring-up error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BringupErrorKind {
    /// The subsystem does not allow this host (1/84h).
    Refused,
    /// The address has no subsystem with this name (1/82h, pointing at SUBNQN).
    WrongNqn,
    /// The controller requires authentication (1/91h, or ATR or ASCR in the answer to Connect).
    AuthRequired,
    /// The controller or the namespace has a kind that we do not support.
    Unsupported,
    /// The controller did not become ready, or did not answer, in time.
    Timeout,
    /// The controller sent an invalid answer, or an error that the bring-up does not expect.
    Broken,
}

/// Reason why a controller is not usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BringupError {
    kind: BringupErrorKind,
    status: Option<Status>,
    sentence: Cow<'static, str>,
}

impl BringupError {
    /// An error without an NVMe status.
    pub(super) fn new(kind: BringupErrorKind, sentence: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            status: None,
            sentence: sentence.into(),
        }
    }

    /// An error about an invalid answer of the controller.
    pub(super) fn broken(sentence: impl Into<Cow<'static, str>>) -> Self {
        Self::new(BringupErrorKind::Broken, sentence)
    }

    /// An error about something that we do not support.
    pub(super) fn unsupported(sentence: impl Into<Cow<'static, str>>) -> Self {
        Self::new(BringupErrorKind::Unsupported, sentence)
    }

    /// An error for the status in the completion `entry`, which answered the command named `what`.
    pub(super) fn status(what: &str, entry: &CompletionEntry) -> Self {
        let status = entry.status();
        let kind = match status {
            _ if status.is(Status::AUTHENTICATION_REQUIRED) => BringupErrorKind::AuthRequired,
            _ if status.is(Status::CONNECT_INCOMPATIBLE_FORMAT) => BringupErrorKind::Unsupported,
            _ => BringupErrorKind::Broken,
        };
        let sentence = format!("the controller answered {what} with {status}");
        Self {
            kind,
            status: Some(status),
            sentence: sentence.into(),
        }
    }

    /// An error for the status in the completion `entry`, which answered Connect.
    pub(super) fn connect(entry: &CompletionEntry) -> Self {
        let status = entry.status();
        let (kind, sentence) = if status.is(Status::CONNECT_INVALID_HOST) {
            (
                BringupErrorKind::Refused,
                "the subsystem does not allow this host: add its host NQN to the subsystem's hosts",
            )
        } else if status.is(Status::CONNECT_INVALID_PARAMETERS) {
            wrong_parameter(entry.dword0())
        } else if status.is(Status::AUTHENTICATION_REQUIRED) {
            (BringupErrorKind::AuthRequired, AUTHENTICATION)
        } else if status.is(Status::CONNECT_CONTROLLER_BUSY) {
            (
                BringupErrorKind::Broken,
                "the controller is busy: try again",
            )
        } else if status.is(Status::CONNECT_RESTART_DISCOVERY) {
            (
                BringupErrorKind::Broken,
                "the discovery information is stale: discover again",
            )
        } else {
            return Self::status("Connect", entry);
        };
        Self {
            kind,
            status: Some(status),
            sentence: sentence.into(),
        }
    }

    /// An error for an answer to Connect that requests authentication.
    pub(super) fn authentication() -> Self {
        Self::new(BringupErrorKind::AuthRequired, AUTHENTICATION)
    }

    /// Kind of the error.
    #[must_use]
    pub fn kind(&self) -> BringupErrorKind {
        self.kind
    }

    /// Status in the answer of the controller, if the answer caused the error.
    #[must_use]
    pub fn nvme_status(&self) -> Option<Status> {
        self.status
    }

    /// Whether a new connection may succeed: the kind of error is not permanent, and the status
    /// lacks the do-not-retry bit.
    #[must_use]
    pub fn is_worth_a_retry(&self) -> bool {
        let lasting = matches!(
            self.kind,
            BringupErrorKind::Refused
                | BringupErrorKind::WrongNqn
                | BringupErrorKind::AuthRequired
                | BringupErrorKind::Unsupported
        );
        !lasting && !self.status.is_some_and(|status| status.dnr)
    }
}

impl fmt::Display for BringupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl core::error::Error for BringupError {}

/// Kind and sentence for a Connect Invalid Parameters. Dword 0 has the offset of the parameter. Bit
/// 16 (IATTR) is set for an offset in the data, clear for an offset in the command.
fn wrong_parameter(dword0: u32) -> (BringupErrorKind, &'static str) {
    match (dword0 >> 16 & 1, dword0 & 0xFFFF) {
        (1, 256..512) => (
            BringupErrorKind::WrongNqn,
            "there is no such subsystem at this address: check the subsystem NQN, or discover what is there",
        ),
        (1, 512..768) => (
            BringupErrorKind::Refused,
            "the controller does not accept the host NQN",
        ),
        (1, 0..16) => (
            BringupErrorKind::Refused,
            "the controller does not accept the host id",
        ),
        (1, 16..18) => (
            BringupErrorKind::Broken,
            "the controller does not accept the controller id",
        ),
        (0, 42..44) => (
            BringupErrorKind::Broken,
            "the controller does not accept the queue id",
        ),
        (0, 44..46) => (
            BringupErrorKind::Broken,
            "the controller does not accept the queue's size",
        ),
        (0, 48..52) => (
            BringupErrorKind::Broken,
            "the controller does not accept the keep-alive timeout",
        ),
        _ => (
            BringupErrorKind::Broken,
            "the controller does not accept a parameter of Connect",
        ),
    }
}

const AUTHENTICATION: &str =
    "the controller requires authentication: give the host a secret, or allow it without one";
