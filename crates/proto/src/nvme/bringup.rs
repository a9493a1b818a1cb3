//! Bringing up a controller, from the host's side: connect, enable, identify, and find what there is to use.
//!
//! A pure state machine over the admin queue. [`Bringup::next`] says which command to send or how long to wait;
//! [`Bringup::answered`] takes each answer. One command is outstanding at a time. It knows neither the transport nor
//! the clock; a command that is never answered is the caller's to give up ([`Bringup::no_answer`] words the error).
//!
//! The order is that of the Linux host, because that is the one every target has seen. What the controller says is
//! checked in `bringup/facts.rs`, the discovery log is read by `bringup/discovery.rs`.
//!
//! Source: NVM Express Base Specification 2.x, "Fabrics Controller Initialization", "Connect Command".

mod discovery;
mod error;
mod facts;

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use zerocopy::{FromBytes, IntoBytes};

pub use self::discovery::{
    DiscoveredFamily, DiscoveredRecord, DiscoveredSubtype, DiscoveredTransport, DiscoveryLog,
};
pub use self::error::{BringupError, BringupErrorKind};
pub use self::facts::{Capabilities, ControllerFacts, NamespaceFacts};

use self::facts::{Expected, connected_as, namespace_ids};
use super::admin::{GetLogPage, Identify, NSID_ALL, granted_queues};
use super::fabrics::{CNTLID_DYNAMIC, Connect, Property};
use super::features::FeatureId;
use super::identify::{
    Cns, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, LIST_ENTRIES, NamespaceList,
};
use super::log_page::LogId;
use super::nqn::Nqn;
use super::spec::{CompletionEntry, SubmissionEntry};
use super::timing::TimingPage;
use crate::Nanos;

/// Who connects to what, and what for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BringupConfig {
    /// HOSTNQN.
    pub host: Nqn,
    /// HOSTID.
    pub host_id: [u8; 16],
    /// SUBNQN.
    pub subsystem: Nqn,
    /// What the controller is wanted for.
    pub purpose: Purpose,
    /// Entries of the admin queue, at least 2; Linux has 32.
    pub admin_queue_entries: u16,
    /// KATO in milliseconds; 0 for none.
    pub keep_alive_ms: u32,
    /// Whether to ask for queues without SQ flow control, which lets reads end without a response.
    pub disable_sq_flow_control: bool,
}

/// What a controller is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// For reading and writing.
    Io {
        /// Which namespace; the first there is, when `None`.
        nsid: Option<u32>,
        /// I/O queues wanted, at least 1; the controller may allow fewer.
        queues: u16,
    },
    /// For its discovery log.
    Discovery,
    /// To have commands timed for so many seconds, and to read what was added up; no I/O queue is used.
    Timing {
        /// For how long; zero: not any more.
        seconds: u32,
    },
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this command on the admin queue and give its answer to [`Bringup::answered`].
    Send {
        /// The command; the transport fills in its id and SGL.
        entry: SubmissionEntry,
        /// Data that goes with it.
        data_out: Option<Box<[u8; 1024]>>,
        /// How much data comes back, in bytes; 4096 at most.
        data_in_bytes: u32,
    },
    /// Ask again at this time.
    Wait {
        /// When.
        until: Nanos,
    },
    /// The controller is up.
    Ready(Box<Facts>),
}

/// What was learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// About the controller.
    pub controller: ControllerFacts,
    /// What it is wanted for.
    pub found: Found,
}

/// What the controller is wanted for, found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A namespace to read and write.
    Io {
        /// I/O queues that may be connected, at least 1, at most as many as were wanted.
        queues: u16,
        /// The ids of the active namespaces, ascending, the first 1024.
        nsids: Vec<u32>,
        /// The namespace that was wanted.
        namespace: NamespaceFacts,
    },
    /// The discovery log.
    Discovery(DiscoveryLog),
    /// What was added up when the feature had been set; `None`: the controller has no such feature, nothing was set.
    Timing(Option<TimingPage>),
    /// An I/O queue, connected.
    Queue {
        /// QID.
        queue_id: u16,
        /// How many entries it has: one command fewer may be in progress with SQ flow control, as many without.
        entries: u32,
    },
}

/// A controller being brought up.
#[derive(Debug)]
pub struct Bringup {
    config: BringupConfig,
    phase: Phase,
    /// The phase's command has been sent and is not answered.
    waiting: bool,
    controller_id: u16,
    capabilities: Capabilities,
    version: u32,
    /// When the controller must be ready.
    ready_by: Nanos,
    controller: Option<ControllerFacts>,
    queues: u16,
    nsids: Vec<u32>,
    nsid: u32,
    namespace: Option<NamespaceFacts>,
    discovery: discovery::Reading,
    timing: Option<TimingPage>,
}

/// Which command is next, or waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connect,
    ConnectQueue {
        queue_id: u16,
        entries: u32,
    },
    ReadCapabilities,
    ReadVersion,
    Enable,
    ReadStatus {
        not_before: Nanos,
    },
    IdentifyController,
    NumberOfQueues,
    ListNamespaces {
        above: u32,
    },
    IdentifyNamespace,
    IdentifyDescriptors,
    ReadLog,
    /// Whether the page is ours must be known before the feature is set: with others it means something else.
    ReadTiming {
        is_set: bool,
    },
    SetTiming,
    Ready,
    QueueReady {
        queue_id: u16,
        entries: u32,
    },
    Failed,
}

impl Bringup {
    /// Nothing has been sent.
    #[must_use]
    pub fn new(config: BringupConfig) -> Self {
        Self {
            config,
            phase: Phase::Connect,
            waiting: false,
            controller_id: CNTLID_DYNAMIC,
            capabilities: Capabilities::default(),
            version: 0,
            ready_by: Nanos(0),
            controller: None,
            queues: 0,
            nsids: Vec::new(),
            nsid: 0,
            namespace: None,
            discovery: discovery::Reading::default(),
            timing: None,
        }
    }

    /// An I/O queue of a controller that is up: a connection of its own, on which one Connect is sent.
    ///
    /// `config` is the controller's; `queue_id` counts from 1, `entries` is 2 to `max_queue_entries`.
    #[must_use]
    pub fn io_queue(
        config: BringupConfig,
        controller: ControllerFacts,
        queue_id: u16,
        entries: u32,
    ) -> Self {
        let most = controller.capabilities.max_queue_entries.max(2);
        let entries = entries.clamp(2, most);
        Self {
            phase: Phase::ConnectQueue { queue_id, entries },
            controller_id: controller.controller_id,
            capabilities: controller.capabilities,
            version: controller.version,
            controller: Some(controller),
            ..Self::new(config)
        }
    }

    /// What to do now. While an answer is awaited, and after an error, that is to wait for ever.
    pub fn next(&mut self, now: Nanos) -> Step {
        if self.waiting || self.phase == Phase::Failed {
            return Step::Wait {
                until: Nanos(u64::MAX),
            };
        }
        if let Phase::ReadStatus { not_before } = self.phase
            && now < not_before
        {
            return Step::Wait { until: not_before };
        }
        match (self.command(), self.facts()) {
            (Some(step), _) => {
                self.waiting = true;
                step
            }
            (None, Some(facts)) => Step::Ready(facts),
            (None, None) => Step::Wait {
                until: Nanos(u64::MAX),
            },
        }
    }

    /// Takes the answer to the last command: its completion, and the data that came with it.
    ///
    /// # Errors
    /// The controller cannot be used, and why; nothing more is to be done with this one.
    pub fn answered(
        &mut self,
        entry: CompletionEntry,
        data: &[u8],
        now: Nanos,
    ) -> Result<(), BringupError> {
        if !self.waiting {
            return Ok(());
        }
        self.waiting = false;
        self.take(&entry, data, now)
            .inspect_err(|_| self.phase = Phase::Failed)
    }

    /// The error for a command that was not answered in the time the caller gives.
    #[must_use]
    pub fn no_answer(&self) -> BringupError {
        let sentence = format!(
            "the controller did not answer {} in time",
            self.phase.name()
        );
        BringupError::new(BringupErrorKind::Timeout, sentence)
    }

    /// The command of this phase.
    fn command(&self) -> Option<Step> {
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
        Some(match self.phase {
            Phase::Connect => {
                let entries = u32::from(self.config.admin_queue_entries);
                self.connect(0, entries, CNTLID_DYNAMIC)
            }
            Phase::ConnectQueue { queue_id, entries } => {
                self.connect(queue_id, entries, self.controller_id)
            }
            Phase::ReadCapabilities => receive(SubmissionEntry::property_get(Property::CAP), 0),
            Phase::ReadVersion => receive(SubmissionEntry::property_get(Property::VS), 0),
            Phase::Enable => receive(
                SubmissionEntry::property_set(Property::CC, self.configuration()),
                0,
            ),
            Phase::ReadStatus { .. } => receive(SubmissionEntry::property_get(Property::CSTS), 0),
            Phase::IdentifyController => identify(Cns::CONTROLLER, 0),
            Phase::NumberOfQueues => receive(
                SubmissionEntry::set_number_of_queues(self.queues_wanted()),
                0,
            ),
            Phase::ListNamespaces { above } => identify(Cns::ACTIVE_NAMESPACES, above),
            Phase::IdentifyNamespace => identify(Cns::NAMESPACE, self.nsid),
            Phase::IdentifyDescriptors => identify(Cns::DESCRIPTORS, self.nsid),
            Phase::ReadLog => {
                let (entry, bytes) = self.discovery.command()?;
                receive(entry, bytes)
            }
            Phase::ReadTiming { .. } => receive(timing_page(), TimingPage::BYTES),
            Phase::SetTiming => receive(
                SubmissionEntry::set_features(FeatureId::TIMING, self.seconds()),
                0,
            ),
            Phase::Ready | Phase::QueueReady { .. } | Phase::Failed => return None,
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

    /// CC: enabled, entries of 64 and 16 bytes, the smallest pages, and the command sets the controller has.
    fn configuration(&self) -> u64 {
        let command_sets = if self.capabilities.several_command_sets {
            6
        } else {
            0
        };
        let page_shift = u64::from(self.capabilities.min_page_shift);
        CC_ENABLE | command_sets << 4 | page_shift << 7 | 6 << 16 | 4 << 20
    }

    fn queues_wanted(&self) -> u16 {
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

    fn take(
        &mut self,
        entry: &CompletionEntry,
        data: &[u8],
        now: Nanos,
    ) -> Result<(), BringupError> {
        if self.phase == (Phase::ReadTiming { is_set: false }) && !entry.status().is_success() {
            self.phase = Phase::Ready;
            return Ok(());
        }
        if !entry.status().is_success() {
            return Err(match self.phase {
                Phase::Connect | Phase::ConnectQueue { .. } => BringupError::connect(entry),
                phase => BringupError::status(phase.name(), entry),
            });
        }
        self.phase = match self.phase {
            Phase::Connect => {
                self.controller_id = connected_as(entry.dword0())?;
                Phase::ReadCapabilities
            }
            Phase::ConnectQueue { queue_id, entries } => {
                self.check_same_controller(connected_as(entry.dword0())?)?;
                Phase::QueueReady { queue_id, entries }
            }
            Phase::ReadCapabilities => self.take_capabilities(entry.result.get())?,
            Phase::ReadVersion => {
                self.version = entry.dword0();
                Phase::Enable
            }
            Phase::Enable => {
                self.ready_by = now.plus_ms(self.capabilities.ready_timeout_ms);
                Phase::ReadStatus { not_before: now }
            }
            Phase::ReadStatus { .. } => self.take_status(entry.dword0(), now)?,
            Phase::IdentifyController => self.take_controller(page(data)?)?,
            Phase::NumberOfQueues => {
                let granted = granted_queues(entry.dword0()).min(self.queues_wanted().into());
                self.queues = u16::try_from(granted).unwrap_or(1);
                Phase::ListNamespaces { above: 0 }
            }
            Phase::ListNamespaces { above } => self.take_list(page(data)?, above)?,
            Phase::IdentifyNamespace => self.take_namespace(page(data)?)?,
            Phase::IdentifyDescriptors => self.take_descriptors(data)?,
            Phase::ReadLog => self.take_log(data)?,
            Phase::ReadTiming { is_set } => self.take_timing(page(data)?, is_set),
            Phase::SetTiming => Phase::ReadTiming { is_set: true },
            phase @ (Phase::Ready | Phase::QueueReady { .. } | Phase::Failed) => phase,
        };
        Ok(())
    }

    fn check_same_controller(&self, controller_id: u16) -> Result<(), BringupError> {
        if controller_id == self.controller_id {
            return Ok(());
        }
        Err(BringupError::broken(format!(
            "an I/O queue for controller {} was connected to controller {controller_id}",
            self.controller_id
        )))
    }

    fn take_capabilities(&mut self, cap: u64) -> Result<Phase, BringupError> {
        self.capabilities = Capabilities::parse(cap)?;
        let usable = self.capabilities.nvm_command_set || self.capabilities.several_command_sets;
        if !usable && self.config.purpose != Purpose::Discovery {
            return Err(BringupError::unsupported(
                "the controller does not support the NVM command set (CAP.CSS)",
            ));
        }
        Ok(Phase::ReadVersion)
    }

    fn take_status(&self, csts: u32, now: Nanos) -> Result<Phase, BringupError> {
        if csts & CSTS_FATAL != 0 {
            return Err(BringupError::broken(
                "the controller reports a fatal error (CSTS.CFS)",
            ));
        }
        if csts & CSTS_READY != 0 {
            return Ok(Phase::IdentifyController);
        }
        if now >= self.ready_by {
            let sentence = format!(
                "the controller did not become ready within {} ms",
                self.capabilities.ready_timeout_ms
            );
            return Err(BringupError::new(BringupErrorKind::Timeout, sentence));
        }
        Ok(Phase::ReadStatus {
            not_before: now.plus_ms(POLL_MS),
        })
    }

    fn take_controller(&mut self, data: &IdentifyController) -> Result<Phase, BringupError> {
        let io = self.config.purpose != Purpose::Discovery;
        let expected = Expected {
            controller_id: self.controller_id,
            version: self.version,
            capabilities: self.capabilities,
            subsystem: io.then_some(&self.config.subsystem),
        };
        self.controller = Some(ControllerFacts::parse(data, &expected)?);
        Ok(match self.config.purpose {
            Purpose::Io { .. } => Phase::NumberOfQueues,
            Purpose::Discovery => Phase::ReadLog,
            Purpose::Timing { .. } => Phase::ReadTiming { is_set: false },
        })
    }

    /// The wanted namespace is in the first list, or first in the list that begins there, or nowhere.
    fn take_list(&mut self, list: &NamespaceList, above: u32) -> Result<Phase, BringupError> {
        let max_nsid = self
            .controller
            .as_ref()
            .map_or(0, |controller| controller.max_nsid);
        let nsids = namespace_ids(list, above, max_nsid)?;
        let wanted = match self.config.purpose {
            Purpose::Io { nsid, .. } => nsid,
            Purpose::Discovery | Purpose::Timing { .. } => None,
        };
        let found = match wanted {
            None => nsids.first().copied(),
            Some(nsid) => nsids.binary_search(&nsid).ok().map(|_| nsid),
        };
        let full = nsids.len() == LIST_ENTRIES;
        if above == 0 {
            self.nsids = nsids;
        }
        match (found, wanted) {
            (Some(nsid), _) => {
                self.nsid = nsid;
                Ok(Phase::IdentifyNamespace)
            }
            (None, Some(nsid)) if above == 0 && full && nsid > 1 => {
                Ok(Phase::ListNamespaces { above: nsid - 1 })
            }
            (None, Some(nsid)) => Err(BringupError::unsupported(format!(
                "the subsystem has no namespace {nsid}, or does not show it to this host"
            ))),
            (None, None) => Err(BringupError::unsupported(
                "the subsystem has no namespace, or shows none to this host",
            )),
        }
    }

    fn take_namespace(&mut self, data: &IdentifyNamespace) -> Result<Phase, BringupError> {
        self.namespace = Some(NamespaceFacts::parse(self.nsid, data)?);
        let has_descriptors = self.version >= VERSION_1_3;
        Ok(if has_descriptors {
            Phase::IdentifyDescriptors
        } else {
            Phase::Ready
        })
    }

    fn take_descriptors(&mut self, data: &[u8]) -> Result<Phase, BringupError> {
        let page: &[u8; IDENTIFY_BYTES] = page(data)?;
        if let Some(namespace) = &mut self.namespace {
            namespace.identify(page)?;
        }
        Ok(Phase::Ready)
    }

    fn take_log(&mut self, data: &[u8]) -> Result<Phase, BringupError> {
        let expected = self
            .discovery
            .command()
            .map_or(0, |(_, bytes)| bytes as usize);
        if data.len() != expected {
            return Err(short_data());
        }
        self.discovery.answered(data)?;
        let more = self.discovery.command().is_some();
        Ok(if more { Phase::ReadLog } else { Phase::Ready })
    }

    fn take_timing(&mut self, page: &TimingPage, is_set: bool) -> Phase {
        self.timing = page.is_ours().then_some(*page);
        if is_set || self.timing.is_none() {
            Phase::Ready
        } else {
            Phase::SetTiming
        }
    }

    fn facts(&self) -> Option<Box<Facts>> {
        let found = match (self.phase, self.config.purpose) {
            (Phase::QueueReady { queue_id, entries }, _) => Found::Queue { queue_id, entries },
            (Phase::Ready, Purpose::Discovery) => Found::Discovery(self.discovery.log().clone()),
            (Phase::Ready, Purpose::Timing { .. }) => Found::Timing(self.timing),
            (Phase::Ready, Purpose::Io { .. }) => Found::Io {
                queues: self.queues,
                nsids: self.nsids.clone(),
                namespace: self.namespace.clone()?,
            },
            _ => return None,
        };
        Some(Box::new(Facts {
            controller: self.controller.clone()?,
            found,
        }))
    }
}

impl Phase {
    /// What the controller was asked, for messages.
    fn name(self) -> &'static str {
        match self {
            Self::Connect | Self::ConnectQueue { .. } => "Connect",
            Self::ReadCapabilities => "Property Get of CAP",
            Self::ReadVersion => "Property Get of VS",
            Self::Enable => "Property Set of CC",
            Self::ReadStatus { .. } => "Property Get of CSTS",
            Self::IdentifyController => "Identify Controller",
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

/// The data as the structure it should be; a controller that sent less said nothing.
fn page<T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned>(
    data: &[u8],
) -> Result<&T, BringupError> {
    T::ref_from_bytes(data).map_err(|_| short_data())
}

fn short_data() -> BringupError {
    BringupError::broken("the controller answered with success and less data than was asked for")
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
const CSTS_READY: u32 = 1 << 0;
const CSTS_FATAL: u32 = 1 << 1;
/// How often a controller that is not ready is asked again, in milliseconds.
const POLL_MS: u64 = 10;
/// From here on a namespace has identification descriptors.
const VERSION_1_3: u32 = 0x0001_0300;
const IDENTIFY_PAGE: u32 = 4096;
