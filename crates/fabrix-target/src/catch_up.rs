//! A round through connections: it ends when their shards have handled everything that had arrived
//! before it.
//!
//! A shard handles what its sockets and disks have brought before it reads messages. So a
//! connection whose peer has closed it has ended when the message of a round reaches it, and its
//! commands at disks are barriers for later ones.

use std::sync::Arc;

use crate::registry::{ConnectionAddress, ConnectionOrder};

/// The message of a round. Whoever gets it drops it. A connection that is gone drops it too.
pub(crate) struct CatchUp {
    _round: Arc<Round>,
}

/// The round, until its last message is dropped.
struct Round {
    asker: ConnectionAddress,
}

impl Drop for Round {
    fn drop(&mut self) {
        // Without room in the mailbox, the deadline of the asker ends it.
        let _sent = self.asker.send(ConnectionOrder::CaughtUp);
    }
}

/// Sends a round through connections. The asker gets [`ConnectionOrder::CaughtUp`] at its end.
/// False: a mailbox is full, and the round says nothing.
pub(crate) fn send(asker: ConnectionAddress, connections: &[ConnectionAddress]) -> bool {
    let round = Arc::new(Round { asker });
    connections.iter().all(|connection| {
        let message = CatchUp {
            _round: Arc::clone(&round),
        };
        connection.send(message).is_ok()
    })
}
