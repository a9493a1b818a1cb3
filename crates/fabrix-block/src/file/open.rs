//! Opens a file or block device: its type (`open/found.rs`), size, alignment and lock, and the
//! errors (`open/refusal.rs`). Opening never changes an existing file. It creates a file only where
//! none exists. An open file is resized only by an explicit `resize`.

mod found;
mod refusal;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use fabrix_rt::errno;

use self::found::{Found, found};
use self::refusal::{kind_of, no_direct_io, refused, wrong};
use super::{FileDisk, FileOptions, State};
use crate::geometry::{DEFAULT_BLOCK_BYTES, Durability, Geometry};
use crate::spec::Size;
use crate::{Identity, OpenError, OpenErrorKind};

pub(super) fn open(options: FileOptions) -> Result<FileDisk, OpenError> {
    let found = find_or_create(&options)?;
    let file = flags(&options, found.is_block_device)
        .open(&options.path)
        .map_err(|error| refused(&options, found.is_block_device, error))?;
    let mut notes = Vec::new();
    lock(&options, &file, &mut notes)?;
    let bytes = size(&options, &file, &found)?;
    let geometry = geometry(&options, &file, &found, bytes, &mut notes)?;
    let identity = identity(&options, &found);
    let state = State {
        through_page_cache: !options.direct,
        ..State::default()
    };
    Ok(FileDisk {
        file: Arc::new(file),
        options,
        geometry,
        identity,
        notes,
        state: Arc::new(state),
    })
}

/// The same open file with its current size, or with a new size set first. Everything else stays
/// the same, including a failed flush.
pub(super) fn resize(disk: &FileDisk, bytes: Option<u64>) -> Result<FileDisk, OpenError> {
    // `create_bytes` demanded a size when the disk was opened. It no longer applies.
    let options = FileOptions {
        create_bytes: None,
        ..disk.options.clone()
    };
    let found = found(&options, &metadata(&options, &disk.file)?)?;
    if let Some(bytes) = bytes {
        set_size(disk, &found, bytes)?;
    }
    let bytes = size(&options, &disk.file, &found)?;
    let mut notes = Vec::new();
    let blocks = blocks(&options, bytes, disk.geometry.block_bytes, &mut notes)?;
    Ok(FileDisk {
        file: Arc::clone(&disk.file),
        options,
        geometry: Geometry {
            blocks,
            ..disk.geometry.clone()
        },
        identity: disk.identity.clone(),
        notes,
        state: Arc::clone(&disk.state),
    })
}

fn metadata(options: &FileOptions, file: &File) -> Result<fs::Metadata, OpenError> {
    file.metadata()
        .map_err(|error| refused(options, false, error))
}

/// Resizes a file and syncs it, so that the size survives a power failure.
fn set_size(disk: &FileDisk, found: &Found, bytes: u64) -> Result<(), OpenError> {
    let options = &disk.options;
    if found.is_block_device {
        let sentence = "a block device is made larger by what made it (lvextend, for example); \
                        do that, and then ask again without a size";
        return Err(wrong(options, OpenErrorKind::Unsupported, sentence));
    }
    if options.read_only {
        let sentence = "is read-only, so it cannot be given another size";
        return Err(wrong(options, OpenErrorKind::Denied, sentence));
    }
    let block_bytes = disk.geometry.block_bytes;
    if bytes < u64::from(block_bytes) {
        let sentence = format!("{bytes} bytes are less than one block of {block_bytes}");
        return Err(wrong(options, OpenErrorKind::Usage, &sentence));
    }
    let failed = |error: io::Error| {
        let sentence = format!("cannot be given {} bytes: {error}", Size(bytes));
        wrong(options, kind_of(&error), &sentence).caused_by(error)
    };
    disk.file.set_len(bytes).map_err(failed)?;
    disk.file.sync_all().map_err(|error| {
        // This failed sync may have consumed the kernel's only report about lost writes.
        disk.state.degrade();
        failed(error)
    })
}

/// Flags for opening the file. `claim` is set for the first open of a block device: O_EXCL then
/// keeps mounts and other arrays away. Channels open the file again without it.
pub(super) fn flags(options: &FileOptions, claim: bool) -> OpenOptions {
    let direct = if options.direct { errno::O_DIRECT } else { 0 };
    let exclusive = if claim && !options.read_only {
        errno::O_EXCL
    } else {
        0
    };
    let mut flags = OpenOptions::new();
    flags
        .read(true)
        .write(!options.read_only)
        .custom_flags(direct | exclusive);
    flags
}

fn find_or_create(options: &FileOptions) -> Result<Found, OpenError> {
    let metadata = match fs::metadata(&options.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(options)?,
        found => found.map_err(|error| refused(options, false, error))?,
    };
    found(options, &metadata)
}

/// Creates a sparse file and syncs it and its folder, so that it survives a power failure.
fn create(options: &FileOptions) -> Result<fs::Metadata, OpenError> {
    let Some(bytes) = options.create_bytes.filter(|_| !options.read_only) else {
        let path = &options.path;
        let is_device = path.starts_with("/dev") && !path.starts_with("/dev/shm");
        let sentence = match is_device {
            true => "does not exist: there is no such device",
            false => "does not exist; add size=1G to create a file of that size",
        };
        return Err(wrong(options, OpenErrorKind::NotFound, sentence));
    };
    let failed = |error: io::Error| {
        let sentence = format!("cannot be created with {} bytes: {error}", bytes);
        wrong(options, kind_of(&error), &sentence).caused_by(error)
    };
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&options.path)
        .map_err(failed)?;
    let made = file
        .set_len(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| file.metadata());
    let metadata = made.map_err(|error| {
        // `create_new` succeeded just above, so the file is new, empty and ours.
        let _ = fs::remove_file(&options.path);
        failed(error)
    })?;
    let parent = options
        .path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or_else(|| Path::new(".")))
        .and_then(|folder| folder.sync_all())
        .map_err(failed)?;
    Ok(metadata)
}

/// Locks the file for one writer or several readers. The kernel drops the lock with the open file,
/// even when the process is killed.
fn lock(options: &FileOptions, file: &File, notes: &mut Vec<String>) -> Result<(), OpenError> {
    let locked = if options.read_only {
        file.try_lock_shared()
    } else {
        file.try_lock()
    };
    match locked {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let sentence = if options.read_only {
                "is open for writing elsewhere; stop that program, or open it read-only there too"
            } else {
                "is open elsewhere, in this command or in another program; stop that one, or add ro to both"
            };
            Err(wrong(options, OpenErrorKind::InUse, sentence))
        }
        Err(TryLockError::Error(error)) => {
            let path = options.path.display();
            notes.push(format!(
                "{path}: the file system has no locks ({error}); open it only once"
            ));
            Ok(())
        }
    }
}

fn size(options: &FileOptions, mut file: &File, found: &Found) -> Result<u64, OpenError> {
    let bytes = file
        .seek(SeekFrom::End(0))
        .map_err(|error| refused(options, false, error))?;
    match options.create_bytes {
        Some(wanted) if wanted != bytes => {
            let what = if found.is_block_device {
                "block device"
            } else {
                "file"
            };
            let sentence = format!(
                "this {what} has {} bytes and size= says {}; leave size= out to use it as it is",
                Size(bytes),
                Size(wanted)
            );
            Err(wrong(options, OpenErrorKind::Usage, &sentence))
        }
        _ => Ok(bytes),
    }
}

fn geometry(
    options: &FileOptions,
    file: &File,
    found: &Found,
    bytes: u64,
    notes: &mut Vec<String>,
) -> Result<Geometry, OpenError> {
    let block_bytes = block_bytes(options, file, found)?;
    let blocks = blocks(options, bytes, block_bytes, notes)?;
    let mut geometry = Geometry::new(block_bytes, blocks);
    geometry.durability = Durability::Device;
    geometry.read_only = options.read_only;
    geometry.volatile_cache = !(options.direct && found.writes_through());
    geometry.deallocate = found.deallocate();
    if found.is_block_device {
        let physical = found.number("physical_block_size").unwrap_or(block_bytes);
        geometry.physical_block_bytes = physical.max(block_bytes);
        geometry.optimal_io_bytes = found.number("optimal_io_size").unwrap_or(0);
    }
    geometry
        .with_physical(options.physical_block_bytes)
        .map_err(|sentence| wrong(options, OpenErrorKind::Usage, &sentence))
}

/// Number of whole blocks. A partial block at the end is ignored and mentioned in the notes.
fn blocks(
    options: &FileOptions,
    bytes: u64,
    block_bytes: u32,
    notes: &mut Vec<String>,
) -> Result<u64, OpenError> {
    let blocks = bytes / u64::from(block_bytes);
    if blocks == 0 {
        let sentence = format!("has {bytes} bytes, less than one block of {block_bytes}");
        return Err(wrong(options, OpenErrorKind::Unsupported, &sentence));
    }
    let rest = bytes % u64::from(block_bytes);
    if rest > 0 {
        let path = options.path.display();
        notes.push(format!(
            "{path}: the last {rest} of {bytes} bytes are no whole block and not used"
        ));
    }
    Ok(blocks)
}

/// The block size: the user's choice if possible, otherwise the smallest possible size.
fn block_bytes(options: &FileOptions, file: &File, found: &Found) -> Result<u32, OpenError> {
    let device = if found.is_block_device {
        found.number("logical_block_size")
    } else {
        None
    };
    let smallest = match device {
        Some(bytes) => bytes,
        None if options.direct => direct_alignment(options, file)?,
        None => DEFAULT_BLOCK_BYTES,
    };
    if !matches!(smallest, 512 | 1024 | 2048 | 4096) {
        let sentence = format!("has blocks of {smallest} bytes; only 512 to 4096 can be served");
        return Err(wrong(options, OpenErrorKind::Unsupported, &sentence));
    }
    // Hosts know 512 and 4096 only, so sizes between them become 4096.
    let smallest = if smallest <= DEFAULT_BLOCK_BYTES {
        DEFAULT_BLOCK_BYTES
    } else {
        4096
    };
    match options.block_bytes {
        // The page cache has no alignment.
        Some(1) if !options.direct => Ok(1),
        Some(asked) if asked < smallest => {
            let sentence = format!("has blocks of {smallest} bytes below; leave block={asked} out");
            Err(wrong(options, OpenErrorKind::Usage, &sentence))
        }
        asked => Ok(asked.unwrap_or(smallest)),
    }
}

/// The smallest direct read that the file accepts. Only a test read is reliable: some file systems
/// open a file for direct I/O and then refuse the first read.
fn direct_alignment(options: &FileOptions, file: &File) -> Result<u32, OpenError> {
    let mut memory = vec![0; 2 * PROBE_BYTES];
    let start = memory.as_ptr().align_offset(PROBE_BYTES);
    for bytes in [512, 4096] {
        match file.read_at(&mut memory[start..start + bytes as usize], 0) {
            Err(error) if error.raw_os_error() == Some(errno::EINVAL) => {}
            Err(error) => return Err(refused(options, false, error)),
            Ok(_) => return Ok(bytes),
        }
    }
    Err(no_direct_io(options))
}

fn identity(options: &FileOptions, found: &Found) -> Identity {
    // For block devices the symbolic link (/dev/disk/by-id/...) is stable and its target is not.
    // For files the resolved path is the stable one.
    let path = if found.is_block_device {
        std::path::absolute(&options.path)
    } else {
        fs::canonicalize(&options.path)
    };
    let path = path
        .unwrap_or_else(|_| options.path.clone())
        .to_string_lossy()
        .into_owned();
    let name = options
        .name
        .clone()
        .unwrap_or_else(|| options.path.to_string_lossy().into_owned());
    let seed = options
        .seed
        .as_ref()
        .or(options.name.as_ref())
        .unwrap_or(&path);
    let model = if found.is_block_device {
        "Fabrix block device"
    } else {
        "Fabrix file"
    };
    Identity::derive(&name, seed, model)
}

/// Alignment and length of a direct read that every device accepts.
const PROBE_BYTES: usize = 4096;
