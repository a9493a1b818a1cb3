//! A session hears of changes: the controller is asked to say when a namespace has changed, and
//! when it has, the page of changed namespaces is read, which lets the controller speak again.
//!
//! The fourth part of `session`. What a change means is for the disk's user; see
//! [`PathEvent::Changed`]. A controller that reports nothing is asked nothing.
//! Source: NVM Express Base Specification 2.x, "Asynchronous Event Request command", "Changed
//! Namespace List".

use fabrix_proto::nvme::admin::GetLogPage;
use fabrix_proto::nvme::bringup::{Facts, Found};
use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::identify::EVENT_NAMESPACE_ATTRIBUTE;
use fabrix_proto::nvme::log_page::LogId;
use fabrix_proto::nvme::queue::HostTransfer;
use fabrix_proto::nvme::spec::{CompletionEntry, SubmissionEntry};
use fabrix_rt::Shard;

use super::queue::{Carried, Link, Watch};
use super::session::Session;
use crate::PathEvent;
use crate::outage::State;

impl<L: Link> Session<L> {
    /// The controller is up: what has changed while there was none is told, and it is asked to say
    /// what changes from now on.
    pub(super) fn watch(&mut self, shard: &mut Shard) {
        let (Some(facts), Some(seen)) = (&self.facts, &self.plan.expected) else {
            return;
        };
        let reports = facts.controller.async_events & EVENT_NAMESPACE_ATTRIBUTE != 0;
        if let Found::Io { namespace, .. } = &facts.found
            && namespace.blocks != seen.geometry.blocks
        {
            self.reconnection.tell_path(PathEvent::Changed);
        }
        if reports {
            let feature = FeatureId::ASYNC_EVENT_CONFIGURATION;
            let mut entry = SubmissionEntry::set_features(feature, EVENT_NAMESPACE_ATTRIBUTE);
            self.send_watch(shard, &mut entry, 0, Watch::Enable);
        }
    }

    /// A namespace that became smaller is not used as it was; whoever watches may take it as it is.
    pub(super) fn tell_if_smaller(&self, facts: &Facts) {
        let seen = self.plan.expected.as_ref();
        if seen.is_some_and(|seen| seen.again(&self.plan.options, facts).is_ok()) {
            self.reconnection.tell_path(PathEvent::Changed);
        }
    }

    /// One of our commands was answered.
    pub(super) fn watched(
        &mut self,
        shard: &mut Shard,
        watch: Watch,
        entry: &CompletionEntry,
        data: &[u8],
    ) {
        let is_done = entry.status().is_success();
        if self.reconnection.state != State::Live {
            return;
        }
        match watch {
            // What changed after it was asked what it is, and before this, nobody has told.
            Watch::Enable if is_done => self.read_list(shard),
            Watch::Event if is_done && is_of_namespaces(entry) => self.read_list(shard),
            Watch::List => {
                if is_done && self.is_listed(data) {
                    self.reconnection.tell_path(PathEvent::Changed);
                }
                self.await_event(shard);
            }
            Watch::Event if is_done => self.await_event(shard),
            Watch::Enable | Watch::Event => {}
        }
    }

    fn read_list(&mut self, shard: &mut Shard) {
        let mut list = SubmissionEntry::get_log_page(GetLogPage {
            page: LogId::CHANGED_NAMESPACES,
            nsid: u32::MAX,
            offset: 0,
            bytes: LIST_BYTES.into(),
            specific: 0,
            retain_event: false,
            command_set: 0,
        });
        self.send_watch(shard, &mut list, LIST_BYTES, Watch::List);
    }

    /// Whether our namespace is in the list of changed ones; all are when they were too many.
    fn is_listed(&self, list: &[u8]) -> bool {
        let Some(seen) = &self.plan.expected else {
            return false;
        };
        let (ids, _) = list.as_chunks::<4>();
        let ids = ids.iter().map(|id| u32::from_le_bytes(*id));
        ids.take_while(|id| *id != 0)
            .any(|id| id == seen.nsid || id == u32::MAX)
    }

    fn await_event(&mut self, shard: &mut Shard) {
        let mut entry = SubmissionEntry::async_event_request();
        self.send_watch(shard, &mut entry, 0, Watch::Event);
    }

    /// Without room, or memory, changes are seen by who looks, or after the next connection.
    fn send_watch(
        &mut self,
        shard: &mut Shard,
        entry: &mut SubmissionEntry,
        bytes: u32,
        watch: Watch,
    ) {
        let (transfer, data) = match bytes {
            0 => (HostTransfer::None, None),
            _ => match shard.take_buf(bytes as usize) {
                Some(buf) => (HostTransfer::Read { bytes }, Some((buf, 0))),
                None => return,
            },
        };
        let now = shard.now();
        let sent = self.queues[0].send(now, entry, transfer, data, Carried::Watch(watch));
        if sent.is_some() {
            shard.flush_later(self.reconnection.task);
        }
    }
}

fn is_of_namespaces(event: &CompletionEntry) -> bool {
    event.result.get() & EVENT_MASK == NAMESPACE_CHANGED
}

/// Dword 0 of an event: its type, what it says, and the page that clears it.
const EVENT_MASK: u64 = 0x00FF_FF07;
/// A notice (type 2), namespace attribute changed (00h), log page 04h.
const NAMESPACE_CHANGED: u64 = 0x0004_0002;
/// The whole page: 1024 namespaces.
const LIST_BYTES: u32 = 4096;
