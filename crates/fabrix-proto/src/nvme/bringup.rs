//! Bringing up a controller, from the host's side: connect, enable, identify, and find what there
//! is to use.
//!
//! A pure state machine over the admin queue. [`Bringup::next`] says which command to send or how
//! long to wait; [`Bringup::answered`] takes each answer. One command is outstanding at a time. It
//! knows neither the transport nor the clock; a command that is never answered is the caller's to
//! give up ([`Bringup::no_answer`] words the error).
//!
//! The order is that of the Linux host, because that is the one every target has seen. What is
//! asked is in `bringup/command.rs`, what comes of an answer in `bringup/answer.rs`. What the
//! controller says is checked in `bringup/facts.rs`, the discovery log is read by
//! `bringup/discovery.rs`.
//!
//! Source: NVM Express Base Specification 2.x, "Fabrics Controller Initialization", "Connect
//! Command".

mod answer;
mod command;
mod discovery;
mod error;
mod facts;

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

pub use self::discovery::{
    DiscoveredFamily, DiscoveredRecord, DiscoveredSubtype, DiscoveredTransport, DiscoveryLog,
    UnreadableRecord,
};
pub use self::error::{BringupError, BringupErrorKind};
pub use self::facts::{Capabilities, ControllerFacts, NamespaceFacts};

use super::fabrics::CNTLID_DYNAMIC;
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
    /// To have commands timed for so many seconds, and to read what was added up; no I/O queue is
    /// used.
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
    /// What was added up when the feature had been set; `None`: the controller has no such feature,
    /// nothing was set.
    Timing(Option<TimingPage>),
    /// An I/O queue, connected.
    Queue {
        /// QID.
        queue_id: u16,
        /// How many entries it has: one command fewer may be in progress with SQ flow control, as
        /// many without.
        entries: u32,
    },
}

/// A controller being brought up.
#[derive(Debug)]
pub struct Bringup {
    config: BringupConfig,
    step: BringupStep,
    /// The step's command has been sent and is not answered.
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
enum BringupStep {
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
    IdentifyLimits,
    NumberOfQueues,
    ListNamespaces {
        above: u32,
    },
    IdentifyNamespace,
    IdentifyDescriptors,
    ReadLog,
    /// Whether the page is ours must be known before the feature is set: with others it means
    /// something else.
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
            step: BringupStep::Connect,
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

    /// An I/O queue of a controller that is up: a connection of its own, on which one Connect is
    /// sent.
    ///
    /// `config` is the controller's; `queue_id` counts from 1, `entries` is 2 to
    /// `max_queue_entries`.
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
            step: BringupStep::ConnectQueue { queue_id, entries },
            controller_id: controller.controller_id,
            capabilities: controller.capabilities,
            version: controller.version,
            controller: Some(controller),
            ..Self::new(config)
        }
    }

    /// What to do now. While an answer is awaited, and after an error, that is to wait for ever.
    pub fn next(&mut self, now: Nanos) -> Step {
        if self.waiting || self.step == BringupStep::Failed {
            return Step::Wait {
                until: Nanos(u64::MAX),
            };
        }
        if let BringupStep::ReadStatus { not_before } = self.step
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
            .inspect_err(|_| self.step = BringupStep::Failed)
    }

    /// The error for a command that was not answered in the time the caller gives.
    #[must_use]
    pub fn no_answer(&self) -> BringupError {
        let sentence = format!("the controller did not answer {} in time", self.step.name());
        BringupError::new(BringupErrorKind::Timeout, sentence)
    }

    fn facts(&self) -> Option<Box<Facts>> {
        let found = match (self.step, self.config.purpose) {
            (BringupStep::QueueReady { queue_id, entries }, _) => {
                Found::Queue { queue_id, entries }
            }
            (BringupStep::Ready, Purpose::Discovery) => {
                Found::Discovery(self.discovery.log().clone())
            }
            (BringupStep::Ready, Purpose::Timing { .. }) => Found::Timing(self.timing),
            (BringupStep::Ready, Purpose::Io { .. }) => Found::Io {
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
