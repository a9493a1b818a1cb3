//! Tables from block requests to NVMe commands, and from NVMe statuses to disk statuses.
//!
//! The target's `execute` and `status` do the opposite. Knows nothing of connections.

use fabrix_block::{Operation, Status as DiskStatus};
use fabrix_proto::nvme::bringup::ControllerFacts;
use fabrix_proto::nvme::command::{DatasetRange, Fuse};
use fabrix_proto::nvme::queue::HostTransfer;
use fabrix_proto::nvme::spec::{CompletionEntry, Status, SubmissionEntry};
use fabrix_rt::{Buf, Shard};
use zerocopy::IntoBytes;

use super::known_disk::KnownDisk;

/// Whether the controller supports the command of an operation. Some commands are mandatory.
pub(crate) fn is_supported(operation: Operation, controller: &ControllerFacts) -> bool {
    match operation {
        Operation::Read | Operation::Write { .. } | Operation::Flush => true,
        Operation::WriteZeroes { .. } => controller.write_zeroes,
        Operation::Deallocate => controller.dataset_management,
        Operation::CompareAndWrite { .. } => controller.compare_and_write,
    }
}

/// Most blocks of a request that one command can cover.
pub(crate) fn most_blocks(operation: Operation, disk: &KnownDisk) -> u32 {
    match operation {
        Operation::WriteZeroes { .. } => disk.write_zeroes_blocks,
        Operation::Deallocate => disk.dataset_blocks,
        // The caller respects the largest transfer. A flush has no blocks.
        _ => u32::MAX,
    }
}

/// The command of an operation and its data transfer. For `CompareAndWrite` see [`fused`].
#[inline(always)]
pub(crate) fn entry(
    operation: Operation,
    nsid: u32,
    (lba, blocks): (u64, u32),
    block_bytes: u32,
) -> (SubmissionEntry, HostTransfer) {
    // Used for operations with data only. The caller respects the largest transfer.
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

/// The two commands of Compare and Write.
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

/// A buffer with the range of one Dataset Management command. None: the shard has no memory.
pub(crate) fn range(shard: &mut Shard, (lba, blocks): (u64, u32), disk: &KnownDisk) -> Option<Buf> {
    let range = DatasetRange::new(lba, blocks.min(disk.dataset_blocks));
    let mut buf = shard.take_buf(RANGE_BYTES as usize)?;
    buf.bytes_mut()[..RANGE_BYTES as usize].copy_from_slice(range.as_bytes());
    Some(buf)
}

/// The disk status of a completion entry.
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
        // The controller has a limit that it does not report.
        Some(DiskStatus::Internal) if hint && status.is(Status::INVALID_FIELD) => {
            DiskStatus::Unsupported
        }
        Some(disk) => disk,
        None if status.is_path_related() => DiskStatus::NotReady,
        None if operation == Operation::Read => DiskStatus::MediaRead,
        None => DiskStatus::MediaWrite,
    }
}

/// Whether a failed command may be repeated at once: the transport failed, not the disk.
pub(crate) fn worth_retrying(entry: &CompletionEntry) -> bool {
    let status = entry.status();
    let transient = [
        Status::TRANSIENT_TRANSPORT_ERROR,
        Status::DATA_TRANSFER_ERROR,
        Status::COMMAND_INTERRUPTED,
    ];
    !status.dnr && transient.into_iter().any(|known| status.is(known))
}

/// Whether the controller aborted the command because it deletes the queue. Another connection may
/// carry the command out.
pub(crate) fn is_queue_deleted(entry: &CompletionEntry) -> bool {
    let status = entry.status();
    !status.dnr && status.is(Status::ABORTED_SQ_DELETION)
}

/// The status of Compare and Write from the statuses of its commands. `None`: no answer came.
pub(crate) fn fused_status(compare: Option<DiskStatus>, write: Option<DiskStatus>) -> DiskStatus {
    match (compare, write) {
        (Some(DiskStatus::Ok) | None, Some(write)) => write,
        // The controller must not write after a failed comparison. The state of the disk is
        // unknown.
        (Some(_), Some(DiskStatus::Ok)) => DiskStatus::MediaWrite,
        // The Write fails because the Compare failed. The status of the Compare tells why.
        (Some(compare), Some(_)) => compare,
        (Some(DiskStatus::Ok) | None, None) => DiskStatus::Aborted,
        (Some(compare), None) => compare,
    }
}

/// Disk statuses of NVMe statuses.
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
    // A target whose own connection was lost cannot tell whether the command was carried out.
    (Status::COMMAND_INTERRUPTED, DiskStatus::Aborted),
    (Status::ABORT_REQUESTED, DiskStatus::Aborted),
    (Status::ABORTED_SQ_DELETION, DiskStatus::Aborted),
    (Status::ABORTED_FAILED_FUSED, DiskStatus::Aborted),
    (Status::ABORTED_MISSING_FUSED, DiskStatus::Aborted),
    (Status::COMMAND_SEQUENCE_ERROR, DiskStatus::NotReady),
];

/// Bytes of one range in Dataset Management.
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
    fn an_unknown_error_is_a_medium_error() {
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
    fn a_command_that_the_target_rejects_is_unsupported_so_that_callers_fall_back() {
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
    fn a_comparison_that_may_have_been_carried_out_is_aborted_and_not_refused() {
        let operation = Operation::CompareAndWrite { durable: false };
        check(operation, Status::COMMAND_INTERRUPTED, DiskStatus::Aborted);
        check(operation, Status::NAMESPACE_NOT_READY, DiskStatus::NotReady);
    }

    #[test]
    fn only_transient_transport_errors_are_retried() {
        let retried = |status| worth_retrying(&CompletionEntry::new(status, 0));
        assert!(retried(Status::TRANSIENT_TRANSPORT_ERROR));
        assert!(!retried(Status::TRANSIENT_TRANSPORT_ERROR.no_retry()));
        assert!(!retried(Status::WRITE_FAULT.retry()));
    }

    #[test]
    fn compare_and_write_completes_as_its_commands_do_and_is_aborted_without_their_answers() {
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
                fused_status(compare, write),
                expected,
                "{compare:?} {write:?}"
            );
        }
    }
}
