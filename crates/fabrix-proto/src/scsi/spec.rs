//! SCSI numbers that several files share: statuses, operation codes, service actions.
//!
//! The file has numbers only. [`cdb`](super::cdb) parses commands, and [`unit`](super::unit)
//! answers them.
//! Source: SAM-5, "Status codes"; SPC-4 and SBC-3, "Operation codes" and "Service action codes".

/// Status of a completed command.
///
/// Source: SAM-5, "Status codes".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(pub u8);

impl Status {
    /// GOOD.
    pub const GOOD: Self = Self(0x00);
    /// CHECK CONDITION. Sense data reports the reason.
    pub const CHECK_CONDITION: Self = Self(0x02);
    /// BUSY. The initiator retries the command.
    pub const BUSY: Self = Self(0x08);
    /// RESERVATION CONFLICT, without sense data.
    pub const RESERVATION_CONFLICT: Self = Self(0x18);
    /// TASK SET FULL.
    pub const TASK_SET_FULL: Self = Self(0x28);
    /// TASK ABORTED: another nexus aborted the command, and TAS is set.
    pub const TASK_ABORTED: Self = Self(0x40);
}

/// OPERATION CODE, byte 0 of a CDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

impl Opcode {
    /// TEST UNIT READY.
    pub const TEST_UNIT_READY: Self = Self(0x00);
    /// REQUEST SENSE.
    pub const REQUEST_SENSE: Self = Self(0x03);
    /// READ(6).
    pub const READ_6: Self = Self(0x08);
    /// WRITE(6).
    pub const WRITE_6: Self = Self(0x0A);
    /// INQUIRY.
    pub const INQUIRY: Self = Self(0x12);
    /// MODE SELECT(6).
    pub const MODE_SELECT_6: Self = Self(0x15);
    /// RESERVE(6), of SPC-2.
    pub const RESERVE_6: Self = Self(0x16);
    /// RELEASE(6), of SPC-2.
    pub const RELEASE_6: Self = Self(0x17);
    /// MODE SENSE(6).
    pub const MODE_SENSE_6: Self = Self(0x1A);
    /// START STOP UNIT.
    pub const START_STOP_UNIT: Self = Self(0x1B);
    /// PREVENT ALLOW MEDIUM REMOVAL.
    pub const PREVENT_ALLOW: Self = Self(0x1E);
    /// READ CAPACITY(10).
    pub const READ_CAPACITY_10: Self = Self(0x25);
    /// READ(10).
    pub const READ_10: Self = Self(0x28);
    /// WRITE(10).
    pub const WRITE_10: Self = Self(0x2A);
    /// WRITE AND VERIFY(10).
    pub const WRITE_AND_VERIFY_10: Self = Self(0x2E);
    /// VERIFY(10).
    pub const VERIFY_10: Self = Self(0x2F);
    /// PRE-FETCH(10).
    pub const PRE_FETCH_10: Self = Self(0x34);
    /// SYNCHRONIZE CACHE(10).
    pub const SYNCHRONIZE_CACHE_10: Self = Self(0x35);
    /// READ DEFECT DATA(10).
    pub const READ_DEFECT_DATA_10: Self = Self(0x37);
    /// WRITE SAME(10).
    pub const WRITE_SAME_10: Self = Self(0x41);
    /// UNMAP.
    pub const UNMAP: Self = Self(0x42);
    /// MODE SELECT(10).
    pub const MODE_SELECT_10: Self = Self(0x55);
    /// RESERVE(10), of SPC-2.
    pub const RESERVE_10: Self = Self(0x56);
    /// RELEASE(10), of SPC-2.
    pub const RELEASE_10: Self = Self(0x57);
    /// MODE SENSE(10).
    pub const MODE_SENSE_10: Self = Self(0x5A);
    /// PERSISTENT RESERVE IN.
    pub const PERSISTENT_RESERVE_IN: Self = Self(0x5E);
    /// PERSISTENT RESERVE OUT.
    pub const PERSISTENT_RESERVE_OUT: Self = Self(0x5F);
    /// EXTENDED COPY. The service action selects the command.
    pub const EXTENDED_COPY: Self = Self(0x83);
    /// RECEIVE COPY RESULTS. The service action selects the command.
    pub const RECEIVE_COPY_RESULTS: Self = Self(0x84);
    /// READ(16).
    pub const READ_16: Self = Self(0x88);
    /// COMPARE AND WRITE.
    pub const COMPARE_AND_WRITE: Self = Self(0x89);
    /// WRITE(16).
    pub const WRITE_16: Self = Self(0x8A);
    /// ORWRITE(16).
    pub const ORWRITE: Self = Self(0x8B);
    /// WRITE AND VERIFY(16).
    pub const WRITE_AND_VERIFY_16: Self = Self(0x8E);
    /// VERIFY(16).
    pub const VERIFY_16: Self = Self(0x8F);
    /// PRE-FETCH(16).
    pub const PRE_FETCH_16: Self = Self(0x90);
    /// SYNCHRONIZE CACHE(16).
    pub const SYNCHRONIZE_CACHE_16: Self = Self(0x91);
    /// WRITE SAME(16).
    pub const WRITE_SAME_16: Self = Self(0x93);
    /// WRITE ATOMIC(16).
    pub const WRITE_ATOMIC_16: Self = Self(0x9C);
    /// SERVICE ACTION IN(16): READ CAPACITY(16) and GET LBA STATUS.
    pub const SERVICE_ACTION_IN_16: Self = Self(0x9E);
    /// REPORT LUNS.
    pub const REPORT_LUNS: Self = Self(0xA0);
    /// MAINTENANCE IN: REPORT SUPPORTED OPERATION CODES, REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS
    /// and REPORT TARGET PORT GROUPS.
    pub const MAINTENANCE_IN: Self = Self(0xA3);
    /// READ(12).
    pub const READ_12: Self = Self(0xA8);
    /// WRITE(12).
    pub const WRITE_12: Self = Self(0xAA);
    /// WRITE AND VERIFY(12).
    pub const WRITE_AND_VERIFY_12: Self = Self(0xAE);
    /// VERIFY(12).
    pub const VERIFY_12: Self = Self(0xAF);
    /// READ DEFECT DATA(12).
    pub const READ_DEFECT_DATA_12: Self = Self(0xB7);
}

/// Service action of READ CAPACITY(16).
pub const SA_READ_CAPACITY_16: u8 = 0x10;
/// Service action of GET LBA STATUS.
pub const SA_GET_LBA_STATUS: u8 = 0x12;
/// Service action of REPORT TARGET PORT GROUPS.
pub const SA_REPORT_TARGET_PORT_GROUPS: u8 = 0x0A;
/// Service action of REPORT SUPPORTED OPERATION CODES.
pub const SA_REPORT_SUPPORTED_OPERATION_CODES: u8 = 0x0C;
/// Service action of REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
pub const SA_REPORT_SUPPORTED_TASK_MANAGEMENT: u8 = 0x0D;
/// Service action of EXTENDED COPY with a one-byte list identifier.
pub const SA_EXTENDED_COPY_LID1: u8 = 0x00;
/// Service action of RECEIVE COPY STATUS(LID1).
pub const SA_COPY_STATUS_LID1: u8 = 0x00;
/// Service action of RECEIVE COPY OPERATING PARAMETERS.
pub const SA_COPY_OPERATING_PARAMETERS: u8 = 0x03;

/// Maximum length of a CDB in bytes.
pub const CDB_BYTES_MAX: usize = 16;
