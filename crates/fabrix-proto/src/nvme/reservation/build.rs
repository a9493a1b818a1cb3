//! Builds the reservation commands that a host sends. The caller adds the data with the keys.
//!
//! Source: NVM Express Base Specification 2.x, "Reservation Register" and the chapters after it.

use zerocopy::little_endian::U32;

use super::{AcquireAction, CDW10_IEKEY, CDW11_EXTENDED, Kind, RegisterAction};
use crate::nvme::spec::{Opcode, SubmissionEntry};

/// Constructors of reservation commands for a host. The transport sets the SGL and the command id.
impl SubmissionEntry {
    /// Reservation Register. The data has 16 bytes: CRKEY and NRKEY.
    #[must_use]
    pub fn reservation_register(
        nsid: u32,
        action: RegisterAction,
        ignore_key: bool,
        persist: Option<bool>,
    ) -> Self {
        let action = match action {
            RegisterAction::Register => 0,
            RegisterAction::Unregister => 1,
            RegisterAction::Replace => 2,
        };
        let persist = match persist {
            None => 0,
            Some(false) => 0b10 << 30,
            Some(true) => 0b11 << 30,
        };
        let ignore = if ignore_key { CDW10_IEKEY } else { 0 };
        Self::reservation(
            Opcode::RESERVATION_REGISTER,
            nsid,
            action | ignore | persist,
        )
    }

    /// Reservation Acquire. The data has 16 bytes: CRKEY and PRKEY.
    #[must_use]
    pub fn reservation_acquire(nsid: u32, action: AcquireAction, kind: Kind) -> Self {
        let action = match action {
            AcquireAction::Acquire => 0,
            AcquireAction::Preempt { abort: false } => 1,
            AcquireAction::Preempt { abort: true } => 2,
        };
        let kind = u32::from(kind.nvme_type()) << 8;
        Self::reservation(Opcode::RESERVATION_ACQUIRE, nsid, action | kind)
    }

    /// Reservation Release. `None` clears all registrations. The data has 8 bytes: CRKEY.
    #[must_use]
    pub fn reservation_release(nsid: u32, kind: Option<Kind>) -> Self {
        let dword = kind.map_or(1, |kind| u32::from(kind.nvme_type()) << 8);
        Self::reservation(Opcode::RESERVATION_RELEASE, nsid, dword)
    }

    /// Extended Reservation Report. `bytes` is the data length, a multiple of 4.
    #[must_use]
    pub fn reservation_report(nsid: u32, bytes: u32) -> Self {
        let dwords = (bytes / 4).saturating_sub(1);
        let mut entry = Self::reservation(Opcode::RESERVATION_REPORT, nsid, dwords);
        entry.cdw11 = U32::new(CDW11_EXTENDED);
        entry
    }

    fn reservation(opcode: Opcode, nsid: u32, cdw10: u32) -> Self {
        let mut entry = Self::new(opcode.0);
        entry.nsid = U32::new(nsid);
        entry.cdw10 = U32::new(cdw10);
        entry
    }
}
