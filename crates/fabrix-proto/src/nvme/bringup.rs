//! Bring-up of a controller by a host: connect, enable, identify, and read the namespaces or the
//! discovery log.
//!
//! The bring-up is a state machine over the admin queue. [`Bringup::next`] returns the next command
//! or a time to wait. [`Bringup::answered`] processes each answer. One command is outstanding at a
//! time. Transport and clock belong to the caller, which also gives up on an unanswered command
//! ([`Bringup::no_answer`] words the error).
//!
//! The order is that of the Linux host, because all targets are tested with it.
//!
//! - `bringup/command.rs`: the commands.
//! - `bringup/answer.rs`: processing of answers.
//! - `bringup/facts.rs`: checks of the controller's data.
//! - `bringup/discovery.rs`: the discovery log.
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

/// Parameters of a bring-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BringupConfig {
    /// HOSTNQN.
    pub host: Nqn,
    /// HOSTID.
    pub host_id: [u8; 16],
    /// SUBNQN.
    pub subsystem: Nqn,
    /// Purpose of the bring-up.
    pub purpose: Purpose,
    /// Number of entries of the admin queue, at least 2. Linux uses 32.
    pub admin_queue_entries: u16,
    /// KATO in milliseconds. 0: no keep-alive timer.
    pub keep_alive_ms: u32,
    /// Whether to request queues without SQ flow control, which allows reads to end without a
    /// response.
    pub disable_sq_flow_control: bool,
}

/// Purpose of a bring-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Read and write a namespace.
    Io {
        /// Namespace id. `None`: the first active namespace.
        nsid: Option<u32>,
        /// Number of requested I/O queues, at least 1. The controller may grant fewer.
        queues: u16,
    },
    /// Read the discovery log.
    Discovery,
    /// Set the timing feature and read the timing page. No I/O queue is used.
    Timing {
        /// Time in seconds. Zero turns the feature off.
        seconds: u32,
    },
}

/// Next step of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this command on the admin queue, and pass its answer to [`Bringup::answered`].
    Send {
        /// The command. The transport sets its id and SGL.
        entry: SubmissionEntry,
        /// Data of the command.
        data_out: Option<Box<[u8; 1024]>>,
        /// Length of the returned data in bytes, at most 4096.
        data_in_bytes: u32,
    },
    /// Call [`Bringup::next`] again at this time.
    Wait {
        /// Time of the next call.
        until: Nanos,
    },
    /// The controller is up.
    Ready(Box<Facts>),
}

/// Result of a bring-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Facts about the controller.
    pub controller: ControllerFacts,
    /// Result for the purpose of the bring-up.
    pub found: Found,
}

/// Result for the purpose of a bring-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A namespace to read and write.
    Io {
        /// Number of I/O queues to connect: at least 1, at most the requested number.
        queues: u16,
        /// Ids of the first 1024 active namespaces, in ascending order.
        nsids: Vec<u32>,
        /// Facts about the requested namespace.
        namespace: NamespaceFacts,
    },
    /// The discovery log.
    Discovery(DiscoveryLog),
    /// Counters after the feature was set. `None`: the controller does not have the feature, and
    /// nothing was set.
    Timing(Option<TimingPage>),
    /// A connected I/O queue.
    Queue {
        /// QID.
        queue_id: u16,
        /// Number of entries. With SQ flow control, one command fewer may be in progress. Without
        /// flow control, as many commands may be.
        entries: u32,
    },
}

/// State of a bring-up.
#[derive(Debug)]
pub struct Bringup {
    config: BringupConfig,
    step: BringupStep,
    /// True while the command of the step is unanswered.
    waiting: bool,
    controller_id: u16,
    capabilities: Capabilities,
    version: u32,
    /// Time by which the controller must be ready.
    ready_by: Nanos,
    controller: Option<ControllerFacts>,
    queues: u16,
    nsids: Vec<u32>,
    nsid: u32,
    namespace: Option<NamespaceFacts>,
    discovery: discovery::Reading,
    timing: Option<TimingPage>,
}

/// Step whose command is next or outstanding.
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
    /// The page has to have our signature before the feature is set. On other controllers the
    /// feature has another meaning.
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
    /// A bring-up before its first command.
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

    /// Bring-up of an I/O queue: one Connect on a connection of its own.
    ///
    /// `config` is that of the controller. `queue_id` counts from 1. `entries` is 2 to
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

    /// Next step of the caller. While a command is outstanding, and after an error, the step is to
    /// wait forever.
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

    /// Processes the answer to the last command: its completion and its data.
    ///
    /// # Errors
    /// The reason why the controller cannot be used. The bring-up has ended.
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

    /// Error for a command that the controller did not answer in the caller's time limit.
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
