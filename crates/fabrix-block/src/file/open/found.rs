//! The file or device at a path, with its facts from the inode and from /sys. A missing fact gets a
//! safe default.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use super::refusal::wrong;
use crate::file::FileOptions;
use crate::geometry::Deallocate;
use crate::{OpenError, OpenErrorKind};

/// The file or device at a path.
pub(super) struct Found {
    pub(super) is_block_device: bool,
    /// The /sys folder of the device's queue, or of the device below the file. It may not exist.
    queue: PathBuf,
}

pub(super) fn found(options: &FileOptions, metadata: &fs::Metadata) -> Result<Found, OpenError> {
    let is_block_device = metadata.file_type().is_block_device();
    if !is_block_device && !metadata.is_file() {
        return Err(wrong(
            options,
            OpenErrorKind::Unsupported,
            "is neither a file nor a block device",
        ));
    }
    let device = if is_block_device {
        metadata.rdev()
    } else {
        metadata.dev()
    };
    Ok(Found {
        is_block_device,
        queue: queue_of(device),
    })
}

impl Found {
    fn text(&self, attribute: &str) -> Option<String> {
        let text = fs::read_to_string(self.queue.join(attribute)).ok()?;
        Some(text.trim().to_owned())
    }

    pub(super) fn number(&self, attribute: &str) -> Option<u32> {
        self.text(attribute)?.parse().ok()
    }

    /// Whether an answered write is on the medium without a flush.
    pub(super) fn writes_through(&self) -> bool {
        self.is_block_device
            && self
                .text("write_cache")
                .is_some_and(|cache| cache == "write through")
    }

    /// Deallocated blocks of a file read as zeroes: holes do, and without holes zeroes are written.
    /// A block device without its own zeroing would have to be written in full, so it reports no
    /// deallocation.
    pub(super) fn deallocate(&self) -> Deallocate {
        let zeroes_itself = self
            .text("write_zeroes_max_bytes")
            .is_some_and(|bytes| bytes != "0");
        if self.is_block_device && !zeroes_itself {
            Deallocate::No
        } else {
            Deallocate::Zeroes
        }
    }
}

/// The /sys folder of a device's queue. A partition has no queue of its own and uses its disk's.
fn queue_of(device: u64) -> PathBuf {
    let major = (device >> 8) & 0xfff | (device >> 32) & !0xfff;
    let minor = device & 0xff | (device >> 12) & !0xff;
    let own = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let of_disk = fs::canonicalize(&own)
        .ok()
        .and_then(|path| Some(path.parent()?.join("queue")));
    let queue = own.join("queue");
    if queue.exists() {
        queue
    } else {
        of_disk.unwrap_or(queue)
    }
}
