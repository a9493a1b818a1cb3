//! The state directory: reservations that outlive the process, one small file for each disk.
//!
//! A file is written anew under another name, synced, renamed, and then its folder is synced: after
//! a crash there is the old one or the new one, whole. A thread of its own does that, so that no
//! shard waits for a medium. What the bytes mean, and whether they are to be believed, is the
//! target's.

use std::collections::HashSet;
use std::env;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fabrix_block::{Device, Durability, Identity};
use fabrix_rt::needed_thread;
use fabrix_target::{Receipt, ReservationStore};

use crate::failure::Failure;
use crate::log;

/// Where the state of disks is kept.
pub(crate) struct State {
    folder: PathBuf,
    /// Somebody asked for this folder: then everything is kept there, whatever the disks are.
    asked_for: bool,
    /// Whether something can be written there; found out when the first disk wants to know.
    usable: OnceLock<bool>,
    /// Disks of other targets, by UUID: who serves them keeps their state, unless this folder was
    /// asked for.
    remote: Mutex<HashSet<[u8; 16]>>,
    work: Sender<Work>,
}

struct Work {
    path: PathBuf,
    bytes: Vec<u8>,
    receipt: Receipt,
}

impl State {
    /// The folder that `--state` names, or the usual one; none where there is no such thing.
    ///
    /// # Errors
    /// The folder that was asked for cannot be had.
    pub(crate) fn open(asked_for: Option<&Path>) -> Result<Option<Arc<Self>>, Failure> {
        let Some(folder) = asked_for.map(Path::to_path_buf).or_else(usual_folder) else {
            return Ok(None);
        };
        if asked_for.is_some() {
            make(&folder).map_err(Failure::usage)?;
        }
        let (work, todo) = channel();
        needed_thread("fabrix-state", move || store_all(&todo))
            .map_err(|error| Failure::io(format!("cannot start a thread: {error}")))?;
        Ok(Some(Arc::new(Self {
            folder,
            asked_for: asked_for.is_some(),
            usable: OnceLock::new(),
            remote: Mutex::default(),
            work,
        })))
    }

    /// A disk of another target.
    pub(crate) fn is_remote(&self, disk: &Identity) {
        self.remote().insert(disk.uuid);
    }

    fn remote(&self) -> std::sync::MutexGuard<'_, HashSet<[u8; 16]>> {
        self.remote.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something can be written to the usual folder; if not, that is said, once.
    fn is_usable(&self) -> bool {
        *self.usable.get_or_init(|| {
            let made = make(&self.folder);
            if let Err(sentence) = &made {
                log::warn(format_args!(
                    "{sentence}; they end with this process, unless --state DIR says where to"
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
    /// Without `--state`, what outlives the process is kept for disks that do so themselves, and
    /// are ours.
    fn keeps(&self, device: &dyn Device) -> bool {
        let durable = device.geometry().durability == Durability::Device;
        let ours = !self.remote().contains(&device.identity().uuid);
        self.asked_for || durable && ours && self.is_usable()
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
        // A thread that has ended gives the receipt back unsigned.
        let _not_stored = self.work.send(Work {
            path,
            bytes,
            receipt,
        });
    }
}

/// The folder for state that people expect: `$XDG_STATE_HOME/fabrix`, for root `/var/lib/fabrix`,
/// and `~/.local/state/fabrix` else.
pub(crate) fn usual_folder() -> Option<PathBuf> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(state) = variable("XDG_STATE_HOME") {
        return Some(Path::new(&state).join("fabrix"));
    }
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if is_root {
        return Some(PathBuf::from("/var/lib/fabrix"));
    }
    variable("HOME").map(|home| Path::new(&home).join(".local/state/fabrix"))
}

/// Makes the folder, for its owner alone, and tries whether something can be written there.
///
/// # Errors
/// A sentence.
fn make(folder: &Path) -> Result<(), String> {
    let trial = folder.join(format!(".{}", std::process::id()));
    let mut folders = DirBuilder::new();
    let made = folders.recursive(true).mode(0o700).create(folder);
    made.and_then(|()| File::create(&trial).map(drop))
        .and_then(|()| fs::remove_file(&trial))
        .map_err(|error| {
            let folder = folder.display();
            format!("reservations cannot be stored in {folder}: {error}")
        })
}

fn store_all(todo: &Receiver<Work>) {
    while let Ok(work) = todo.recv() {
        match write(&work.path, &work.bytes) {
            Ok(()) => work.receipt.stored(),
            Err(error) => log::error(format_args!(
                "cannot store reservations in {}: {error}",
                work.path.display()
            )),
        }
    }
}

/// Puts a file in the place of another, on the medium when this returns. After an error the change
/// does not hold; what is on the medium may be the old file or the new one.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    File::open(folder)?.sync_all()
}
