//! The result of a request in its job: comparisons, and whether another request follows.

use fabrix_block::{Failed, Status as DiskStatus};
use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::cdb::{ByteCheck, Extent};
use fabrix_proto::scsi::unit::{DiskOperation, Failure};
use fabrix_rt::Loan;

use super::{End, Job, JobWork};
use crate::context::CommandContext;
use crate::iscsi::context::SessionCarrier;
use crate::iscsi::status::failure;

impl Job {
    /// Takes the result of a request. None: another request follows.
    pub(in crate::iscsi) fn ended(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        status: DiskStatus,
        loan: Loan,
    ) -> Option<End> {
        if let Some(failure) = failure(status) {
            self.tell_failure(context, status);
            let failure = match status {
                DiskStatus::Aborted => self.failure_of_abort(context),
                _ => failure,
            };
            return self.ended_badly(status, failure);
        }
        if let JobWork::Copy(copying) = &mut self.work {
            return copying.ended(loan, &mut self.made);
        }
        self.step_ended(context, loan)
    }

    /// The failure of a request that its disk has aborted. A disk whose storage refuses this
    /// process can be reached by another way: the initiator has to go there, and not to try again
    /// here. Of what compares and writes nobody knows whether it was carried out.
    #[cold]
    fn failure_of_abort(&mut self, context: &CommandContext<'_, impl SessionCarrier>) -> Failure {
        let can_be_repeated = match &self.work {
            JobWork::Disk(operation) => !matches!(
                operation,
                DiskOperation::CompareAndWrite { .. } | DiskOperation::OrWrite { .. }
            ),
            JobWork::Copy(_) => false,
        };
        match can_be_repeated && context.local.channels.is_lost(self.next().disk.disk) {
            true => Failure::Inaccessible(AdditionalSense::UNAVAILABLE),
            false => Failure::Aborted,
        }
    }

    /// Tells the operator of a request that the disk has failed. The job has not advanced yet, so
    /// `next` still gives that request.
    #[cold]
    fn tell_failure(
        &mut self,
        context: &CommandContext<'_, impl SessionCarrier>,
        status: DiskStatus,
    ) {
        let request = self.next();
        let failed = Failed {
            operation: request.operation,
            lba: request.extent.lba,
            blocks: request.extent.blocks,
            status,
        };
        context.local.disk_failed(request.disk.disk, failed);
    }

    fn step_ended(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        loan: Loan,
    ) -> Option<End> {
        let JobWork::Disk(operation) = &self.work else {
            return Some(End::Good);
        };
        match operation {
            DiskOperation::Read { fua: true, .. } if self.step == 0 => self.step = 1,
            DiskOperation::Read { .. } => return Some(End::Data(loan)),
            DiskOperation::WriteAndVerify { .. } if self.step == 0 => self.step = 1,
            DiskOperation::WriteAndVerify { compare: false, .. } => return Some(End::Good),
            DiskOperation::WriteAndVerify { extent, .. } => {
                let bytes = self.bytes(extent.blocks);
                return Some(compared(&loan, &self.kept()[..bytes], 0).unwrap_or(End::Good));
            }
            DiskOperation::OrWrite { extent, .. } if self.step == 0 => {
                let extent = *extent;
                return self.or(context, extent, &loan);
            }
            DiskOperation::CompareAndWrite { extent, .. } if self.step == 1 => {
                // Another write may have made the blocks equal since. They did differ.
                let bytes = self.bytes(extent.blocks);
                let end = compared(&loan, &self.kept()[..bytes], 0);
                return Some(end.unwrap_or(End::Failed(Failure::Miscompare(0))));
            }
            DiskOperation::Verify { extent, check } => {
                let (check, all) = (*check, extent.blocks);
                return self.verified(check, all, &loan);
            }
            DiskOperation::WriteSame { extent, .. } if self.made.is_some() => {
                self.done += self.piece;
                if self.done == extent.blocks {
                    return Some(End::Good);
                }
            }
            DiskOperation::Deallocate(extents) => {
                self.done += 1;
                if self.done as usize == extents.len() {
                    return Some(End::Good);
                }
            }
            _ => return Some(End::Good),
        }
        None
    }

    fn ended_badly(&mut self, status: DiskStatus, failure: Failure) -> Option<End> {
        let operation = match &self.work {
            JobWork::Disk(operation) => operation,
            JobWork::Copy(_) => return Some(End::Failed(failure)),
        };
        match operation {
            DiskOperation::CompareAndWrite { .. } if status == DiskStatus::CompareFailed => {
                // The disk does not report where the blocks differ: read and compare them.
                self.step = 1;
                None
            }
            DiskOperation::OrWrite { .. } if status == DiskStatus::CompareFailed => {
                (self.step, self.tries) = (0, self.tries + 1);
                (self.tries > OR_TRIES).then_some(End::Failed(Failure::Busy))
            }
            // Deallocation is a hint: a disk that does not support it ignores it.
            DiskOperation::Deallocate(extents) if status == DiskStatus::Unsupported => {
                self.done += 1;
                (self.done as usize == extents.len()).then_some(End::Good)
            }
            _ => Some(End::Failed(failure)),
        }
    }

    /// ORWRITE has read its blocks. The result is written if the blocks are still the same.
    fn or(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        extent: Extent,
        loan: &Loan,
    ) -> Option<End> {
        let bytes = self.bytes(extent.blocks);
        let Some(mut made) = context.shard.take_buf(bytes * 2) else {
            return Some(End::Failed(Failure::Busy));
        };
        let (old, new) = made.bytes_mut()[..bytes * 2].split_at_mut(bytes);
        match loan {
            Loan::Lent(lent) => lent.copy_to(old),
            Loan::Buf(buf) => old.copy_from_slice(&buf.bytes()[..bytes]),
            _ => return Some(End::Failed(Failure::Internal)),
        }
        for ((new, old), data) in new.iter_mut().zip(old).zip(self.kept()) {
            *new = *old | data;
        }
        (self.made, self.step) = (Some(made), 1);
        None
    }

    /// VERIFY has read a piece: compares it with the command's data, if it has any.
    fn verified(&mut self, check: ByteCheck, all: u32, loan: &Loan) -> Option<End> {
        let from = self.bytes(self.done);
        let bytes = self.bytes(self.piece);
        let difference = match check {
            ByteCheck::Medium => None,
            ByteCheck::Data => compared(loan, &self.kept()[from..from + bytes], from),
            ByteCheck::OneBlock => {
                let expected = &self.kept()[..self.block_bytes as usize];
                let again = expected.repeat(self.piece as usize);
                match compared(loan, &again, 0) {
                    Some(End::Failed(Failure::Miscompare(at))) => {
                        let at = at % u64::from(self.block_bytes);
                        Some(End::Failed(Failure::Miscompare(at)))
                    }
                    other => other,
                }
            }
        };
        self.done += self.piece;
        difference.or_else(|| (self.done == all).then_some(End::Good))
    }
}

/// Compares data of a read with the expected bytes, which begin at `from` in the command's data.
/// None: both are equal.
fn compared(loan: &Loan, expected: &[u8], from: usize) -> Option<End> {
    let difference = match loan {
        Loan::Lent(lent) => lent.first_difference(expected),
        Loan::Buf(buf) => {
            let mut both = buf.bytes().iter().zip(expected);
            both.position(|(is, should)| is != should)
        }
        _ => return Some(End::Failed(Failure::Internal)),
    };
    let at = (from + difference?) as u64;
    Some(End::Failed(Failure::Miscompare(at)))
}

/// Most attempts of ORWRITE while others write the same blocks.
const OR_TRIES: u16 = 100;
