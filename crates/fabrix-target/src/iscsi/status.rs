//! SCSI failures for the statuses of disks.

use fabrix_block::Status as DiskStatus;
use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::unit::Failure;

use crate::channels::Unreached;

/// The failure for a disk's status. `None`: success.
pub(super) const fn failure(status: DiskStatus) -> Option<Failure> {
    Some(match status {
        DiskStatus::Ok => return None,
        DiskStatus::OutOfRange => Failure::OutOfRange,
        DiskStatus::ReadOnly => Failure::WriteProtected,
        DiskStatus::MediaRead => Failure::Read(None),
        // A degraded disk has lost a flush, so no later one can be trusted.
        DiskStatus::MediaWrite | DiskStatus::Degraded => Failure::Write(None),
        DiskStatus::NoSpace => Failure::NoSpace,
        DiskStatus::CompareFailed => Failure::Miscompare(0),
        DiskStatus::NotReady => Failure::Busy,
        DiskStatus::Aborted => Failure::Aborted,
        // Initiators repeat the command on another path.
        DiskStatus::Refused => Failure::Inaccessible(AdditionalSense::UNAVAILABLE),
        DiskStatus::Unsupported | DiskStatus::Internal => Failure::Internal,
    })
}

/// The failure of a request that does not reach its disk.
pub(super) const fn unreached(why: Unreached) -> Failure {
    match why {
        Unreached::Gone => Failure::Gone,
        Unreached::OutOfRange => Failure::OutOfRange,
        Unreached::NotReady | Unreached::Barrier => Failure::Busy,
    }
}
