//! Requests of an initiator: the layout of their headers.
//!
//! Layout only. [`BasicHeader`](super::BasicHeader) checks the fields that all requests share.
//!
//! Source: RFC 7143, section 11 "iSCSI PDU Formats".

use zerocopy::byteorder::big_endian::{U16, U32};

use super::{Lun, U24};

header! {
    /// NOP-Out: a ping of the initiator, or its answer to a ping of the target.
    ///
    /// Source: RFC 7143, section 11.18.
    request NopOut {
        /// F, always set.
        flags;
        reserved: [u8; 2];
        /// LUN.
        pub lun: Lun;
        /// TTT of the NOP-In that this PDU answers, or `NO_TAG`.
        pub ttt @ 20: U32;
        reserved2: [u8; 16];
    }

    /// SCSI Command: starts a task. Immediate data may follow.
    ///
    /// Source: RFC 7143, section 11.3.
    request ScsiCommand {
        /// F, `COMMAND_READ`, `COMMAND_WRITE` and the task attribute (ATTR).
        flags;
        reserved: [u8; 2];
        /// LUN.
        pub lun: Lun;
        /// Expected Data Transfer Length, in bytes.
        pub expected_bytes @ 20: U32;
        /// The first 16 bytes of the CDB.
        pub cdb @ 32: [u8; 16];
    }

    /// Task Management Function Request.
    ///
    /// Source: RFC 7143, section 11.5.
    request TaskManagementRequest {
        /// F and the function.
        function;
        reserved: [u8; 2];
        /// LUN.
        pub lun: Lun;
        /// Referenced Task Tag: ITT of the task to manage, or `NO_TAG`.
        pub referenced_itt @ 20: U32;
        /// RefCmdSN: the CmdSN of that task.
        pub ref_cmd_sn @ 32: U32,
        /// ExpDataSN, for TASK REASSIGN.
        pub exp_data_sn: U32,
        reserved2: [u8; 8];
    }

    /// Login Request: one step of a login, with text.
    ///
    /// Source: RFC 7143, section 11.12.
    request LoginRequest {
        /// T, C, CSG and NSG.
        flags;
        /// Version-max: highest version that the initiator supports.
        pub version_max: u8,
        /// Version-min: lowest version that the initiator supports.
        pub version_min @ 3: u8;
        /// ISID: the initiator's part of the session's identity.
        pub isid @ 8: [u8; 6],
        /// TSIH: the target's part of the session's identity, or 0 for a new session.
        pub tsih @ 14: U16;
        /// CID: number of the connection within its session.
        pub cid @ 20: U16,
        reserved: [u8; 2];
        reserved2: [u8; 16];
    }

    /// Text Request: key=value pairs after the login.
    ///
    /// Source: RFC 7143, section 11.10.
    request TextRequest {
        /// F and C.
        flags;
        reserved: [u8; 2];
        /// LUN.
        pub lun: Lun;
        /// TTT of the response that this request continues, or `NO_TAG`.
        pub ttt @ 20: U32;
        reserved2: [u8; 16];
    }

    /// SCSI Data-Out: a piece of a write's data.
    ///
    /// Source: RFC 7143, section 11.7.
    unnumbered DataOut {
        /// F: last PDU of this sequence.
        flags;
        reserved: [u8; 2];
        /// LUN.
        pub lun: Lun;
        /// TTT of the R2T, or `NO_TAG` for unsolicited data.
        pub ttt @ 20: U32;
        reserved3: [u8; 4],
        /// DataSN: number of the PDU in its sequence, from 0.
        pub data_sn @ 36: U32,
        /// Buffer Offset: bytes from the start of the command's data.
        pub buffer_offset @ 40: U32,
        reserved4: [u8; 4];
    }

    /// Logout Request: requests the end of a session or of a connection.
    ///
    /// Source: RFC 7143, section 11.14.
    request LogoutRequest {
        /// F and the reason.
        reason;
        reserved: [u8; 2];
        reserved2: [u8; 8];
        /// CID of the connection to close.
        pub cid @ 20: U16,
        reserved3: [u8; 2];
        reserved4: [u8; 16];
    }

    /// SNACK Request: requests the retransmission of PDUs. Unused at ERL 0.
    ///
    /// Source: RFC 7143, section 11.16.
    unnumbered SnackRequest {
        /// F and the type.
        flags;
        reserved: [u8; 2];
        /// LUN.
        pub lun: Lun;
        /// TTT or SNACK Tag.
        pub ttt: U32;
        reserved3: [u8; 8],
        /// BegRun: number of the first PDU.
        pub begin @ 40: U32,
        /// RunLength: number of PDUs.
        pub count @ 44: U32;
    }
}

/// R of a SCSI Command: the command reads data.
pub const COMMAND_READ: u8 = 0x40;
/// W of a SCSI Command: the command writes data.
pub const COMMAND_WRITE: u8 = 0x20;

impl ScsiCommand {
    /// Task attribute (ATTR).
    #[must_use]
    pub const fn attribute(&self) -> TaskAttribute {
        TaskAttribute(self.flags & 7)
    }
}

/// Task attribute (ATTR): order among other tasks. Open: a peer may send any value.
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

/// Function of a Task Management Function Request. Open: a peer may send any value.
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
    /// CLEAR TASK SET: all tasks of the logical unit, of all sessions.
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
