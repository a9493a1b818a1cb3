//! Instances of a controller, and Cross-Controller Reset, which ends one of them.
//!
//! A host that has lost its connections to a controller asks another controller of the same
//! subsystem to reset the lost one. The controller id alone would be ambiguous, because a later
//! association may have the same id. So the command also carries the two numbers of the instance.
//!
//! Source: NVM Express Base Specification 2.3, "Cross-Controller Reset command", and Identify
//! Controller (CIU, CIRN, CCRL); TP8028 (Rapid Path Failure Recovery).

use zerocopy::little_endian::U32;

use super::spec::{AdminOpcode, CompletionEntry, Status, SubmissionEntry};

/// A controller from its enabling to its reset or its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerInstance {
    /// CNTLID. The command calls it ICID.
    pub controller_id: u16,
    /// CIU: differs between successive instances with one controller id. Zero: not reported.
    pub uniquifier: u8,
    /// CIRN: random number of the instance. Zero: not reported.
    pub random: u64,
}

/// CCRL: resets of other controllers that one controller carries out at the same time. The number
/// is the one that TP8028 recommends.
pub const CROSS_CONTROLLER_RESETS_MOST: u8 = 4;

/// Dword 0 of the answer, bit 0: the other controller is reset, and none of its commands is
/// executed any more.
pub const IMMEDIATE_RESET_SUCCESSFUL: u64 = 1 << 0;

impl ControllerInstance {
    /// Reads the fields of Cross-Controller Reset.
    pub(super) fn parse(entry: &SubmissionEntry) -> Result<Self, Status> {
        let cdw10 = entry.cdw10.get();
        let [low, high, uniquifier, reserved] = cdw10.to_le_bytes();
        if reserved != 0 || entry.cdw11.get() != 0 {
            return Err(Status::INVALID_FIELD);
        }
        Ok(Self {
            controller_id: u16::from_le_bytes([low, high]),
            uniquifier,
            random: u64::from(entry.cdw13.get()) << 32 | u64::from(entry.cdw12.get()),
        })
    }
}

impl SubmissionEntry {
    /// Cross-Controller Reset of `impacted`, for a controller of the same subsystem and host.
    #[must_use]
    pub fn cross_controller_reset(impacted: ControllerInstance) -> Self {
        let mut entry = Self::new(AdminOpcode::CROSS_CONTROLLER_RESET.0);
        let uniquifier = u32::from(impacted.uniquifier) << 16;
        entry.cdw10 = U32::new(u32::from(impacted.controller_id) | uniquifier);
        let [low, high] = zerocopy::transmute!(impacted.random.to_le_bytes());
        (entry.cdw12, entry.cdw13) = (low, high);
        entry
    }
}

/// Whether an answer to Cross-Controller Reset says that the other controller executes nothing any
/// more. Success alone may mean that the reset has only begun.
#[must_use]
pub fn is_reset_complete(answer: &CompletionEntry) -> bool {
    answer.status().is_success() && answer.result.get() & IMMEDIATE_RESET_SUCCESSFUL != 0
}
