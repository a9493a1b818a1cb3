//! Keep Alive commands, and commands that count as such.
//!
//! A part of `session`.

use fabrix_proto::nvme::queue::HostTransfer;
use fabrix_proto::nvme::spec::{CompletionEntry, SubmissionEntry};
use fabrix_rt::{Nanos, Shard};

use super::queue::{Command, NvmeLink};
use super::session::Session;
use crate::ConnectErrorKind;

impl<L: NvmeLink> Session<L> {
    /// Whether every command restarts the controller's keep-alive timer (TBKAS).
    pub(super) fn is_renewed_by_traffic(&self) -> bool {
        let facts = self.protocol.facts.as_ref();
        facts.is_some_and(|facts| facts.controller.traffic_keep_alive)
    }

    /// Counts requests that were answered since the last tick as a keep-alive, where the controller
    /// does so too.
    pub(super) fn count_traffic(&mut self, now: Nanos) {
        let answers: u64 = self.connections.iter().map(|queue| queue.answers).sum();
        let (before, counted_at) = std::mem::replace(&mut self.protocol.traffic, (answers, now));
        if answers != before && self.keep_alive.is_answered && self.is_renewed_by_traffic() {
            self.keep_alive.sent_at = self.keep_alive.sent_at.max(counted_at);
        }
    }

    pub(super) fn send_keep_alive(&mut self, shard: &mut Shard) {
        let (now, mut entry) = (shard.now(), SubmissionEntry::keep_alive());
        let (admin, none) = (&mut self.connections[0], HostTransfer::None);
        let sent = admin.send(now, &mut entry, none, None, Command::Session);
        if sent.is_some() {
            self.keep_alive_sent(shard);
        }
    }

    pub(super) fn keep_alive_completed(&mut self, shard: &mut Shard, entry: &CompletionEntry) {
        let status = entry.status();
        if !status.is_success() {
            let sentence = format!("the controller answered Keep Alive with {status}");
            return self.disconnect_with(shard, ConnectErrorKind::Protocol, sentence);
        }
        self.keep_alive_answered();
    }
}
