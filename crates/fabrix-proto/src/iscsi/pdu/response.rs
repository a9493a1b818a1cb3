//! Responses of a target: the layout of their headers, and their sequence numbers.
//!
//! Layout only. A header is built from zeros, so that reserved fields are zero.
//!
//! Source: RFC 7143, section 11 "iSCSI PDU Formats".

use zerocopy::byteorder::big_endian::{U16, U32};

use super::{Lun, U24};

wire! {
    /// Sequence numbers, at byte 24 of every PDU of a target.
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
    /// NOP-In: a ping of the target, or its answer to a ping of the initiator.
    ///
    /// Source: RFC 7143, section 11.19.
    response NopIn {
        /// F, always set.
        flags;
        reserved: [u8; 2];
        /// LUN.
        pub lun: Lun;
        /// TTT for the answer to a ping, or `NO_TAG` if no answer is expected.
        pub ttt @ 20: U32;
        reserved2: [u8; 12];
    }

    /// SCSI Response: the end of a task.
    ///
    /// Source: RFC 7143, section 11.4.
    response ScsiResponse {
        /// F and `RESIDUAL_*`.
        flags;
        /// 0: the task has completed. 1: the target has failed.
        pub response: u8,
        /// SCSI status.
        pub status @ 3: u8;
        reserved: [u8; 8];
        /// SNACK Tag, 0 without recovery.
        pub snack_tag: U32;
        /// ExpDataSN: number of Data-In and R2T PDUs of the task.
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
        /// Result of the function.
        pub response @ 2: u8,
        reserved: [u8; 1];
        reserved2: [u8; 8];
        reserved3: [u8; 4];
        reserved4: [u8; 12];
    }

    /// Login Response: the target's answer to a Login Request, with text.
    ///
    /// Source: RFC 7143, section 11.13.
    response LoginResponse {
        /// T, C, CSG and NSG.
        flags;
        /// Version-max: highest version that the target supports.
        pub version_max: u8,
        /// Version-active: version in use.
        pub version_active: u8;
        /// ISID of the request.
        pub isid @ 8: [u8; 6],
        /// TSIH, set in the last response.
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
        /// TTT for the request of the next part, or `NO_TAG` at the end of the text.
        pub ttt @ 20: U32;
        reserved2: [u8; 12];
    }

    /// SCSI Data-In: a piece of a read's data. The last piece may carry the status.
    ///
    /// Source: RFC 7143, section 11.7.
    response DataIn {
        /// F, `DATA_IN_STATUS` and `RESIDUAL_*`.
        flags;
        reserved: [u8; 1],
        /// SCSI status, if the PDU carries it.
        pub status @ 3: u8;
        /// LUN.
        pub lun: Lun;
        /// Target Transfer Tag (TTT).
        pub ttt: U32;
        /// DataSN: number of the Data-In PDU in its task, from 0.
        pub data_sn @ 36: U32,
        /// Buffer Offset: bytes from the start of the command's data.
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
        /// Result of the logout.
        pub response @ 2: u8,
        reserved: [u8; 1];
        reserved2: [u8; 8];
        reserved3: [u8; 4];
        reserved4: [u8; 4],
        /// Time2Wait: seconds before the initiator may reconnect.
        pub time2wait @ 40: U16,
        /// Time2Retain: seconds for which the target keeps the tasks.
        pub time2retain: U16,
        reserved5: [u8; 4];
    }

    /// R2T: the target requests one piece of a write's data.
    ///
    /// Source: RFC 7143, section 11.8.
    response ReadyToTransfer {
        /// F, always set.
        flags;
        reserved: [u8; 2];
        /// LUN.
        pub lun: Lun;
        /// TTT, repeated by every Data-Out that answers the R2T.
        pub ttt @ 20: U32;
        /// R2TSN: number of the R2T in its task, from 0.
        pub r2t_sn @ 36: U32,
        /// Buffer Offset: bytes from the start of the command's data.
        pub buffer_offset: U32,
        /// Desired Data Transfer Length, in bytes.
        pub desired_bytes @ 44: U32;
    }

    /// Asynchronous Message: event at the target, sent without a request.
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

    /// Reject: the target has not accepted a PDU. The PDU's header follows as data.
    ///
    /// Source: RFC 7143, section 11.17.
    response Reject {
        /// F, always set.
        flags;
        /// Reason of the Reject.
        pub reason @ 2: u8,
        reserved: [u8; 1];
        reserved2: [u8; 8];
        reserved3: [u8; 4];
        /// DataSN or R2TSN, for one reason of error recovery.
        pub data_sn: U32,
        reserved4: [u8; 8];
    }
}
