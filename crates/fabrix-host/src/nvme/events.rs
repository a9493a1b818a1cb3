//! Events of a controller: namespaces and ANA groups that change while they are used.
//!
//! A part of `session`. It switches events on, keeps an Asynchronous Event Request outstanding, and
//! reads the log page of an event, which lets the controller send the next one. A namespace that
//! changes is reported as [`PathEvent::Changed`]. The state of the disk's ANA group goes to the
//! pool of the disk, and is reported as [`PathEvent::Access`]. A controller that supports no events
//! is asked for the state once with each connection.
//! Source: NVM Express Base Specification 2.x, "Asynchronous Event Request command", "Changed
//! Namespace List", "Asymmetric Namespace Access".

use fabrix_proto::nvme::admin::GetLogPage;
use fabrix_proto::nvme::ana::AnaState;
use fabrix_proto::nvme::bringup::{Facts, Found};
use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::identify::{EVENT_ANA, EVENT_NAMESPACE_ATTRIBUTE};
use fabrix_proto::nvme::log_page::{LogId, ana_bytes_most, ana_state_of};
use fabrix_proto::nvme::queue::HostTransfer;
use fabrix_proto::nvme::spec::{CompletionEntry, SubmissionEntry};
use fabrix_rt::Shard;

use super::queue::{Command, EventStep, NvmeLink};
use super::session::Session;
use crate::multipath::Access;
use crate::reconnection::State;
use crate::{ConnectError, ConnectErrorKind, PathEvent, Transport};

impl<L: NvmeLink> Session<L> {
    /// The session has connected: reports a change during the outage, and switches events on.
    pub(super) fn request_events(&mut self, shard: &mut Shard) {
        let (Some(facts), Some(disk)) = (&self.protocol.facts, &self.plan.expected) else {
            return;
        };
        let wanted = match facts.controller.ana {
            true => EVENT_NAMESPACE_ATTRIBUTE | EVENT_ANA,
            false => EVENT_NAMESPACE_ATTRIBUTE,
        };
        let events = facts.controller.async_events & wanted;
        if let Found::Io { namespace, .. } = &facts.found
            && namespace.blocks != disk.geometry.blocks
        {
            self.reconnection.report_event(PathEvent::Changed);
        }
        if events == 0 {
            return self.read_states(shard, false);
        }
        let feature = FeatureId::ASYNC_EVENT_CONFIGURATION;
        let mut entry = SubmissionEntry::set_features(feature, events);
        self.send_event_command(shard, &mut entry, 0, EventStep::Enable);
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
            EventStep::Enable => self.read_states(shard, false),
            EventStep::Event if is_done && is_of(entry, NAMESPACE_CHANGED) => self.read_list(shard),
            EventStep::Event if is_done && is_of(entry, ANA_CHANGED) => {
                self.read_states(shard, true);
            }
            EventStep::Event if is_done => self.await_event(shard),
            EventStep::Event => {}
            EventStep::List => {
                if is_done && self.is_listed(data) {
                    self.reconnection.report_event(PathEvent::Changed);
                }
                // A namespace that has changed may be in another group.
                self.read_states(shard, true);
            }
            EventStep::States { then_waits } => {
                self.protocol.is_reading_states = false;
                if is_done {
                    self.states_read(shard, data);
                }
                if then_waits {
                    self.await_event(shard);
                }
            }
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

    /// A path has refused a request, or the group has not left a state of transition.
    pub(super) fn read_states_again(&mut self, shard: &mut Shard) {
        if !self.protocol.is_reading_states && self.reconnection.state == State::Connected {
            self.read_states(shard, false);
        }
    }

    /// Reads the states of ANA groups, where the controller has any. `then_waits`: waits for the
    /// next event afterwards.
    fn read_states(&mut self, shard: &mut Shard, then_waits: bool) {
        let facts = self.protocol.facts.as_ref().map(|facts| &facts.controller);
        let Some(facts) = facts.filter(|facts| facts.ana) else {
            return if then_waits {
                self.await_event(shard)
            };
        };
        let most = STATES_BYTES_MOST.min(facts.max_data_bytes);
        let whole = ana_bytes_most(facts.ana_groups, facts.max_nsid);
        let bytes = u32::try_from(whole).map_or(most, |whole| whole.min(most));
        let mut states = SubmissionEntry::get_log_page(GetLogPage {
            page: LogId::ANA,
            nsid: u32::MAX,
            offset: 0,
            bytes: bytes.into(),
            specific: 0,
            retain_event: false,
            command_set: 0,
        });
        self.protocol.is_reading_states = true;
        self.send_event_command(shard, &mut states, bytes, EventStep::States { then_waits });
    }

    /// A namespace that the page does not name is taken as optimized.
    fn states_read(&mut self, shard: &mut Shard, page: &[u8]) {
        let Some(disk) = &self.plan.expected else {
            return;
        };
        let state = ana_state_of(page, disk.nsid).unwrap_or(AnaState::Optimized);
        if self.protocol.ana.replace(state) == Some(state) {
            return;
        }
        let access = match state {
            AnaState::Optimized => Access::Optimized,
            AnaState::NonOptimized => Access::NonOptimized,
            AnaState::Inaccessible | AnaState::PersistentLoss | AnaState::Change => {
                Access::Inaccessible
            }
        };
        self.reconnection.report_event(PathEvent::Access(access));
        if let Some(path) = &self.reconnection.path {
            path.serves(shard, access);
        }
    }

    fn await_event(&mut self, shard: &mut Shard) {
        let mut entry = SubmissionEntry::async_event_request();
        self.send_event_command(shard, &mut entry, 0, EventStep::Event);
    }

    /// Sends such a command. Without a slot or memory, changes are reported after the next
    /// connection only, except for the states of ANA groups: see [`Self::read_states_again`].
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
                None => return self.protocol.is_reading_states = false,
            },
        };
        let now = shard.now();
        let sent = self.connections[0].send(now, entry, transfer, data, Command::Event(step));
        match sent {
            Some(_) => shard.flush_later(self.reconnection.task),
            None => self.protocol.is_reading_states = false,
        }
    }
}

fn is_of(event: &CompletionEntry, kind: u64) -> bool {
    event.result.get() & EVENT_MASK == kind
}

/// Fields of an event in dword 0: type, information, and the log page that clears it.
const EVENT_MASK: u64 = 0x00FF_FF07;
/// Notice (type 2), Namespace Attribute Changed (00h), log page 04h.
const NAMESPACE_CHANGED: u64 = 0x0004_0002;
/// Notice (type 2), Asymmetric Namespace Access Change (03h), log page 0Ch.
const ANA_CHANGED: u64 = 0x000C_0302;
/// Most bytes that are read of the states. A namespace behind them is taken as optimized.
const STATES_BYTES_MOST: u32 = 64 << 10;
/// The whole log page: 1024 namespaces of 4 bytes.
const LIST_BYTES: u32 = 4096;
