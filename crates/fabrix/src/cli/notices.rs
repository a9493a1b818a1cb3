//! Writes the notices of a target to the log, with rate limits.
//!
//! Notices that peers cause are limited by reason and address. Notices about disks are limited by
//! disk, operation and status.

use std::net::SocketAddr;
use std::time::Duration;

use fabrix_block::{Failed, Status};
use fabrix_target::Notice;
use serde_json::{Value, json};

use crate::log::{self, Level, Limit, Line};

/// Logs a notice. Notices beyond the rate limit are counted.
pub(crate) fn log_notice(notice: &Notice) {
    let line = || Line {
        level: level(notice),
        message: notice.to_string(),
        fields: fields(notice),
    };
    match key(notice) {
        Some((key, limit)) => log::tell_often(&key, limit, line),
        None => log::tell(line()),
    }
}

/// Logs a failed request of an attached disk. Failures beyond the rate limit are counted.
pub(crate) fn disk_failed(disk: &str, failed: Failed) {
    log::tell_often(&failure_key(disk, &failed), FAILURE_LIMIT, || Line {
        level: Level::Error,
        message: format!("{disk}: {failed}"),
        fields: failure_fields(disk, &failed),
    });
}

fn level(notice: &Notice) -> Level {
    match notice {
        Notice::Connected { .. } | Notice::LoggedIn { .. } | Notice::ListenerBack { .. } => {
            Level::Info
        }
        Notice::Disconnected { end, .. } | Notice::LoggedOut { end, .. } if end.is_orderly => {
            Level::Info
        }
        Notice::Disk { .. } | Notice::DiskFailed { .. } => Level::Error,
        Notice::Disconnected { .. }
        | Notice::LoggedOut { .. }
        | Notice::QueueLost { .. }
        | Notice::Refused { .. }
        | Notice::Violation { .. }
        | Notice::AcceptPaused { .. }
        | Notice::ListenerLost { .. }
        | Notice::TooManyConnections
        | Notice::TooManyUnauthenticated { .. } => Level::Warning,
    }
}

/// The key that groups similar notices, and their rate limit.
fn key(notice: &Notice) -> Option<(String, Limit)> {
    let origin = |peer: &std::net::SocketAddr| fabrix_target::origin(peer.ip());
    Some(match notice {
        Notice::Refused { peer, why, .. } => {
            (format!("refused {} {why}", origin(peer)), PEER_LIMIT)
        }
        Notice::Violation { peer, .. } => (format!("violation {}", origin(peer)), PEER_LIMIT),
        Notice::TooManyUnauthenticated { peer } => {
            (format!("strangers {}", origin(peer)), PEER_LIMIT)
        }
        Notice::TooManyConnections => ("connections".to_owned(), PEER_LIMIT),
        Notice::Connected { peer, .. } | Notice::LoggedIn { peer, .. } => {
            (format!("connected {}", origin(peer)), HOST_LIMIT)
        }
        Notice::Disconnected { peer, .. } | Notice::LoggedOut { peer, .. } => {
            (format!("ended {}", origin(peer)), HOST_LIMIT)
        }
        Notice::QueueLost { peer, .. } => (format!("queue {}", origin(peer)), HOST_LIMIT),
        Notice::Disk { nsid, .. } => (format!("open {nsid}"), FAILURE_LIMIT),
        Notice::DiskFailed { nsid, failed, .. } => {
            (failure_key(&nsid.to_string(), failed), FAILURE_LIMIT)
        }
        Notice::AcceptPaused { .. } => ("accept".to_owned(), FAILURE_LIMIT),
        Notice::ListenerLost { address, .. } => (format!("lost {address}"), FAILURE_LIMIT),
        Notice::ListenerBack { address } => (format!("back {address}"), FAILURE_LIMIT),
    })
}

fn failure_key(disk: &str, failed: &Failed) -> String {
    format!(
        "disk {disk} {} {:?}",
        failed.operation.word(),
        failed.status
    )
}

/// The structured fields of a notice.
fn fields(notice: &Notice) -> Vec<(&'static str, Value)> {
    let of_peer = |host: Value, peer: &SocketAddr| vec![("host", host), ("peer", json!(peer))];
    let mut fields = match notice {
        Notice::Connected { host, peer, .. } | Notice::Disconnected { host, peer, .. } => {
            of_peer(json!(host), peer)
        }
        Notice::QueueLost { host, peer, .. } => of_peer(json!(host), peer),
        Notice::LoggedIn {
            initiator, peer, ..
        }
        | Notice::LoggedOut {
            initiator, peer, ..
        } => of_peer(json!(initiator), peer),
        Notice::Refused { peer, who, .. } => of_peer(json!(who), peer),
        Notice::Violation { peer, .. } | Notice::TooManyUnauthenticated { peer } => {
            vec![("peer", json!(peer))]
        }
        Notice::Disk { nsid, .. } | Notice::DiskFailed { nsid, .. } => vec![("nsid", json!(nsid))],
        Notice::AcceptPaused { errno } => vec![("errno", json!(errno))],
        Notice::ListenerLost { address, .. } | Notice::ListenerBack { address } => {
            vec![("listen", json!(address))]
        }
        Notice::TooManyConnections => vec![],
    };
    // The numbers of connections and requests.
    match notice {
        Notice::Connected { controller, .. }
        | Notice::Disconnected { controller, .. }
        | Notice::QueueLost { controller, .. } => fields.push(("controller", json!(controller))),
        Notice::LoggedIn { session, .. } | Notice::LoggedOut { session, .. } => {
            fields.push(("session", json!(session)));
        }
        Notice::DiskFailed { disk, failed, .. } => fields.extend(failure_fields(disk, failed)),
        _ => {}
    }
    if let Notice::QueueLost { qid, .. } = notice {
        fields.push(("queue", json!(qid)));
    }
    // The reasons.
    match notice {
        Notice::Disconnected { end, .. } | Notice::LoggedOut { end, .. } => {
            fields.push(("reason", json!(end.why)));
        }
        Notice::QueueLost { why, .. }
        | Notice::Refused { why, .. }
        | Notice::Violation { what: why, .. }
        | Notice::Disk { why, .. } => fields.push(("reason", json!(why))),
        _ => {}
    }
    fields
}

fn failure_fields(disk: &str, failed: &Failed) -> Vec<(&'static str, Value)> {
    vec![
        ("disk", json!(disk)),
        ("operation", json!(failed.operation.word())),
        ("lba", json!(failed.lba)),
        ("blocks", json!(failed.blocks)),
        ("status", json!(word(failed.status))),
    ]
}

/// A stable word for a status, for programs that read the log.
fn word(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::OutOfRange => "out-of-range",
        Status::Unsupported => "unsupported",
        Status::ReadOnly => "read-only",
        Status::MediaRead => "media-read",
        Status::MediaWrite => "media-write",
        Status::NoSpace => "no-space",
        Status::CompareFailed => "compare-failed",
        Status::NotReady => "not-ready",
        Status::Aborted => "aborted",
        Status::Refused => "refused",
        Status::Degraded => "degraded",
        Status::Internal => "internal",
    }
}

/// Limit of notices that every peer can cause, per reason and address.
const PEER_LIMIT: Limit = Limit {
    lines: 1,
    period: Duration::from_secs(1),
};
/// Limit of notices that allowed hosts cause, per address.
const HOST_LIMIT: Limit = Limit {
    lines: 64,
    period: Duration::from_secs(1),
};
/// Limit of failures on this machine, for example per disk, operation and status.
const FAILURE_LIMIT: Limit = Limit {
    lines: 1,
    period: Duration::from_secs(10),
};

#[cfg(test)]
mod tests {
    use fabrix_block::Operation;
    use fabrix_target::End;

    use super::*;

    fn refused(peer: [u8; 4], why: &str) -> Notice {
        Notice::Refused {
            peer: (peer, 5).into(),
            who: None,
            why: why.to_owned(),
        }
    }

    fn failed(operation: Operation, status: Status) -> Notice {
        Notice::DiskFailed {
            nsid: 1,
            disk: "ram:1G".to_owned(),
            failed: Failed {
                operation,
                lba: 8,
                blocks: 1,
                status,
            },
        }
    }

    #[test]
    fn refused_connections_are_counted_by_reason_and_address() {
        let key = |notice| key(&notice).expect("a limit").0;
        let one = || refused([192, 0, 2, 1], "not allowed");
        assert_eq!(key(one()), key(one()));
        assert_ne!(key(one()), key(refused([192, 0, 2, 1], "wrong secret")));
        assert_ne!(key(one()), key(refused([192, 0, 2, 2], "not allowed")));
    }

    #[test]
    fn failed_requests_are_counted_by_operation_and_status() {
        let key = |operation, status| key(&failed(operation, status)).expect("a limit").0;
        let full = |durable| key(Operation::Write { durable }, Status::NoSpace);
        assert_eq!(full(false), full(true));
        assert_ne!(full(false), key(Operation::Flush, Status::NoSpace));
        let media = key(Operation::Write { durable: false }, Status::MediaWrite);
        assert_ne!(full(false), media);
    }

    #[test]
    fn a_failed_request_names_the_disk_and_the_blocks_for_programs() {
        let expected = [
            ("nsid", json!(1)),
            ("disk", json!("ram:1G")),
            ("operation", json!("read")),
            ("lba", json!(8)),
            ("blocks", json!(1)),
            ("status", json!("media-read")),
        ];
        let notice = failed(Operation::Read, Status::MediaRead);
        assert_eq!(fields(&notice), expected);
        assert_eq!(level(&notice), Level::Error);
    }

    #[test]
    fn a_disorderly_end_of_a_session_is_a_warning() {
        let ended = |is_orderly| Notice::LoggedOut {
            initiator: String::new(),
            session: 1,
            peer: ([192, 0, 2, 1], 5).into(),
            end: End {
                why: String::new(),
                is_orderly,
            },
        };
        assert_eq!(level(&ended(true)), Level::Info);
        assert_eq!(level(&ended(false)), Level::Warning);
    }
}
