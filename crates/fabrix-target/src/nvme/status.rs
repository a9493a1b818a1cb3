//! NVMe statuses for the statuses of disks.

use fabrix_block::{Failed, Operation, Status as DiskStatus};
use fabrix_proto::nvme::command::IoCommand;
use fabrix_proto::nvme::spec::Status;

use crate::channels::Unreached;

/// The NVMe status for a disk's status.
///
/// Do Not Retry is set where the same command would fail the same way. Source: NVM Express Base
/// Specification 2.x, "Status Codes"; NVM Command Set Specification, "Command Specific and Media
/// Errors".
pub(crate) const fn nvme_status(status: DiskStatus) -> Status {
    match status {
        DiskStatus::Ok => Status::SUCCESS,
        DiskStatus::OutOfRange => Status::LBA_OUT_OF_RANGE,
        DiskStatus::Unsupported => Status::INVALID_OPCODE,
        DiskStatus::ReadOnly => Status::NAMESPACE_WRITE_PROTECTED,
        DiskStatus::MediaRead => Status::UNRECOVERED_READ_ERROR,
        DiskStatus::MediaWrite => Status::WRITE_FAULT,
        // The disk is degraded until it is opened again. A later flush cannot restore the data that
        // this flush has lost.
        DiskStatus::Degraded => Status::WRITE_FAULT.no_retry(),
        DiskStatus::NoSpace => Status::CAPACITY_EXCEEDED.no_retry(),
        DiskStatus::CompareFailed => Status::COMPARE_FAILURE,
        DiskStatus::NotReady => Status::NAMESPACE_NOT_READY,
        DiskStatus::Aborted => Status::COMMAND_INTERRUPTED,
        // Hosts repeat the command on another path.
        DiskStatus::Refused => Status::INTERNAL_PATH_ERROR,
        DiskStatus::Internal => Status::INTERNAL_ERROR,
    }
}

/// The NVMe status of a request that does not reach its disk.
pub(crate) const fn unreached(why: Unreached) -> Status {
    match why {
        Unreached::Gone => Status::INVALID_NAMESPACE,
        Unreached::OutOfRange => Status::LBA_OUT_OF_RANGE,
        Unreached::NotReady | Unreached::Barrier => Status::NAMESPACE_NOT_READY,
    }
}

/// The failed command as the operator sees it.
pub(super) fn failed(command: &IoCommand, status: DiskStatus) -> Failed {
    let operation = match *command {
        IoCommand::Flush | IoCommand::Reservation(_) => Operation::Flush,
        IoCommand::Read { .. } | IoCommand::Compare { .. } | IoCommand::Verify { .. } => {
            Operation::Read
        }
        IoCommand::Write { fua: durable, .. } => Operation::Write { durable },
        IoCommand::WriteZeroes {
            deallocate,
            fua: durable,
            ..
        } => Operation::WriteZeroes {
            deallocate,
            durable,
        },
        IoCommand::DatasetManagement { .. } => Operation::Deallocate,
    };
    let (lba, blocks) = command.extent().unwrap_or_default();
    Failed {
        operation,
        lba,
        blocks,
        status,
    }
}
