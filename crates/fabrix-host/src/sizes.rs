//! What targets of both protocols say of a disk's sizes and of what it gives back, and what of it
//! is believed.

use std::fmt;

use fabrix_block::Deallocate;

use crate::{ConnectError, ConnectErrorKind};

/// Whether there may be disks of such blocks here.
///
/// Errors: `Unsupported`, and of `which` disk that is said.
pub(crate) fn check_blocks(
    which: fmt::Arguments<'_>,
    block_bytes: u32,
) -> Result<(), ConnectError> {
    if [512, 4096].contains(&block_bytes) {
        return Ok(());
    }
    let sentence = format!("{which}: blocks of {block_bytes} bytes; supported are 512 and 4096");
    Err(ConnectError::new(ConnectErrorKind::Unsupported, sentence))
}

/// A hint of so many blocks, in bytes. None: no disk could mean it.
pub(crate) fn hint(blocks: u32, block_bytes: u32) -> Option<u32> {
    let bytes = blocks.checked_mul(block_bytes);
    bytes.filter(|bytes| *bytes <= MOST_HINT)
}

/// What is promised of blocks that are given back.
pub(crate) fn deallocate(gives_back: bool, reads_zeroes: bool) -> Deallocate {
    match (gives_back, reads_zeroes) {
        (false, _) => Deallocate::No,
        (true, false) => Deallocate::Undefined,
        (true, true) => Deallocate::Zeroes,
    }
}

/// No physical block, and no stripe worth asking for, is larger.
const MOST_HINT: u32 = 64 << 20;
