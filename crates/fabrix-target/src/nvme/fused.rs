//! Compare and Write: two commands that follow each other in the queue and succeed or fail as one.
//!
//! A pair starts when the data of both halves has arrived. `Operation::CompareAndWrite` of `block`
//! makes it atomic among all writes of the disk.
//!
//! Source: NVM Express Base Specification 2.x, "Fused Operations"; NVM Command Set Specification,
//! "Compare and Write".

use fabrix_block::{Operation, Status as DiskStatus};
use fabrix_proto::nvme::command::{Fuse, IoCommand};
use fabrix_proto::nvme::queue::Transfer;
use fabrix_proto::nvme::spec::Status;
use fabrix_proto::{Claim, Settled, Slot};
use fabrix_rt::Buf;
use fabrix_transport::Incoming;

use super::context::Queue;
use super::execute::{Submitted, submit_range};
use super::inventory::MOST_COMPARE_BLOCKS;
use super::io::{IoQueue, ResolvedCommand, Work};
use super::status::nvme_status;
use crate::context::CommandContext;

impl IoQueue {
    /// Handles a half of a pair, or another command where a second half was expected.
    pub(crate) fn fused(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        command: ResolvedCommand,
        fuse: Fuse,
        expected: Option<Slot>,
        transfer: Transfer,
    ) -> Settled {
        let mate = expected.filter(|first| fuse == Fuse::Second && self.fits(*first, &command));
        if mate.is_none() {
            self.abandon(context, expected);
        }
        match (fuse, mate) {
            (Fuse::Second, None) => return context.answer(claim, Status::ABORTED_MISSING_FUSED),
            (Fuse::First, _)
                if command
                    .command
                    .extent()
                    .is_some_and(|(_, blocks)| blocks > MOST_COMPARE_BLOCKS) =>
            {
                return context.answer(claim, Status::INVALID_FIELD);
            }
            (Fuse::First, _) => self.expecting = Some(claim.slot()),
            (Fuse::Second, Some(first)) => {
                if let Some(Work::Half { mate, .. }) = self.commands.get_mut(first) {
                    *mate = Some(claim.slot());
                }
            }
            (Fuse::Normal, _) => return self.ordinary(context, claim, command, transfer),
        }
        self.half(context, claim, command, mate, transfer)
    }

    /// Fetches the data of a half if needed.
    fn half(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        command: ResolvedCommand,
        mate: Option<Slot>,
        transfer: Transfer,
    ) -> Settled {
        match transfer {
            Transfer::Fetch { bytes } if context.fetch_data(claim.slot(), bytes) => {
                let data = None;
                self.commands.keep(
                    claim,
                    Work::Half {
                        command,
                        data,
                        mate,
                    },
                )
            }
            Transfer::Inline { .. } => {
                self.half_is_whole(context, claim, command, mate, Some(Incoming::InPlace))
            }
            _ => self.break_pair(context, claim, mate, Status::NAMESPACE_NOT_READY),
        }
    }

    /// Keeps a half that has its data until the other half has its own.
    pub(super) fn half_is_whole(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        command: ResolvedCommand,
        mate: Option<Slot>,
        data: Option<Incoming>,
    ) -> Settled {
        let slot = claim.slot();
        let Some(data) = context.keep(data) else {
            return self.break_pair(context, claim, mate, Status::NAMESPACE_NOT_READY);
        };
        let data = Some(data);
        let kept = self.commands.keep(
            claim,
            Work::Half {
                command,
                data,
                mate,
            },
        );
        self.try_pair(context, slot);
        kept
    }

    /// Whether a second half is about the same blocks of the same disk as the first.
    fn fits(&mut self, first: Slot, second: &ResolvedCommand) -> bool {
        match self.commands.get_mut(first) {
            Some(Work::Half { command, .. }) => {
                (command.nsid, command.disk, command.command.extent())
                    == (second.nsid, second.disk, second.command.extent())
            }
            _ => false,
        }
    }

    /// Takes the claim on a half, if the slot has one.
    fn take_half(&mut self, slot: Slot) -> Option<Claim> {
        match self.commands.get_mut(slot) {
            Some(Work::Half { .. }) => self.commands.take(slot).map(|(claim, _)| claim),
            _ => None,
        }
    }

    /// Aborts a first half whose second half did not follow.
    pub(crate) fn abandon(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        first: Option<Slot>,
    ) {
        if let Some(claim) = first.and_then(|first| self.take_half(first)) {
            context.answer(claim, Status::ABORTED_MISSING_FUSED);
        }
    }

    /// Fails a half with `status`, and the other half with it if it has arrived.
    pub(crate) fn break_pair(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        mate: Option<Slot>,
        status: Status,
    ) -> Settled {
        if self.expecting == Some(claim.slot()) {
            self.expecting = None;
        }
        let answered = context.answer(claim, status);
        if let Some(mate) = mate.and_then(|mate| self.take_half(mate)) {
            context.answer(mate, Status::ABORTED_FAILED_FUSED);
        }
        answered
    }

    /// Executes a pair once both halves have their data.
    pub(crate) fn try_pair(&mut self, context: &mut CommandContext<'_, impl Queue>, slot: Slot) {
        let Some(Work::Half {
            command,
            mate: Some(mate),
            ..
        }) = self.commands.get_mut(slot)
        else {
            return;
        };
        let is_second = matches!(command.command, IoCommand::Write { .. });
        let (first, second) = if is_second {
            (*mate, slot)
        } else {
            (slot, *mate)
        };
        let (Some(compare), Some((write, command))) =
            (self.half_data(first), self.half_data(second))
        else {
            return;
        };
        let Some((lba, blocks)) = command.command.extent() else {
            return;
        };
        let bytes = command.bytes(blocks) as usize;
        let Some(mut both) = context.shard.take_buf(bytes * 2) else {
            return self.break_kept(context, (first, second), Status::NAMESPACE_NOT_READY);
        };
        both.bytes_mut()[..bytes].copy_from_slice(&compare.0.bytes()[..bytes]);
        both.bytes_mut()[bytes..bytes * 2].copy_from_slice(&write.bytes()[..bytes]);
        let durable = matches!(command.command, IoCommand::Write { fua: true, .. });
        let operation = Operation::CompareAndWrite { durable };
        let outcome = submit_range(
            context,
            second,
            &command,
            operation,
            (lba, blocks),
            Some(Incoming::Buf(both, 0)),
        );
        match outcome {
            Submitted::Busy(_) => self.commands.stall_kept(second),
            Submitted::Refused(status) => self.break_kept(context, (first, second), status),
            other => {
                let Some(claim) = self.take_half(second) else {
                    return;
                };
                if let Some(half) = self.commands.get_mut(first) {
                    *half = Work::First;
                }
                self.submitted(context, claim, command, other, Work::Pair { first });
            }
        }
    }

    /// Fails both halves of a pair with `status`.
    fn break_kept(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        (first, second): (Slot, Slot),
        status: Status,
    ) {
        if let Some(claim) = self.take_half(first) {
            self.break_pair(context, claim, Some(second), status);
        }
    }

    /// A half's data, if it has arrived.
    fn half_data(&mut self, slot: Slot) -> Option<(Buf, ResolvedCommand)> {
        match self.commands.get_mut(slot) {
            Some(Work::Half {
                command,
                data: Some(data),
                ..
            }) => Some((data.clone(), *command)),
            _ => None,
        }
    }

    /// Answers both halves of a pair, in their order.
    pub(crate) fn finish_pair(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        first: Slot,
        second: Claim,
        status: DiskStatus,
    ) -> Settled {
        if let Some((first, _)) = self.commands.take(first) {
            context.answer(first, nvme_status(status));
        }
        let second_status = if status.is_ok() {
            Status::SUCCESS
        } else {
            Status::ABORTED_FAILED_FUSED
        };
        context.answer(second, second_status)
    }
}
