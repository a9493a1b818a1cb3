//! Error Information log page (01h): the last failed disk commands.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::{TRTYPE_TCP, Window};
use crate::nvme::spec::Status;

wire! {
    /// One entry of Error Information (01h), 64 bytes.
    ///
    /// Source: NVM Express Base Specification 2.x, "Error Information Log Entry Data Structure".
    pub struct ErrorEntry: 64 bytes {
        /// Number of the error, from 1. Zero: the entry is unused.
        pub error_count: U64,
        /// Queue of the command.
        pub queue_id @ 8: U16,
        /// Command id. FFFFh: the error belongs to no command.
        pub command_id: U16,
        /// Status field of the completion.
        pub status @ 12: U16,
        /// Byte (7:0) and bit (10:8) of the invalid command field. FFFFh: none.
        pub parameter_location: U16,
        /// First failed block.
        pub lba @ 16: U64,
        /// Namespace of the command.
        pub nsid @ 24: U32,
        /// Vendor specific log page with further information.
        pub vendor_page: u8,
        /// TRTYPE.
        pub transport @ 29: u8,
        reserved_30: [u8; 2],
        /// Command specific.
        pub command_specific @ 32: U64,
        /// Transport specific.
        pub transport_specific: U16,
        reserved_42: [u8; 22],
    }
}

/// Number of entries in the log.
pub const ERROR_ENTRIES: usize = 64;

/// An error for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRecord {
    /// Queue of the command.
    pub queue_id: u16,
    /// Command id.
    pub command_id: u16,
    /// Status of the command.
    pub status: Status,
    /// First failed block. Zero if unknown.
    pub lba: u64,
    /// Namespace of the command. Zero if none.
    pub nsid: u32,
}

/// Ring of the last errors. Reading returns the newest first.
#[derive(Clone, Debug)]
pub struct ErrorRing {
    entries: [ErrorEntry; ERROR_ENTRIES],
    count: u64,
}

impl Default for ErrorRing {
    fn default() -> Self {
        Self {
            entries: FromZeros::new_zeroed(),
            count: 0,
        }
    }
}

impl ErrorRing {
    /// Number of errors since the start.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Adds an error, and replaces the oldest one if the ring is full.
    pub fn push(&mut self, record: &ErrorRecord) {
        let index = Self::index(self.count);
        self.count = self.count.saturating_add(1);
        let mut entry = ErrorEntry::new_zeroed();
        entry.error_count = U64::new(self.count);
        entry.queue_id = U16::new(record.queue_id);
        entry.command_id = U16::new(record.command_id);
        entry.status = U16::new(record.status.to_field());
        entry.parameter_location = U16::new(0xFFFF);
        entry.lba = U64::new(record.lba);
        entry.nsid = U32::new(record.nsid);
        entry.transport = TRTYPE_TCP;
        self.entries[index] = entry;
    }

    /// Length of the page in bytes.
    pub const PAGE_BYTES: u64 = (ERROR_ENTRIES * size_of::<ErrorEntry>()) as u64;

    /// Writes the Error Information log page.
    pub fn page(&self, window: &mut Window<'_>) {
        let kept = self.count.min(ERROR_ENTRIES as u64);
        for age in 0..kept {
            let entry = &self.entries[Self::index(self.count - 1 - age)];
            window.put(age * size_of::<ErrorEntry>() as u64, entry.as_bytes());
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder of 64")]
    const fn index(count: u64) -> usize {
        (count % ERROR_ENTRIES as u64) as usize
    }
}
