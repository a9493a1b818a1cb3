//! A regular file or a block device as a disk. `open` finds its type, size, alignment and lock.
//! `channel` executes requests. `outcome` interprets the kernel's results. I/O is direct unless the
//! user chose the page cache; neither replaces the other silently.
//!
//! A failed flush is final. The kernel reports lost writes once and then forgets them, so a later
//! successful flush proves nothing. From then on the whole disk answers `Degraded` to every flush
//! and durable write until it is reopened.

mod channel;
mod open;
mod outcome;
#[cfg(test)]
mod registered_tests;
#[cfg(test)]
mod resize_tests;
#[cfg(test)]
mod tests;

use std::fs;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabrix_rt::{Allocate, Shard, Stretch, is_in_memory, stretch};

use crate::{Allocation, Channel, Device, Geometry, Identity, OpenError, OpenErrorKind, Run};

/// Options for opening a file.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Path of the file or block device.
    pub path: PathBuf,
    /// Size in bytes of the sparse file to create if none exists. An existing file must have this
    /// size.
    pub create_bytes: Option<u64>,
    /// Direct I/O. False: the user chose the page cache.
    pub direct: bool,
    /// Whether to open for reading only.
    pub read_only: bool,
    /// Block size in bytes. None: that of the device below, or 512. 1 needs the page cache.
    pub block_bytes: Option<u32>,
    /// Physical block size in bytes, as reported to hosts. None: that of the device below, or 4096.
    pub physical_block_bytes: Option<u32>,
    /// The user's name for the disk. None: the path.
    pub name: Option<String>,
    /// Seed of the identity. None: the name, or else the path.
    pub seed: Option<String>,
}

impl FileOptions {
    /// Options for an existing file: direct, writable, named by its path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            create_bytes: None,
            direct: true,
            read_only: false,
            block_bytes: None,
            physical_block_bytes: None,
            name: None,
            seed: None,
        }
    }
}

/// A file or block device as a disk.
#[derive(Debug)]
pub struct FileDisk {
    /// The open file that holds the lock. Resized versions of the disk share it.
    file: Arc<fs::File>,
    options: FileOptions,
    geometry: Geometry,
    identity: Identity,
    notes: Vec<String>,
    state: Arc<State>,
}

/// State shared by all channels of a disk.
#[derive(Debug, Default)]
struct State {
    /// Whether writes go through the page cache, so that an error may surface long after its write.
    through_page_cache: bool,
    degraded: AtomicBool,
    cannot_punch: AtomicBool,
    cannot_zero: AtomicBool,
}

impl FileDisk {
    /// Opens a file or block device. Creates the file if its size was given.
    ///
    /// Errors: A sentence that names the path and the remedy. Existing files stay unchanged.
    pub fn open(options: FileOptions) -> Result<Arc<Self>, OpenError> {
        open::open(options).map(Arc::new)
    }

    /// Whether a flush has failed, so that no later flush is trusted.
    #[must_use]
    pub fn degraded(&self) -> bool {
        self.state.is_degraded()
    }

    /// Opens the file once more for a channel. The kernel tracks per open file which write errors
    /// it has reported, so a flush on one shard does not consume the error that another shard
    /// needs. Without /proc the channel gets a second descriptor of the same open file.
    fn reopen(&self) -> std::io::Result<fs::File> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        open::flags(&self.options, false)
            .open(own)
            .or_else(|_| self.file.try_clone())
    }
}

impl Device for FileDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let file = self.reopen().map_err(|error| {
            let sentence = format!("{}: not one more descriptor: {error}", self.identity.name);
            OpenError::new(OpenErrorKind::NoMemory, sentence).caused_by(error)
        })?;
        Ok(channel::open(
            shard,
            (file, Arc::clone(&self.file)),
            self.geometry.clone(),
            Arc::clone(&self.state),
        ))
    }

    /// Whole blocks inside a hole are deallocated. Block devices cannot report holes.
    fn allocation(&self, lba: u64) -> Run {
        let unknown = Run::to_the_end(Allocation::Mapped, lba, self.geometry.blocks);
        let block = u64::from(self.geometry.block_bytes);
        match stretch(&self.file, self.geometry.offset(lba)) {
            Ok(Stretch::Hole { end }) => match (end / block).saturating_sub(lba) {
                0 => unknown.at_most(1),
                blocks => Run {
                    allocation: Allocation::Deallocated,
                    ..unknown.at_most(blocks)
                },
            },
            Ok(Stretch::Data { end }) => unknown.at_most(end.div_ceil(block).saturating_sub(lba)),
            Err(_) => unknown,
        }
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Only with direct I/O on a real medium: the page cache copies the data anyway, and a file in
    /// memory is copied faster in place.
    fn takes_registered(&self) -> bool {
        self.options.direct && !is_in_memory(&self.file)
    }

    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        Ok(Arc::new(open::resize(self, bytes)?))
    }
}

impl State {
    fn is_degraded(&self) -> bool {
        self.degraded.load(Ordering::SeqCst)
    }

    fn degrade(&self) {
        self.degraded.store(true, Ordering::SeqCst);
    }

    fn can(&self, how: Allocate) -> bool {
        !self.inability(how).load(Ordering::Relaxed)
    }

    fn cannot(&self, how: Allocate) {
        self.inability(how).store(true, Ordering::Relaxed);
    }

    fn inability(&self, how: Allocate) -> &AtomicBool {
        match how {
            Allocate::PunchHole => &self.cannot_punch,
            Allocate::ZeroRange => &self.cannot_zero,
        }
    }
}
