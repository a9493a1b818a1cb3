//! Answers of a bring-up: stores the learned facts and selects the next step.
//!
//! The controller is not trusted. An answer that contradicts an earlier one, or is too short, ends
//! the bring-up with a sentence.

use alloc::format;

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::facts::{Expected, connected_as, namespace_ids};
use super::{
    Bringup, BringupError, BringupErrorKind, BringupStep, Capabilities, ControllerFacts,
    NamespaceFacts, Purpose,
};
use crate::Nanos;
use crate::nvme::admin::granted_queues;
use crate::nvme::identify::{
    IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, IdentifyNvmController, LIST_ENTRIES,
    NamespaceList,
};
use crate::nvme::spec::CompletionEntry;
use crate::nvme::timing::TimingPage;

impl Bringup {
    /// Processes the answer to the command of the current step.
    ///
    /// # Errors
    /// The reason why the controller is not usable.
    pub(super) fn take(
        &mut self,
        entry: &CompletionEntry,
        data: &[u8],
        now: Nanos,
    ) -> Result<(), BringupError> {
        if !entry.status().is_success() {
            self.step = self.without(entry)?;
            return Ok(());
        }
        self.step = match self.step {
            BringupStep::Connect => {
                self.controller_id = connected_as(entry.dword0())?;
                BringupStep::ReadCapabilities
            }
            BringupStep::ConnectQueue { queue_id, entries } => {
                self.check_same_controller(connected_as(entry.dword0())?)?;
                BringupStep::QueueReady { queue_id, entries }
            }
            BringupStep::ReadCapabilities => self.take_capabilities(entry.result.get())?,
            BringupStep::ReadVersion => {
                self.version = entry.dword0();
                BringupStep::Enable
            }
            BringupStep::Enable => {
                self.ready_by = now.plus_ms(self.capabilities.ready_timeout_ms);
                BringupStep::ReadStatus { not_before: now }
            }
            BringupStep::ReadStatus { .. } => self.take_status(entry.dword0(), now)?,
            BringupStep::IdentifyController => self.take_controller(page(data)?)?,
            BringupStep::IdentifyLimits => self.take_limits(page(data)?),
            BringupStep::NumberOfQueues => {
                let granted = granted_queues(entry.dword0()).min(self.queues_wanted().into());
                self.queues = u16::try_from(granted).unwrap_or(1);
                BringupStep::ListNamespaces { above: 0 }
            }
            BringupStep::ListNamespaces { above } => self.take_list(page(data)?, above)?,
            BringupStep::IdentifyNamespace => self.take_namespace(page(data)?)?,
            BringupStep::IdentifyDescriptors => self.take_descriptors(data)?,
            BringupStep::ReadLog => self.take_log(data)?,
            BringupStep::ReadTiming { is_set } => self.take_timing(page(data)?, is_set),
            BringupStep::SetTiming => BringupStep::ReadTiming { is_set: true },
            step @ (BringupStep::Ready | BringupStep::QueueReady { .. } | BringupStep::Failed) => {
                step
            }
        };
        Ok(())
    }

    /// Next step after the controller has refused a command.
    ///
    /// Errors: the bring-up needs the answer.
    fn without(&self, entry: &CompletionEntry) -> Result<BringupStep, BringupError> {
        match self.step {
            BringupStep::ReadTiming { is_set: false } => Ok(BringupStep::Ready),
            // Controllers without this Identify page have no such limits.
            BringupStep::IdentifyLimits => Ok(BringupStep::NumberOfQueues),
            BringupStep::Connect | BringupStep::ConnectQueue { .. } => {
                Err(BringupError::connect(entry))
            }
            step => Err(BringupError::status(step.name(), entry)),
        }
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

    fn take_capabilities(&mut self, cap: u64) -> Result<BringupStep, BringupError> {
        self.capabilities = Capabilities::parse(cap)?;
        let usable = self.capabilities.nvm_command_set || self.capabilities.several_command_sets;
        if !usable && self.config.purpose != Purpose::Discovery {
            return Err(BringupError::unsupported(
                "the controller does not support the NVM command set (CAP.CSS)",
            ));
        }
        Ok(BringupStep::ReadVersion)
    }

    fn take_status(&self, csts: u32, now: Nanos) -> Result<BringupStep, BringupError> {
        if csts & CSTS_FATAL != 0 {
            return Err(BringupError::broken(
                "the controller reports a fatal error (CSTS.CFS)",
            ));
        }
        if csts & CSTS_READY != 0 {
            return Ok(BringupStep::IdentifyController);
        }
        if now >= self.ready_by {
            let sentence = format!(
                "the controller did not become ready within {} ms",
                self.capabilities.ready_timeout_ms
            );
            return Err(BringupError::new(BringupErrorKind::Timeout, sentence));
        }
        Ok(BringupStep::ReadStatus {
            not_before: now.plus_ms(POLL_MS),
        })
    }

    fn take_controller(&mut self, data: &IdentifyController) -> Result<BringupStep, BringupError> {
        let io = self.config.purpose != Purpose::Discovery;
        let expected = Expected {
            controller_id: self.controller_id,
            version: self.version,
            capabilities: self.capabilities,
            subsystem: io.then_some(&self.config.subsystem),
        };
        self.controller = Some(ControllerFacts::parse(data, &expected)?);
        Ok(match self.config.purpose {
            Purpose::Io { .. } => BringupStep::IdentifyLimits,
            Purpose::Discovery => BringupStep::ReadLog,
            Purpose::Timing { .. } => BringupStep::ReadTiming { is_set: false },
        })
    }

    fn take_limits(&mut self, data: &IdentifyNvmController) -> BringupStep {
        if let Some(controller) = &mut self.controller {
            controller.take_limits(data);
        }
        BringupStep::NumberOfQueues
    }

    /// Looks for the wanted namespace in the first list, or at the start of the list that begins at
    /// its id.
    fn take_list(&mut self, list: &NamespaceList, above: u32) -> Result<BringupStep, BringupError> {
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
                Ok(BringupStep::IdentifyNamespace)
            }
            (None, Some(nsid)) if above == 0 && full && nsid > 1 => {
                Ok(BringupStep::ListNamespaces { above: nsid - 1 })
            }
            (None, Some(nsid)) => Err(BringupError::unsupported(format!(
                "the subsystem has no namespace {nsid}, or does not show it to this host"
            ))),
            (None, None) => Err(BringupError::unsupported(
                "the subsystem has no namespace, or shows none to this host",
            )),
        }
    }

    fn take_namespace(&mut self, data: &IdentifyNamespace) -> Result<BringupStep, BringupError> {
        self.namespace = Some(NamespaceFacts::parse(self.nsid, data)?);
        let has_descriptors = self.version >= VERSION_1_3;
        Ok(if has_descriptors {
            BringupStep::IdentifyDescriptors
        } else {
            BringupStep::Ready
        })
    }

    fn take_descriptors(&mut self, data: &[u8]) -> Result<BringupStep, BringupError> {
        let page: &[u8; IDENTIFY_BYTES] = page(data)?;
        if let Some(namespace) = &mut self.namespace {
            namespace.identify(page)?;
        }
        Ok(BringupStep::Ready)
    }

    fn take_log(&mut self, data: &[u8]) -> Result<BringupStep, BringupError> {
        let expected = self
            .discovery
            .command()
            .map_or(0, |(_, bytes)| bytes as usize);
        if data.len() != expected {
            return Err(short_data());
        }
        self.discovery.answered(data)?;
        let more = self.discovery.command().is_some();
        Ok(if more {
            BringupStep::ReadLog
        } else {
            BringupStep::Ready
        })
    }

    fn take_timing(&mut self, page: &TimingPage, is_set: bool) -> BringupStep {
        self.timing = page.is_ours().then_some(*page);
        if is_set || self.timing.is_none() {
            BringupStep::Ready
        } else {
            BringupStep::SetTiming
        }
    }
}

/// Interprets `data` as a structure. Fails if the controller sent too little data.
fn page<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    data: &[u8],
) -> Result<&T, BringupError> {
    T::ref_from_bytes(data).map_err(|_| short_data())
}

fn short_data() -> BringupError {
    BringupError::broken("the controller answered with success and less data than was asked for")
}

const CSTS_READY: u32 = 1 << 0;
const CSTS_FATAL: u32 = 1 << 1;
/// Interval in milliseconds for polling a controller that is not ready.
const POLL_MS: u64 = 10;
/// First version that requires namespace identification descriptors.
const VERSION_1_3: u32 = 0x0001_0300;
