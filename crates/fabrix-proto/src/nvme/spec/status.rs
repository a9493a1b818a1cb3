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
}

/// Declares each status once: its constant, its value, and its standard name.
macro_rules! statuses {
    ($($(#[$about:meta])* $constant:ident = $value:expr, $name:literal;)*) => {
        impl Status {
            $(#[doc = concat!($name, ".")] $(#[$about])* pub const $constant: Self = $value;)*

            /// Standard name of the status. `None` for statuses that are not declared here.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                $(if self.is(Self::$constant) {
                    return Some($name);
                })*
                None
            }
        }
    };
}

statuses! {
    SUCCESS = generic(0x00).retry(), "Successful Completion";
    INVALID_OPCODE = generic(0x01), "Invalid Command Opcode";
    INVALID_FIELD = generic(0x02), "Invalid Field in Command";
    COMMAND_ID_CONFLICT = generic(0x03), "Command ID Conflict";
    DATA_TRANSFER_ERROR = generic(0x04).retry(), "Data Transfer Error";
    INTERNAL_ERROR = generic(0x06).retry(), "Internal Error";
    ABORT_REQUESTED = generic(0x07), "Command Abort Requested";
    ABORTED_SQ_DELETION = generic(0x08).retry(), "Command Aborted due to SQ Deletion";
    ABORTED_FAILED_FUSED = generic(0x09).retry(), "Command Aborted due to Failed Fused Command";
    ABORTED_MISSING_FUSED = generic(0x0A).retry(), "Command Aborted due to Missing Fused Command";
    INVALID_NAMESPACE = generic(0x0B), "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = generic(0x0C), "Command Sequence Error";
    INVALID_SGL_SEGMENT = generic(0x0D), "Invalid SGL Segment Descriptor";
    DATA_SGL_LENGTH_INVALID = generic(0x0F), "Data SGL Length Invalid";
    SGL_TYPE_INVALID = generic(0x11), "SGL Descriptor Type Invalid";
    SGL_OFFSET_INVALID = generic(0x16), "SGL Offset Invalid";
    /// The command uses 64-bit host identifiers, but fabrics have 128-bit ones.
    HOST_ID_INCONSISTENT = generic(0x18), "Host Identifier Inconsistent Format";
    KEEP_ALIVE_EXPIRED = generic(0x19).retry(), "Keep Alive Timeout Expired";
    KEEP_ALIVE_INVALID = generic(0x1A), "Keep Alive Timeout Invalid";
    ABORTED_PREEMPT = generic(0x1B), "Command Aborted due to Preempt and Abort";
    NAMESPACE_WRITE_PROTECTED = generic(0x20), "Namespace is Write Protected";
    /// The controller cannot complete the command now.
    COMMAND_INTERRUPTED = generic(0x21).retry(), "Command Interrupted";
    /// Data was damaged in transit.
    TRANSIENT_TRANSPORT_ERROR = generic(0x22).retry(), "Transient Transport Error";
    LBA_OUT_OF_RANGE = generic(0x80), "LBA Out of Range";
    CAPACITY_EXCEEDED = generic(0x81), "Capacity Exceeded";
    NAMESPACE_NOT_READY = generic(0x82).retry(), "Namespace Not Ready";
    RESERVATION_CONFLICT = generic(0x83), "Reservation Conflict";

    ABORT_LIMIT_EXCEEDED = specific(0x03), "Abort Command Limit Exceeded";
    ASYNC_EVENT_LIMIT_EXCEEDED = specific(0x05), "Asynchronous Event Request Limit Exceeded";
    INVALID_LOG_PAGE = specific(0x09), "Invalid Log Page";
    FEATURE_NOT_SAVEABLE = specific(0x0D), "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = specific(0x0E), "Feature Not Changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = specific(0x0F), "Feature Not Namespace Specific";
    CROSS_RESET_IN_PROGRESS = specific(0x3F).retry(), "Cross-Controller Reset in Progress";
    CROSS_RESET_LIMIT_EXCEEDED = specific(0x41).retry(), "Cross-Controller Reset Limit Exceeded";
    CONNECT_INCOMPATIBLE_FORMAT = specific(0x80), "Connect Incompatible Format";
    CONNECT_CONTROLLER_BUSY = specific(0x81).retry(), "Connect Controller Busy";
    /// Dword 0 of the result points at the parameter.
    CONNECT_INVALID_PARAMETERS = specific(0x82), "Connect Invalid Parameters";
    CONNECT_RESTART_DISCOVERY = specific(0x83), "Connect Restart Discovery";
    CONNECT_INVALID_HOST = specific(0x84), "Connect Invalid Host";
    /// Disconnect was sent on the admin queue.
    INVALID_QUEUE_TYPE = specific(0x85), "Invalid Queue Type";
    AUTHENTICATION_REQUIRED = specific(0x91), "Authentication Required";

    WRITE_FAULT = media(0x80), "Write Fault";
    UNRECOVERED_READ_ERROR = media(0x81), "Unrecovered Read Error";
    COMPARE_FAILURE = media(0x85), "Compare Failure";

    INTERNAL_PATH_ERROR = path(0x00), "Internal Path Error";
    ANA_PERSISTENT_LOSS = path(0x01), "Asymmetric Access Persistent Loss";
    ANA_INACCESSIBLE = path(0x02), "Asymmetric Access Inaccessible";
    ANA_TRANSITION = path(0x03), "Asymmetric Access Transition";
    /// A host reports it for the commands of a lost connection; no controller sends it.
    HOST_PATH_ERROR = path(0x70), "Host Pathing Error";
    /// A host reports it for commands that it has given up.
    HOST_ABORTED = path(0x71), "Command Aborted By Host";
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
    new(0, sc).no_retry()
}

const fn specific(sc: u8) -> Status {
    new(1, sc).no_retry()
}

const fn media(sc: u8) -> Status {
    new(2, sc).no_retry()
}

const fn path(sc: u8) -> Status {
    new(3, sc)
}

const fn new(sct: u8, sc: u8) -> Status {
    let dnr = false;
    Status { sct, sc, dnr }
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
