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

header! {
    /// NOP-In: a ping of the target, or its answer to one of the initiator.
    ///
    /// Source: RFC 7143, section 11.19.
    NopIn {
        /// F, always set.
        flags,
        then {
            reserved: [u8; 2],
        }
        then {
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
    }
    at { ttt == 20, sequence == 24 }
}

header! {
    /// SCSI Response: the end of a task.
    ///
    /// Source: RFC 7143, section 11.4.
    ScsiResponse {
        /// F and `RESIDUAL_*`.
        flags,
        then {
            /// 0: the task came to its end; 1: the target failed.
            pub response: u8,
            /// SCSI status.
            pub status: u8,
        }
        then {
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
    }
    at { status == 3, sequence == 24, exp_data_sn == 36, residual == 44 }
}

header! {
    /// Task Management Function Response.
    ///
    /// Source: RFC 7143, section 11.6.
    TaskManagementResponse {
        /// F, always set.
        flags,
        then {
            /// What became of it.
            pub response: u8,
            reserved: [u8; 1],
        }
        then {
            reserved2: [u8; 8],
            /// Initiator Task Tag (ITT).
            pub itt: U32,
            reserved3: [u8; 4],
            /// StatSN, ExpCmdSN and MaxCmdSN.
            pub sequence: Sequence,
            reserved4: [u8; 12],
        }
    }
    at { response == 2, sequence == 24 }
}

header! {
    /// Login Response: the target's half of one step of a login, with text.
    ///
    /// Source: RFC 7143, section 11.13.
    LoginResponse {
        /// T, C, CSG and NSG.
        flags,
        then {
            /// Version-max: the highest version the target speaks.
            pub version_max: u8,
            /// Version-active: the one that is used.
            pub version_active: u8,
        }
        then {
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
    }
    at { isid == 8, tsih == 14, sequence == 24, status == 36 }
}

header! {
    /// Text Response: key=value pairs after the login.
    ///
    /// Source: RFC 7143, section 11.11.
    TextResponse {
        /// F and C.
        flags,
        then {
            reserved: [u8; 2],
        }
        then {
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
    }
    at { ttt == 20, sequence == 24 }
}

header! {
    /// SCSI Data-In: a piece of a read's data, the last one perhaps with the status.
    ///
    /// Source: RFC 7143, section 11.7.
    DataIn {
        /// F, `DATA_IN_STATUS` and `RESIDUAL_*`.
        flags,
        then {
            reserved: [u8; 1],
            /// SCSI status, where the PDU bears it.
            pub status: u8,
        }
        then {
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
    }
    at { status == 3, sequence == 24, data_sn == 36, residual == 44 }
}

header! {
    /// Logout Response.
    ///
    /// Source: RFC 7143, section 11.15.
    LogoutResponse {
        /// F, always set.
        flags,
        then {
            /// What became of it.
            pub response: u8,
            reserved: [u8; 1],
        }
        then {
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
    }
    at { response == 2, sequence == 24, time2wait == 40 }
}

header! {
    /// R2T: the target asks for one piece of a write's data.
    ///
    /// Source: RFC 7143, section 11.8.
    ReadyToTransfer {
        /// F, always set.
        flags,
        then {
            reserved: [u8; 2],
        }
        then {
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
    }
    at { ttt == 20, r2t_sn == 36, desired_bytes == 44 }
}

header! {
    /// Asynchronous Message: the target has something to say unasked.
    ///
    /// Source: RFC 7143, section 11.9.
    AsyncMessage {
        /// F, always set.
        flags,
        then {
            reserved: [u8; 2],
        }
        then {
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
    }
    at { itt == 16, event == 36, parameter3 == 42 }
}

header! {
    /// Reject: a PDU was not taken; its header follows as data.
    ///
    /// Source: RFC 7143, section 11.17.
    Reject {
        /// F, always set.
        flags,
        then {
            /// Why.
            pub reason: u8,
            reserved: [u8; 1],
        }
        then {
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
    }
    at { reason == 2, itt == 16, sequence == 24 }
}
