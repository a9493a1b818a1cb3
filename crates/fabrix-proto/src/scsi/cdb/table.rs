//! Table of the commands that the device server supports. A row has the length of the CDB, the bits
//! that have a meaning, and the access class for reservations.
//!
//! The parser, REPORT SUPPORTED OPERATION CODES and the reservation check use the same rows. A
//! reported bit is therefore always an accepted bit.
//! Source: SPC-4 and SBC-3, the tables of each command; SPC-4, "Persistent reservations", the
//! tables of commands.

use crate::scsi::reservation::Access;
use crate::scsi::spec::{self, Opcode};

/// Features of a disk. Some commands exist only with a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Deallocation: UNMAP, and the UNMAP bit of WRITE SAME.
    pub unmap: bool,
    /// Atomic writes of several blocks: WRITE ATOMIC.
    pub atomic: bool,
    /// Atomic compare-and-write: COMPARE AND WRITE.
    pub compare_and_write: bool,
    /// Third-party copy: EXTENDED COPY and RECEIVE COPY RESULTS.
    pub copy: bool,
}

/// Feature that a command requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    Unmap,
    Atomic,
    CompareAndWrite,
    Copy,
}

/// Table row of one command.
#[derive(Debug)]
pub struct CommandEntry {
    /// OPERATION CODE.
    pub opcode: Opcode,
    /// SERVICE ACTION, for operation codes that have service actions.
    pub service_action: Option<u8>,
    /// Standard name of the command.
    pub name: &'static str,
    /// Access class under another nexus's reservation.
    pub access: Access,
    needs: Needs,
    usage: &'static [u8],
    /// Bits of the CDB without meaning. The first byte of the CDB is the most significant byte.
    meaningless: u128,
}

impl CommandEntry {
    /// Table row for a CDB, if the command exists on a disk with these features.
    #[must_use]
    pub fn find(cdb: &[u8; spec::CDB_BYTES_MAX], features: Features) -> Option<&'static Self> {
        rows_of(cdb[0], features).find(|entry| {
            entry
                .service_action
                .is_none_or(|action| action == cdb[1] & SERVICE_ACTION)
        })
    }

    /// Length of the CDB in bytes.
    #[must_use]
    pub const fn cdb_bytes(&self) -> usize {
        self.usage.len()
    }

    /// CDB USAGE DATA: operation code and service action as they are, and a one for every bit that
    /// the device server evaluates.
    ///
    /// Source: SPC-4, "One_command parameter data format".
    pub fn usage(&self, features: Features) -> impl Iterator<Item = u8> + '_ {
        let (mask, usage) = (self.conditional_bits(features), self.usage);
        usage.iter().enumerate().map(move |(at, bits)| match at {
            1 => bits & !mask,
            _ => *bits,
        })
    }

    /// Position of the first set bit without meaning: byte, and bit within the byte. Bytes behind
    /// the end of the CDB do not count. The check runs for every command, so it compares all 128
    /// bits at once.
    #[must_use]
    pub fn stray_bit(
        &self,
        cdb: &[u8; spec::CDB_BYTES_MAX],
        features: Features,
    ) -> Option<(u16, u8)> {
        let conditional = u128::from(self.conditional_bits(features)) << (u128::BITS - 16);
        let stray = u128::from_be_bytes(*cdb) & (self.meaningless | conditional);
        // Bit 127 of the mask is bit 7 of byte 0.
        let at = u128::BITS - 1 - stray.checked_ilog2()?;
        Some((u16::try_from(at / 8).ok()?, u8::try_from(7 - at % 8).ok()?))
    }

    /// Bits of byte 1 that only disks with certain features accept.
    fn conditional_bits(&self, features: Features) -> u8 {
        let same = matches!(self.opcode, Opcode::WRITE_SAME_10 | Opcode::WRITE_SAME_16);
        if same && !features.unmap {
            WRITE_SAME_UNMAP
        } else {
            0
        }
    }

    fn is_supported(&self, features: Features) -> bool {
        match self.needs {
            Needs::Nothing => true,
            Needs::Unmap => features.unmap,
            Needs::Atomic => features.atomic,
            Needs::CompareAndWrite => features.compare_and_write,
            Needs::Copy => features.copy,
        }
    }
}

/// Commands of a disk with these features, ordered by operation code and service action.
pub fn supported(features: Features) -> impl Iterator<Item = &'static CommandEntry> {
    COMMANDS
        .iter()
        .filter(move |entry| entry.is_supported(features))
}

/// Whether the operation code exists, with any service action.
#[must_use]
pub fn knows_opcode(opcode: u8, features: Features) -> bool {
    rows_of(opcode, features).next().is_some()
}

/// Rows of one operation code. `FIRST_ROW` avoids a search of the whole table for every command.
fn rows_of(opcode: u8, features: Features) -> impl Iterator<Item = &'static CommandEntry> {
    COMMANDS[usize::from(FIRST_ROW[usize::from(opcode)])..]
        .iter()
        .take_while(move |entry| entry.opcode.0 == opcode)
        .filter(move |entry| entry.is_supported(features))
}

/// Index of the first row of each operation code. An operation code without rows has 0. Row 0
/// belongs to another operation code, so the iteration ends there at once.
const FIRST_ROW: [u8; 256] = {
    assert!(COMMANDS.len() < 256, "rows are numbered by a byte");
    let mut first = [0; 256];
    let mut at = COMMANDS.len();
    while at > 0 {
        at -= 1;
        first[COMMANDS[at].opcode.0 as usize] = at.to_le_bytes()[0];
    }
    first
};

/// Bits of byte 1 that hold the service action.
const SERVICE_ACTION: u8 = 0x1F;
/// UNMAP bit of WRITE SAME.
const WRITE_SAME_UNMAP: u8 = 0x08;

const fn plain(
    opcode: Opcode,
    name: &'static str,
    access: Access,
    usage: &'static [u8],
) -> CommandEntry {
    row(opcode, None, name, access, Needs::Nothing, usage)
}

const fn action(
    opcode: Opcode,
    service_action: u8,
    name: &'static str,
    access: Access,
    usage: &'static [u8],
) -> CommandEntry {
    let some = Some(service_action);
    row(opcode, some, name, access, Needs::Nothing, usage)
}

const fn row(
    opcode: Opcode,
    service_action: Option<u8>,
    name: &'static str,
    access: Access,
    needs: Needs,
    usage: &'static [u8],
) -> CommandEntry {
    CommandEntry {
        opcode,
        service_action,
        name,
        access,
        needs,
        usage,
        meaningless: meaningless(service_action.is_some(), usage),
    }
}

/// Inverse of `usage`, padded to 16 bytes. The bits of operation code and service action count as
/// meaningful, because the row was found by them.
const fn meaningless(has_action: bool, usage: &[u8]) -> u128 {
    let mut bits = [0; spec::CDB_BYTES_MAX];
    let mut at = 1;
    while at < usage.len() {
        bits[at] = !usage[at];
        at += 1;
    }
    if has_action {
        bits[1] &= !SERVICE_ACTION;
    }
    u128::from_be_bytes(bits)
}

use Access::{Always, Legacy, PersistentIn, PersistentOut, Read, Ready, Write};

/// The rows, ordered by operation code and service action, as REPORT SUPPORTED OPERATION CODES
/// lists them.
///
/// READ and WRITE accept FUA_NV (bit 1, obsolete since SBC-3), because older initiators set it.
/// FUA_NV is treated as FUA, which promises more. NACA and the other bits of CONTROL are refused.
#[rustfmt::skip]
const COMMANDS: &[CommandEntry] = &[
    plain(Opcode::TEST_UNIT_READY, "TEST UNIT READY", Ready, &[0x00, 0, 0, 0, 0, 0]),
    plain(Opcode::REQUEST_SENSE, "REQUEST SENSE", Always, &[0x03, 0x01, 0, 0, 0xFF, 0]),
    plain(Opcode::READ_6, "READ(6)", Read, &[0x08, 0x1F, 0xFF, 0xFF, 0xFF, 0]),
    plain(Opcode::WRITE_6, "WRITE(6)", Write, &[0x0A, 0x1F, 0xFF, 0xFF, 0xFF, 0]),
    plain(Opcode::INQUIRY, "INQUIRY", Always, &[0x12, 0x01, 0xFF, 0xFF, 0xFF, 0]),
    plain(Opcode::MODE_SELECT_6, "MODE SELECT(6)", Write, &[0x15, 0x10, 0, 0, 0xFF, 0]),
    plain(Opcode::RESERVE_6, "RESERVE(6)", Legacy, &[0x16, 0, 0, 0, 0, 0]),
    plain(Opcode::RELEASE_6, "RELEASE(6)", Legacy, &[0x17, 0, 0, 0, 0, 0]),
    plain(Opcode::MODE_SENSE_6, "MODE SENSE(6)", Read, &[0x1A, 0x08, 0xFF, 0xFF, 0xFF, 0]),
    plain(Opcode::START_STOP_UNIT, "START STOP UNIT", Always, &[0x1B, 0x01, 0, 0, 0x05, 0]),
    plain(Opcode::PREVENT_ALLOW, "PREVENT ALLOW MEDIUM REMOVAL", Always, &[0x1E, 0, 0, 0, 0x01, 0]),
    plain(Opcode::READ_CAPACITY_10, "READ CAPACITY(10)", Always, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    plain(Opcode::READ_10, "READ(10)", Read, &[0x28, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0]),
    plain(Opcode::WRITE_10, "WRITE(10)", Write, &[0x2A, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0]),
    plain(Opcode::WRITE_AND_VERIFY_10, "WRITE AND VERIFY(10)", Write,
        &[0x2E, 0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0]),
    plain(Opcode::VERIFY_10, "VERIFY(10)", Read, &[0x2F, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0]),
    plain(Opcode::PRE_FETCH_10, "PRE-FETCH(10)", Read, &[0x34, 0x02, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0]),
    plain(Opcode::SYNCHRONIZE_CACHE_10, "SYNCHRONIZE CACHE(10)", Write,
        &[0x35, 0x06, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0]),
    plain(Opcode::READ_DEFECT_DATA_10, "READ DEFECT DATA(10)", Read, &[0x37, 0, 0x1F, 0, 0, 0, 0, 0xFF, 0xFF, 0]),
    plain(Opcode::WRITE_SAME_10, "WRITE SAME(10)", Write, &[0x41, 0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0]),
    row(Opcode::UNMAP, None, "UNMAP", Write, Needs::Unmap, &[0x42, 0, 0, 0, 0, 0, 0x1F, 0xFF, 0xFF, 0]),
    plain(Opcode::MODE_SELECT_10, "MODE SELECT(10)", Write, &[0x55, 0x10, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0]),
    plain(Opcode::RESERVE_10, "RESERVE(10)", Legacy, &[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    plain(Opcode::RELEASE_10, "RELEASE(10)", Legacy, &[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    plain(Opcode::MODE_SENSE_10, "MODE SENSE(10)", Read, &[0x5A, 0x18, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0]),
    action(Opcode::PERSISTENT_RESERVE_IN, 0, "READ KEYS", PersistentIn, &[0x5E, 0x00, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0]),
    action(Opcode::PERSISTENT_RESERVE_IN, 1, "READ RESERVATION", PersistentIn,
        &[0x5E, 0x01, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0]),
    action(Opcode::PERSISTENT_RESERVE_IN, 2, "REPORT CAPABILITIES", PersistentIn,
        &[0x5E, 0x02, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0]),
    action(Opcode::PERSISTENT_RESERVE_IN, 3, "READ FULL STATUS", PersistentIn,
        &[0x5E, 0x03, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0]),
    action(Opcode::PERSISTENT_RESERVE_OUT, 0, "REGISTER", PersistentOut,
        &[0x5F, 0x00, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0]),
    action(Opcode::PERSISTENT_RESERVE_OUT, 1, "RESERVE", PersistentOut,
        &[0x5F, 0x01, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0]),
    action(Opcode::PERSISTENT_RESERVE_OUT, 2, "RELEASE", PersistentOut,
        &[0x5F, 0x02, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0]),
    action(Opcode::PERSISTENT_RESERVE_OUT, 3, "CLEAR", PersistentOut,
        &[0x5F, 0x03, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0]),
    action(Opcode::PERSISTENT_RESERVE_OUT, 4, "PREEMPT", PersistentOut,
        &[0x5F, 0x04, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0]),
    action(Opcode::PERSISTENT_RESERVE_OUT, 5, "PREEMPT AND ABORT", PersistentOut,
        &[0x5F, 0x05, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0]),
    action(Opcode::PERSISTENT_RESERVE_OUT, 6, "REGISTER AND IGNORE EXISTING KEY", PersistentOut,
        &[0x5F, 0x06, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0]),
    action(Opcode::PERSISTENT_RESERVE_OUT, 7, "REGISTER AND MOVE", PersistentOut,
        &[0x5F, 0x07, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0]),
    row(Opcode::EXTENDED_COPY, Some(spec::SA_EXTENDED_COPY_LID1), "EXTENDED COPY(LID1)", Write, Needs::Copy,
        &[0x83, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]),
    row(Opcode::RECEIVE_COPY_RESULTS, Some(spec::SA_COPY_STATUS_LID1), "RECEIVE COPY STATUS(LID1)", Read, Needs::Copy,
        &[0x84, 0x00, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]),
    row(Opcode::RECEIVE_COPY_RESULTS, Some(spec::SA_COPY_OPERATING_PARAMETERS),
        "RECEIVE COPY OPERATING PARAMETERS", Read, Needs::Copy,
        &[0x84, 0x03, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]),
    plain(Opcode::READ_16, "READ(16)", Read,
        &[0x88, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0]),
    row(Opcode::COMPARE_AND_WRITE, None, "COMPARE AND WRITE", Write, Needs::CompareAndWrite,
        &[0x89, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0x1F, 0]),
    plain(Opcode::WRITE_16, "WRITE(16)", Write,
        &[0x8A, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0]),
    plain(Opcode::ORWRITE, "ORWRITE(16)", Write,
        &[0x8B, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0]),
    plain(Opcode::WRITE_AND_VERIFY_16, "WRITE AND VERIFY(16)", Write,
        &[0x8E, 0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0]),
    plain(Opcode::VERIFY_16, "VERIFY(16)", Read,
        &[0x8F, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0]),
    plain(Opcode::PRE_FETCH_16, "PRE-FETCH(16)", Read,
        &[0x90, 0x02, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0]),
    plain(Opcode::SYNCHRONIZE_CACHE_16, "SYNCHRONIZE CACHE(16)", Write,
        &[0x91, 0x06, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0]),
    plain(Opcode::WRITE_SAME_16, "WRITE SAME(16)", Write,
        &[0x93, 0x09, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0]),
    row(Opcode::WRITE_ATOMIC_16, None, "WRITE ATOMIC(16)", Write, Needs::Atomic,
        &[0x9C, 0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0xFF, 0xFF, 0x1F, 0]),
    action(Opcode::SERVICE_ACTION_IN_16, spec::SA_READ_CAPACITY_16, "READ CAPACITY(16)", Always,
        &[0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]),
    action(Opcode::SERVICE_ACTION_IN_16, spec::SA_GET_LBA_STATUS, "GET LBA STATUS", Read,
        &[0x9E, 0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]),
    plain(Opcode::REPORT_LUNS, "REPORT LUNS", Always, &[0xA0, 0, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]),
    action(Opcode::MAINTENANCE_IN, spec::SA_REPORT_TARGET_PORT_GROUPS, "REPORT TARGET PORT GROUPS", Always,
        &[0xA3, 0xEA, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]),
    action(Opcode::MAINTENANCE_IN, spec::SA_REPORT_SUPPORTED_OPERATION_CODES, "REPORT SUPPORTED OPERATION CODES", Read,
        &[0xA3, 0x0C, 0x87, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]),
    action(Opcode::MAINTENANCE_IN, spec::SA_REPORT_SUPPORTED_TASK_MANAGEMENT,
        "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", Read, &[0xA3, 0x0D, 0x80, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]),
    plain(Opcode::READ_12, "READ(12)", Read, &[0xA8, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0]),
    plain(Opcode::WRITE_12, "WRITE(12)", Write,
        &[0xAA, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0]),
    plain(Opcode::WRITE_AND_VERIFY_12, "WRITE AND VERIFY(12)", Write,
        &[0xAE, 0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0]),
    plain(Opcode::VERIFY_12, "VERIFY(12)", Read,
        &[0xAF, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0]),
    plain(Opcode::READ_DEFECT_DATA_12, "READ DEFECT DATA(12)", Read,
        &[0xB7, 0x1F, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]),
];
