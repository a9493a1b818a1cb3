//! Mode pages: content, and the settings that MODE SELECT changes.
//!
//! Three settings can change, and the target obeys each of them:
//! - Without WCE every write goes to the medium.
//! - With SWP every write is refused.
//! - With D_SENSE sense data has the descriptor format.
//!
//! Other fields are fixed. MODE SELECT has to send them with their current values.
//! Source: SPC-4, "Mode parameters"; SBC-3, "Mode parameters".

use super::Disk;
use crate::scsi::additional::AdditionalSense;
use crate::scsi::cdb::{ModeSense, PageControl};
use crate::scsi::data_in::DataIn;
use crate::scsi::sense::{Sense, SenseFormat};

/// Settings that MODE SELECT changes. All initiators share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeParameters {
    /// WCE: the disk may answer writes before the data is on the medium.
    pub write_cache: bool,
    /// D_SENSE: sense data has the descriptor format.
    pub descriptor_sense: bool,
    /// SWP: every write is refused.
    pub write_protect: bool,
}

impl ModeParameters {
    /// Default settings of a disk.
    #[must_use]
    pub const fn new(disk: &Disk) -> Self {
        Self {
            write_cache: disk.volatile_cache,
            descriptor_sense: false,
            write_protect: false,
        }
    }

    /// Settings that MODE SELECT may change. WCE is changeable only for a disk with a volatile
    /// cache.
    const fn changeable(disk: &Disk) -> Self {
        Self {
            write_cache: disk.volatile_cache,
            descriptor_sense: true,
            write_protect: true,
        }
    }

    /// Format of sense data.
    #[must_use]
    pub const fn sense_format(&self) -> SenseFormat {
        if self.descriptor_sense {
            SenseFormat::Descriptor
        } else {
            SenseFormat::Fixed
        }
    }

    /// Writes the answer to MODE SENSE.
    ///
    /// # Errors
    /// - INVALID FIELD IN CDB: the page does not exist.
    /// - SAVING PARAMETERS NOT SUPPORTED: the request is for saved values.
    pub fn write(&self, asked: &ModeSense, disk: &Disk, out: &mut DataIn<'_>) -> Result<(), Sense> {
        if asked.control == PageControl::Saved {
            return Err(Sense::illegal(AdditionalSense::SAVING_NOT_SUPPORTED));
        }
        if !PAGES.iter().any(|layout| layout.is_asked(asked)) {
            return Err(no_such_page(asked));
        }
        self.write_header(asked, disk, out);
        for layout in PAGES.iter().filter(|layout| layout.is_asked(asked)) {
            let page = self.asked_page(layout, asked.control, disk);
            out.put(&page[..layout.bytes]);
        }
        close_header(asked.long, out);
        Ok(())
    }

    /// Writes the mode parameter header and the block descriptor.
    ///
    /// Source: SPC-4, "Mode parameter header"; SBC-3, "Mode parameter header" (WP, DPOFUA).
    fn write_header(&self, asked: &ModeSense, disk: &Disk, out: &mut DataIn<'_>) {
        let protected = disk.read_only || self.write_protect;
        let device = DPOFUA | if protected { WP } else { 0 };
        let long_lba = asked.long && asked.long_lba;
        let descriptor: u8 = match (asked.no_block_descriptor, long_lba) {
            (true, _) => 0,
            (false, true) => 16,
            (false, false) => 8,
        };
        if asked.long {
            out.put(&[0, 0, 0, device, u8::from(long_lba), 0, 0, descriptor]);
        } else {
            out.put(&[0, 0, device, descriptor]);
        }
        match descriptor {
            0 => {}
            8 => {
                out.u32(u32::try_from(disk.blocks).unwrap_or(u32::MAX));
                out.u32(disk.block_bytes);
            }
            _ => {
                out.u64(disk.blocks);
                out.u32(0);
                out.u32(disk.block_bytes);
            }
        }
    }

    fn asked_page(&self, layout: &Layout, control: PageControl, disk: &Disk) -> [u8; PAGE_BYTES] {
        match control {
            PageControl::Changeable => layout.mask(disk),
            PageControl::Default => layout.page(&Self::new(disk)),
            PageControl::Current | PageControl::Saved => layout.page(self),
        }
    }

    /// Settings after MODE SELECT with the parameter list `list`. All settings apply, or none.
    ///
    /// # Errors
    /// - PARAMETER LIST LENGTH ERROR: the list is truncated.
    /// - INVALID FIELD IN PARAMETER LIST: a field changes that cannot change, with a pointer to it.
    pub fn select(&self, disk: &Disk, long: bool, list: &[u8]) -> Result<Self, Sense> {
        let mut selected = *self;
        let mut at = if list.is_empty() {
            0
        } else {
            skip_header(disk, long, list)?
        };
        while at < list.len() {
            at = selected.select_page(disk, list, at)?;
        }
        Ok(selected)
    }

    fn select_page(&mut self, disk: &Disk, list: &[u8], at: usize) -> Result<usize, Sense> {
        let layout = PAGES
            .iter()
            .find(|layout| layout.begins(&list[at..]))
            .ok_or_else(|| pointer(at, Some(5)))?;
        let end = at + layout.bytes;
        let page = list.get(at..end).ok_or_else(length_error)?;
        let (current, mask) = (layout.page(self), layout.mask(disk));
        for (index, byte) in page.iter().enumerate() {
            let changed = byte ^ current[index];
            let fixed = if index < layout.header_bytes() {
                0
            } else {
                mask[index]
            };
            if let Some(bit) = (changed & !fixed).checked_ilog2() {
                return Err(pointer(at + index, u8::try_from(bit).ok()));
            }
        }
        self.take(layout, page);
        Ok(end)
    }

    fn take(&mut self, layout: &Layout, page: &[u8]) {
        match (layout.code, layout.subpage) {
            (CACHING, 0) => self.write_cache = page[2] & WCE != 0,
            (CONTROL, 0) => {
                self.descriptor_sense = page[2] & D_SENSE != 0;
                self.write_protect = page[4] & SWP != 0;
            }
            _ => {}
        }
    }
}

/// Writes MODE DATA LENGTH: the number of bytes behind the field. The field has one byte in MODE
/// SENSE(6), two in MODE SENSE(10).
fn close_header(long: bool, out: &mut DataIn<'_>) {
    if long {
        out.close_u16(0);
    } else {
        let follows = out.len() - 1;
        out.set_u8(0, u8::try_from(follows).unwrap_or(u8::MAX));
    }
}

fn no_such_page(asked: &ModeSense) -> Sense {
    let known = PAGES.iter().any(|layout| layout.code == asked.page);
    match known || asked.page == ALL_PAGES {
        true => Sense::field_in_cdb(3, None),
        false => Sense::field_in_cdb(2, Some(5)),
    }
}

/// Returns the position of the first page in `list`. The block descriptor has to be absent, or
/// equal to the current one.
fn skip_header(disk: &Disk, long: bool, list: &[u8]) -> Result<usize, Sense> {
    let header = if long { 8 } else { 4 };
    let fields = list.get(..header).ok_or_else(length_error)?;
    let descriptor = match long {
        true => usize::from(u16::from_be_bytes([fields[6], fields[7]])),
        false => usize::from(fields[3]),
    };
    let long_lba = long && fields[4] & 1 != 0;
    let body = list
        .get(header..header + descriptor)
        .ok_or_else(length_error)?;
    check_block_descriptor(disk, long_lba, body, header)?;
    Ok(header + descriptor)
}

fn check_block_descriptor(
    disk: &Disk,
    long_lba: bool,
    body: &[u8],
    header: usize,
) -> Result<(), Sense> {
    let (blocks, block_bytes, at) = match (body, long_lba) {
        ([], _) => return Ok(()),
        ([blocks @ .., _, a, b, c], false) if blocks.len() == 4 => {
            let bytes = u32::from_be_bytes([0, *a, *b, *c]);
            (number(blocks), bytes, 5)
        }
        ([blocks @ .., a, b, c, d], true) if blocks.len() == 12 => {
            let bytes = u32::from_be_bytes([*a, *b, *c, *d]);
            (number(&blocks[..8]), bytes, 12)
        }
        _ => return Err(pointer(header - 1, None)),
    };
    let as_short = u64::from(u32::MAX);
    if blocks != 0 && blocks != disk.blocks && blocks != as_short {
        return Err(pointer(header, None));
    }
    if block_bytes != disk.block_bytes {
        return Err(pointer(header + at, None));
    }
    Ok(())
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn pointer(byte: usize, bit: Option<u8>) -> Sense {
    Sense::field_in_parameters(u16::try_from(byte).unwrap_or(u16::MAX), bit)
}

fn length_error() -> Sense {
    Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR)
}

/// Code, subpage code and length of a page.
struct Layout {
    code: u8,
    subpage: u8,
    bytes: usize,
}

impl Layout {
    fn is_asked(&self, asked: &ModeSense) -> bool {
        let page = asked.page == self.code || asked.page == ALL_PAGES;
        let one_subpage =
            asked.subpage == self.subpage && (asked.page != ALL_PAGES || asked.subpage == 0);
        page && (one_subpage || asked.subpage == ALL_SUBPAGES)
    }

    const fn header_bytes(&self) -> usize {
        if self.subpage == 0 { 2 } else { 4 }
    }

    /// Whether `bytes` begin with the header of this page, or with a truncated part of it. PS is
    /// reserved in MODE SELECT, and MODE SENSE never sets it.
    fn begins(&self, bytes: &[u8]) -> bool {
        let header = self.header();
        bytes.starts_with(&header[..self.header_bytes()])
            || bytes.len() < self.header_bytes() && header.starts_with(bytes)
    }

    fn header(&self) -> [u8; 4] {
        let follows = self.bytes - self.header_bytes();
        let [high, low] = u16::try_from(follows).unwrap_or(0).to_be_bytes();
        match self.subpage {
            0 => [self.code, low, 0, 0],
            subpage => [self.code | SPF, subpage, high, low],
        }
    }

    fn page(&self, mode: &ModeParameters) -> [u8; PAGE_BYTES] {
        let mut page = self.settings(mode);
        match (self.code, self.subpage) {
            (CONTROL, 0) => {
                page[3] |= UNRESTRICTED_REORDERING;
                page[5] |= TAS;
            }
            (INFORMATIONAL_EXCEPTIONS, 0) => page[2] |= DEXCPT,
            _ => {}
        }
        page
    }

    /// Page header, followed by a mask of the changeable bits.
    fn mask(&self, disk: &Disk) -> [u8; PAGE_BYTES] {
        self.settings(&ModeParameters::changeable(disk))
    }

    fn settings(&self, mode: &ModeParameters) -> [u8; PAGE_BYTES] {
        let mut page = [0; PAGE_BYTES];
        page[..4].copy_from_slice(&self.header());
        let set = |on: bool, bit: u8| if on { bit } else { 0 };
        match (self.code, self.subpage) {
            (CACHING, 0) => page[2] |= set(mode.write_cache, WCE),
            (CONTROL, 0) => {
                page[2] |= set(mode.descriptor_sense, D_SENSE);
                page[4] |= set(mode.write_protect, SWP);
            }
            _ => {}
        }
        page
    }
}

const fn layout(code: u8, subpage: u8, bytes: usize) -> Layout {
    Layout {
        code,
        subpage,
        bytes,
    }
}

/// Pages in ascending order. Subpages follow their page.
const PAGES: [Layout; 6] = [
    layout(ERROR_RECOVERY, 0, 12),
    layout(CACHING, 0, 20),
    layout(CONTROL, 0, 12),
    layout(CONTROL, 1, 32),
    layout(POWER_CONDITION, 0, 40),
    layout(INFORMATIONAL_EXCEPTIONS, 0, 12),
];

const PAGE_BYTES: usize = 40;
const ERROR_RECOVERY: u8 = 0x01;
const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0A;
/// TAS: an initiator whose command another nexus aborts gets TASK ABORTED. Without TAS the command
/// would time out.
const TAS: u8 = 0x40;
const POWER_CONDITION: u8 = 0x1A;
const INFORMATIONAL_EXCEPTIONS: u8 = 0x1C;
const ALL_PAGES: u8 = 0x3F;
const ALL_SUBPAGES: u8 = 0xFF;
/// SPF: the page header has a subpage code and a two-byte length.
const SPF: u8 = 0x40;
const WP: u8 = 0x80;
/// DPOFUA: the target evaluates DPO and FUA.
const DPOFUA: u8 = 0x10;
const WCE: u8 = 0x04;
const D_SENSE: u8 = 0x04;
const SWP: u8 = 0x08;
/// QUEUE ALGORITHM MODIFIER 1h: the target executes commands in any order.
const UNRESTRICTED_REORDERING: u8 = 0x10;
/// DEXCPT: the target does not report informational exceptions.
const DEXCPT: u8 = 0x08;
