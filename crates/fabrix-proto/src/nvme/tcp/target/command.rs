//! Conversion of a command capsule into an event, with its in-capsule data or before it.
//!
//! This file gives each command its slot, and decides where in-capsule data goes. `capsule` decides
//! on the data movement.
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
        let (entry, _) = SubmissionEntry::ref_from_prefix(rest).expect("the stream obeys want()");
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

    /// Whether a command in progress has this id and keeps it.
    ///
    /// An event request does not keep its id: a host that forgets the request, as SPDK's does
    /// before it shuts a controller down, reuses the id. No answer to the request is sent then.
    #[inline(always)]
    fn is_in_use(&mut self, command_id: u16) -> bool {
        self.slots.is_taken(command_id) && !self.slots.forget_event_request(command_id)
    }

    /// Length of the in-capsule data by the lengths of a CapsuleCmd. `check_command_lengths` has
    /// checked them.
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

    /// Receives in-capsule data in the receive buffer. The event follows when all has arrived.
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

    /// Reports a command before its in-capsule data, so that the owner provides memory for it.
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

    /// Expects all data of a command next, as if an R2T had requested it.
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

    /// Skips the in-capsule data that comes next. No memory is needed for it.
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

    /// Reports a command whose in-capsule data has arrived.
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

/// Maximum in-capsule data in bytes that stays in the receive buffer. The admin queue and Fabrics
/// commands never have more.
const IN_PLACE_BYTES: u32 = ADMIN_IN_CAPSULE_BYTES;
