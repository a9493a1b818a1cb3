//! EXTENDED COPY with one-byte list identifiers: copies blocks between disks that designators name.
//!
//! The code here parses and checks the list. The executor looks up the disks and their access
//! rights, then calls [`CopyList::check`] before it copies the first block. The command is answered
//! when the copy has ended. If the list requests it, the target keeps the status until an initiator
//! has read it.
//! Source: SPC-4, "EXTENDED COPY(LID1) command", "RECEIVE COPY OPERATING PARAMETERS command".

use alloc::vec::Vec;

use super::additional::AdditionalSense;
use super::cdb::Extent;
use super::data_in::DataIn;
use super::pages::{Disk, Naa};
use super::sense::{Sense, SenseKey};

/// A name of a disk, as in the Device Identification page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Designator {
    /// CODE SET.
    pub code_set: u8,
    /// DESIGNATOR TYPE.
    pub kind: u8,
    /// DESIGNATOR.
    pub id: Vec<u8>,
}

/// A run of blocks to copy from one disk of the list to another one, or to the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Index of the source disk in [`CopyList::devices`].
    pub source: usize,
    /// First source block.
    pub source_lba: u64,
    /// Index of the destination disk in [`CopyList::devices`].
    pub destination: usize,
    /// First destination block.
    pub destination_lba: u64,
    /// Number of blocks.
    pub blocks: u32,
}

/// Parsed parameter list of EXTENDED COPY.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyList {
    /// LIST IDENTIFIER. RECEIVE COPY STATUS names the copy by it.
    pub list: u8,
    /// LIST ID USAGE 00b: the target keeps the status of the copy.
    pub kept: bool,
    /// Designators of the disks.
    pub devices: Vec<Designator>,
    /// Copies to make, in this order. The disk indexes are valid.
    pub segments: Vec<Segment>,
}

impl CopyList {
    /// Checks all segments. `disks` are the disks that the designators name, `None` for an unknown
    /// one.
    ///
    /// # Errors
    /// COPY ABORTED: a disk is unknown, blocks lie outside of a disk, block sizes differ, or the
    /// destination is read-only.
    pub fn check(&self, disks: &[Option<&Disk>]) -> Result<(), Sense> {
        let disk = |index: usize| disks.get(index).copied().flatten().ok_or_else(unreachable);
        for segment in &self.segments {
            let (source, destination) = (disk(segment.source)?, disk(segment.destination)?);
            let fits = source.contains(segment.source_extent())
                && destination.contains(segment.destination_extent())
                && source.block_bytes == destination.block_bytes;
            if !fits || destination.read_only {
                return Err(Sense::new(SenseKey::COPY_ABORTED, AdditionalSense::NONE));
            }
        }
        Ok(())
    }
}

/// Progress of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyStatus {
    /// LIST IDENTIFIER.
    pub list: u8,
    /// State of the copy.
    pub progress: CopyProgress,
    /// Number of completed segments.
    pub segments: u16,
    /// Number of written bytes.
    pub bytes: u64,
}

/// COPY MANAGER STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyProgress {
    /// 00h: the copy is in progress.
    Copying,
    /// 01h: the copy has ended without error.
    Done,
    /// 02h: the copy has ended with an error.
    Failed,
}

impl CopyStatus {
    /// Writes the answer to RECEIVE COPY STATUS. The transfer count is in KiB if the number of
    /// bytes does not fit its 32 bits.
    ///
    /// Source: SPC-4, "RECEIVE COPY STATUS(LID1) command".
    pub fn write(&self, out: &mut DataIn<'_>) {
        out.u32(8); // AVAILABLE DATA
        out.u8(self.progress as u8);
        out.u16(self.segments);
        let kib = u32::try_from(self.bytes >> 10).unwrap_or(u32::MAX);
        let (units, count) = u32::try_from(self.bytes).map_or((1, kib), |bytes| (0, bytes));
        out.u8(units); // TRANSFER COUNT UNITS
        out.u32(count);
    }
}

impl Segment {
    /// Blocks to read.
    #[must_use]
    pub const fn source_extent(&self) -> Extent {
        Extent {
            lba: self.source_lba,
            blocks: self.blocks,
        }
    }

    /// Blocks to write.
    #[must_use]
    pub const fn destination_extent(&self) -> Extent {
        Extent {
            lba: self.destination_lba,
            blocks: self.blocks,
        }
    }
}

impl Designator {
    /// Whether the designator is a unique name of `disk`: NAA, EUI-64 or UUID.
    #[must_use]
    pub fn names(&self, disk: &Disk) -> bool {
        let identity = &disk.identity;
        match self.kind {
            KIND_NAA => match identity.naa {
                Naa::Local(id) => self.id == (id & NAA_BITS | NAA_LOCAL).to_be_bytes(),
                Naa::Registered(id) => {
                    self.id.len() == 16
                        && self.id[0] & 0x0F == id[0] & 0x0F
                        && self.id[1..] == id[1..]
                }
            },
            KIND_EUI64 => identity.eui64.is_some_and(|id| self.id == id),
            KIND_UUID => identity
                .uuid
                .is_some_and(|id| self.id.get(2..) == Some(&id)),
            _ => false,
        }
    }
}

/// Parses the parameter list of EXTENDED COPY(LID1). An empty list requests no copy.
///
/// # Errors
/// - PARAMETER LIST LENGTH ERROR: the list is truncated or too long.
/// - TOO MANY or UNSUPPORTED descriptors.
/// - COPY ABORTED: a segment names a disk that is not in the list.
pub fn parse(list: &[u8]) -> Result<CopyList, Sense> {
    if list.is_empty() {
        return Ok(CopyList::default());
    }
    let (header, body) = list.split_first_chunk::<16>().ok_or_else(length_error)?;
    let device_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let segment_bytes = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
    let segment_bytes = usize::try_from(segment_bytes).map_err(|_| length_error())?;
    if device_bytes.saturating_add(segment_bytes) > LIST_BYTES_MAX {
        return Err(length_error());
    }
    let (devices, rest) = body
        .split_at_checked(device_bytes)
        .ok_or_else(length_error)?;
    let segments = rest.get(..segment_bytes).ok_or_else(length_error)?;
    let devices = parse_devices(devices)?;
    let segments = parse_segments(segments, devices.len())?;
    Ok(CopyList {
        list: header[0],
        kept: header[1] & LIST_ID_USAGE == 0,
        devices,
        segments,
    })
}

/// Parses the disk designators. Source: SPC-4, "Identification Descriptor CSCD descriptor format".
fn parse_devices(bytes: &[u8]) -> Result<Vec<Designator>, Sense> {
    let (chunks, rest) = bytes.as_chunks::<DEVICE_BYTES>();
    if !rest.is_empty() {
        return Err(length_error());
    }
    if chunks.len() > DEVICES_MAX {
        return Err(Sense::illegal(AdditionalSense::TOO_MANY_TARGET_DESCRIPTORS));
    }
    chunks.iter().map(parse_device).collect()
}

fn parse_device(bytes: &[u8; DEVICE_BYTES]) -> Result<Designator, Sense> {
    let unsupported = Sense::illegal(AdditionalSense::UNSUPPORTED_TARGET_DESCRIPTOR);
    if bytes[0] != DEVICE_IDENTIFICATION || bytes[1] & 0x1F != 0 {
        return Err(unsupported);
    }
    let id = bytes[8..28].get(..usize::from(bytes[7]));
    Ok(Designator {
        code_set: bytes[4] & 0x0F,
        kind: bytes[5] & 0x0F,
        id: id.ok_or(unsupported)?.to_vec(),
    })
}

/// Parses the segments. Source: SPC-4, "Block device to block device operations".
fn parse_segments(bytes: &[u8], devices: usize) -> Result<Vec<Segment>, Sense> {
    let unsupported = Sense::illegal(AdditionalSense::UNSUPPORTED_SEGMENT_DESCRIPTOR);
    if bytes.len() / SEGMENT_BYTES > SEGMENTS_MAX {
        return Err(Sense::illegal(
            AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS,
        ));
    }
    let mut segments = Vec::new();
    let mut rest = bytes;
    while let Some(kind) = rest.first() {
        if *kind != SEGMENT_BLOCK_TO_BLOCK {
            return Err(unsupported);
        }
        let (chunk, others) = rest
            .split_first_chunk::<SEGMENT_BYTES>()
            .ok_or_else(length_error)?;
        if usize::from(be16(chunk, 2)) != SEGMENT_BYTES - 4 {
            return Err(unsupported);
        }
        segments.push(parse_segment(chunk, devices)?);
        rest = others;
    }
    Ok(segments)
}

fn parse_segment(bytes: &[u8; SEGMENT_BYTES], devices: usize) -> Result<Segment, Sense> {
    let source = usize::from(be16(bytes, 4));
    let destination = usize::from(be16(bytes, 6));
    if source.max(destination) >= devices {
        return Err(unreachable());
    }
    Ok(Segment {
        source,
        source_lba: be64(bytes, 12),
        destination,
        destination_lba: be64(bytes, 20),
        blocks: be16(bytes, 10).into(),
    })
}

/// Writes the answer to RECEIVE COPY OPERATING PARAMETERS.
pub fn write_parameters(disk: &Disk, out: &mut DataIn<'_>) {
    let granularity = disk.block_bytes.max(1).ilog2();
    out.u32(0);
    out.put(&[1, 0, 0, 0]); // SNLID
    out.u16(u16::try_from(DEVICES_MAX).unwrap_or(0));
    out.u16(u16::try_from(SEGMENTS_MAX).unwrap_or(0));
    out.u32(u32::try_from(LIST_BYTES_MAX).unwrap_or(0));
    out.u32(disk.block_bytes.saturating_mul(u32::from(u16::MAX)));
    out.zeroes(14); // inline data, held data and stream devices: none
    out.u16(1); // TOTAL CONCURRENT COPIES
    out.u8(1);
    out.u8(u8::try_from(granularity).unwrap_or(0));
    out.zeroes(5);
    out.put(&[2, SEGMENT_BLOCK_TO_BLOCK, DEVICE_IDENTIFICATION]);
    out.close_u32(0);
}

fn be16(bytes: &[u8; SEGMENT_BYTES], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be64(bytes: &[u8; SEGMENT_BYTES], at: usize) -> u64 {
    let field = bytes[at..].first_chunk::<8>();
    field.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn unreachable() -> Sense {
    Sense::new(
        SenseKey::COPY_ABORTED,
        AdditionalSense::COPY_DEVICE_NOT_REACHABLE,
    )
}

fn length_error() -> Sense {
    Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR)
}

/// LIST ID USAGE bits in byte 1 of the list.
const LIST_ID_USAGE: u8 = 0b11 << 3;
const DEVICES_MAX: usize = 16;
const SEGMENTS_MAX: usize = 16;
const LIST_BYTES_MAX: usize = DEVICES_MAX * DEVICE_BYTES + SEGMENTS_MAX * SEGMENT_BYTES;
const DEVICE_BYTES: usize = 32;
const SEGMENT_BYTES: usize = 28;
/// Descriptor type of an identification descriptor.
const DEVICE_IDENTIFICATION: u8 = 0xE4;
/// Descriptor type of a block device to block device segment.
const SEGMENT_BLOCK_TO_BLOCK: u8 = 0x02;
const KIND_EUI64: u8 = 0x02;
const KIND_NAA: u8 = 0x03;
const KIND_UUID: u8 = 0x0A;
const NAA_BITS: u64 = (1 << 60) - 1;
const NAA_LOCAL: u64 = 3 << 60;
