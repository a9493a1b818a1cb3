//! Compare and Write: two commands that follow each other in the queue and succeed or fail as one.
//!
//! Knows the order of the halves and waits for the data of both; what makes the pair atomic towards
//! everybody else on the disk is `Operation::CompareAndWrite` of `block`.
//!
//! Source: NVM Express Base Specification 2.x, "Fused Operations"; NVM Command Set Specification,
//! "Compare and Write".

use fabrix_block::{Operation, Status as DiskStatus};
use fabrix_proto::Slot;
use fabrix_proto::nvme::command::{Fuse, IoCommand};
use fabrix_proto::nvme::spec::Status;
use fabrix_proto::nvme::tcp::target::Transfer;
use fabrix_rt::Buf;
use fabrix_transport::Incoming;

use super::desk::Desk;
use super::execute::{Taken, ask};
use super::inventory::MOST_COMPARE_BLOCKS;
use super::io::{IoQueue, Wanted, Work};
use super::status::nvme_status;

impl IoQueue {
    /// A half of a pair has come, or something else where a second half was expected.
    pub(crate) fn fused(
        &mut self,
        desk: &mut Desk<'_>,
        slot: Slot,
        wanted: Wanted,
        fuse: Fuse,
        expected: Option<Slot>,
        transfer: Transfer,
    ) {
        let mate = expected.filter(|first| fuse == Fuse::Second && self.fits(*first, &wanted));
        if mate.is_none() {
            self.abandon(desk, expected);
        }
        match (fuse, mate) {
            (Fuse::Second, None) => return desk.answer(slot, Status::ABORTED_MISSING_FUSED),
            (Fuse::First, _)
                if wanted
                    .command
                    .extent()
                    .is_some_and(|(_, blocks)| blocks > MOST_COMPARE_BLOCKS) =>
            {
                return desk.answer(slot, Status::INVALID_FIELD);
            }
            (Fuse::First, _) => self.expecting = Some(slot),
            (Fuse::Second, Some(first)) => {
                if let Work::Half { mate, .. } = self.peek(first) {
                    *mate = Some(slot);
                }
            }
            (Fuse::Normal, _) => return self.ordinary(desk, slot, wanted, transfer),
        }
        self.half(desk, slot, wanted, mate, transfer);
    }

    /// Waits for the data of a half, and for the other half.
    fn half(
        &mut self,
        desk: &mut Desk<'_>,
        slot: Slot,
        wanted: Wanted,
        mate: Option<Slot>,
        transfer: Transfer,
    ) {
        match transfer {
            Transfer::Fetch { bytes } if desk.fetch(slot, bytes) => {
                self.set(
                    slot,
                    Work::Half {
                        wanted,
                        data: None,
                        mate,
                    },
                );
            }
            Transfer::Inline { .. } => match desk.keep(Some(Incoming::InPlace)) {
                Some(data) => {
                    self.set(
                        slot,
                        Work::Half {
                            wanted,
                            data: Some(data),
                            mate,
                        },
                    );
                    self.try_pair(desk, slot);
                }
                None => self.break_pair(desk, slot, mate, Status::NAMESPACE_NOT_READY),
            },
            _ => self.break_pair(desk, slot, mate, Status::NAMESPACE_NOT_READY),
        }
    }

    fn ordinary(&mut self, desk: &mut Desk<'_>, slot: Slot, wanted: Wanted, transfer: Transfer) {
        match transfer {
            Transfer::Fetch { bytes } => self.fetch(desk, slot, bytes, Work::Fetching(wanted)),
            Transfer::Inline { .. } => self.execute(desk, slot, wanted, Some(Incoming::InPlace)),
            Transfer::None | Transfer::Send { .. } => self.execute(desk, slot, wanted, None),
        }
    }

    /// Whether a second half is about the same blocks of the same disk as the first.
    fn fits(&mut self, first: Slot, second: &Wanted) -> bool {
        match self.peek(first) {
            Work::Half { wanted, .. } => {
                (wanted.nsid, wanted.disk, wanted.command.extent())
                    == (second.nsid, second.disk, second.command.extent())
            }
            _ => false,
        }
    }

    /// A first half whose second did not come is aborted.
    pub(crate) fn abandon(&mut self, desk: &mut Desk<'_>, first: Option<Slot>) {
        if let Some(first) = first
            && let Work::Half { .. } = self.take(first)
        {
            desk.answer(first, Status::ABORTED_MISSING_FUSED);
        }
    }

    /// One half failed with `status`: its mate, if it has come, fails with it.
    pub(crate) fn break_pair(
        &mut self,
        desk: &mut Desk<'_>,
        slot: Slot,
        mate: Option<Slot>,
        status: Status,
    ) {
        self.set(slot, Work::Idle);
        desk.answer(slot, status);
        match mate {
            Some(mate) => {
                if let Work::Half { .. } = self.take(mate) {
                    desk.answer(mate, Status::ABORTED_FAILED_FUSED);
                }
            }
            None if self.expecting == Some(slot) => self.expecting = None,
            None => {}
        }
    }

    /// Carries a pair out once both halves have their data.
    pub(crate) fn try_pair(&mut self, desk: &mut Desk<'_>, slot: Slot) {
        let Work::Half {
            wanted,
            mate: Some(mate),
            ..
        } = self.peek(slot)
        else {
            return;
        };
        let is_second = matches!(wanted.command, IoCommand::Write { .. });
        let (first, second) = if is_second {
            (*mate, slot)
        } else {
            (slot, *mate)
        };
        let (Some(compare), Some((write, wanted))) =
            (self.half_data(first), self.half_data(second))
        else {
            return;
        };
        let Some((lba, blocks)) = wanted.command.extent() else {
            return;
        };
        let bytes = wanted.bytes(blocks) as usize;
        let Some(mut both) = desk.shard.take_buf(bytes * 2) else {
            return self.break_pair(desk, first, Some(second), Status::NAMESPACE_NOT_READY);
        };
        both.bytes_mut()[..bytes].copy_from_slice(&compare.0.bytes()[..bytes]);
        both.bytes_mut()[bytes..bytes * 2].copy_from_slice(&write.bytes()[..bytes]);
        let durable = matches!(wanted.command, IoCommand::Write { fua: true, .. });
        let operation = Operation::CompareAndWrite { durable };
        let taken = ask(
            desk,
            second,
            &wanted,
            operation,
            (lba, blocks),
            Some(Incoming::Buf(both, 0)),
        );
        match taken {
            Taken::Busy(_) => {
                let half = self.take(second);
                self.stall(second, half);
            }
            Taken::Refused(status) => self.break_pair(desk, first, Some(second), status),
            other => {
                self.set(first, Work::First);
                self.took(desk, second, wanted, other, Work::Pair { first });
            }
        }
    }

    /// A half's data, if it is there.
    fn half_data(&mut self, slot: Slot) -> Option<(Buf, Wanted)> {
        match self.peek(slot) {
            Work::Half {
                wanted,
                data: Some(data),
                ..
            } => Some((data.clone(), *wanted)),
            _ => None,
        }
    }

    /// The disk has answered a pair: both halves are answered, in their order.
    pub(crate) fn finish_pair(
        &mut self,
        desk: &mut Desk<'_>,
        first: Slot,
        second: Slot,
        status: DiskStatus,
    ) {
        self.set(first, Work::Idle);
        desk.answer(first, nvme_status(status));
        let second_status = if status.is_ok() {
            Status::SUCCESS
        } else {
            Status::ABORTED_FAILED_FUSED
        };
        desk.answer(second, second_status);
    }
}
