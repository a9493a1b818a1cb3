//! A regular file or a block device as a disk. Opening happens here and in `open`: what it is, how
//! large, how it is aligned, who else has it. What happens to a request is in `channel`; what the
//! kernel's answers mean, in `outcome`. Direct I/O unless the user asked for the page cache; never
//! one in place of the other.
//!
//! A failed flush is final: the kernel reports lost writes once and forgets them, so a second flush
//! that succeeds means nothing. From then on the whole disk answers `Degraded` to every flush and
//! durable write until reopened.

mod channel;
mod open;
mod outcome;
#[cfg(test)]
mod registered_tests;
#[cfg(test)]
mod remeasure_tests;
#[cfg(test)]
mod tests;

use std::fs;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabrix_rt::{Allocate, Shard, Stretch, is_in_memory, stretch};

use crate::{Allocation, Channel, Device, Geometry, Identity, OpenError, OpenErrorKind, Run};

/// How a file is to be opened.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Where it is.
    pub path: PathBuf,
    /// The size of the sparse file to create if there is none. A file that is there must have this
    /// size.
    pub create_bytes: Option<u64>,
    /// Direct I/O; false: through the page cache, because the user said so.
    pub direct: bool,
    /// Whether it is opened for reading only.
    pub read_only: bool,
    /// The block size asked for; None: what lies below, or 512.
    pub block_bytes: Option<u32>,
    /// What hosts are told the medium writes at once; None: what lies below, or 4096.
    pub physical_block_bytes: Option<u32>,
    /// What the user calls it; None: its path.
    pub name: Option<String>,
    /// What the identity is derived from; None: the name, or else the path.
    pub seed: Option<String>,
}

impl FileOptions {
    /// A file as it is: direct, writable, under its own name.
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
    /// Holds the lock as long as the disk lives, with whatever size.
    file: Arc<fs::File>,
    options: FileOptions,
    geometry: Geometry,
    identity: Identity,
    notes: Vec<String>,
    state: Arc<State>,
}

/// What all channels of a disk know together.
#[derive(Debug, Default)]
struct State {
    /// Whether an error may come long after the write that caused it.
    through_page_cache: bool,
    degraded: AtomicBool,
    cannot_punch: AtomicBool,
    cannot_zero: AtomicBool,
}

impl FileDisk {
    /// Opens a file or block device, and creates the file if its size was given.
    ///
    /// Errors: sentences that name the path and what to do; nothing that exists is changed.
    pub fn open(options: FileOptions) -> Result<Arc<Self>, OpenError> {
        open::open(options).map(Arc::new)
    }

    /// Whether a flush failed, so that none is believed any more.
    #[must_use]
    pub fn degraded(&self) -> bool {
        self.state.is_degraded()
    }

    /// A file of the channel's own: the kernel remembers which write errors each open file was
    /// told, so a failed flush in one shard is also seen by the flush of another. Without /proc it
    /// is a second descriptor.
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

    /// A hole is deallocated as far as whole blocks lie in it. Block devices cannot tell.
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

    /// With direct I/O: what goes through the page cache is copied anyway, and what lies in memory
    /// is copied faster in place.
    fn takes_registered(&self) -> bool {
        self.options.direct && !is_in_memory(&self.file)
    }

    fn remeasure(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        Ok(Arc::new(open::remeasure(self, bytes)?))
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
