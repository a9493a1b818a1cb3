//! What an initiator sends: the layout of every request's header.
//!
//! Layout only; fields that all kinds share are checked through [`BasicHeader`](super::BasicHeader).
//!
//! Source: RFC 7143, section 11 "iSCSI PDU Formats".

use core::mem::{offset_of, size_of};

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BHS_BYTES, Lun, U24};

/// NOP-Out: a ping of the initiator, or its answer to one of the target.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.18.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct NopOut {
    /// I and the opcode.
    pub opcode: u8,
    /// F, always set.
    pub flags: u8,
    reserved: [u8; 2],
    /// TotalAHSLength, in units of 4 bytes.
    pub ahs_words: u8,
    /// DataSegmentLength, in bytes.
    pub data_bytes: U24,
    /// LUN.
    pub lun: Lun,
    /// ITT; `NO_TAG` when no answer is wanted.
    pub itt: U32,
    /// TTT: quoted from the NOP-In that this answers, or `NO_TAG`.
    pub ttt: U32,
    /// CmdSN.
    pub cmd_sn: U32,
    /// ExpStatSN: the next status the initiator expects; all before it have come.
    pub exp_stat_sn: U32,
    reserved2: [u8; 16],
}
const _: () = assert!(size_of::<NopOut>() == BHS_BYTES);
const _: () = assert!(offset_of!(NopOut, ttt) == 20);

/// SCSI Command: a task begins; immediate data may follow.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.3.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct ScsiCommand {
    /// I and the opcode.
    pub opcode: u8,
    /// F, `COMMAND_READ`, `COMMAND_WRITE` and the task attribute (ATTR).
    pub flags: u8,
    reserved: [u8; 2],
    /// TotalAHSLength, in units of 4 bytes.
    pub ahs_words: u8,
    /// DataSegmentLength, in bytes.
    pub data_bytes: U24,
    /// LUN.
    pub lun: Lun,
    /// Initiator Task Tag (ITT).
    pub itt: U32,
    /// Expected Data Transfer Length, in bytes.
    pub expected_bytes: U32,
    /// CmdSN.
    pub cmd_sn: U32,
    /// ExpStatSN: the next status the initiator expects; all before it have come.
    pub exp_stat_sn: U32,
    /// The first 16 bytes of the CDB.
    pub cdb: [u8; 16],
}
const _: () = assert!(size_of::<ScsiCommand>() == BHS_BYTES);
const _: () = assert!(offset_of!(ScsiCommand, expected_bytes) == 20);
const _: () = assert!(offset_of!(ScsiCommand, cdb) == 32);

/// Task Management Function Request: something is to happen to tasks.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.5.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct TaskManagementRequest {
    /// I and the opcode.
    pub opcode: u8,
    /// F and the function.
    pub function: u8,
    reserved: [u8; 2],
    /// TotalAHSLength, in units of 4 bytes.
    pub ahs_words: u8,
    /// DataSegmentLength, in bytes.
    pub data_bytes: U24,
    /// LUN.
    pub lun: Lun,
    /// Initiator Task Tag (ITT).
    pub itt: U32,
    /// Referenced Task Tag: the ITT of the task it is about, or `NO_TAG`.
    pub referenced_itt: U32,
    /// CmdSN.
    pub cmd_sn: U32,
    /// ExpStatSN: the next status the initiator expects; all before it have come.
    pub exp_stat_sn: U32,
    /// RefCmdSN: the CmdSN of that task.
    pub ref_cmd_sn: U32,
    /// ExpDataSN, for TASK REASSIGN.
    pub exp_data_sn: U32,
    reserved2: [u8; 8],
}
const _: () = assert!(size_of::<TaskManagementRequest>() == BHS_BYTES);
const _: () = assert!(offset_of!(TaskManagementRequest, function) == 1);
const _: () = assert!(offset_of!(TaskManagementRequest, referenced_itt) == 20);
const _: () = assert!(offset_of!(TaskManagementRequest, ref_cmd_sn) == 32);

/// Login Request: one step of a login, with text.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.12.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct LoginRequest {
    /// I and the opcode.
    pub opcode: u8,
    /// T, C, CSG and NSG.
    pub flags: u8,
    /// Version-max: the highest version the initiator speaks.
    pub version_max: u8,
    /// Version-min: the lowest.
    pub version_min: u8,
    /// TotalAHSLength, in units of 4 bytes.
    pub ahs_words: u8,
    /// DataSegmentLength, in bytes.
    pub data_bytes: U24,
    /// ISID: the initiator's part of the session's identity.
    pub isid: [u8; 6],
    /// TSIH: the target's part; 0 asks for a new session.
    pub tsih: U16,
    /// Initiator Task Tag (ITT).
    pub itt: U32,
    /// CID: the connection's number within its session.
    pub cid: U16,
    reserved: [u8; 2],
    /// CmdSN: of the first command after the login.
    pub cmd_sn: U32,
    /// ExpStatSN: the next status the initiator expects; all before it have come.
    pub exp_stat_sn: U32,
    reserved2: [u8; 16],
}
const _: () = assert!(size_of::<LoginRequest>() == BHS_BYTES);
const _: () = assert!(offset_of!(LoginRequest, version_min) == 3);
const _: () = assert!(offset_of!(LoginRequest, isid) == 8);
const _: () = assert!(offset_of!(LoginRequest, tsih) == 14);
const _: () = assert!(offset_of!(LoginRequest, cid) == 20);
const _: () = assert!(offset_of!(LoginRequest, cmd_sn) == 24);

/// Text Request: key=value pairs after the login.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.10.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct TextRequest {
    /// I and the opcode.
    pub opcode: u8,
    /// F and C.
    pub flags: u8,
    reserved: [u8; 2],
    /// TotalAHSLength, in units of 4 bytes.
    pub ahs_words: u8,
    /// DataSegmentLength, in bytes.
    pub data_bytes: U24,
    /// LUN.
    pub lun: Lun,
    /// Initiator Task Tag (ITT).
    pub itt: U32,
    /// TTT: quoted from the response that this continues, or `NO_TAG`.
    pub ttt: U32,
    /// CmdSN.
    pub cmd_sn: U32,
    /// ExpStatSN: the next status the initiator expects; all before it have come.
    pub exp_stat_sn: U32,
    reserved2: [u8; 16],
}
const _: () = assert!(size_of::<TextRequest>() == BHS_BYTES);
const _: () = assert!(offset_of!(TextRequest, ttt) == 20);

/// SCSI Data-Out: a piece of a write's data.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.7.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct DataOut {
    /// I and the opcode.
    pub opcode: u8,
    /// F: the last of this sequence.
    pub flags: u8,
    reserved: [u8; 2],
    /// TotalAHSLength, in units of 4 bytes.
    pub ahs_words: u8,
    /// DataSegmentLength, in bytes.
    pub data_bytes: U24,
    /// LUN.
    pub lun: Lun,
    /// Initiator Task Tag (ITT).
    pub itt: U32,
    /// TTT: quoted from the R2T, or `NO_TAG` for unsolicited data.
    pub ttt: U32,
    reserved2: [u8; 4],
    /// ExpStatSN: the next status the initiator expects; all before it have come.
    pub exp_stat_sn: U32,
    reserved3: [u8; 4],
    /// DataSN: counts the PDUs of this sequence from 0.
    pub data_sn: U32,
    /// Buffer Offset: from the start of the command's data, in bytes.
    pub buffer_offset: U32,
    reserved4: [u8; 4],
}
const _: () = assert!(size_of::<DataOut>() == BHS_BYTES);
const _: () = assert!(offset_of!(DataOut, ttt) == 20);
const _: () = assert!(offset_of!(DataOut, data_sn) == 36);
const _: () = assert!(offset_of!(DataOut, buffer_offset) == 40);

/// Logout Request: a session or a connection is to end.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.14.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct LogoutRequest {
    /// I and the opcode.
    pub opcode: u8,
    /// F and the reason.
    pub reason: u8,
    reserved: [u8; 2],
    /// TotalAHSLength, in units of 4 bytes.
    pub ahs_words: u8,
    /// DataSegmentLength, in bytes.
    pub data_bytes: U24,
    reserved2: [u8; 8],
    /// Initiator Task Tag (ITT).
    pub itt: U32,
    /// CID of the connection that is to end.
    pub cid: U16,
    reserved3: [u8; 2],
    /// CmdSN.
    pub cmd_sn: U32,
    /// ExpStatSN: the next status the initiator expects; all before it have come.
    pub exp_stat_sn: U32,
    reserved4: [u8; 16],
}
const _: () = assert!(size_of::<LogoutRequest>() == BHS_BYTES);
const _: () = assert!(offset_of!(LogoutRequest, reason) == 1);
const _: () = assert!(offset_of!(LogoutRequest, cid) == 20);

/// SNACK Request: numbered things are to be sent again. ERL 0 has none of it.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.16.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct SnackRequest {
    /// I and the opcode.
    pub opcode: u8,
    /// F and the type.
    pub flags: u8,
    reserved: [u8; 2],
    /// TotalAHSLength, in units of 4 bytes.
    pub ahs_words: u8,
    /// DataSegmentLength, in bytes.
    pub data_bytes: U24,
    /// LUN.
    pub lun: Lun,
    /// Initiator Task Tag (ITT).
    pub itt: U32,
    /// TTT or SNACK Tag.
    pub ttt: U32,
    reserved2: [u8; 4],
    /// ExpStatSN: the next status the initiator expects; all before it have come.
    pub exp_stat_sn: U32,
    reserved3: [u8; 8],
    /// BegRun: the first number.
    pub begin: U32,
    /// RunLength: how many.
    pub count: U32,
}
const _: () = assert!(size_of::<SnackRequest>() == BHS_BYTES);
const _: () = assert!(offset_of!(SnackRequest, begin) == 40);
const _: () = assert!(offset_of!(SnackRequest, count) == 44);

/// R of a SCSI Command: the initiator expects data.
pub const COMMAND_READ: u8 = 0x40;
/// W of a SCSI Command: the initiator has data.
pub const COMMAND_WRITE: u8 = 0x20;

impl ScsiCommand {
    /// How the task is to be ordered among others.
    #[must_use]
    pub const fn attribute(&self) -> TaskAttribute {
        TaskAttribute(self.flags & 7)
    }
}

/// How a task is to be ordered among others (ATTR). Open: a peer may send any value.
///
/// Source: RFC 7143, section 11.3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskAttribute(pub u8);

impl TaskAttribute {
    /// Untagged.
    pub const UNTAGGED: Self = Self(0);
    /// Simple.
    pub const SIMPLE: Self = Self(1);
    /// Ordered.
    pub const ORDERED: Self = Self(2);
    /// Head of queue.
    pub const HEAD_OF_QUEUE: Self = Self(3);
    /// ACA.
    pub const ACA: Self = Self(4);
}

/// What a Task Management Function Request asks for. Open: a peer may send any value.
///
/// Source: RFC 7143, section 11.5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskFunction(pub u8);

impl TaskFunction {
    /// ABORT TASK: the task with the Referenced Task Tag.
    pub const ABORT_TASK: Self = Self(1);
    /// ABORT TASK SET: all tasks of this session on the logical unit.
    pub const ABORT_TASK_SET: Self = Self(2);
    /// CLEAR ACA.
    pub const CLEAR_ACA: Self = Self(3);
    /// CLEAR TASK SET: all tasks of the logical unit, whoever sent them.
    pub const CLEAR_TASK_SET: Self = Self(4);
    /// LOGICAL UNIT RESET.
    pub const LOGICAL_UNIT_RESET: Self = Self(5);
    /// TARGET WARM RESET.
    pub const TARGET_WARM_RESET: Self = Self(6);
    /// TARGET COLD RESET.
    pub const TARGET_COLD_RESET: Self = Self(7);
    /// TASK REASSIGN.
    pub const TASK_REASSIGN: Self = Self(8);
}
