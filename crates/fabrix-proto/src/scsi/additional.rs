//! Additional sense codes (ASC and ASCQ) that the target sends or the initiator understands, with
//! their standard names.
//!
//! The file has names and numbers only. The code that detects an error chooses its code.
//! Source: SPC-4, "ASC and ASCQ assignments".

use core::fmt;

/// An additional sense code: ASC in the high byte, ASCQ in the low byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AdditionalSense(pub u16);

impl AdditionalSense {
    /// ADDITIONAL SENSE CODE.
    #[must_use]
    pub const fn asc(self) -> u8 {
        self.0.to_be_bytes()[0]
    }

    /// ADDITIONAL SENSE CODE QUALIFIER.
    #[must_use]
    pub const fn ascq(self) -> u8 {
        self.0.to_be_bytes()[1]
    }
}

impl fmt::Debug for AdditionalSense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for AdditionalSense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name().unwrap_or("ADDITIONAL SENSE CODE");
        write!(f, "{name} ({:02X}h/{:02X}h)", self.asc(), self.ascq())
    }
}

/// Declares each code once: its constant, its number, and its standard name for messages.
macro_rules! additional_sense {
    ($($constant:ident = $code:literal, $name:literal;)*) => {
        impl AdditionalSense {
            $(#[doc = $name] pub const $constant: Self = Self($code);)*

            /// Standard name of the code. `None` for codes that are not declared here.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($name),)*
                    _ => None,
                }
            }

            /// All declared codes.
            pub const ALL: &'static [Self] = &[$(Self::$constant,)*];
        }
    };
}

additional_sense! {
    NONE = 0x0000, "NO ADDITIONAL SENSE INFORMATION";
    BECOMING_READY = 0x0401, "LOGICAL UNIT IS IN PROCESS OF BECOMING READY";
    ASYMMETRIC_ACCESS_TRANSITION = 0x040A, "LOGICAL UNIT NOT ACCESSIBLE, ASYMMETRIC ACCESS STATE TRANSITION";
    STANDBY = 0x040B, "LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN STANDBY STATE";
    UNAVAILABLE = 0x040C, "LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN UNAVAILABLE STATE";
    WRITE_ERROR = 0x0C00, "WRITE ERROR";
    UNEXPECTED_UNSOLICITED_DATA = 0x0C0C, "WRITE ERROR - UNEXPECTED UNSOLICITED DATA";
    NOT_ENOUGH_UNSOLICITED_DATA = 0x0C0D, "WRITE ERROR - NOT ENOUGH UNSOLICITED DATA";
    THIRD_PARTY_DEVICE_FAILURE = 0x0D01, "THIRD PARTY DEVICE FAILURE";
    COPY_DEVICE_NOT_REACHABLE = 0x0D02, "COPY TARGET DEVICE NOT REACHABLE";
    UNRECOVERED_READ_ERROR = 0x1100, "UNRECOVERED READ ERROR";
    PARAMETER_LIST_LENGTH_ERROR = 0x1A00, "PARAMETER LIST LENGTH ERROR";
    MISCOMPARE_DURING_VERIFY = 0x1D00, "MISCOMPARE DURING VERIFY OPERATION";
    INVALID_COMMAND_OPERATION_CODE = 0x2000, "INVALID COMMAND OPERATION CODE";
    LBA_OUT_OF_RANGE = 0x2100, "LOGICAL BLOCK ADDRESS OUT OF RANGE";
    INVALID_FIELD_IN_CDB = 0x2400, "INVALID FIELD IN CDB";
    LOGICAL_UNIT_NOT_SUPPORTED = 0x2500, "LOGICAL UNIT NOT SUPPORTED";
    INVALID_FIELD_IN_PARAMETER_LIST = 0x2600, "INVALID FIELD IN PARAMETER LIST";
    INVALID_RELEASE_OF_RESERVATION = 0x2604, "INVALID RELEASE OF PERSISTENT RESERVATION";
    TOO_MANY_TARGET_DESCRIPTORS = 0x2606, "TOO MANY TARGET DESCRIPTORS";
    UNSUPPORTED_TARGET_DESCRIPTOR = 0x2607, "UNSUPPORTED TARGET DESCRIPTOR TYPE CODE";
    TOO_MANY_SEGMENT_DESCRIPTORS = 0x2608, "TOO MANY SEGMENT DESCRIPTORS";
    UNSUPPORTED_SEGMENT_DESCRIPTOR = 0x2609, "UNSUPPORTED SEGMENT DESCRIPTOR TYPE CODE";
    WRITE_PROTECTED = 0x2700, "WRITE PROTECTED";
    HARDWARE_WRITE_PROTECTED = 0x2701, "HARDWARE WRITE PROTECTED";
    SOFTWARE_WRITE_PROTECTED = 0x2702, "LOGICAL UNIT SOFTWARE WRITE PROTECTED";
    SPACE_ALLOCATION_FAILED = 0x2707, "SPACE ALLOCATION FAILED WRITE PROTECT";
    POWER_ON_OR_RESET = 0x2900, "POWER ON, RESET, OR BUS DEVICE RESET OCCURRED";
    DEVICE_RESET = 0x2903, "BUS DEVICE RESET FUNCTION OCCURRED";
    NEXUS_LOSS = 0x2907, "I_T NEXUS LOSS OCCURRED";
    MODE_PARAMETERS_CHANGED = 0x2A01, "MODE PARAMETERS CHANGED";
    RESERVATIONS_PREEMPTED = 0x2A03, "RESERVATIONS PREEMPTED";
    RESERVATIONS_RELEASED = 0x2A04, "RESERVATIONS RELEASED";
    REGISTRATIONS_PREEMPTED = 0x2A05, "REGISTRATIONS PREEMPTED";
    ASYMMETRIC_ACCESS_CHANGED = 0x2A06, "ASYMMETRIC ACCESS STATE CHANGED";
    CAPACITY_DATA_CHANGED = 0x2A09, "CAPACITY DATA HAS CHANGED";
    COMMANDS_CLEARED = 0x2F00, "COMMANDS CLEARED BY ANOTHER INITIATOR";
    SAVING_NOT_SUPPORTED = 0x3900, "SAVING PARAMETERS NOT SUPPORTED";
    MEDIUM_NOT_PRESENT = 0x3A00, "MEDIUM NOT PRESENT";
    LOGICAL_UNIT_NOT_CONFIGURED = 0x3E00, "LOGICAL UNIT HAS NOT SELF-CONFIGURED YET";
    INQUIRY_DATA_CHANGED = 0x3F03, "INQUIRY DATA HAS CHANGED";
    REPORTED_LUNS_CHANGED = 0x3F0E, "REPORTED LUNS DATA HAS CHANGED";
    INTERNAL_TARGET_FAILURE = 0x4400, "INTERNAL TARGET FAILURE";
    MEDIUM_REMOVAL_PREVENTED = 0x5302, "MEDIUM REMOVAL PREVENTED";
    INSUFFICIENT_RESOURCES = 0x5503, "INSUFFICIENT RESOURCES";
    INSUFFICIENT_REGISTRATION_RESOURCES = 0x5504, "INSUFFICIENT REGISTRATION RESOURCES";
}
