//! The questions of a bring-up: in which order, and by which command.

use crate::scsi::cdb::build::{self, Cdb};
use crate::scsi::pages::vital;

/// The questions, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Luns,
    Inquiry,
    Ready,
    Capacity,
    Pages,
    Serial,
    Names,
    Limits,
    Provisioning,
    Mode,
    Nothing,
}

impl Question {
    /// The one after it.
    pub(super) const fn after(self) -> Self {
        match self {
            Self::Luns => Self::Inquiry,
            Self::Inquiry => Self::Ready,
            Self::Ready => Self::Capacity,
            Self::Capacity => Self::Pages,
            Self::Pages => Self::Serial,
            Self::Serial => Self::Names,
            Self::Names => Self::Limits,
            Self::Limits => Self::Provisioning,
            Self::Provisioning => Self::Mode,
            Self::Mode | Self::Nothing => Self::Nothing,
        }
    }

    /// The page of vital product data that it is about, if that must be listed.
    pub(super) const fn page(self) -> Option<u8> {
        match self {
            Self::Serial => Some(vital::SERIAL_NUMBER),
            Self::Names => Some(vital::DEVICE_IDENTIFICATION),
            Self::Limits => Some(vital::BLOCK_LIMITS),
            Self::Provisioning => Some(vital::PROVISIONING),
            _ => None,
        }
    }

    /// The command, for messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Luns => "REPORT LUNS",
            Self::Ready => "TEST UNIT READY",
            Self::Capacity => "READ CAPACITY(16)",
            Self::Mode => "MODE SENSE(6)",
            _ => "INQUIRY",
        }
    }

    /// The command, and how much data it may bring, in bytes; none when all is asked.
    pub(super) fn command(self) -> Option<(Cdb, u32)> {
        Some(match self {
            Self::Luns => (build::report_luns(LUNS_BYTES), LUNS_BYTES),
            Self::Inquiry => (build::inquiry(None, INQUIRY_BYTES), INQUIRY_BYTES.into()),
            Self::Ready => (build::test_unit_ready(), 0),
            Self::Capacity => (build::read_capacity(CAPACITY_BYTES), CAPACITY_BYTES),
            Self::Pages => page_command(vital::SUPPORTED_PAGES),
            Self::Serial | Self::Names | Self::Limits | Self::Provisioning => {
                page_command(self.page()?)
            }
            Self::Mode => (build::mode_sense(CACHING, MODE_BYTES), MODE_BYTES.into()),
            Self::Nothing => return None,
        })
    }
}

fn page_command(code: u8) -> (Cdb, u32) {
    (build::inquiry(Some(code), PAGE_BYTES), PAGE_BYTES.into())
}

/// The mode page of the cache.
pub(super) const CACHING: u8 = 0x08;
const LUNS_BYTES: u32 = 4096;
const INQUIRY_BYTES: u16 = 96;
const PAGE_BYTES: u16 = 1024;
const CAPACITY_BYTES: u32 = 32;
const MODE_BYTES: u8 = 64;
