//! What happens in a target that an operator wants to know, as values that print as sentences.
//!
//! Knows no log: the program decides where the sentences go. Names that come from a peer are quoted and cleaned.

use std::fmt;
use std::net::SocketAddr;

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
    /// A host was refused in Connect.
    Refused {
        /// From where.
        peer: SocketAddr,
        /// Why, as a sentence.
        why: String,
    },
    /// A controller ended.
    Disconnected {
        /// Who.
        host: String,
        /// The controller's id.
        controller: u16,
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
    /// An iSCSI session, or a login that had been admitted, has ended.
    LoggedOut {
        /// The session's number.
        session: u16,
    },
    /// A peer broke the protocol; its connection was ended.
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
    /// Accepting rests, because the process has no file descriptor or memory left; it goes on by itself.
    AcceptPaused {
        /// The system's reason.
        errno: i32,
    },
    /// A connection was closed because there are as many as allowed.
    TooManyConnections,
    /// A connection was closed because its address has as many as allowed that have not said who they are.
    TooManyStrangers {
        /// From where.
        peer: SocketAddr,
    },
}

impl Notice {
    /// Whether anybody who reaches a port can cause it, as often as he likes.
    #[must_use]
    pub const fn is_a_strangers(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. }
                | Self::Violation { .. }
                | Self::TooManyConnections
                | Self::TooManyStrangers { .. }
        )
    }
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
            Self::Refused { peer, why } => write!(f, "refused {}: {why}", peer),
            Self::Disconnected {
                host,
                controller,
                why,
            } => {
                write!(f, "{host} disconnected, controller {controller}: {why}")
            }
            Self::LoggedIn {
                initiator,
                session,
                peer,
            } => {
                write!(f, "{initiator} logged in from {}, session {session}", peer)
            }
            Self::LoggedOut { session } => write!(f, "session {session} has ended"),
            Self::Violation { peer, what } => {
                write!(f, "ended the connection of {}: {what}", peer)
            }
            Self::Disk { nsid, why } => write!(f, "namespace {nsid}: {why}"),
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
