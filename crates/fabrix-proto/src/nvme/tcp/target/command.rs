//! How a command capsule becomes a command of the adapter's, with its in-capsule data or before it.
//!
//! It gives each command its slot and says where in-capsule data goes; what a command moves is
//! decided in `capsule`.
//!
//! Source: NVM Express TCP Transport Specification 1.1, "Command Capsules".

use zerocopy::FromBytes;

use super::capsule::{CapsuleLimits, Verdict, classify, in_capsule_limit};
use super::slots::CommandState;
use super::{Reading, Target};
use crate::nvme::queue::{ControllerEvent, Transfer};
use crate::nvme::spec::{AdminOpcode, CompletionEntry, Status, SubmissionEntry};
use crate::nvme::tcp::Fault;
use crate::nvme::tcp::pdu::{ADMIN_IN_CAPSULE_BYTES, CommonHeader};
use crate::{Claim, Sink, Slot};

impl Target {
    #[inline(always)]
    pub(super) fn command<S: Sink>(
        &mut self,
        common: &CommonHeader,
        rest: &[u8],
        out: &mut S,
    ) -> Result<Option<ControllerEvent>, Fault> {
        let (entry, _) = SubmissionEntry::ref_from_prefix(rest).expect("the driver obeys want()");
        let carried = self.carried_bytes(common);
        let io_bytes = self.limits.in_capsule_bytes;
        let limits = CapsuleLimits {
            in_capsule_bytes: in_capsule_limit(entry, self.admin, io_bytes),
            max_data_bytes: self.limits.max_data_bytes,
        };
        let verdict = match classify(entry, carried, limits)? {
            _ if self.is_in_use(entry.command_id.get()) => {
                Verdict::Refuse(Status::COMMAND_ID_CONFLICT)
            }
            verdict => verdict,
        };
        match verdict {
            Verdict::Run(transfer) if carried == 0 => self.run(entry, transfer).map(Some),
            Verdict::Run(_) if carried <= IN_PLACE_BYTES => self.receive_capsule(entry, carried),
            Verdict::Run(_) => self.announce_capsule(entry, carried).map(Some),
            Verdict::Refuse(status) => {
                let answer = CompletionEntry::new(status, 0);
                if carried == 0 {
                    self.complete(entry.command_id.get(), answer, None, out);
                } else {
                    let slot = self.take_slot(entry, CommandState::Answered(answer), carried)?;
                    self.expect_capsule(slot, carried);
                    self.drop_capsule(slot);
                }
                Ok(None)
            }
        }
    }

    /// Whether a command in progress has this id and may keep it.
    ///
    /// An event request may not: a host that forgets it, as SPDK's does before it shuts a
    /// controller down, uses the id again. What answers the request is then sent no more.
    #[inline(always)]
    fn is_in_use(&mut self, command_id: u16) -> bool {
        self.slots.is_taken(command_id) && !self.slots.forget_event_request(command_id)
    }

    /// The in-capsule data that the lengths of a CapsuleCmd speak of, checked by
    /// `check_command_lengths`.
    fn carried_bytes(&self, common: &CommonHeader) -> u32 {
        let total = common.total_bytes.get();
        if total == common.header_end(self.digests) {
            return 0;
        }
        total - u32::from(common.data_offset) - self.digests.data_bytes()
    }

    #[inline(always)]
    fn run(
        &mut self,
        entry: &SubmissionEntry,
        transfer: Transfer,
    ) -> Result<ControllerEvent, Fault> {
        let (state, bytes) = match transfer {
            Transfer::Fetch { bytes } => (
                CommandState::Owned {
                    fetchable: true,
                    sends: false,
                },
                bytes,
            ),
            Transfer::Send { bytes } => (
                CommandState::Owned {
                    fetchable: false,
                    sends: true,
                },
                bytes,
            ),
            Transfer::None | Transfer::Inline { .. } => (CommandState::COMPLETE, 0),
        };
        let slot = self.take_slot(entry, state, bytes)?;
        if self.admin && entry.admin_opcode() == AdminOpcode::ASYNC_EVENT_REQUEST {
            self.slots.set_waits_for_event(slot);
        }
        self.entry = *entry;
        Ok(ControllerEvent::Command {
            claim: Claim::new(slot),
            transfer,
            intact: true,
        })
    }

    /// In-capsule data that stays where it lies: the command is an event when all of it is there.
    fn receive_capsule(
        &mut self,
        entry: &SubmissionEntry,
        bytes: u32,
    ) -> Result<Option<ControllerEvent>, Fault> {
        let slot = self.take_slot(entry, CommandState::Arriving, bytes)?;
        self.entry = *entry;
        self.reading = Reading::Capsule { slot, bytes };
        Ok(None)
    }

    /// In-capsule data that needs a place: the command is an event now.
    fn announce_capsule(
        &mut self,
        entry: &SubmissionEntry,
        bytes: u32,
    ) -> Result<ControllerEvent, Fault> {
        let event = self.run(entry, Transfer::Fetch { bytes })?;
        if let ControllerEvent::Command { claim, .. } = &event {
            self.expect_capsule(claim.slot(), bytes);
        }
        Ok(event)
    }

    /// All data of a command comes now, as if an R2T had asked for it.
    fn expect_capsule(&mut self, slot: Slot, bytes: u32) {
        if let Some(command) = self.slots.get(slot) {
            command.granted = bytes;
        }
        self.reading = Reading::Data {
            slot,
            offset: 0,
            bytes,
        };
    }

    /// The in-capsule data that is to come now has no place and needs none.
    pub(super) fn drop_capsule(&mut self, slot: Slot) {
        if let Reading::Data { bytes, .. } = self.reading {
            let bytes = bytes.saturating_add(self.digests.data_bytes());
            self.reading = Reading::Unwanted { slot, bytes };
        }
    }

    pub(super) fn skip<S: Sink>(
        &mut self,
        slot: Slot,
        left: u32,
        skipped: u32,
        out: &mut S,
    ) -> Option<ControllerEvent> {
        let left = left - skipped;
        if left > 0 {
            self.reading = Reading::Unwanted { slot, bytes: left };
            return None;
        }
        self.reading = Reading::Common;
        let bytes = self.slots.get(slot)?.granted;
        self.data_arrived(slot, bytes, true, out)
    }

    #[inline(always)]
    fn take_slot(
        &mut self,
        entry: &SubmissionEntry,
        state: CommandState,
        bytes: u32,
    ) -> Result<Slot, Fault> {
        let command_id = entry.command_id.get();
        self.slots.insert(command_id, state, bytes).ok_or_else(|| {
            Fault::sequence(
                command_id,
                "more commands at once than the queue was made for",
            )
        })
    }

    /// All in-capsule data is here: the command is the adapter's.
    pub(super) fn capsule_arrived(
        &mut self,
        slot: Slot,
        bytes: u32,
        intact: bool,
    ) -> Option<ControllerEvent> {
        self.slots.get(slot)?.state = CommandState::COMPLETE;
        Some(ControllerEvent::Command {
            claim: Claim::new(slot),
            transfer: Transfer::Inline { bytes },
            intact,
        })
    }
}

/// More in-capsule data than this gets a place of its own; the admin queue and Fabrics commands
/// never have more.
const IN_PLACE_BYTES: u32 = ADMIN_IN_CAPSULE_BYTES;
