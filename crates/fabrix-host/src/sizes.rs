//! Checks and conversions of disk properties that NVMe and iSCSI share.

use std::fmt;

use fabrix_block::{Deallocate, Identity, OpenError, OpenErrorKind};

use crate::{ConnectError, ConnectErrorKind};

/// Checks the block size of a disk. `which` names the disk in the error.
///
/// Errors: `Unsupported`.
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

/// A size hint of so many blocks, in bytes. None: too large to be true.
pub(crate) fn hint(blocks: u32, block_bytes: u32) -> Option<u32> {
    let bytes = blocks.checked_mul(block_bytes);
    bytes.filter(|bytes| *bytes <= MOST_HINT)
}

/// The properties of deallocated blocks.
pub(crate) fn deallocate(deallocates: bool, reads_zeroes: bool) -> Deallocate {
    match (deallocates, reads_zeroes) {
        (false, _) => Deallocate::No,
        (true, false) => Deallocate::Undefined,
        (true, true) => Deallocate::Zeroes,
    }
}

/// The error after a reconnection to a disk that its users cannot continue to use.
pub(crate) fn changed_disk(sentence: &str) -> ConnectError {
    ConnectError::new(
        ConnectErrorKind::Refused,
        format!("{sentence}; restart what uses it to take it as it is now"),
    )
}

/// The error when the user gives a size to a remote disk.
pub(crate) fn resize_elsewhere(identity: &Identity) -> OpenError {
    let sentence = format!(
        "{}: its size is changed where it is served, and taken over here",
        identity.name
    );
    OpenError::new(OpenErrorKind::Unsupported, sentence)
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// 64 MiB: no physical block and no useful stripe is larger.
const MOST_HINT: u32 = 64 << 20;
