//! Log pages: layouts, and the window through which a part of a page is written.
//!
//! A host reads any part of a page by offset and length. The page writers write through a
//! [`Window`] into the buffer of the caller, and never build a whole page. `controller` counts
//! errors and clears events. Large pages have a file each.
//! Source: NVM Express Base Specification 2.x, "Get Log Page command", "Discovery Log Page".

mod ana;
mod discovery;
mod effects;
mod error;
mod health;
mod notification;

use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

pub use self::ana::*;
pub use self::discovery::*;
pub use self::effects::{KnownCommands, command_effects};
pub use self::error::{ERROR_ENTRIES, ErrorEntry, ErrorRecord, ErrorRing};
pub use self::health::{HealthCounters, HealthPage, health};
pub use self::notification::NotificationPage;
use super::spec::Status;

/// LID: log page identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogId(pub u8);

impl LogId {
    /// Supported Log Pages.
    pub const SUPPORTED: Self = Self(0x00);
    /// Error Information.
    pub const ERROR: Self = Self(0x01);
    /// SMART / Health Information.
    pub const HEALTH: Self = Self(0x02);
    /// Firmware Slot Information.
    pub const FIRMWARE_SLOT: Self = Self(0x03);
    /// Changed Namespace List.
    pub const CHANGED_NAMESPACES: Self = Self(0x04);
    /// Commands Supported and Effects.
    pub const COMMAND_EFFECTS: Self = Self(0x05);
    /// Asymmetric Namespace Access.
    pub const ANA: Self = Self(0x0C);
    /// Cross-Controller Reset: resets that were not complete when their commands were answered.
    pub const CROSS_CONTROLLER_RESET: Self = Self(0x1E);
    /// Discovery.
    pub const DISCOVERY: Self = Self(0x70);
    /// Reservation Notification.
    pub const RESERVATION: Self = Self(0x80);
    /// Vendor specific: time that commands spend in the controller, see [`crate::nvme::timing`].
    pub const TIMING: Self = Self(0xC0);
}

/// Window onto a log page: a buffer, and its offset in the page.
///
/// Bytes outside of the window are dropped. Unwritten bytes of the window are zero.
#[derive(Debug)]
pub struct Window<'p> {
    bytes: &'p mut [u8],
    offset: u64,
}

impl<'p> Window<'p> {
    /// A zeroed window at `offset` bytes of a page of `page_bytes` bytes.
    ///
    /// # Errors
    /// Invalid Field: the window begins behind the page. Bytes of the window behind the end of the
    /// page are zero.
    pub fn new(bytes: &'p mut [u8], offset: u64, page_bytes: u64) -> Result<Self, Status> {
        if offset > page_bytes {
            return Err(Status::INVALID_FIELD);
        }
        bytes.fill(0);
        Ok(Self { bytes, offset })
    }

    /// Writes `bytes` at offset `at` of the page. Only the part inside the window is stored.
    pub fn put(&mut self, at: u64, bytes: &[u8]) {
        let (Some(skip), Some(start)) = (
            usize::try_from(self.offset.saturating_sub(at)).ok(),
            usize::try_from(at.saturating_sub(self.offset)).ok(),
        ) else {
            return;
        };
        let (Some(from), Some(to)) = (bytes.get(skip..), self.bytes.get_mut(start..)) else {
            return;
        };
        let count = from.len().min(to.len());
        to[..count].copy_from_slice(&from[..count]);
    }

    /// Numbers of the records that overlap the window. The first record is at offset `at`; each has
    /// `record_bytes` bytes.
    #[must_use]
    pub fn records(&self, at: u64, record_bytes: u64) -> core::ops::Range<u64> {
        let end = self.offset.saturating_add(self.bytes.len() as u64);
        let first = self.offset.saturating_sub(at) / record_bytes;
        let last = end.saturating_sub(at).div_ceil(record_bytes);
        first..last
    }
}

/// Supported Log Pages (00h), 1024 bytes: one dword per page. Bit 0 is set if the page is
/// supported.
pub fn supported_pages(window: &mut Window<'_>, pages: &[LogId]) {
    for page in pages {
        window.put(u64::from(page.0) * 4, U32::new(1).as_bytes());
    }
}

/// Length of the page in bytes.
pub const SUPPORTED_PAGES_BYTES: u64 = 1024;

/// Bytes of SMART / Health Information and of Firmware Slot Information.
pub const SMALL_PAGE_BYTES: u64 = 512;

/// Firmware Slot Information (03h), 512 bytes: one slot, active and read-only.
pub fn firmware_slot(window: &mut Window<'_>, firmware: &str) {
    let mut revision = [0; 8];
    super::identify::fill_ascii(&mut revision, firmware);
    window.put(0, &[1]);
    window.put(8, &revision);
}

/// Bytes of Changed Namespace List and of Commands Supported and Effects.
pub const LARGE_PAGE_BYTES: u64 = 4096;

/// Maximum number of ids in the Changed Namespace List.
pub const CHANGED_MAX: usize = 1024;

/// Changed Namespace List (04h), 4096 bytes: the ids in ascending order. `None`: more than
/// [`CHANGED_MAX`] namespaces have changed.
pub fn changed_namespaces(window: &mut Window<'_>, changed: Option<&[u32]>) {
    let Some(changed) = changed else {
        return window.put(0, U32::new(u32::MAX).as_bytes());
    };
    for (at, nsid) in (0..).step_by(4).zip(changed) {
        window.put(at, U32::new(*nsid).as_bytes());
    }
}
