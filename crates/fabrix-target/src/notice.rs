//! What happens in a target that an operator wants to know, as values that print as sentences.
//!
//! Knows no log: the program decides where the sentences go. Names that come from a peer are quoted
//! and cleaned.

use std::fmt;
use std::net::SocketAddr;

use fabrix_block::Failed;

/// One event. Names from peers have been cleaned of control characters.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A controller was made for a host.
    Connected {
        /// Who.
        host: String,
        /// The controller's id.
        controller: u16,
        /// From where.
        peer: SocketAddr,
    },
    /// A host was refused in Connect, or an initiator in its login.
    Refused {
        /// From where.
        peer: SocketAddr,
        /// Who it says it is, if it has said so.
        who: Option<String>,
        /// Why, as a sentence.
        why: String,
    },
    /// A controller ended.
    Disconnected {
        /// Who.
        host: String,
        /// The controller's id.
        controller: u16,
        /// From where.
        peer: SocketAddr,
        /// How.
        end: End,
    },
    /// The connection of an I/O queue was lost; its controller is still there.
    QueueLost {
        /// Who, if its controller is still there.
        host: Option<String>,
        /// The controller's id.
        controller: u16,
        /// The queue's id.
        qid: u16,
        /// From where.
        peer: SocketAddr,
        /// Why, as a sentence.
        why: String,
    },
    /// An iSCSI session has begun.
    LoggedIn {
        /// Who.
        initiator: String,
        /// The session's number.
        session: u16,
        /// From where.
        peer: SocketAddr,
    },
    /// An iSCSI session has ended.
    LoggedOut {
        /// Who.
        initiator: String,
        /// The session's number.
        session: u16,
        /// From where.
        peer: SocketAddr,
        /// How.
        end: End,
    },
    /// A peer that has not said who it is broke the protocol; its connection was ended.
    Violation {
        /// From where.
        peer: SocketAddr,
        /// What it did.
        what: String,
    },
    /// A disk could not be opened on a shard.
    Disk {
        /// Which namespace.
        nsid: u32,
        /// Why.
        why: String,
    },
    /// A disk has failed a request.
    DiskFailed {
        /// Which namespace; its LUN is one less.
        nsid: u32,
        /// What it is called.
        disk: String,
        /// What has failed, and how.
        failed: Failed,
    },
    /// Accepting rests, because the process has no file descriptor or memory left; it goes on by
    /// itself.
    AcceptPaused {
        /// The system's reason.
        errno: i32,
    },
    /// A connection was closed because there are as many as allowed.
    TooManyConnections,
    /// A connection was closed because its address has as many as allowed that have not said who
    /// they are.
    TooManyStrangers {
        /// From where.
        peer: SocketAddr,
    },
}

/// How the session of a host or initiator has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Why, as a sentence about the host or initiator.
    pub why: String,
    /// Whether nothing was wrong: it has gone by itself, or the target is shutting down.
    pub is_orderly: bool,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected {
                host,
                controller,
                peer,
            } => {
                write!(f, "{host} connected from {}, controller {controller}", peer)
            }
            Self::Refused { peer, who, why } => match who {
                Some(who) => write!(f, "refused {who} from {peer}: {why}"),
                None => write!(f, "refused {peer}: {why}"),
            },
            Self::Disconnected {
                host,
                controller,
                peer,
                end,
            } => {
                write!(
                    f,
                    "controller {controller} of {host} at {peer} has ended: {}",
                    end.why
                )
            }
            Self::QueueLost {
                host,
                controller,
                qid,
                peer,
                why,
            } => {
                let host = host.as_deref().unwrap_or("a host");
                write!(
                    f,
                    "I/O queue {qid} of controller {controller} of {host} at {peer} was lost: {why}"
                )
            }
            Self::LoggedIn {
                initiator,
                session,
                peer,
            } => {
                write!(f, "{initiator} logged in from {}, session {session}", peer)
            }
            Self::LoggedOut {
                initiator,
                session,
                peer,
                end,
            } => {
                write!(
                    f,
                    "session {session} of {initiator} at {peer} has ended: {}",
                    end.why
                )
            }
            Self::Violation { peer, what } => {
                write!(f, "ended the connection of {}: {what}", peer)
            }
            Self::Disk { nsid, why } => write!(f, "namespace {nsid}: {why}"),
            Self::DiskFailed { nsid, disk, failed } => {
                write!(f, "namespace {nsid} ({disk}): {failed}")
            }
            Self::AcceptPaused { errno } => write!(
                f,
                "cannot accept more connections now: {}; raise the limit of open files (ulimit -n) if this lasts",
                std::io::Error::from_raw_os_error(*errno)
            ),
            Self::TooManyConnections => {
                f.write_str("closed a new connection: there are as many as allowed")
            }
            Self::TooManyStrangers { peer } => write!(
                f,
                "closed a new connection of {peer}: from there as many as allowed have not said who they are"
            ),
        }
    }
}
