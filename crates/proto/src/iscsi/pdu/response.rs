//! What a target sends: the layout of every response's header, and the numbers in them.
//!
//! Layout only. A header is built from zeros, so that what is reserved is zero.
//!
//! Source: RFC 7143, section 11 "iSCSI PDU Formats".

use core::mem::{offset_of, size_of};

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BHS_BYTES, Lun, U24};

/// The three numbers that every PDU of a target carries at the same place.
///
/// 12 bytes, big-endian.
/// Source: RFC 7143, sections 11.4.8 to 11.4.10.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct Sequence {
    /// StatSN: of this status, or the next one where the PDU bears none.
    pub stat_sn: U32,
    /// ExpCmdSN: the next command the target expects.
    pub exp_cmd_sn: U32,
    /// MaxCmdSN: the last command it accepts.
    pub max_cmd_sn: U32,
}
const _: () = assert!(size_of::<Sequence>() == 12);

/// NOP-In: a ping of the target, or its answer to one of the initiator.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.19.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct NopIn {
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
    /// ITT: quoted from the NOP-Out that this answers, or `NO_TAG`.
    pub itt: U32,
    /// TTT: an answer is wanted under this tag, or `NO_TAG`.
    pub ttt: U32,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub sequence: Sequence,
    reserved2: [u8; 12],
}
const _: () = assert!(size_of::<NopIn>() == BHS_BYTES);
const _: () = assert!(offset_of!(NopIn, ttt) == 20);
const _: () = assert!(offset_of!(NopIn, sequence) == 24);

/// SCSI Response: the end of a task.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.4.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct ScsiResponse {
    /// I and the opcode.
    pub opcode: u8,
    /// F and `RESIDUAL_*`.
    pub flags: u8,
    /// 0: the task came to its end; 1: the target failed.
    pub response: u8,
    /// SCSI status.
    pub status: u8,
    /// TotalAHSLength, in units of 4 bytes.
    pub ahs_words: u8,
    /// DataSegmentLength, in bytes.
    pub data_bytes: U24,
    reserved: [u8; 8],
    /// Initiator Task Tag (ITT).
    pub itt: U32,
    /// SNACK Tag, 0 without recovery.
    pub snack_tag: U32,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub sequence: Sequence,
    /// ExpDataSN: how many Data-In and R2T PDUs the task had.
    pub exp_data_sn: U32,
    /// Bidirectional Read Residual Count, in bytes.
    pub bidirectional_residual: U32,
    /// Residual Count, in bytes.
    pub residual: U32,
}
const _: () = assert!(size_of::<ScsiResponse>() == BHS_BYTES);
const _: () = assert!(offset_of!(ScsiResponse, status) == 3);
const _: () = assert!(offset_of!(ScsiResponse, sequence) == 24);
const _: () = assert!(offset_of!(ScsiResponse, exp_data_sn) == 36);
const _: () = assert!(offset_of!(ScsiResponse, residual) == 44);

/// Task Management Function Response.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.6.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct TaskManagementResponse {
    /// I and the opcode.
    pub opcode: u8,
    /// F, always set.
    pub flags: u8,
    /// What became of it.
    pub response: u8,
    reserved: [u8; 1],
    /// TotalAHSLength, in units of 4 bytes.
    pub ahs_words: u8,
    /// DataSegmentLength, in bytes.
    pub data_bytes: U24,
    reserved2: [u8; 8],
    /// Initiator Task Tag (ITT).
    pub itt: U32,
    reserved3: [u8; 4],
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub sequence: Sequence,
    reserved4: [u8; 12],
}
const _: () = assert!(size_of::<TaskManagementResponse>() == BHS_BYTES);
const _: () = assert!(offset_of!(TaskManagementResponse, response) == 2);
const _: () = assert!(offset_of!(TaskManagementResponse, sequence) == 24);

/// Login Response: the target's half of one step of a login, with text.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.13.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct LoginResponse {
    /// I and the opcode.
    pub opcode: u8,
    /// T, C, CSG and NSG.
    pub flags: u8,
    /// Version-max: the highest version the target speaks.
    pub version_max: u8,
    /// Version-active: the one that is used.
    pub version_active: u8,
    /// TotalAHSLength, in units of 4 bytes.
    pub ahs_words: u8,
    /// DataSegmentLength, in bytes.
    pub data_bytes: U24,
    /// ISID, quoted.
    pub isid: [u8; 6],
    /// TSIH: given with the last response.
    pub tsih: U16,
    /// Initiator Task Tag (ITT).
    pub itt: U32,
    reserved: [u8; 4],
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub sequence: Sequence,
    /// Status-Class and Status-Detail.
    pub status: U16,
    reserved2: [u8; 10],
}
const _: () = assert!(size_of::<LoginResponse>() == BHS_BYTES);
const _: () = assert!(offset_of!(LoginResponse, isid) == 8);
const _: () = assert!(offset_of!(LoginResponse, tsih) == 14);
const _: () = assert!(offset_of!(LoginResponse, sequence) == 24);
const _: () = assert!(offset_of!(LoginResponse, status) == 36);

/// Text Response: key=value pairs after the login.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.11.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct TextResponse {
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
    /// TTT: more is to come, ask with this tag; or `NO_TAG`.
    pub ttt: U32,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub sequence: Sequence,
    reserved2: [u8; 12],
}
const _: () = assert!(size_of::<TextResponse>() == BHS_BYTES);
const _: () = assert!(offset_of!(TextResponse, ttt) == 20);
const _: () = assert!(offset_of!(TextResponse, sequence) == 24);

/// SCSI Data-In: a piece of a read's data, the last one perhaps with the status.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.7.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct DataIn {
    /// I and the opcode.
    pub opcode: u8,
    /// F, `DATA_IN_STATUS` and `RESIDUAL_*`.
    pub flags: u8,
    reserved: [u8; 1],
    /// SCSI status, where the PDU bears it.
    pub status: u8,
    /// TotalAHSLength, in units of 4 bytes.
    pub ahs_words: u8,
    /// DataSegmentLength, in bytes.
    pub data_bytes: U24,
    /// LUN.
    pub lun: Lun,
    /// Initiator Task Tag (ITT).
    pub itt: U32,
    /// Target Transfer Tag (TTT).
    pub ttt: U32,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub sequence: Sequence,
    /// DataSN: counts the Data-In PDUs of the task from 0.
    pub data_sn: U32,
    /// Buffer Offset: from the start of the command's data, in bytes.
    pub buffer_offset: U32,
    /// Residual Count, in bytes.
    pub residual: U32,
}
const _: () = assert!(size_of::<DataIn>() == BHS_BYTES);
const _: () = assert!(offset_of!(DataIn, status) == 3);
const _: () = assert!(offset_of!(DataIn, sequence) == 24);
const _: () = assert!(offset_of!(DataIn, data_sn) == 36);
const _: () = assert!(offset_of!(DataIn, residual) == 44);

/// Logout Response.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.15.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct LogoutResponse {
    /// I and the opcode.
    pub opcode: u8,
    /// F, always set.
    pub flags: u8,
    /// What became of it.
    pub response: u8,
    reserved: [u8; 1],
    /// TotalAHSLength, in units of 4 bytes.
    pub ahs_words: u8,
    /// DataSegmentLength, in bytes.
    pub data_bytes: U24,
    reserved2: [u8; 8],
    /// Initiator Task Tag (ITT).
    pub itt: U32,
    reserved3: [u8; 4],
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub sequence: Sequence,
    reserved4: [u8; 4],
    /// Time2Wait: seconds before the initiator may come back.
    pub time2wait: U16,
    /// Time2Retain: seconds that its tasks are kept.
    pub time2retain: U16,
    reserved5: [u8; 4],
}
const _: () = assert!(size_of::<LogoutResponse>() == BHS_BYTES);
const _: () = assert!(offset_of!(LogoutResponse, response) == 2);
const _: () = assert!(offset_of!(LogoutResponse, sequence) == 24);
const _: () = assert!(offset_of!(LogoutResponse, time2wait) == 40);

/// R2T: the target asks for one piece of a write's data.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.8.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct ReadyToTransfer {
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
    /// Initiator Task Tag (ITT).
    pub itt: U32,
    /// TTT: quoted back by every Data-Out.
    pub ttt: U32,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub sequence: Sequence,
    /// R2TSN: counts the R2Ts of the task from 0.
    pub r2t_sn: U32,
    /// Buffer Offset: from the start of the command's data, in bytes.
    pub buffer_offset: U32,
    /// Desired Data Transfer Length, in bytes.
    pub desired_bytes: U32,
}
const _: () = assert!(size_of::<ReadyToTransfer>() == BHS_BYTES);
const _: () = assert!(offset_of!(ReadyToTransfer, ttt) == 20);
const _: () = assert!(offset_of!(ReadyToTransfer, r2t_sn) == 36);
const _: () = assert!(offset_of!(ReadyToTransfer, desired_bytes) == 44);

/// Asynchronous Message: the target has something to say unasked.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.9.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct AsyncMessage {
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
    /// Always `NO_TAG`.
    pub itt: U32,
    reserved2: [u8; 4],
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub sequence: Sequence,
    /// AsyncEvent.
    pub event: u8,
    /// AsyncVCode.
    pub vendor_code: u8,
    /// Parameter1.
    pub parameter1: U16,
    /// Parameter2.
    pub parameter2: U16,
    /// Parameter3.
    pub parameter3: U16,
    reserved3: [u8; 4],
}
const _: () = assert!(size_of::<AsyncMessage>() == BHS_BYTES);
const _: () = assert!(offset_of!(AsyncMessage, itt) == 16);
const _: () = assert!(offset_of!(AsyncMessage, event) == 36);
const _: () = assert!(offset_of!(AsyncMessage, parameter3) == 42);

/// Reject: a PDU was not taken; its header follows as data.
///
/// 48 bytes, big-endian.
/// Source: RFC 7143, section 11.17.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct Reject {
    /// I and the opcode.
    pub opcode: u8,
    /// F, always set.
    pub flags: u8,
    /// Why.
    pub reason: u8,
    reserved: [u8; 1],
    /// TotalAHSLength, in units of 4 bytes.
    pub ahs_words: u8,
    /// DataSegmentLength, in bytes.
    pub data_bytes: U24,
    reserved2: [u8; 8],
    /// Always `NO_TAG`.
    pub itt: U32,
    reserved3: [u8; 4],
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub sequence: Sequence,
    /// DataSN or R2TSN, for one reason of recovery.
    pub data_sn: U32,
    reserved4: [u8; 8],
}
const _: () = assert!(size_of::<Reject>() == BHS_BYTES);
const _: () = assert!(offset_of!(Reject, reason) == 2);
const _: () = assert!(offset_of!(Reject, itt) == 16);
const _: () = assert!(offset_of!(Reject, sequence) == 24);

/// S of a Data-In: it bears the status, and no SCSI Response follows.
pub const DATA_IN_STATUS: u8 = 0x01;
/// O of a Data-In or SCSI Response: the command had more to move than the initiator expected.
pub const RESIDUAL_OVERFLOW: u8 = 0x04;
/// U of a Data-In or SCSI Response: the command moved less than the initiator expected.
pub const RESIDUAL_UNDERFLOW: u8 = 0x02;

/// Why a PDU is rejected.
///
/// Source: RFC 7143, section 11.17.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RejectReason {
    /// The data digest differs from the data.
    DataDigest = 0x02,
    /// SNACK, where there is no recovery.
    Snack = 0x03,
    /// A PDU that may not come now.
    Protocol = 0x04,
    /// A PDU that is not known here.
    CommandNotSupported = 0x05,
    /// More immediate commands at once than there is room for.
    TooManyImmediate = 0x06,
    /// The Initiator Task Tag is that of a task in progress.
    TaskInProgress = 0x07,
    /// A field has a value that it may not have.
    InvalidField = 0x09,
}

/// What became of a task management function.
///
/// Source: RFC 7143, section 11.6.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TaskManagementOutcome {
    /// Function complete.
    Complete = 0,
    /// Task does not exist.
    NoSuchTask = 1,
    /// LUN does not exist.
    NoSuchLun = 2,
    /// Task still allegiant.
    StillAllegiant = 3,
    /// Task allegiance reassignment not supported.
    ReassignNotSupported = 4,
    /// Task management function not supported.
    NotSupported = 5,
    /// Function authorization failed.
    NotAuthorized = 6,
    /// Function rejected.
    Rejected = 255,
}

/// What became of a logout.
///
/// Source: RFC 7143, section 11.15.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LogoutOutcome {
    /// Connection or session closed successfully.
    Closed = 0,
    /// CID not found.
    NoSuchConnection = 1,
    /// Connection recovery is not supported.
    RecoveryNotSupported = 2,
}

/// What a target says unasked.
///
/// Source: RFC 7143, section 11.9.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// The target asks for a logout within so many seconds.
    LogoutRequested {
        /// Until the target drops the connection, in seconds.
        within_s: u16,
    },
    /// The target drops this connection.
    ConnectionDropped {
        /// Before the initiator may come back, in seconds.
        time2wait_s: u16,
        /// How long its tasks are kept, in seconds.
        time2retain_s: u16,
    },
    /// The target drops all connections of the session.
    SessionDropped {
        /// Before the initiator may come back, in seconds.
        time2wait_s: u16,
        /// How long its tasks are kept, in seconds.
        time2retain_s: u16,
    },
}

/// What the last step of a login says: class in the upper byte, detail in the lower one.
///
/// Source: RFC 7143, section 11.13.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoginStatus(pub u16);

impl LoginStatus {
    /// The login goes on, or has succeeded.
    pub const SUCCESS: Self = Self(0x0000);
    /// The target is, for now, at the address that follows as text.
    pub const MOVED_TEMPORARILY: Self = Self(0x0101);
    /// The target is, for good, at the address that follows as text.
    pub const MOVED_PERMANENTLY: Self = Self(0x0102);
    /// Initiator error, of another kind than those below.
    pub const INITIATOR_ERROR: Self = Self(0x0200);
    /// Authentication failure.
    pub const AUTHENTICATION_FAILURE: Self = Self(0x0201);
    /// The initiator is not allowed to use this target.
    pub const FORBIDDEN: Self = Self(0x0202);
    /// The target is not known here.
    pub const NOT_FOUND: Self = Self(0x0203);
    /// The target was here and will not come back.
    pub const REMOVED: Self = Self(0x0204);
    /// No version of the protocol is common to both.
    pub const UNSUPPORTED_VERSION: Self = Self(0x0205);
    /// Too many connections of this session.
    pub const TOO_MANY_CONNECTIONS: Self = Self(0x0206);
    /// A key that must be there is missing.
    pub const MISSING_PARAMETER: Self = Self(0x0207);
    /// The session type is not known.
    pub const SESSION_TYPE: Self = Self(0x0209);
    /// The session that the connection wants to join does not exist.
    pub const NO_SUCH_SESSION: Self = Self(0x020A);
    /// A PDU other than a Login Request.
    pub const INVALID_DURING_LOGIN: Self = Self(0x020B);
    /// Target error, of another kind than those below.
    pub const TARGET_ERROR: Self = Self(0x0300);
    /// The target does not work at the moment.
    pub const UNAVAILABLE: Self = Self(0x0301);
    /// The target has no room for another session.
    pub const OUT_OF_RESOURCES: Self = Self(0x0302);
}
