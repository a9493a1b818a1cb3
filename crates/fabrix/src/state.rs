//! The state directory: reservations that outlive the process, in one small file per disk.
//!
//! A new file is written under another name, synced and renamed, and then its folder is synced.
//! After a crash, either the old or the new file is complete. A separate thread writes the files,
//! so shards do not wait for the medium. The target encodes and verifies the contents.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};

use fabrix_block::{Device, Durability, Identity};
use fabrix_rt::needed_thread;
use fabrix_target::{Receipt, ReservationStore};

use crate::failure::Failure;
use crate::locks::lock;
use crate::log;
use crate::machine::{make_private, usual_folder};

/// The state directory and its writing thread.
pub(crate) struct State {
    folder: PathBuf,
    /// The user named this folder with `--state`. Then it stores the reservations of all disks.
    requested: bool,
    /// Whether the folder is writable. Tested when the first disk needs it.
    usable: OnceLock<bool>,
    /// UUIDs of disks of other targets. Those targets store their reservations, unless the user
    /// named this folder.
    remote: Mutex<HashSet<[u8; 16]>>,
    work: Sender<Work>,
}

/// A file to write.
struct Work {
    path: PathBuf,
    bytes: Vec<u8>,
    receipt: Receipt,
}

impl State {
    /// Opens the folder of `--state`, or the usual one. None if neither is known.
    ///
    /// # Errors
    /// The folder of `--state` cannot be created or written.
    pub(crate) fn open(requested: Option<&Path>) -> Result<Option<Arc<Self>>, Failure> {
        let Some(folder) = requested.map(Path::to_path_buf).or_else(usual_folder) else {
            return Ok(None);
        };
        if requested.is_some() {
            make_writable(&folder).map_err(Failure::usage)?;
        }
        let (work, received) = channel();
        needed_thread("fabrix-state", move || store_all(&received))
            .map_err(|error| Failure::io(format!("cannot start a thread: {error}")))?;
        Ok(Some(Arc::new(Self {
            folder,
            requested: requested.is_some(),
            usable: OnceLock::new(),
            remote: Mutex::default(),
            work,
        })))
    }

    /// Records that a disk belongs to another target.
    pub(crate) fn mark_remote(&self, disk: &Identity) {
        lock(&self.remote).insert(disk.uuid);
    }

    /// Whether the usual folder is writable. If not, the first call logs a warning.
    fn is_usable(&self) -> bool {
        *self.usable.get_or_init(|| {
            let made = make_writable(&self.folder);
            if let Err(sentence) = &made {
                log::warn(format_args!(
                    "{sentence}; they are lost when this process ends; name another folder with --state DIR"
                ));
            }
            made.is_ok()
        })
    }

    fn path(&self, disk: &Identity) -> PathBuf {
        self.folder
            .join(format!("{}.reservations", disk.uuid_text()))
    }
}

impl ReservationStore for State {
    /// Without `--state`, reservations are stored for local disks that outlive the process.
    fn keeps(&self, device: &dyn Device) -> bool {
        let durable = device.geometry().durability == Durability::Device;
        let is_local = !lock(&self.remote).contains(&device.identity().uuid);
        self.requested || durable && is_local && self.is_usable()
    }

    fn load(&self, disk: &Identity) -> Result<Option<Vec<u8>>, String> {
        let path = self.path(disk);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
        }
    }

    fn place(&self, disk: &Identity) -> String {
        self.path(disk).display().to_string()
    }

    fn store(&self, disk: &Identity, bytes: Vec<u8>, receipt: Receipt) {
        let path = self.path(disk);
        // If the thread has ended, the receipt is dropped, which means that nothing was stored.
        let _not_stored = self.work.send(Work {
            path,
            bytes,
            receipt,
        });
    }
}

/// Creates the folder for its owner alone, and tests whether it is writable.
///
/// # Errors
/// A sentence that names the folder.
fn make_writable(folder: &Path) -> Result<(), String> {
    let trial = folder.join(format!(".{}", std::process::id()));
    make_private(folder)
        .and_then(|()| File::create(&trial).map(drop))
        .and_then(|()| fs::remove_file(&trial))
        .map_err(|error| {
            let folder = folder.display();
            format!("reservations cannot be stored in {folder}: {error}")
        })
}

/// Writes files until the state directory is dropped.
fn store_all(received: &Receiver<Work>) {
    while let Ok(work) = received.recv() {
        match write(&work.path, &work.bytes) {
            Ok(()) => work.receipt.stored(),
            Err(error) => log::error(format_args!(
                "cannot store reservations in {}: {error}",
                work.path.display()
            )),
        }
    }
}

/// Replaces a file. The new file is on the medium when this returns. After an error the reservation
/// change is invalid, and the medium holds either the old or the new file.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    File::open(folder)?.sync_all()
}
