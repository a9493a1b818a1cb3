//! Why a controller could not be brought up: one sentence for the user, one kind for whoever
//! decides what is next.
//!
//! Source: NVM Express Base Specification 2.x, "Connect Command", status codes.

use alloc::borrow::Cow;
use alloc::format;
use core::fmt;

use crate::nvme::spec::{CompletionEntry, Status};

/// What kind of trouble it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BringupErrorKind {
    /// The subsystem does not let this host in (1/84h).
    Refused,
    /// The address is right, but the subsystem is not there (1/82h, pointing at SUBNQN).
    WrongNqn,
    /// The controller insists on authentication (1/91h, or ATR or ASCR in the answer to Connect).
    AuthRequired,
    /// The controller, or the namespace, is of a kind that is not supported here.
    Unsupported,
    /// The controller did not become ready, or did not answer, in time.
    Timeout,
    /// The controller answered something that makes no sense, or with an error that bring-up cannot
    /// explain.
    Broken,
}

/// Why a controller could not be brought up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BringupError {
    kind: BringupErrorKind,
    status: Option<Status>,
    sentence: Cow<'static, str>,
}

impl BringupError {
    /// An error that no status tells of.
    pub(super) fn new(kind: BringupErrorKind, sentence: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            status: None,
            sentence: sentence.into(),
        }
    }

    /// `sentence` about what a controller should not have said.
    pub(super) fn broken(sentence: impl Into<Cow<'static, str>>) -> Self {
        Self::new(BringupErrorKind::Broken, sentence)
    }

    /// `sentence` about what we cannot do.
    pub(super) fn unsupported(sentence: impl Into<Cow<'static, str>>) -> Self {
        Self::new(BringupErrorKind::Unsupported, sentence)
    }

    /// An error status that answered `what`.
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

    /// An error status that answered Connect.
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

    /// The answer to Connect asks for authentication.
    pub(super) fn authentication() -> Self {
        Self::new(BringupErrorKind::AuthRequired, AUTHENTICATION)
    }

    /// What kind of trouble it is.
    #[must_use]
    pub fn kind(&self) -> BringupErrorKind {
        self.kind
    }

    /// The status the controller answered with, if that was the trouble.
    #[must_use]
    pub fn nvme_status(&self) -> Option<Status> {
        self.status
    }

    /// Whether a new connection may fare better: the trouble is not of a lasting kind, nor was that
    /// said (DNR).
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

/// Which parameter a Connect Invalid Parameters points at: bit 16 is set for an offset in the data
/// (IATTR).
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
