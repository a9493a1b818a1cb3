//! Commands of a bring-up, in the order in which the initiator sends them.

use crate::scsi::cdb::build::{self, Cdb};
use crate::scsi::pages::vital;

/// A question to the target, in the order of the bring-up.
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
    /// Next question.
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

    /// VPD page that the question reads. The question is skipped if the disk does not list the
    /// page.
    pub(super) const fn page(self) -> Option<u8> {
        match self {
            Self::Serial => Some(vital::SERIAL_NUMBER),
            Self::Names => Some(vital::DEVICE_IDENTIFICATION),
            Self::Limits => Some(vital::BLOCK_LIMITS),
            Self::Provisioning => Some(vital::PROVISIONING),
            _ => None,
        }
    }

    /// Name of the command for messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Luns => "REPORT LUNS",
            Self::Ready => "TEST UNIT READY",
            Self::Capacity => "READ CAPACITY(16)",
            Self::Mode => "MODE SENSE(6)",
            _ => "INQUIRY",
        }
    }

    /// CDB and maximum data-in length in bytes. `None` after the last question.
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

/// Page code of the caching mode page.
pub(super) const CACHING: u8 = 0x08;
const LUNS_BYTES: u32 = 4096;
const INQUIRY_BYTES: u16 = 96;
const PAGE_BYTES: u16 = 1024;
const CAPACITY_BYTES: u32 = 32;
const MODE_BYTES: u8 = 64;
