//! A block request in NVMe's words, and an NVMe answer in a disk's.
//!
//! The host's mirror of the target's `execute` and `status`. Knows both vocabularies; does not know
//! connections.

use fabrix_block::{Operation, Status as DiskStatus};
use fabrix_proto::nvme::bringup::ControllerFacts;
use fabrix_proto::nvme::command::{DatasetRange, Fuse};
use fabrix_proto::nvme::queue::HostTransfer;
use fabrix_proto::nvme::spec::{CompletionEntry, Status, SubmissionEntry};
use fabrix_rt::{Buf, Shard};
use zerocopy::IntoBytes;

use super::seen::Seen;

/// Whether the controller has the command that an operation needs; reads, writes and flushes all of
/// them have.
pub(crate) fn is_supported(operation: Operation, controller: &ControllerFacts) -> bool {
    match operation {
        Operation::Read | Operation::Write { .. } | Operation::Flush => true,
        Operation::WriteZeroes { .. } => controller.write_zeroes,
        Operation::Deallocate => controller.dataset_management,
        Operation::CompareAndWrite { .. } => controller.compare_and_write,
    }
}

/// How many blocks of a request one command can cover.
pub(crate) fn most_blocks(operation: Operation, seen: &Seen) -> u32 {
    match operation {
        Operation::WriteZeroes { .. } => seen.write_zeroes_blocks,
        Operation::Deallocate => seen.dataset_blocks,
        // The caller keeps to the largest transfer; a flush has no blocks.
        _ => u32::MAX,
    }
}

/// The command for an operation, and how its data moves; [`fused`] makes the two of
/// `CompareAndWrite`.
#[inline(always)]
pub(crate) fn entry(
    operation: Operation,
    nsid: u32,
    (lba, blocks): (u64, u32),
    block_bytes: u32,
) -> (SubmissionEntry, HostTransfer) {
    // Only for operations with data, which were checked against the largest transfer.
    let bytes = blocks.saturating_mul(block_bytes);
    match operation {
        Operation::Read => (
            SubmissionEntry::read(nsid, lba, blocks),
            HostTransfer::Read { bytes },
        ),
        Operation::Write { durable } => (
            SubmissionEntry::write(nsid, lba, blocks, durable),
            HostTransfer::Write { bytes },
        ),
        Operation::Flush => (SubmissionEntry::flush(nsid), HostTransfer::None),
        Operation::WriteZeroes {
            deallocate,
            durable,
        } => (
            SubmissionEntry::write_zeroes(nsid, lba, blocks, deallocate, durable),
            HostTransfer::None,
        ),
        Operation::Deallocate => (
            SubmissionEntry::dataset_management(nsid, 1, true),
            HostTransfer::Write { bytes: RANGE_BYTES },
        ),
        Operation::CompareAndWrite { .. } => unreachable!("Compare and Write is two commands"),
    }
}

/// Both halves of Compare and Write.
pub(crate) fn fused(
    nsid: u32,
    (lba, blocks): (u64, u32),
    durable: bool,
) -> (SubmissionEntry, SubmissionEntry) {
    (
        SubmissionEntry::compare(nsid, lba, blocks).fused(Fuse::First),
        SubmissionEntry::write(nsid, lba, blocks, durable).fused(Fuse::Second),
    )
}

/// The range of a deallocation in a buffer: as many blocks as one command covers. None: there is no
/// memory for one.
pub(crate) fn range(shard: &mut Shard, (lba, blocks): (u64, u32), seen: &Seen) -> Option<Buf> {
    let range = DatasetRange::new(lba, blocks.min(seen.dataset_blocks));
    let mut buf = shard.take_buf(RANGE_BYTES as usize)?;
    buf.bytes_mut()[..RANGE_BYTES as usize].copy_from_slice(range.as_bytes());
    Some(buf)
}

/// What an answer means for a disk.
pub(crate) fn disk_status(operation: Operation, entry: &CompletionEntry) -> DiskStatus {
    let status = entry.status();
    if status.is_success() {
        return DiskStatus::Ok;
    }
    let hint = matches!(
        operation,
        Operation::WriteZeroes { .. } | Operation::Deallocate
    );
    let known = TABLE
        .into_iter()
        .find(|(known, _)| status.is(*known))
        .map(|(_, disk)| disk);
    match known {
        // The controller has a limit that it did not name.
        Some(DiskStatus::Internal) if hint && status.is(Status::INVALID_FIELD) => {
            DiskStatus::Unsupported
        }
        Some(disk) => disk,
        None if status.is_path_related() => DiskStatus::NotReady,
        None if operation == Operation::Read => DiskStatus::MediaRead,
        None => DiskStatus::MediaWrite,
    }
}

/// Whether a command that ended so may be sent again at once: the transport, not the disk, failed
/// it.
pub(crate) fn worth_retrying(entry: &CompletionEntry) -> bool {
    let status = entry.status();
    let passing = [
        Status::TRANSIENT_TRANSPORT_ERROR,
        Status::DATA_TRANSFER_ERROR,
        Status::COMMAND_INTERRUPTED,
    ];
    !status.dnr && passing.into_iter().any(|known| status.is(known))
}

/// Whether the controller did not carry the command out because it ends its queues: another
/// connection may.
pub(crate) fn is_leaving(entry: &CompletionEntry) -> bool {
    let status = entry.status();
    !status.dnr && status.is(Status::ABORTED_SQ_DELETION)
}

/// How a pair ended, from what is known of its halves; `None`: no answer came, and none will.
pub(crate) fn pair_status(compare: Option<DiskStatus>, write: Option<DiskStatus>) -> DiskStatus {
    match (compare, write) {
        (Some(DiskStatus::Ok) | None, Some(write)) => write,
        // A write whose comparison failed must not have happened: nobody knows what such a
        // controller did.
        (Some(_), Some(DiskStatus::Ok)) => DiskStatus::MediaWrite,
        // The write says only that its mate failed; the mate has said why.
        (Some(compare), Some(_)) => compare,
        (Some(DiskStatus::Ok) | None, None) => DiskStatus::Aborted,
        (Some(compare), None) => compare,
    }
}

const TABLE: [(Status, DiskStatus); 19] = [
    (Status::LBA_OUT_OF_RANGE, DiskStatus::OutOfRange),
    (Status::INVALID_OPCODE, DiskStatus::Unsupported),
    (Status::INVALID_FIELD, DiskStatus::Internal),
    (Status::NAMESPACE_WRITE_PROTECTED, DiskStatus::ReadOnly),
    (Status::CAPACITY_EXCEEDED, DiskStatus::NoSpace),
    (Status::COMPARE_FAILURE, DiskStatus::CompareFailed),
    (Status::NAMESPACE_NOT_READY, DiskStatus::NotReady),
    (Status::INVALID_NAMESPACE, DiskStatus::NotReady),
    (Status::UNRECOVERED_READ_ERROR, DiskStatus::MediaRead),
    (Status::WRITE_FAULT, DiskStatus::MediaWrite),
    (Status::INTERNAL_ERROR, DiskStatus::Internal),
    (Status::TRANSIENT_TRANSPORT_ERROR, DiskStatus::NotReady),
    (Status::DATA_TRANSFER_ERROR, DiskStatus::NotReady),
    (Status::COMMAND_INTERRUPTED, DiskStatus::NotReady),
    (Status::ABORT_REQUESTED, DiskStatus::Aborted),
    (Status::ABORTED_SQ_DELETION, DiskStatus::Aborted),
    (Status::ABORTED_FAILED_FUSED, DiskStatus::Aborted),
    (Status::ABORTED_MISSING_FUSED, DiskStatus::Aborted),
    (Status::COMMAND_SEQUENCE_ERROR, DiskStatus::NotReady),
];

/// Bytes of one range of Dataset Management.
pub(crate) const RANGE_BYTES: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Operation = Operation::Read;
    const WRITE: Operation = Operation::Write { durable: false };
    const ZEROES: Operation = Operation::WriteZeroes {
        deallocate: false,
        durable: false,
    };

    fn check(operation: Operation, status: Status, expected: DiskStatus) {
        assert_eq!(
            disk_status(operation, &CompletionEntry::new(status, 0)),
            expected,
            "{status}"
        );
    }

    #[test]
    fn an_unknown_error_is_the_mediums() {
        let unknown = Status {
            sct: 7,
            sc: 0x42,
            dnr: false,
        };
        check(READ, unknown, DiskStatus::MediaRead);
        check(WRITE, unknown, DiskStatus::MediaWrite);
        check(Operation::Flush, unknown, DiskStatus::MediaWrite);
    }

    #[test]
    fn a_command_that_the_target_cannot_do_this_way_is_unsupported_so_that_callers_fall_back() {
        check(ZEROES, Status::INVALID_OPCODE, DiskStatus::Unsupported);
        check(ZEROES, Status::INVALID_FIELD, DiskStatus::Unsupported);
        check(
            Operation::Deallocate,
            Status::INVALID_FIELD,
            DiskStatus::Unsupported,
        );
        check(WRITE, Status::INVALID_FIELD, DiskStatus::Internal);
    }

    #[test]
    fn a_path_at_fault_is_worth_another_try_by_the_caller() {
        check(READ, Status::ANA_TRANSITION, DiskStatus::NotReady);
        check(WRITE, Status::INTERNAL_PATH_ERROR, DiskStatus::NotReady);
    }

    #[test]
    fn what_is_not_to_be_retried_is_not_retried() {
        let retried = |status| worth_retrying(&CompletionEntry::new(status, 0));
        assert!(retried(Status::TRANSIENT_TRANSPORT_ERROR));
        assert!(!retried(Status::TRANSIENT_TRANSPORT_ERROR.no_retry()));
        assert!(!retried(Status::WRITE_FAULT.retry()));
    }

    #[test]
    fn a_pair_ends_as_its_halves_say_and_is_aborted_when_they_say_nothing() {
        use DiskStatus::{Aborted, CompareFailed, MediaWrite, NoSpace, Ok};
        let table = [
            (Some(Ok), Some(Ok), Ok),
            (Some(CompareFailed), Some(Aborted), CompareFailed),
            (Some(CompareFailed), None, CompareFailed),
            (Some(CompareFailed), Some(Ok), MediaWrite),
            (Some(Ok), Some(NoSpace), NoSpace),
            (Some(Ok), None, Aborted),
            (None, Some(Ok), Ok),
            (None, None, Aborted),
        ];
        for (compare, write, expected) in table {
            assert_eq!(
                pair_status(compare, write),
                expected,
                "{compare:?} {write:?}"
            );
        }
    }
}
