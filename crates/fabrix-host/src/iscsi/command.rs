//! Tables from block requests to SCSI commands, and from SCSI statuses to disk statuses.
//!
//! The target's SCSI commands do the opposite. Knows nothing of connections.

use fabrix_block::{Operation, Status as DiskStatus};
use fabrix_proto::iscsi::initiator::Transfer;
use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::bringup::is_becoming_ready;
use fabrix_proto::scsi::cdb::Extent;
use fabrix_proto::scsi::cdb::build::{self, Cdb};
use fabrix_proto::scsi::sense::{Sense, SenseKey};
use fabrix_proto::scsi::spec::Status;

use super::known_disk::KnownDisk;

/// Most blocks of a request that one command can cover.
pub(crate) fn most_blocks(operation: Operation, disk: &KnownDisk) -> u32 {
    match operation {
        Operation::WriteZeroes { .. } => disk.write_same_blocks,
        Operation::Deallocate => disk.unmap_blocks,
        // The caller respects the largest transfer. A flush has no blocks.
        _ => u32::MAX,
    }
}

/// Whether the disk supports the command of an operation, as far as it reports that.
pub(crate) fn is_supported(operation: Operation, blocks: u32, disk: &KnownDisk) -> bool {
    match operation {
        Operation::CompareAndWrite { .. } => blocks <= disk.compare_and_write_blocks,
        Operation::Deallocate => disk.unmap_blocks > 0,
        Operation::Read
        | Operation::Write { .. }
        | Operation::Flush
        | Operation::WriteZeroes { .. } => true,
    }
}

/// The command of an operation and its data transfer. None: the blocks do not fit the CDB.
pub(crate) fn cdb(
    operation: Operation,
    extent: Extent,
    disk: &KnownDisk,
) -> Option<(Cdb, Transfer)> {
    // Used for operations with data only. The caller respects the largest transfer.
    let bytes = extent.blocks.saturating_mul(disk.geometry.block_bytes);
    let fua = disk.fua && operation.promises_durability();
    Some(match operation {
        Operation::Read => (build::read(extent), Transfer::Read { bytes }),
        Operation::Write { .. } => (build::write(extent, fua), Transfer::Write { bytes }),
        Operation::Flush => (build::synchronize_cache(), Transfer::None),
        Operation::WriteZeroes { deallocate, .. } => {
            let unmap = deallocate && disk.zeroes_unmap;
            let bytes = disk.geometry.block_bytes;
            (build::write_same(extent, unmap), Transfer::Write { bytes })
        }
        Operation::Deallocate => (
            build::unmap(),
            Transfer::Write {
                bytes: build::UNMAP_LIST_BYTES.into(),
            },
        ),
        Operation::CompareAndWrite { .. } => (
            build::compare_and_write(extent, fua)?,
            Transfer::Write {
                bytes: bytes.saturating_mul(2),
            },
        ),
    })
}

/// Whether a flush must follow the command of a durable operation: the command itself has no FUA.
pub(crate) fn needs_flush(operation: Operation, disk: &KnownDisk) -> bool {
    let by_itself = match operation {
        Operation::Write { .. } | Operation::CompareAndWrite { .. } => disk.fua,
        _ => false,
    };
    operation.promises_durability()
        && operation != Operation::Flush
        && disk.geometry.volatile_cache
        && !by_itself
}

/// Consequence of an answer for its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The request completes.
    Complete(DiskStatus),
    /// The target reported a unit attention, or the transport failed: repeat the command at once.
    Repeat(DiskStatus),
    /// The target has no room now: repeat the command after a pause.
    Later,
    /// Another initiator has reserved the disk.
    Reserved,
}

/// The consequence of an answer.
pub(crate) fn verdict(
    operation: Operation,
    status: Status,
    sense: Option<Sense>,
    disk: &KnownDisk,
) -> Verdict {
    use DiskStatus::{Aborted, MediaRead, MediaWrite, Ok};
    let medium = match operation {
        Operation::Read => MediaRead,
        _ => MediaWrite,
    };
    match (status, sense) {
        (Status::GOOD, _) => Verdict::Complete(Ok),
        (Status::BUSY | Status::TASK_SET_FULL, _) => Verdict::Later,
        (Status::RESERVATION_CONFLICT, _) => Verdict::Reserved,
        (Status::TASK_ABORTED, _) => Verdict::Repeat(Aborted),
        (Status::CHECK_CONDITION, Some(sense)) => by_sense(operation, sense, medium, disk),
        _ => Verdict::Complete(medium),
    }
}

fn by_sense(operation: Operation, sense: Sense, medium: DiskStatus, disk: &KnownDisk) -> Verdict {
    use DiskStatus::{Aborted, CompareFailed, MediaRead, NoSpace, NotReady, Ok, ReadOnly};
    Verdict::Complete(match sense.key {
        SenseKey::NO_SENSE | SenseKey::RECOVERED_ERROR => Ok,
        SenseKey::UNIT_ATTENTION => return Verdict::Repeat(NotReady),
        SenseKey::ABORTED_COMMAND => return Verdict::Repeat(Aborted),
        SenseKey::NOT_READY if is_becoming_ready(sense) => return Verdict::Later,
        SenseKey::NOT_READY => NotReady,
        SenseKey::ILLEGAL_REQUEST => illegal(operation, sense.code, disk),
        SenseKey::DATA_PROTECT if sense.code == AdditionalSense::SPACE_ALLOCATION_FAILED => NoSpace,
        SenseKey::DATA_PROTECT => ReadOnly,
        SenseKey::MISCOMPARE => CompareFailed,
        // COMPARE AND WRITE reads first, and writes nothing then.
        SenseKey::MEDIUM_ERROR if sense.code == AdditionalSense::UNRECOVERED_READ_ERROR => {
            MediaRead
        }
        _ => medium,
    })
}

/// The disk status of ILLEGAL REQUEST. An operation that callers can replace is unsupported.
fn illegal(operation: Operation, code: AdditionalSense, disk: &KnownDisk) -> DiskStatus {
    let is_hint = matches!(
        operation,
        Operation::WriteZeroes { .. } | Operation::Deallocate
    );
    match code {
        AdditionalSense::LBA_OUT_OF_RANGE => DiskStatus::OutOfRange,
        AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED => DiskStatus::NotReady,
        // Without a cache every answered write is on the medium.
        AdditionalSense::INVALID_COMMAND_OPERATION_CODE
            if operation == Operation::Flush && !disk.geometry.volatile_cache =>
        {
            DiskStatus::Ok
        }
        AdditionalSense::INVALID_COMMAND_OPERATION_CODE => DiskStatus::Unsupported,
        _ if is_hint => DiskStatus::Unsupported,
        _ => DiskStatus::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::super::known_disk::tests::disk;
    use super::*;

    const READ: Operation = Operation::Read;
    const WRITE: Operation = Operation::Write { durable: false };
    const DURABLE: Operation = Operation::Write { durable: true };
    const ZEROES: Operation = Operation::WriteZeroes {
        deallocate: true,
        durable: true,
    };

    fn check(operation: Operation, key: SenseKey, code: u16, expected: Verdict) {
        let sense = Sense::new(key, AdditionalSense(code));
        let found = verdict(
            operation,
            Status::CHECK_CONDITION,
            Some(sense),
            &disk(|_| {}),
        );
        assert_eq!(found, expected, "{operation:?} {sense:?}");
    }

    #[test]
    fn sense_becomes_a_disk_status() {
        use DiskStatus::{
            CompareFailed, MediaRead, MediaWrite, NoSpace, OutOfRange, ReadOnly, Unsupported,
        };
        check(
            READ,
            SenseKey::MEDIUM_ERROR,
            0x1100,
            Verdict::Complete(MediaRead),
        );
        check(
            Operation::CompareAndWrite { durable: false },
            SenseKey::MEDIUM_ERROR,
            0x1100,
            Verdict::Complete(MediaRead),
        );
        check(
            WRITE,
            SenseKey::HARDWARE_ERROR,
            0x4400,
            Verdict::Complete(MediaWrite),
        );
        check(
            WRITE,
            SenseKey::DATA_PROTECT,
            0x2700,
            Verdict::Complete(ReadOnly),
        );
        check(
            WRITE,
            SenseKey::DATA_PROTECT,
            0x2707,
            Verdict::Complete(NoSpace),
        );
        check(
            READ,
            SenseKey::ILLEGAL_REQUEST,
            0x2100,
            Verdict::Complete(OutOfRange),
        );
        check(
            ZEROES,
            SenseKey::ILLEGAL_REQUEST,
            0x2400,
            Verdict::Complete(Unsupported),
        );
        check(
            WRITE,
            SenseKey::ILLEGAL_REQUEST,
            0x2400,
            Verdict::Complete(DiskStatus::Internal),
        );
        check(
            WRITE,
            SenseKey::MISCOMPARE,
            0x1D00,
            Verdict::Complete(CompareFailed),
        );
        check(
            Operation::Flush,
            SenseKey::ILLEGAL_REQUEST,
            0x2000,
            Verdict::Complete(DiskStatus::Ok),
        );
    }

    #[test]
    fn commands_are_repeated_after_unit_attentions_and_later_at_busy_targets() {
        check(
            READ,
            SenseKey::UNIT_ATTENTION,
            0x2900,
            Verdict::Repeat(DiskStatus::NotReady),
        );
        check(READ, SenseKey::NOT_READY, 0x0401, Verdict::Later);
        for status in [Status::BUSY, Status::TASK_SET_FULL] {
            assert_eq!(verdict(WRITE, status, None, &disk(|_| {})), Verdict::Later);
        }
        let reserved = verdict(WRITE, Status::RESERVATION_CONFLICT, None, &disk(|_| {}));
        assert_eq!(reserved, Verdict::Reserved);
    }

    #[test]
    fn a_cache_without_fua_is_flushed_behind_a_durable_write() {
        let cached = disk(|facts| (facts.write_cache, facts.fua) = (true, false));
        assert!(needs_flush(DURABLE, &cached) && needs_flush(ZEROES, &cached));
        assert!(!needs_flush(WRITE, &cached) && !needs_flush(Operation::Flush, &cached));
        let obeys = disk(|facts| (facts.write_cache, facts.fua) = (true, true));
        assert!(!needs_flush(DURABLE, &obeys) && needs_flush(ZEROES, &obeys));
        assert!(!needs_flush(
            ZEROES,
            &disk(|facts| facts.write_cache = false)
        ));
    }
}
