//! Events of a controller: namespaces that change while they are used.
//!
//! A part of `session`. It switches events on, keeps an Asynchronous Event Request outstanding, and
//! reads the Changed Namespace List after an event, which lets the controller send the next one.
//! Changes are reported as [`PathEvent::Changed`]. A controller that supports no events gets no
//! command.
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

use super::queue::{Command, EventStep, NvmeLink};
use super::session::Session;
use crate::reconnection::State;
use crate::{ConnectError, ConnectErrorKind, PathEvent, Transport};

impl<L: NvmeLink> Session<L> {
    /// The session has connected: reports a change during the outage, and switches events on.
    pub(super) fn request_events(&mut self, shard: &mut Shard) {
        let (Some(facts), Some(disk)) = (&self.protocol.facts, &self.plan.expected) else {
            return;
        };
        let reports = facts.controller.async_events & EVENT_NAMESPACE_ATTRIBUTE != 0;
        if let Found::Io { namespace, .. } = &facts.found
            && namespace.blocks != disk.geometry.blocks
        {
            self.reconnection.report_event(PathEvent::Changed);
        }
        if reports {
            let feature = FeatureId::ASYNC_EVENT_CONFIGURATION;
            let mut entry = SubmissionEntry::set_features(feature, EVENT_NAMESPACE_ATTRIBUTE);
            self.send_event_command(shard, &mut entry, 0, EventStep::Enable);
        }
    }

    /// Checks that the controller still has the same disk, and that the transport can move its
    /// data. Reports a disk that became smaller as changed, and refuses it.
    pub(super) fn check(&self, facts: &Facts) -> Result<(), ConnectError> {
        if self.plan.transport == Transport::Rdma && !facts.controller.keyed_data {
            let sentence = "the controller takes no keyed data descriptors (SGLS bit 2), which \
                            NVMe/RDMA needs";
            return Err(ConnectError::new(ConnectErrorKind::Unsupported, sentence));
        }
        let Some(disk) = &self.plan.expected else {
            return Ok(());
        };
        let options = &self.plan.options;
        let checked = disk.check(options, facts);
        if checked.is_err() && disk.remeasured(options, facts).is_ok() {
            self.reconnection.report_event(PathEvent::Changed);
        }
        checked
    }

    /// Processes the answer of such a command.
    pub(super) fn event_answered(
        &mut self,
        shard: &mut Shard,
        step: EventStep,
        entry: &CompletionEntry,
        data: &[u8],
    ) {
        let is_done = entry.status().is_success();
        if self.reconnection.state != State::Connected {
            return;
        }
        match step {
            // No event has reported changes between the bring-up and now.
            EventStep::Enable if is_done => self.read_list(shard),
            EventStep::Event if is_done && is_of_namespaces(entry) => self.read_list(shard),
            EventStep::List => {
                if is_done && self.is_listed(data) {
                    self.reconnection.report_event(PathEvent::Changed);
                }
                self.await_event(shard);
            }
            EventStep::Event if is_done => self.await_event(shard),
            EventStep::Enable | EventStep::Event => {}
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
        self.send_event_command(shard, &mut list, LIST_BYTES, EventStep::List);
    }

    /// Whether the list names our namespace, or all of them because there were too many.
    fn is_listed(&self, list: &[u8]) -> bool {
        let Some(disk) = &self.plan.expected else {
            return false;
        };
        let (ids, _) = list.as_chunks::<4>();
        let ids = ids.iter().map(|id| u32::from_le_bytes(*id));
        ids.take_while(|id| *id != 0)
            .any(|id| id == disk.nsid || id == u32::MAX)
    }

    fn await_event(&mut self, shard: &mut Shard) {
        let mut entry = SubmissionEntry::async_event_request();
        self.send_event_command(shard, &mut entry, 0, EventStep::Event);
    }

    /// Sends such a command. Without a slot or memory, changes are reported after the next
    /// connection only.
    fn send_event_command(
        &mut self,
        shard: &mut Shard,
        entry: &mut SubmissionEntry,
        bytes: u32,
        step: EventStep,
    ) {
        let (transfer, data) = match bytes {
            0 => (HostTransfer::None, None),
            _ => match shard.take_buf(bytes as usize) {
                Some(buf) => (HostTransfer::Read { bytes }, Some((buf, 0))),
                None => return,
            },
        };
        let now = shard.now();
        let sent = self.connections[0].send(now, entry, transfer, data, Command::Event(step));
        if sent.is_some() {
            shard.flush_later(self.reconnection.task);
        }
    }
}

fn is_of_namespaces(event: &CompletionEntry) -> bool {
    event.result.get() & EVENT_MASK == NAMESPACE_CHANGED
}

/// Fields of an event in dword 0: type, information, and the log page that clears it.
const EVENT_MASK: u64 = 0x00FF_FF07;
/// Notice (type 2), Namespace Attribute Changed (00h), log page 04h.
const NAMESPACE_CHANGED: u64 = 0x0004_0002;
/// The whole log page: 1024 namespaces of 4 bytes.
const LIST_BYTES: u32 = 4096;
