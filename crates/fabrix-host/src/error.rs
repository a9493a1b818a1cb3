//! Errors of connections: a kind for the exit code, and a sentence for the user.

use std::fmt;
use std::io;
use std::time::Duration;

use fabrix_block::{OpenError, OpenErrorKind};
use fabrix_proto::iscsi::initiator::LoginFailure;
use fabrix_proto::iscsi::pdu::LoginStatus;
use fabrix_proto::nvme::bringup::{BringupError, BringupErrorKind};
use fabrix_proto::scsi::bringup::BringupError as UnitError;
use fabrix_rt::errno::ENOMEM;
use fabrix_transport::RdmaFailure;

/// Kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectErrorKind {
    /// The options are wrong.
    Usage,
    /// The host is unknown, or nothing listens there.
    Unreachable,
    /// The target refuses this host, does not have the disk, or has another disk in its place.
    Refused,
    /// The target did not answer in time.
    Timeout,
    /// The target closed the connection.
    Closed,
    /// The target violates the protocol.
    Protocol,
    /// The target or the disk has a property that is not supported.
    Unsupported,
    /// This machine lacks a socket, memory or RDMA.
    Local,
}

/// Failure of an attempt to connect, or loss of a connection.
#[derive(Clone, Debug)]
pub struct ConnectError {
    kind: ConnectErrorKind,
    sentence: String,
}

impl ConnectError {
    /// An error with this sentence.
    pub(crate) fn new(kind: ConnectErrorKind, sentence: impl Into<String>) -> Self {
        Self {
            kind,
            sentence: sentence.into(),
        }
    }

    /// A socket has failed with `errno`, a positive number. `what` names the socket.
    pub(crate) fn socket(what: &str, errno: i32) -> Self {
        let error = io::Error::from_raw_os_error(errno);
        let (kind, hint) = match error.kind() {
            io::ErrorKind::ConnectionRefused => (
                ConnectErrorKind::Unreachable,
                ": nothing listens there; is the target running, and on this port?",
            ),
            io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable => (ConnectErrorKind::Unreachable, CHECK_ADDRESS),
            io::ErrorKind::OutOfMemory => (
                ConnectErrorKind::Local,
                ": this shard has no memory for a receive buffer",
            ),
            _ => (ConnectErrorKind::Closed, ""),
        };
        Self::new(kind, format!("{what} failed: {error}{hint}"))
    }

    /// The system gives no socket.
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

    /// The transport has not connected within the time for the bring-up.
    pub(crate) fn no_connection(within: Duration) -> Self {
        let sentence = format!("no connection within {within:?}{CHECK_ADDRESS}");
        Self::new(ConnectErrorKind::Timeout, sentence)
    }

    /// An RDMA connection cannot be begun.
    pub(crate) fn no_rdma(error: &io::Error) -> Self {
        let (kind, hint) = match error.kind() {
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                (ConnectErrorKind::Unreachable, CHECK_ADDRESS)
            }
            _ => (ConnectErrorKind::Local, ""),
        };
        Self::new(kind, format!("no RDMA connection: {error}{hint}"))
    }

    /// An RDMA connection has ended before it was established.
    pub(crate) fn rdma_not_connected(failure: &RdmaFailure) -> Self {
        let why = &failure.why;
        match lacks_memory(failure) {
            true => Self::new(
                ConnectErrorKind::Local,
                format!("no RDMA connection: {why}{LOCKED_MEMORY}"),
            ),
            false => Self::new(ConnectErrorKind::Unreachable, why.as_str()),
        }
    }

    /// An established RDMA connection has failed. `what` names the connection.
    pub(crate) fn rdma_lost(what: &str, failure: &RdmaFailure) -> Self {
        let hint = match lacks_memory(failure) {
            true => LOCKED_MEMORY,
            false => "",
        };
        let sentence = format!("{what} failed: {}{hint}", failure.why);
        Self::new(ConnectErrorKind::Closed, sentence)
    }

    /// The same error with the address of its target.
    pub(crate) fn at(self, address: &impl fmt::Display) -> Self {
        Self {
            kind: self.kind,
            sentence: format!("{address}: {}", self.sentence),
        }
    }

    /// The same error for the caller of [`Device::resize`](fabrix_block::Device::resize).
    pub(crate) fn of_disk(self, name: &str) -> OpenError {
        let kind = match self.kind {
            ConnectErrorKind::Refused => OpenErrorKind::NotFound,
            ConnectErrorKind::Unsupported => OpenErrorKind::Unsupported,
            _ => OpenErrorKind::Unreachable,
        };
        OpenError::new(kind, format!("{name}: {self}"))
    }

    /// Kind of the error.
    #[must_use]
    pub const fn kind(&self) -> ConnectErrorKind {
        self.kind
    }

    /// Whether no target has answered: another address of the host may work.
    #[must_use]
    pub const fn is_of_the_network(&self) -> bool {
        matches!(
            self.kind,
            ConnectErrorKind::Unreachable | ConnectErrorKind::Timeout
        )
    }

    /// Whether the next attempt will fail too, until somebody changes the target.
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
            // Temporary conditions of the target.
            LoginFailure::Refused(
                LoginStatus::UNAVAILABLE
                | LoginStatus::OUT_OF_RESOURCES
                | LoginStatus::TARGET_ERROR
                | LoginStatus::TOO_MANY_CONNECTIONS,
            ) => ConnectErrorKind::Closed,
            LoginFailure::Refused(_) | LoginFailure::Moved { .. } | LoginFailure::NotProved(_) => {
                ConnectErrorKind::Refused
            }
            LoginFailure::NoDigest(_) | LoginFailure::NoRdma => ConnectErrorKind::Unsupported,
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

/// Whether the system has refused memory. The failure has nothing but the system's words for it.
fn lacks_memory(failure: &RdmaFailure) -> bool {
    failure.why == io::Error::from_raw_os_error(ENOMEM).to_string()
}

const CHECK_ADDRESS: &str = ": check the address, the network and firewalls in between";
/// Memory that an RDMA device knows counts as locked.
const LOCKED_MEMORY: &str = ": the limit of locked memory may be too low; raise it with \
                             `ulimit -l unlimited`, or LimitMEMLOCK=infinity of a systemd unit";

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(why: &str) -> RdmaFailure {
        let why = why.to_owned();
        RdmaFailure { why }
    }

    #[test]
    fn a_low_limit_of_locked_memory_is_named_with_the_way_out() {
        let why = io::Error::from_raw_os_error(ENOMEM).to_string();
        let never = ConnectError::rdma_not_connected(&failure(&why));
        assert_eq!(never.kind(), ConnectErrorKind::Local);
        let lost = ConnectError::rdma_lost("I/O connection 1", &failure(&why));
        assert_eq!(lost.kind(), ConnectErrorKind::Closed);
        for said in [never.to_string(), lost.to_string()] {
            assert!(said.contains(&why) && said.contains("ulimit -l"), "{said}");
        }
        let other = ConnectError::rdma_not_connected(&failure("the peer does not answer"));
        assert_eq!(other.kind(), ConnectErrorKind::Unreachable);
        assert_eq!(other.to_string(), "the peer does not answer");
    }

    #[test]
    fn an_unreachable_address_is_no_lack_of_this_machine() {
        for kind in [
            io::ErrorKind::NetworkUnreachable,
            io::ErrorKind::HostUnreachable,
        ] {
            let error = ConnectError::no_rdma(&kind.into());
            assert_eq!(error.kind(), ConnectErrorKind::Unreachable, "{error}");
            assert!(error.to_string().contains("check the address"), "{error}");
        }
        let missing = io::Error::other("RDMA cannot be used: this machine has no RDMA device");
        let error = ConnectError::no_rdma(&missing);
        assert_eq!(error.kind(), ConnectErrorKind::Local);
    }
}
