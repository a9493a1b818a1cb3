//! The log pages: their layouts, and how a piece of one is produced without making the whole.
//!
//! Reading is random access: a host names an offset and a length, and the answer is written into
//! what the caller provides through a [`Window`]. Nothing here assumes that a page is read at once,
//! or from its start, or in pieces of 4096 bytes. What is counted and when an event is cleared is
//! decided in `controller`. Pages that are more than a list of numbers have a file each.
//! Source: NVM Express Base Specification 2.x, "Get Log Page command"; "Discovery Log Page" in the
//! same.

mod discovery;
mod effects;
mod error;
mod health;
mod notification;

use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

pub use self::discovery::*;
pub use self::effects::{KnownCommands, command_effects};
pub use self::error::{ERROR_ENTRIES, ErrorEntry, ErrorRecord, ErrorRing};
pub use self::health::{HealthCounters, HealthPage, health};
pub use self::notification::NotificationPage;
use super::spec::Status;

/// LID: a log page.
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
    /// Discovery.
    pub const DISCOVERY: Self = Self(0x70);
    /// Reservation Notification.
    pub const RESERVATION: Self = Self(0x80);
    /// Our own: where the time of commands goes, see [`crate::nvme::timing`].
    pub const TIMING: Self = Self(0xC0);
}

/// A window onto a log page: the caller's bytes, and where in the page they lie.
///
/// What is put outside the window is dropped, what nobody puts stays zero.
#[derive(Debug)]
pub struct Window<'p> {
    bytes: &'p mut [u8],
    offset: u64,
}

impl<'p> Window<'p> {
    /// A window of zeroes at `offset` of a page of `page_bytes`.
    ///
    /// # Errors
    /// Invalid Field when the window starts after the page. One that ends after it reads zeroes
    /// there.
    pub fn new(bytes: &'p mut [u8], offset: u64, page_bytes: u64) -> Result<Self, Status> {
        if offset > page_bytes {
            return Err(Status::INVALID_FIELD);
        }
        bytes.fill(0);
        Ok(Self { bytes, offset })
    }

    /// Puts `bytes` at offset `at` of the page, as far as the window shows them.
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

    /// The records of `record_bytes` each, the first one at `at`, that the window shows any part
    /// of.
    #[must_use]
    pub fn records(&self, at: u64, record_bytes: u64) -> core::ops::Range<u64> {
        let end = self.offset.saturating_add(self.bytes.len() as u64);
        let first = self.offset.saturating_sub(at) / record_bytes;
        let last = end.saturating_sub(at).div_ceil(record_bytes);
        first..last
    }
}

/// Supported Log Pages (00h), 1024 bytes: a dword for each page, bit 0 says that it is supported.
pub fn supported_pages(window: &mut Window<'_>, pages: &[LogId]) {
    for page in pages {
        window.put(u64::from(page.0) * 4, U32::new(1).as_bytes());
    }
}

/// Bytes of Supported Log Pages.
pub const SUPPORTED_PAGES_BYTES: u64 = 1024;

/// Bytes of SMART / Health Information and of Firmware Slot Information.
pub const SMALL_PAGE_BYTES: u64 = 512;

/// Firmware Slot Information (03h), 512 bytes: one slot, active, read-only.
pub fn firmware_slot(window: &mut Window<'_>, firmware: &str) {
    let mut revision = [0; 8];
    super::identify::fill_ascii(&mut revision, firmware);
    window.put(0, &[1]);
    window.put(8, &revision);
}

/// Bytes of Changed Namespace List and of Commands Supported and Effects.
pub const LARGE_PAGE_BYTES: u64 = 4096;

/// Most ids in the Changed Namespace List.
pub const CHANGED_MAX: usize = 1024;

/// Changed Namespace List (04h), 4096 bytes: the ids, ascending; `None` says that there were too
/// many.
pub fn changed_namespaces(window: &mut Window<'_>, changed: Option<&[u32]>) {
    let Some(changed) = changed else {
        return window.put(0, U32::new(u32::MAX).as_bytes());
    };
    for (at, nsid) in (0..).step_by(4).zip(changed) {
        window.put(at, U32::new(*nsid).as_bytes());
    }
}
