//! Status codes of completions, with their standard names.

use core::fmt;

/// Status of a completed command: type, code, and the do-not-retry bit.
///
/// Each constant includes the do-not-retry bit that suits it. The bit is set if the same command
/// would fail again, and clear if the cause may pass. [`is`](Status::is) compares without the bit.
/// Source: NVM Express Base Specification 2.x, "Status Field Definition".
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// SCT: status code type.
    pub sct: u8,
    /// SC: status code.
    pub sc: u8,
    /// DNR: do not retry.
    pub dnr: bool,
}

impl Status {
    /// Successful Completion.
    pub const SUCCESS: Self = generic(0x00).retry();
    /// Invalid Command Opcode.
    pub const INVALID_OPCODE: Self = generic(0x01);
    /// Invalid Field in Command.
    pub const INVALID_FIELD: Self = generic(0x02);
    /// Command ID Conflict.
    pub const COMMAND_ID_CONFLICT: Self = generic(0x03);
    /// Data Transfer Error.
    pub const DATA_TRANSFER_ERROR: Self = generic(0x04).retry();
    /// Internal Error.
    pub const INTERNAL_ERROR: Self = generic(0x06).retry();
    /// Command Abort Requested.
    pub const ABORT_REQUESTED: Self = generic(0x07);
    /// Command Aborted due to SQ Deletion.
    pub const ABORTED_SQ_DELETION: Self = generic(0x08).retry();
    /// Command Aborted due to Failed Fused Command.
    pub const ABORTED_FAILED_FUSED: Self = generic(0x09).retry();
    /// Command Aborted due to Missing Fused Command.
    pub const ABORTED_MISSING_FUSED: Self = generic(0x0A).retry();
    /// Invalid Namespace or Format.
    pub const INVALID_NAMESPACE: Self = generic(0x0B);
    /// Command Sequence Error.
    pub const COMMAND_SEQUENCE_ERROR: Self = generic(0x0C);
    /// Invalid SGL Segment Descriptor.
    pub const INVALID_SGL_SEGMENT: Self = generic(0x0D);
    /// Data SGL Length Invalid.
    pub const DATA_SGL_LENGTH_INVALID: Self = generic(0x0F);
    /// SGL Descriptor Type Invalid.
    pub const SGL_TYPE_INVALID: Self = generic(0x11);
    /// SGL Offset Invalid.
    pub const SGL_OFFSET_INVALID: Self = generic(0x16);
    /// Host Identifier Inconsistent Format: the command uses 64-bit host identifiers, but fabrics
    /// have 128-bit ones.
    pub const HOST_ID_INCONSISTENT: Self = generic(0x18);
    /// Keep Alive Timeout Expired.
    pub const KEEP_ALIVE_EXPIRED: Self = generic(0x19).retry();
    /// Keep Alive Timeout Invalid.
    pub const KEEP_ALIVE_INVALID: Self = generic(0x1A);
    /// Command Aborted due to Preempt and Abort.
    pub const ABORTED_PREEMPT: Self = generic(0x1B);
    /// Namespace is Write Protected.
    pub const NAMESPACE_WRITE_PROTECTED: Self = generic(0x20);
    /// Command Interrupted: the controller cannot complete the command now.
    pub const COMMAND_INTERRUPTED: Self = generic(0x21).retry();
    /// Transient Transport Error: data was damaged in transit.
    pub const TRANSIENT_TRANSPORT_ERROR: Self = generic(0x22).retry();
    /// LBA Out of Range.
    pub const LBA_OUT_OF_RANGE: Self = generic(0x80);
    /// Capacity Exceeded.
    pub const CAPACITY_EXCEEDED: Self = generic(0x81);
    /// Namespace Not Ready.
    pub const NAMESPACE_NOT_READY: Self = generic(0x82).retry();
    /// Reservation Conflict.
    pub const RESERVATION_CONFLICT: Self = generic(0x83);

    /// Abort Command Limit Exceeded.
    pub const ABORT_LIMIT_EXCEEDED: Self = specific(0x03);
    /// Asynchronous Event Request Limit Exceeded.
    pub const ASYNC_EVENT_LIMIT_EXCEEDED: Self = specific(0x05);
    /// Invalid Log Page.
    pub const INVALID_LOG_PAGE: Self = specific(0x09);
    /// Feature Identifier Not Saveable.
    pub const FEATURE_NOT_SAVEABLE: Self = specific(0x0D);
    /// Feature Not Changeable.
    pub const FEATURE_NOT_CHANGEABLE: Self = specific(0x0E);
    /// Feature Not Namespace Specific.
    pub const FEATURE_NOT_NAMESPACE_SPECIFIC: Self = specific(0x0F);

    /// Connect Incompatible Format.
    pub const CONNECT_INCOMPATIBLE_FORMAT: Self = specific(0x80);
    /// Connect Controller Busy.
    pub const CONNECT_CONTROLLER_BUSY: Self = specific(0x81).retry();
    /// Connect Invalid Parameters. Dword 0 of the result points at the parameter.
    pub const CONNECT_INVALID_PARAMETERS: Self = specific(0x82);
    /// Connect Restart Discovery.
    pub const CONNECT_RESTART_DISCOVERY: Self = specific(0x83);
    /// Connect Invalid Host.
    pub const CONNECT_INVALID_HOST: Self = specific(0x84);
    /// Invalid Queue Type: Disconnect was sent on the admin queue.
    pub const INVALID_QUEUE_TYPE: Self = specific(0x85);
    /// Authentication Required.
    pub const AUTHENTICATION_REQUIRED: Self = specific(0x91);

    /// Write Fault.
    pub const WRITE_FAULT: Self = media(0x80);
    /// Unrecovered Read Error.
    pub const UNRECOVERED_READ_ERROR: Self = media(0x81);
    /// Compare Failure.
    pub const COMPARE_FAILURE: Self = media(0x85);

    /// Internal Path Error.
    pub const INTERNAL_PATH_ERROR: Self = path(0x00);
    /// Asymmetric Access Persistent Loss.
    pub const ANA_PERSISTENT_LOSS: Self = path(0x01);
    /// Asymmetric Access Inaccessible.
    pub const ANA_INACCESSIBLE: Self = path(0x02);
    /// Asymmetric Access Transition.
    pub const ANA_TRANSITION: Self = path(0x03);
    /// Host Pathing Error. A host reports it for the commands of a lost connection; no controller
    /// sends it.
    pub const HOST_PATH_ERROR: Self = path(0x70);
    /// Command Aborted By Host. A host reports it for commands that it has given up.
    pub const HOST_ABORTED: Self = path(0x71);

    /// The same status without the do-not-retry bit.
    #[must_use]
    pub const fn retry(self) -> Self {
        Self { dnr: false, ..self }
    }

    /// The same status with the do-not-retry bit.
    #[must_use]
    pub const fn no_retry(self) -> Self {
        Self { dnr: true, ..self }
    }

    /// Whether the command succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.sct == 0 && self.sc == 0
    }

    /// Whether type and code equal those of `other`. The do-not-retry bit does not count.
    #[must_use]
    pub const fn is(self, other: Self) -> bool {
        self.sct == other.sct && self.sc == other.sc
    }

    /// Whether the path failed, not the command. The host should try another path.
    #[must_use]
    pub const fn is_path_related(self) -> bool {
        self.sct == 3
    }

    /// Status field of a completion: code in bits 8:1, type in bits 11:9, DNR in bit 15. The phase
    /// tag is zero.
    #[must_use]
    pub const fn to_field(self) -> u16 {
        (self.sc as u16) << 1 | ((self.sct & 0b111) as u16) << 9 | (self.dnr as u16) << 15
    }

    /// Status from the status field of a completion. Phase tag, CRD and More are ignored.
    #[must_use]
    pub const fn from_field(field: u16) -> Self {
        Self {
            sct: (field >> 9 & 0b111) as u8,
            sc: (field >> 1 & 0xFF) as u8,
            dnr: field & 0x8000 != 0,
        }
    }

    /// Standard name of the status. `None` for statuses that are not declared here.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match (self.sct, self.sc) {
            (0, 0x00) => "Successful Completion",
            (0, 0x01) => "Invalid Command Opcode",
            (0, 0x02) => "Invalid Field in Command",
            (0, 0x03) => "Command ID Conflict",
            (0, 0x04) => "Data Transfer Error",
            (0, 0x06) => "Internal Error",
            (0, 0x07) => "Command Abort Requested",
            (0, 0x08) => "Command Aborted due to SQ Deletion",
            (0, 0x09) => "Command Aborted due to Failed Fused Command",
            (0, 0x0A) => "Command Aborted due to Missing Fused Command",
            (0, 0x0B) => "Invalid Namespace or Format",
            (0, 0x0C) => "Command Sequence Error",
            (0, 0x0D) => "Invalid SGL Segment Descriptor",
            (0, 0x0F) => "Data SGL Length Invalid",
            (0, 0x11) => "SGL Descriptor Type Invalid",
            (0, 0x16) => "SGL Offset Invalid",
            (0, 0x18) => "Host Identifier Inconsistent Format",
            (0, 0x19) => "Keep Alive Timeout Expired",
            (0, 0x1A) => "Keep Alive Timeout Invalid",
            (0, 0x1B) => "Command Aborted due to Preempt and Abort",
            (0, 0x20) => "Namespace is Write Protected",
            (0, 0x21) => "Command Interrupted",
            (0, 0x22) => "Transient Transport Error",
            (0, 0x80) => "LBA Out of Range",
            (0, 0x81) => "Capacity Exceeded",
            (0, 0x82) => "Namespace Not Ready",
            (0, 0x83) => "Reservation Conflict",
            (1, 0x03) => "Abort Command Limit Exceeded",
            (1, 0x05) => "Asynchronous Event Request Limit Exceeded",
            (1, 0x09) => "Invalid Log Page",
            (1, 0x0D) => "Feature Identifier Not Saveable",
            (1, 0x0E) => "Feature Not Changeable",
            (1, 0x0F) => "Feature Not Namespace Specific",
            (1, 0x80) => "Connect Incompatible Format",
            (1, 0x81) => "Connect Controller Busy",
            (1, 0x82) => "Connect Invalid Parameters",
            (1, 0x83) => "Connect Restart Discovery",
            (1, 0x84) => "Connect Invalid Host",
            (1, 0x85) => "Invalid Queue Type",
            (1, 0x91) => "Authentication Required",
            (2, 0x80) => "Write Fault",
            (2, 0x81) => "Unrecovered Read Error",
            (2, 0x85) => "Compare Failure",
            (3, 0x00) => "Internal Path Error",
            (3, 0x01) => "Asymmetric Access Persistent Loss",
            (3, 0x02) => "Asymmetric Access Inaccessible",
            (3, 0x03) => "Asymmetric Access Transition",
            (3, 0x70) => "Host Pathing Error",
            (3, 0x71) => "Command Aborted By Host",
            _ => return None,
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({:x}/{:02x}h",
            self.name().unwrap_or("unknown status"),
            self.sct,
            self.sc
        )?;
        f.write_str(if self.dnr { ", do not retry)" } else { ")" })
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const fn generic(sc: u8) -> Status {
    Status {
        sct: 0,
        sc,
        dnr: true,
    }
}

const fn specific(sc: u8) -> Status {
    Status {
        sct: 1,
        sc,
        dnr: true,
    }
}

const fn media(sc: u8) -> Status {
    Status {
        sct: 2,
        sc,
        dnr: true,
    }
}

const fn path(sc: u8) -> Status {
    Status {
        sct: 3,
        sc,
        dnr: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn status_fields_go_both_ways() {
        for field in (0..=u16::MAX)
            .step_by(2)
            .filter(|field| field & 0x7000 == 0)
        {
            assert_eq!(Status::from_field(field).to_field(), field);
        }
        assert_eq!(Status::CONNECT_INVALID_PARAMETERS.to_field(), 0x8304);
        assert_eq!(Status::SUCCESS.to_field(), 0);
    }

    #[test]
    fn status_says_its_name_and_number() {
        assert_eq!(
            format!("{}", Status::LBA_OUT_OF_RANGE),
            "LBA Out of Range (0/80h, do not retry)"
        );
        assert_eq!(
            format!(
                "{}",
                Status {
                    sct: 7,
                    sc: 1,
                    dnr: false
                }
            ),
            "unknown status (7/01h)"
        );
    }
}
