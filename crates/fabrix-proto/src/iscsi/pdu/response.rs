//! What a target sends: the layout of every response's header, and the numbers in them.
//!
//! Layout only. A header is built from zeros, so that what is reserved is zero.
//!
//! Source: RFC 7143, section 11 "iSCSI PDU Formats".

use zerocopy::byteorder::big_endian::{U16, U32};

use super::{Lun, U24};

wire! {
    /// Sequence numbers, which every PDU of a target has at byte 24.
    ///
    /// Source: RFC 7143, sections 11.4.8 to 11.4.10.
    pub struct Sequence: 12 bytes {
        /// StatSN: number of this status, or of the next one if the PDU has no status.
        pub stat_sn: U32,
        /// ExpCmdSN: next command that the target expects.
        pub exp_cmd_sn: U32,
        /// MaxCmdSN: last command that the target accepts.
        pub max_cmd_sn: U32,
    }
}

header! {
    /// NOP-In: a ping of the target, or its answer to one of the initiator.
    ///
    /// Source: RFC 7143, section 11.19.
    response NopIn {
        /// F, always set.
        flags;
        reserved: [u8; 2];
        /// LUN.
        pub lun: Lun;
        /// TTT: an answer is wanted under this tag, or `NO_TAG`.
        pub ttt @ 20: U32;
        reserved2: [u8; 12];
    }

    /// SCSI Response: the end of a task.
    ///
    /// Source: RFC 7143, section 11.4.
    response ScsiResponse {
        /// F and `RESIDUAL_*`.
        flags;
        /// 0: the task came to its end; 1: the target failed.
        pub response: u8,
        /// SCSI status.
        pub status @ 3: u8;
        reserved: [u8; 8];
        /// SNACK Tag, 0 without recovery.
        pub snack_tag: U32;
        /// ExpDataSN: how many Data-In and R2T PDUs the task had.
        pub exp_data_sn @ 36: U32,
        /// Bidirectional Read Residual Count, in bytes.
        pub bidirectional_residual: U32,
        /// Residual Count, in bytes.
        pub residual @ 44: U32;
    }

    /// Task Management Function Response.
    ///
    /// Source: RFC 7143, section 11.6.
    response TaskManagementResponse {
        /// F, always set.
        flags;
        /// What became of it.
        pub response @ 2: u8,
        reserved: [u8; 1];
        reserved2: [u8; 8];
        reserved3: [u8; 4];
        reserved4: [u8; 12];
    }

    /// Login Response: the target's half of one step of a login, with text.
    ///
    /// Source: RFC 7143, section 11.13.
    response LoginResponse {
        /// T, C, CSG and NSG.
        flags;
        /// Version-max: the highest version the target speaks.
        pub version_max: u8,
        /// Version-active: the one that is used.
        pub version_active: u8;
        /// ISID, quoted.
        pub isid @ 8: [u8; 6],
        /// TSIH: given with the last response.
        pub tsih @ 14: U16;
        reserved: [u8; 4];
        /// Status-Class and Status-Detail.
        pub status @ 36: U16,
        reserved2: [u8; 10];
    }

    /// Text Response: key=value pairs after the login.
    ///
    /// Source: RFC 7143, section 11.11.
    response TextResponse {
        /// F and C.
        flags;
        reserved: [u8; 2];
        /// LUN.
        pub lun: Lun;
        /// TTT: more is to come, ask with this tag; or `NO_TAG`.
        pub ttt @ 20: U32;
        reserved2: [u8; 12];
    }

    /// SCSI Data-In: a piece of a read's data, the last one perhaps with the status.
    ///
    /// Source: RFC 7143, section 11.7.
    response DataIn {
        /// F, `DATA_IN_STATUS` and `RESIDUAL_*`.
        flags;
        reserved: [u8; 1],
        /// SCSI status, where the PDU bears it.
        pub status @ 3: u8;
        /// LUN.
        pub lun: Lun;
        /// Target Transfer Tag (TTT).
        pub ttt: U32;
        /// DataSN: counts the Data-In PDUs of the task from 0.
        pub data_sn @ 36: U32,
        /// Buffer Offset: from the start of the command's data, in bytes.
        pub buffer_offset: U32,
        /// Residual Count, in bytes.
        pub residual @ 44: U32;
    }

    /// Logout Response.
    ///
    /// Source: RFC 7143, section 11.15.
    response LogoutResponse {
        /// F, always set.
        flags;
        /// What became of it.
        pub response @ 2: u8,
        reserved: [u8; 1];
        reserved2: [u8; 8];
        reserved3: [u8; 4];
        reserved4: [u8; 4],
        /// Time2Wait: seconds before the initiator may come back.
        pub time2wait @ 40: U16,
        /// Time2Retain: seconds that its tasks are kept.
        pub time2retain: U16,
        reserved5: [u8; 4];
    }

    /// R2T: the target asks for one piece of a write's data.
    ///
    /// Source: RFC 7143, section 11.8.
    response ReadyToTransfer {
        /// F, always set.
        flags;
        reserved: [u8; 2];
        /// LUN.
        pub lun: Lun;
        /// TTT: quoted back by every Data-Out.
        pub ttt @ 20: U32;
        /// R2TSN: counts the R2Ts of the task from 0.
        pub r2t_sn @ 36: U32,
        /// Buffer Offset: from the start of the command's data, in bytes.
        pub buffer_offset: U32,
        /// Desired Data Transfer Length, in bytes.
        pub desired_bytes @ 44: U32;
    }

    /// Asynchronous Message: the target has something to say unasked.
    ///
    /// Source: RFC 7143, section 11.9.
    response AsyncMessage {
        /// F, always set.
        flags;
        reserved: [u8; 2];
        /// LUN.
        pub lun: Lun;
        reserved2: [u8; 4];
        /// AsyncEvent.
        pub event @ 36: u8,
        /// AsyncVCode.
        pub vendor_code: u8,
        /// Parameter1.
        pub parameter1: U16,
        /// Parameter2.
        pub parameter2: U16,
        /// Parameter3.
        pub parameter3 @ 42: U16,
        reserved3: [u8; 4];
    }

    /// Reject: a PDU was not taken; its header follows as data.
    ///
    /// Source: RFC 7143, section 11.17.
    response Reject {
        /// F, always set.
        flags;
        /// Why.
        pub reason @ 2: u8,
        reserved: [u8; 1];
        reserved2: [u8; 8];
        reserved3: [u8; 4];
        /// DataSN or R2TSN, for one reason of recovery.
        pub data_sn: U32,
        reserved4: [u8; 8];
    }
}
