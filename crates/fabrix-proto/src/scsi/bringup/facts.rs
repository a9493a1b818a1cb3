//! Facts that a disk reports about itself. The parsers check every length and assume no page or
//! field to be present.
//!
//! Source: SPC-4, "Standard INQUIRY data", "Device Identification VPD page"; SBC-3, "READ CAPACITY
//! (16) parameter data", "Block Limits VPD page", "Logical Block Provisioning VPD page", "Caching
//! mode page".

use alloc::string::String;

use super::BringupError;

/// Size, limits and names of a logical unit, as the target reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitFacts {
    /// Logical unit number.
    pub lun: u16,
    /// T10 VENDOR IDENTIFICATION and PRODUCT IDENTIFICATION.
    pub model: String,
    /// UNIT SERIAL NUMBER. Empty if the disk has none.
    pub serial: String,
    /// World-wide unique names.
    pub names: Names,
    /// Size in blocks.
    pub blocks: u64,
    /// Block size in bytes.
    pub block_bytes: u32,
    /// Logical blocks per physical block.
    pub physical_blocks: u32,
    /// MAXIMUM TRANSFER LENGTH in blocks. 0: not reported.
    pub max_transfer_blocks: u32,
    /// OPTIMAL TRANSFER LENGTH in blocks. 0: not reported.
    pub optimal_blocks: u32,
    /// MAXIMUM COMPARE AND WRITE LENGTH in blocks. 0: COMPARE AND WRITE is not supported.
    pub compare_and_write_blocks: u8,
    /// MAXIMUM UNMAP LBA COUNT. 0: UNMAP is not supported.
    pub unmap_blocks: u32,
    /// MAXIMUM WRITE SAME LENGTH in blocks. 0: not reported.
    pub write_same_blocks: u64,
    /// LBPU: UNMAP is supported.
    pub unmaps: bool,
    /// LBPWS: WRITE SAME(16) with UNMAP is supported.
    pub write_same_unmaps: bool,
    /// LBPRZ: unmapped blocks read as zeroes.
    pub unmapped_read_zeroes: bool,
    /// WCE: a power loss may lose answered writes that were not flushed.
    pub write_cache: bool,
    /// DPOFUA: the disk obeys FUA.
    pub fua: bool,
    /// WP: the disk refuses writes.
    pub read_only: bool,
    /// TPGS is not zero: the disk has access states (ALUA).
    pub has_access_states: bool,
    /// Target port group by which the disk was reached. `None`: not reported.
    pub port_group: Option<u16>,
}

/// Names of a logical unit. A name is all zeroes if the disk has none of its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// NAA designator, padded with zeroes to 16 bytes.
    pub naa: [u8; 16],
    /// EUI-64 based designator, padded with zeroes to 16 bytes.
    pub eui64: [u8; 16],
    /// UUID designator.
    pub uuid: [u8; 16],
}

impl Names {
    /// Whether the disk has no name at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl UnitFacts {
    pub(super) fn read_inquiry(&mut self, data: &[u8]) {
        let text = |from, to| text(data.get(from..to).unwrap_or(&[]));
        let (vendor, product) = (text(8, 16), text(16, 32));
        self.has_access_states = data.get(5).is_some_and(|bits| bits & TPGS != 0);
        self.model = alloc::format!("{vendor} {product}").trim().into();
    }

    pub(super) fn read_capacity(&mut self, data: &[u8]) -> Result<(), BringupError> {
        let (Some(last), Some(block_bytes)) = (be64(data, 0), be32(data, 8)) else {
            let sentence = "the target answered READ CAPACITY(16) with too little data";
            return Err(BringupError::Broken(sentence));
        };
        let blocks = last.checked_add(1).filter(|_| block_bytes > 0);
        self.blocks = blocks.ok_or(BringupError::Broken(
            "the disk has more blocks than there can be, or blocks of no bytes",
        ))?;
        self.block_bytes = block_bytes;
        self.physical_blocks = 1 << (data.get(13).copied().unwrap_or(0) & 0x0F);
        let thin = data.get(14).copied().unwrap_or(0);
        self.unmapped_read_zeroes = thin & CAPACITY_LBPRZ != 0;
        Ok(())
    }

    pub(super) fn read_serial(&mut self, page: &[u8]) {
        self.serial = text(page);
    }

    /// Reads the designators of the logical unit and of its target port group. The first designator
    /// of each kind counts.
    pub(super) fn read_names(&mut self, mut page: &[u8]) {
        while let [_, kind, _, length, rest @ ..] = page {
            let Some((id, after)) = rest.split_at_checked(usize::from(*length)) else {
                return;
            };
            page = after;
            let place = match (kind & ASSOCIATION, kind & KIND) {
                (0, EUI64) => &mut self.names.eui64,
                (0, NAA) => &mut self.names.naa,
                (0, UUID) => {
                    if let (Some(uuid), true) = (id.get(2..18), id.first() == Some(&UUID_WHOLE)) {
                        put(&mut self.names.uuid, uuid);
                    }
                    continue;
                }
                (PORT, PORT_GROUP) => {
                    let group = id.last_chunk().map(|group| u16::from_be_bytes(*group));
                    self.port_group = self.port_group.or(group);
                    continue;
                }
                _ => continue,
            };
            put(place, id);
        }
    }

    /// Reads the Block Limits page. `page` begins behind the 4-byte page header, so offsets are 4
    /// less than in the standard.
    pub(super) fn read_limits(&mut self, page: &[u8]) {
        self.compare_and_write_blocks = page.get(1).copied().unwrap_or(0);
        self.max_transfer_blocks = be32(page, 4).unwrap_or(0);
        self.optimal_blocks = be32(page, 8).unwrap_or(0);
        self.unmap_blocks = match be32(page, 20) {
            Some(descriptors) if descriptors > 0 => be32(page, 16).unwrap_or(0),
            _ => 0,
        };
        self.write_same_blocks = be64(page, 32).unwrap_or(0);
    }

    pub(super) fn read_provisioning(&mut self, page: &[u8]) {
        let bits = page.get(1).copied().unwrap_or(0);
        self.unmaps = bits & LBPU != 0;
        self.write_same_unmaps = bits & LBPWS != 0;
        self.unmapped_read_zeroes |= bits & LBPRZ != 0;
    }

    /// Reads the answer to MODE SENSE(6): the header, block descriptors that a target may send
    /// despite DBD, and the caching page.
    pub(super) fn read_mode(&mut self, data: &[u8]) {
        let device = data.get(2).copied().unwrap_or(0);
        self.read_only = device & WP != 0;
        self.fua = device & DPOFUA != 0;
        let skip = MODE_HEADER_BYTES + data.get(3).map_or(0, |bytes| usize::from(*bytes));
        let page = data.get(skip..).unwrap_or(&[]);
        self.write_cache = match page {
            [code, _, bits, ..] if code & 0x3F == super::question::CACHING => bits & WCE != 0,
            _ => true,
        };
    }
}

/// Stores a name, unless a name of this kind is stored already.
fn put(place: &mut [u8; 16], id: &[u8]) {
    let bytes = id.len().min(place.len());
    if *place == [0; 16] {
        place[..bytes].copy_from_slice(&id[..bytes]);
    }
}

/// Printable ASCII of a text field, without surrounding spaces.
fn text(bytes: &[u8]) -> String {
    let printable = bytes.iter().filter(|byte| (0x20..0x7F).contains(*byte));
    let text: String = printable
        .take(TEXT_BYTES_MAX)
        .map(|byte| char::from(*byte))
        .collect();
    text.trim().into()
}

fn be32(data: &[u8], at: usize) -> Option<u32> {
    let field = data.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*field))
}

fn be64(data: &[u8], at: usize) -> Option<u64> {
    let field = data.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_be_bytes(*field))
}

const TEXT_BYTES_MAX: usize = 64;
const ASSOCIATION: u8 = 0x30;
const KIND: u8 = 0x0F;
/// ASSOCIATION 01b: the target port that has received the command.
const PORT: u8 = 0x10;
const PORT_GROUP: u8 = 0x05;
const TPGS: u8 = 0x30;
const EUI64: u8 = 0x02;
const NAA: u8 = 0x03;
const UUID: u8 = 0x0A;
/// First byte of a UUID designator: DESIGNATOR TYPE 1h, a UUID as in RFC 4122.
const UUID_WHOLE: u8 = 0x10;
const CAPACITY_LBPRZ: u8 = 0x40;
const LBPU: u8 = 0x80;
const LBPWS: u8 = 0x40;
const LBPRZ: u8 = 0x04;
const WP: u8 = 0x80;
const DPOFUA: u8 = 0x10;
const WCE: u8 = 0x04;
const MODE_HEADER_BYTES: usize = 4;
