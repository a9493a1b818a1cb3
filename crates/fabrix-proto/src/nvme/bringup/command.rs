//! Commands of a bring-up, one for each step.
//!
//! Source: NVM Express Base Specification 2.x, "Fabrics Controller Initialization".

use alloc::boxed::Box;

use zerocopy::IntoBytes;

use super::{Bringup, BringupStep, Purpose, Step};
use crate::nvme::admin::{GetLogPage, Identify, NSID_ALL};
use crate::nvme::fabrics::{CNTLID_DYNAMIC, Connect, Property};
use crate::nvme::features::FeatureId;
use crate::nvme::identify::Cns;
use crate::nvme::log_page::LogId;
use crate::nvme::spec::SubmissionEntry;
use crate::nvme::timing::TimingPage;

impl Bringup {
    /// Command of the current step. `None` after the last one.
    pub(super) fn command(&self) -> Option<Step> {
        let receive = |entry, bytes| Step::Send {
            entry,
            data_out: None,
            data_in_bytes: bytes,
        };
        let identify = |cns, nsid| {
            receive(
                SubmissionEntry::identify(Identify::new(cns, nsid)),
                IDENTIFY_PAGE,
            )
        };
        Some(match self.step {
            BringupStep::Connect => {
                let entries = u32::from(self.config.admin_queue_entries);
                self.connect(0, entries, CNTLID_DYNAMIC)
            }
            BringupStep::ConnectQueue { queue_id, entries } => {
                self.connect(queue_id, entries, self.controller_id)
            }
            BringupStep::ReadCapabilities => {
                receive(SubmissionEntry::property_get(Property::CAP), 0)
            }
            BringupStep::ReadVersion => receive(SubmissionEntry::property_get(Property::VS), 0),
            BringupStep::Enable => receive(
                SubmissionEntry::property_set(Property::CC, self.configuration()),
                0,
            ),
            BringupStep::ReadStatus { .. } => {
                receive(SubmissionEntry::property_get(Property::CSTS), 0)
            }
            BringupStep::IdentifyController => identify(Cns::CONTROLLER, 0),
            BringupStep::IdentifyLimits => identify(Cns::COMMAND_SET_CONTROLLER, 0),
            BringupStep::NumberOfQueues => receive(
                SubmissionEntry::set_number_of_queues(self.queues_wanted()),
                0,
            ),
            BringupStep::ListNamespaces { above } => identify(Cns::ACTIVE_NAMESPACES, above),
            BringupStep::IdentifyNamespace => identify(Cns::NAMESPACE, self.nsid),
            BringupStep::IdentifyDescriptors => identify(Cns::DESCRIPTORS, self.nsid),
            BringupStep::ReadLog => {
                let (entry, bytes) = self.discovery.command()?;
                receive(entry, bytes)
            }
            BringupStep::ReadTiming { .. } => receive(timing_page(), TimingPage::BYTES),
            BringupStep::SetTiming => receive(
                SubmissionEntry::set_features(FeatureId::TIMING, self.seconds()),
                0,
            ),
            BringupStep::Ready | BringupStep::QueueReady { .. } | BringupStep::Failed => {
                return None;
            }
        })
    }

    fn connect(&self, queue_id: u16, entries: u32, controller_id: u16) -> Step {
        let connect = Connect {
            queue_id,
            queue_entries: entries.max(2),
            keep_alive_ms: if queue_id == 0 {
                self.config.keep_alive_ms
            } else {
                0
            },
            disable_sq_flow_control: self.config.disable_sq_flow_control,
            host_id: self.config.host_id,
            controller_id,
            subsystem: self.config.subsystem.clone(),
            host: self.config.host.clone(),
        };
        let (entry, data) = connect.to_wire();
        let mut data_out = Box::new([0; 1024]);
        data_out.copy_from_slice(data.as_bytes());
        Step::Send {
            entry,
            data_out: Some(data_out),
            data_in_bytes: 0,
        }
    }

    /// Value of CC: enabled, 64-byte submission entries, 16-byte completions, the smallest memory
    /// pages, and the supported command sets.
    fn configuration(&self) -> u64 {
        let command_sets = if self.capabilities.several_command_sets {
            6
        } else {
            0
        };
        let page_shift = u64::from(self.capabilities.min_page_shift);
        CC_ENABLE | command_sets << 4 | page_shift << 7 | 6 << 16 | 4 << 20
    }

    pub(super) fn queues_wanted(&self) -> u16 {
        match self.config.purpose {
            Purpose::Io { queues, .. } => queues.max(1),
            Purpose::Discovery | Purpose::Timing { .. } => 1,
        }
    }

    fn seconds(&self) -> u32 {
        match self.config.purpose {
            Purpose::Timing { seconds } => seconds,
            Purpose::Io { .. } | Purpose::Discovery => 0,
        }
    }
}

impl BringupStep {
    /// Name of the command for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connect | Self::ConnectQueue { .. } => "Connect",
            Self::ReadCapabilities => "Property Get of CAP",
            Self::ReadVersion => "Property Get of VS",
            Self::Enable => "Property Set of CC",
            Self::ReadStatus { .. } => "Property Get of CSTS",
            Self::IdentifyController => "Identify Controller",
            Self::IdentifyLimits => "Identify Controller (NVM command set)",
            Self::NumberOfQueues => "Set Features (Number of Queues)",
            Self::ListNamespaces { .. } => "Identify (active namespaces)",
            Self::IdentifyNamespace => "Identify Namespace",
            Self::IdentifyDescriptors => "Identify (namespace descriptors)",
            Self::ReadLog => "Get Log Page (discovery)",
            Self::ReadTiming { .. } => "Get Log Page (timing)",
            Self::SetTiming => "Set Features (timing)",
            Self::Ready | Self::QueueReady { .. } | Self::Failed => "nothing",
        }
    }
}

/// Get Log Page for the timing page.
fn timing_page() -> SubmissionEntry {
    SubmissionEntry::get_log_page(GetLogPage {
        page: LogId::TIMING,
        nsid: NSID_ALL,
        bytes: TimingPage::BYTES.into(),
        offset: 0,
        retain_event: false,
        specific: 0,
        command_set: 0,
    })
}

const CC_ENABLE: u64 = 1;
const IDENTIFY_PAGE: u32 = 4096;
