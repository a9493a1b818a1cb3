//! The state directory: reservations that outlive the process, in one small file per disk.
//!
//! A new file is written under another name, synced and renamed, and then its folder is synced.
//! After a crash, either the old or the new file is complete. A separate thread writes the files,
//! so shards do not wait for the medium. The target encodes and verifies the contents.
//!
//! The reservations of a disk that stores texts itself ([`fabrix_block::Attributes`]) are stored
//! with the disk instead, and move with it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use fabrix_block::{Attributes, Device, Durability, Identity};
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
    /// Other processes may go on with these disks (a gateway group).
    is_shared: AtomicBool,
    /// Disks that store their reservations themselves, by UUID.
    own: Mutex<HashMap<[u8; 16], Weak<dyn Attributes>>>,
    work: Sender<Work>,
}

/// Reservations to be stored.
struct Work {
    at: Place,
    bytes: Vec<u8>,
    receipt: Receipt,
}

/// Where reservations are stored.
enum Place {
    File(PathBuf),
    /// The attributes of the disk of this name. None: it was closed.
    With(String, Option<Arc<dyn Attributes>>),
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
            is_shared: AtomicBool::new(false),
            own: Mutex::default(),
            work,
        })))
    }

    /// Records that a disk belongs to another target.
    pub(crate) fn mark_remote(&self, disk: &Identity) {
        lock(&self.remote).insert(disk.uuid);
    }

    /// Stores all reservations from now on, because other processes may go on with the disks.
    pub(crate) fn share(&self) {
        self.is_shared.store(true, Ordering::Release);
    }

    /// Stores the reservations of a disk with it, if it can do that.
    pub(crate) fn store_with(&self, disk: &Arc<dyn Device>) {
        if let Some(attributes) = disk.attributes() {
            lock(&self.own).insert(disk.identity().uuid, Arc::downgrade(&attributes));
        }
    }

    /// The place of a disk's reservations.
    fn place_of(&self, disk: &Identity) -> Place {
        match lock(&self.own).get(&disk.uuid) {
            Some(attributes) => Place::With(disk.name.clone(), attributes.upgrade()),
            None => Place::File(self.path(disk)),
        }
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
        let is_own = lock(&self.own).contains_key(&device.identity().uuid);
        is_own || self.requested || durable && is_local && self.is_usable()
    }

    fn is_shared(&self, _device: &dyn Device) -> bool {
        self.is_shared.load(Ordering::Acquire)
    }

    fn load(&self, disk: &Identity) -> Result<Option<Vec<u8>>, String> {
        self.place_of(disk).read()
    }

    fn place(&self, disk: &Identity) -> String {
        self.place_of(disk).to_string()
    }

    fn store(&self, disk: &Identity, bytes: Vec<u8>, receipt: Receipt) {
        let at = self.place_of(disk);
        // If the thread has ended, the receipt is dropped, which means that nothing was stored.
        let _not_stored = self.work.send(Work { at, bytes, receipt });
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
        match work.at.write(&work.bytes) {
            Ok(()) => work.receipt.stored(),
            Err(why) => {
                log::error(format_args!(
                    "cannot store reservations in {}: {why}",
                    work.at
                ));
            }
        }
    }
}

impl Place {
    /// The stored bytes. None: nothing was stored.
    ///
    /// # Errors
    /// A sentence that names the place.
    fn read(&self) -> Result<Option<Vec<u8>>, String> {
        let failed = |why: &dyn fmt::Display| format!("{self} cannot be read: {why}");
        match self {
            Self::File(path) => match fs::read(path) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(failed(&error)),
            },
            Self::With(_, None) => Err(failed(&CLOSED)),
            Self::With(_, Some(attributes)) => {
                let text = attributes.read(ATTRIBUTE).map_err(|why| failed(&why))?;
                let bytes = text.map(|text| from_hex(&text).ok_or("it is no hexadecimal number"));
                bytes.transpose().map_err(|why| failed(&why))
            }
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<(), String> {
        match self {
            Self::File(path) => write(path, bytes).map_err(|error| error.to_string()),
            Self::With(_, None) => Err(CLOSED.to_owned()),
            Self::With(_, Some(attributes)) => {
                let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                attributes.write(ATTRIBUTE, &text)
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::With(disk, _) => write!(f, "the attribute {ATTRIBUTE} of {disk}"),
        }
    }
}

const CLOSED: &str = "the disk was closed";

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let pairs = digits?;
    let byte = |pair: &[u32]| match *pair {
        [high, low] => u8::try_from(high << 4 | low).ok(),
        _ => None,
    };
    pairs.chunks(2).map(byte).collect()
}

/// Key of the reservations that are stored with a disk.
const ATTRIBUTE: &str = "fabrix.reservations";

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
