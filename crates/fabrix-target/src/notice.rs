//! Events of a target for its operator, which print as sentences.
//!
//! The program decides where the sentences go. Names that come from a peer are quoted and cleaned.

use std::fmt;
use std::net::SocketAddr;

use fabrix_block::Failed;

/// One event. Names from peers have been cleaned of control characters.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A controller was made for a host.
    Connected {
        /// NQN of the host.
        host: String,
        /// The controller's id.
        controller: u16,
        /// Address of the peer.
        peer: SocketAddr,
    },
    /// A host was refused in Connect, or an initiator in its login.
    Refused {
        /// Address of the peer.
        peer: SocketAddr,
        /// Name that the peer has given, if any.
        who: Option<String>,
        /// The reason, as a sentence.
        why: String,
    },
    /// A controller ended.
    Disconnected {
        /// NQN of the host.
        host: String,
        /// The controller's id.
        controller: u16,
        /// Address of the peer.
        peer: SocketAddr,
        /// The end, with its reason.
        end: End,
    },
    /// The connection of an I/O queue was lost, without its controller.
    QueueLost {
        /// NQN of the host, if its controller has not ended.
        host: Option<String>,
        /// The controller's id.
        controller: u16,
        /// The queue's id.
        qid: u16,
        /// Address of the peer.
        peer: SocketAddr,
        /// The reason, as a sentence.
        why: String,
    },
    /// An iSCSI session has begun.
    LoggedIn {
        /// Name of the initiator.
        initiator: String,
        /// The session's number.
        session: u16,
        /// Address of the peer.
        peer: SocketAddr,
    },
    /// An iSCSI session has ended.
    LoggedOut {
        /// Name of the initiator.
        initiator: String,
        /// The session's number.
        session: u16,
        /// Address of the peer.
        peer: SocketAddr,
        /// The end, with its reason.
        end: End,
    },
    /// An unauthenticated peer broke the protocol. Its connection was closed.
    Violation {
        /// Address of the peer.
        peer: SocketAddr,
        /// The violation.
        what: String,
    },
    /// A disk could not be opened on a shard.
    Disk {
        /// Namespace id.
        nsid: u32,
        /// The reason.
        why: String,
    },
    /// A disk has failed a request.
    DiskFailed {
        /// Namespace id. The LUN is one less.
        nsid: u32,
        /// Name of the disk.
        disk: String,
        /// The request and its status.
        failed: Failed,
    },
    /// The port pauses, because the process has no file descriptor or memory left. It continues by
    /// itself.
    AcceptPaused {
        /// The system's reason.
        errno: i32,
    },
    /// A listener for RDMA has ended with its device. It comes back with the device.
    ListenerLost {
        /// Address of the listener.
        address: SocketAddr,
        /// Errno of the end.
        errno: i32,
    },
    /// A listener for RDMA is back.
    ListenerBack {
        /// Address of the listener.
        address: SocketAddr,
    },
    /// A connection was closed: the target has as many as allowed.
    TooManyConnections,
    /// A connection was closed: its address has as many unauthenticated ones as allowed.
    TooManyUnauthenticated {
        /// Address of the peer.
        peer: SocketAddr,
    },
}

/// The end of a host's or initiator's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The reason, as a sentence about the host or initiator.
    pub why: String,
    /// Whether the end was in order: the peer has left by itself, or the target shuts down.
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
            Self::ListenerLost { address, errno } => write!(
                f,
                "the RDMA device of {address} is gone ({}): nobody can connect there until it is back",
                std::io::Error::from_raw_os_error(*errno)
            ),
            Self::ListenerBack { address } => {
                write!(
                    f,
                    "the RDMA device of {address} is back: hosts can connect there again"
                )
            }
            Self::TooManyConnections => {
                f.write_str("closed a new connection: there are as many as allowed")
            }
            Self::TooManyUnauthenticated { peer } => write!(
                f,
                "closed a new connection of {peer}: from there as many as allowed have not said who they are"
            ),
        }
    }
}
