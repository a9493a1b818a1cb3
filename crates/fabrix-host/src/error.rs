//! Why a remote disk cannot be had: a kind for the exit code, a sentence for the person.

use std::fmt;
use std::io;

use fabrix_block::{OpenError, OpenErrorKind};
use fabrix_proto::iscsi::initiator::LoginFailure;
use fabrix_proto::iscsi::pdu::LoginStatus;
use fabrix_proto::nvme::bringup::{BringupError, BringupErrorKind};
use fabrix_proto::scsi::bringup::BringupError as UnitError;

/// What kind of trouble it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectErrorKind {
    /// What was asked for makes no sense.
    Usage,
    /// No such host, or nobody listens.
    Unreachable,
    /// The target does not let us in, does not have what was asked for, or has another disk there
    /// than before.
    Refused,
    /// It took too long.
    Timeout,
    /// The target closed the connection.
    Closed,
    /// The target does not speak the protocol as it should.
    Protocol,
    /// The target has something that we cannot use.
    Unsupported,
    /// This machine has no socket, or no memory.
    Local,
}

/// A failure to connect, or the loss of a connection.
#[derive(Clone, Debug)]
pub struct ConnectError {
    kind: ConnectErrorKind,
    sentence: String,
}

impl ConnectError {
    pub(crate) fn new(kind: ConnectErrorKind, sentence: impl Into<String>) -> Self {
        Self {
            kind,
            sentence: sentence.into(),
        }
    }

    /// A socket failed with `errno`, a positive number; `what` says whose.
    pub(crate) fn socket(what: &str, errno: i32) -> Self {
        let error = io::Error::from_raw_os_error(errno);
        let (kind, hint) = match error.kind() {
            io::ErrorKind::ConnectionRefused => (
                ConnectErrorKind::Unreachable,
                ": nothing listens there; is the target running, and on this port?",
            ),
            io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable => (
                ConnectErrorKind::Unreachable,
                ": check the address, the network and firewalls in between",
            ),
            io::ErrorKind::OutOfMemory => (
                ConnectErrorKind::Local,
                ": this shard has no memory for a receive buffer",
            ),
            _ => (ConnectErrorKind::Closed, ""),
        };
        Self::new(kind, format!("{what} failed: {error}{hint}"))
    }

    /// There is no socket to connect with.
    pub(crate) fn no_socket(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrNotAvailable => {
                Self::new(ConnectErrorKind::Usage, error.to_string())
            }
            _ => Self::new(
                ConnectErrorKind::Local,
                format!("no socket for a connection: {error}"),
            ),
        }
    }

    /// The same, saying which target it was about.
    pub(crate) fn at(self, address: &impl fmt::Display) -> Self {
        Self {
            kind: self.kind,
            sentence: format!("{address}: {}", self.sentence),
        }
    }

    /// The same for who asked again what a disk called `name` is: whether the target said what has
    /// become of it, or could not be asked.
    pub(crate) fn of_disk(self, name: &str) -> OpenError {
        let kind = match self.kind {
            ConnectErrorKind::Refused => OpenErrorKind::NotFound,
            ConnectErrorKind::Unsupported => OpenErrorKind::Unsupported,
            _ => OpenErrorKind::Unreachable,
        };
        OpenError::new(kind, format!("{name}: {self}"))
    }

    /// What kind of trouble it is.
    #[must_use]
    pub const fn kind(&self) -> ConnectErrorKind {
        self.kind
    }

    /// Whether another address of the same host may do better: the target has said nothing.
    pub(crate) const fn says_nothing_about_the_target(&self) -> bool {
        matches!(
            self.kind,
            ConnectErrorKind::Unreachable | ConnectErrorKind::Timeout
        )
    }

    /// Whether trying again soon is pointless: only somebody who changes the target can help.
    pub(crate) const fn is_lasting(&self) -> bool {
        matches!(
            self.kind,
            ConnectErrorKind::Refused | ConnectErrorKind::Unsupported
        )
    }
}

impl From<BringupError> for ConnectError {
    fn from(error: BringupError) -> Self {
        let kind = match error.kind() {
            BringupErrorKind::Refused
            | BringupErrorKind::WrongNqn
            | BringupErrorKind::AuthRequired => ConnectErrorKind::Refused,
            BringupErrorKind::Unsupported => ConnectErrorKind::Unsupported,
            BringupErrorKind::Timeout => ConnectErrorKind::Timeout,
            BringupErrorKind::Broken => ConnectErrorKind::Protocol,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<LoginFailure> for ConnectError {
    fn from(failure: LoginFailure) -> Self {
        let kind = match &failure {
            // What the target cannot do now it may be able to do soon.
            LoginFailure::Refused(
                LoginStatus::UNAVAILABLE
                | LoginStatus::OUT_OF_RESOURCES
                | LoginStatus::TARGET_ERROR
                | LoginStatus::TOO_MANY_CONNECTIONS,
            ) => ConnectErrorKind::Closed,
            LoginFailure::Refused(_) | LoginFailure::Moved { .. } | LoginFailure::NotProved(_) => {
                ConnectErrorKind::Refused
            }
            LoginFailure::NoDigest(_) => ConnectErrorKind::Unsupported,
            LoginFailure::Broken(_) => ConnectErrorKind::Protocol,
        };
        Self::new(kind, failure.to_string())
    }
}

impl From<UnitError> for ConnectError {
    fn from(error: UnitError) -> Self {
        let kind = match error {
            UnitError::NoUnit(_) | UnitError::NoDisk | UnitError::Reserved(_) => {
                ConnectErrorKind::Refused
            }
            UnitError::NotADisk(..) => ConnectErrorKind::Unsupported,
            UnitError::Failed { .. } | UnitError::Broken(_) => ConnectErrorKind::Protocol,
        };
        Self::new(kind, error.to_string())
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for ConnectError {}
