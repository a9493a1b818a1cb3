//! Range list of Dataset Management: layout and checks.

use zerocopy::FromBytes;
use zerocopy::little_endian::{U32, U64};

use crate::nvme::spec::Status;
use crate::nvme::subsystem::Namespace;

wire! {
    /// One range of Dataset Management, 16 bytes.
    ///
    /// Source: NVM Command Set Specification 1.x, "Dataset Management – Range Definition".
    pub struct DatasetRange: 16 bytes {
        /// Context attributes: hints.
        pub attributes: U32,
        /// Length in blocks.
        pub blocks @ 4: U32,
        /// First block.
        pub lba @ 8: U64,
    }
}

impl DatasetRange {
    /// A range without hints.
    #[must_use]
    pub const fn new(lba: u64, blocks: u32) -> Self {
        Self {
            attributes: U32::ZERO,
            blocks: U32::new(blocks),
            lba: U64::new(lba),
        }
    }
}

/// Parses the ranges of a Dataset Management command as `(lba, blocks)`. Empty ranges are skipped.
///
/// `data` may be longer than `count` ranges; the rest is ignored. All ranges are checked before the
/// first one is returned, so a refused command has changed nothing.
///
/// # Errors
/// - Data SGL Length Invalid: `data` is too short.
/// - LBA Out of Range: a range exceeds the namespace.
pub fn ranges<'d>(
    data: &'d [u8],
    count: u16,
    namespace: &Namespace,
) -> Result<impl Iterator<Item = (u64, u32)> + use<'d>, Status> {
    let (ranges, _) = <[DatasetRange]>::ref_from_prefix_with_elems(data, usize::from(count))
        .map_err(|_| Status::DATA_SGL_LENGTH_INVALID)?;
    let inside =
        |range: &DatasetRange| namespace.contains(range.lba.get(), range.blocks.get().into());
    if !ranges.iter().all(inside) {
        return Err(Status::LBA_OUT_OF_RANGE);
    }
    let pairs = ranges
        .iter()
        .map(|range| (range.lba.get(), range.blocks.get()));
    Ok(pairs.filter(|(_, blocks)| *blocks != 0))
}
