//! A block request in SCSI's words, and a SCSI answer in a disk's.
//!
//! The mirror of the target's SCSI commands. Knows both vocabularies; does not know connections.

use fabrix_block::{Operation, Status as DiskStatus};
use fabrix_proto::iscsi::initiator::Transfer;
use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::bringup::is_becoming_ready;
use fabrix_proto::scsi::cdb::Extent;
use fabrix_proto::scsi::cdb::build::{self, Cdb};
use fabrix_proto::scsi::sense::{Sense, SenseKey};
use fabrix_proto::scsi::spec::Status;

use super::seen::Seen;

/// How many blocks of a request one command can cover.
pub(crate) fn most_blocks(operation: Operation, seen: &Seen) -> u32 {
    match operation {
        Operation::WriteZeroes { .. } => seen.write_same_blocks,
        Operation::Deallocate => seen.unmap_blocks,
        // The caller keeps to the largest transfer; a flush has none.
        _ => u32::MAX,
    }
}

/// Whether the disk has the command that an operation needs, as far as it has said.
pub(crate) fn is_supported(operation: Operation, blocks: u32, seen: &Seen) -> bool {
    match operation {
        Operation::CompareAndWrite { .. } => blocks <= seen.compare_and_write_blocks,
        Operation::Deallocate => seen.unmap_blocks > 0,
        Operation::Read
        | Operation::Write { .. }
        | Operation::Flush
        | Operation::WriteZeroes { .. } => true,
    }
}

/// The command for an operation, and how its data moves; none: it covers more blocks than there are
/// bits for.
pub(crate) fn cdb(operation: Operation, extent: Extent, seen: &Seen) -> Option<(Cdb, Transfer)> {
    // Only for operations with data, which were checked against the largest transfer.
    let bytes = extent.blocks.saturating_mul(seen.geometry.block_bytes);
    let fua = seen.fua && operation.promises_durability();
    Some(match operation {
        Operation::Read => (build::read(extent), Transfer::Read { bytes }),
        Operation::Write { .. } => (build::write(extent, fua), Transfer::Write { bytes }),
        Operation::Flush => (build::synchronize_cache(), Transfer::None),
        Operation::WriteZeroes { deallocate, .. } => {
            let unmap = deallocate && seen.zeroes_unmap;
            let bytes = seen.geometry.block_bytes;
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

/// Whether an operation that has ended well must be made durable by a flush, because its command
/// could not be told to.
pub(crate) fn needs_flush(operation: Operation, seen: &Seen) -> bool {
    let by_itself = match operation {
        Operation::Write { .. } | Operation::CompareAndWrite { .. } => seen.fua,
        _ => false,
    };
    operation.promises_durability()
        && operation != Operation::Flush
        && seen.geometry.volatile_cache
        && !by_itself
}

/// What is to be done about an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It has ended.
    Ends(DiskStatus),
    /// Something else had to be told first, or the transport spoiled it: send it again at once.
    Again(DiskStatus),
    /// The target has no room for it now: send it again in a while.
    Later,
    /// Another initiator has reserved the disk.
    Reserved,
}

/// What an answer means for a disk.
pub(crate) fn verdict(
    operation: Operation,
    status: Status,
    sense: Option<Sense>,
    seen: &Seen,
) -> Verdict {
    use DiskStatus::{Aborted, MediaRead, MediaWrite, Ok};
    let medium = match operation {
        Operation::Read => MediaRead,
        _ => MediaWrite,
    };
    match (status, sense) {
        (Status::GOOD, _) => Verdict::Ends(Ok),
        (Status::BUSY | Status::TASK_SET_FULL, _) => Verdict::Later,
        (Status::RESERVATION_CONFLICT, _) => Verdict::Reserved,
        (Status::TASK_ABORTED, _) => Verdict::Again(Aborted),
        (Status::CHECK_CONDITION, Some(sense)) => by_sense(operation, sense, medium, seen),
        _ => Verdict::Ends(medium),
    }
}

fn by_sense(operation: Operation, sense: Sense, medium: DiskStatus, seen: &Seen) -> Verdict {
    use DiskStatus::{Aborted, CompareFailed, NoSpace, NotReady, Ok, ReadOnly};
    Verdict::Ends(match sense.key {
        SenseKey::NO_SENSE | SenseKey::RECOVERED_ERROR => Ok,
        SenseKey::UNIT_ATTENTION => return Verdict::Again(NotReady),
        SenseKey::ABORTED_COMMAND => return Verdict::Again(Aborted),
        SenseKey::NOT_READY if is_becoming_ready(sense) => return Verdict::Later,
        SenseKey::NOT_READY => NotReady,
        SenseKey::ILLEGAL_REQUEST => illegal(operation, sense.code, seen),
        SenseKey::DATA_PROTECT if sense.code == AdditionalSense::SPACE_ALLOCATION_FAILED => NoSpace,
        SenseKey::DATA_PROTECT => ReadOnly,
        SenseKey::MISCOMPARE => CompareFailed,
        _ => medium,
    })
}

/// A command that the target cannot do this way is unsupported where callers can do it another way.
fn illegal(operation: Operation, code: AdditionalSense, seen: &Seen) -> DiskStatus {
    let is_hint = matches!(
        operation,
        Operation::WriteZeroes { .. } | Operation::Deallocate
    );
    match code {
        AdditionalSense::LBA_OUT_OF_RANGE => DiskStatus::OutOfRange,
        AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED => DiskStatus::NotReady,
        // Without a cache, what was answered is on the medium.
        AdditionalSense::INVALID_COMMAND_OPERATION_CODE
            if operation == Operation::Flush && !seen.geometry.volatile_cache =>
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
    use super::super::seen::tests::seen;
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
            &seen(|_| {}),
        );
        assert_eq!(found, expected, "{operation:?} {sense:?}");
    }

    #[test]
    fn sense_becomes_what_a_disks_user_understands() {
        use DiskStatus::{
            CompareFailed, MediaRead, MediaWrite, NoSpace, OutOfRange, ReadOnly, Unsupported,
        };
        check(
            READ,
            SenseKey::MEDIUM_ERROR,
            0x1100,
            Verdict::Ends(MediaRead),
        );
        check(
            WRITE,
            SenseKey::HARDWARE_ERROR,
            0x4400,
            Verdict::Ends(MediaWrite),
        );
        check(
            WRITE,
            SenseKey::DATA_PROTECT,
            0x2700,
            Verdict::Ends(ReadOnly),
        );
        check(
            WRITE,
            SenseKey::DATA_PROTECT,
            0x2707,
            Verdict::Ends(NoSpace),
        );
        check(
            READ,
            SenseKey::ILLEGAL_REQUEST,
            0x2100,
            Verdict::Ends(OutOfRange),
        );
        check(
            ZEROES,
            SenseKey::ILLEGAL_REQUEST,
            0x2400,
            Verdict::Ends(Unsupported),
        );
        check(
            WRITE,
            SenseKey::ILLEGAL_REQUEST,
            0x2400,
            Verdict::Ends(DiskStatus::Internal),
        );
        check(
            WRITE,
            SenseKey::MISCOMPARE,
            0x1D00,
            Verdict::Ends(CompareFailed),
        );
        check(
            Operation::Flush,
            SenseKey::ILLEGAL_REQUEST,
            0x2000,
            Verdict::Ends(DiskStatus::Ok),
        );
    }

    #[test]
    fn attentions_are_heard_and_busy_targets_waited_for() {
        check(
            READ,
            SenseKey::UNIT_ATTENTION,
            0x2900,
            Verdict::Again(DiskStatus::NotReady),
        );
        check(READ, SenseKey::NOT_READY, 0x0401, Verdict::Later);
        for status in [Status::BUSY, Status::TASK_SET_FULL] {
            assert_eq!(verdict(WRITE, status, None, &seen(|_| {})), Verdict::Later);
        }
        let reserved = verdict(WRITE, Status::RESERVATION_CONFLICT, None, &seen(|_| {}));
        assert_eq!(reserved, Verdict::Reserved);
    }

    #[test]
    fn a_cache_that_knows_no_fua_is_flushed_behind_a_durable_write() {
        let cached = seen(|facts| (facts.write_cache, facts.fua) = (true, false));
        assert!(needs_flush(DURABLE, &cached) && needs_flush(ZEROES, &cached));
        assert!(!needs_flush(WRITE, &cached) && !needs_flush(Operation::Flush, &cached));
        let obeys = seen(|facts| (facts.write_cache, facts.fua) = (true, true));
        assert!(!needs_flush(DURABLE, &obeys) && needs_flush(ZEROES, &obeys));
        assert!(!needs_flush(
            ZEROES,
            &seen(|facts| facts.write_cache = false)
        ));
    }
}
