//! The folder of attachments. Each attachment has `NAME.json` (its record), `NAME.lock` (its
//! number; locked by its process), `NAME.sock` (its control socket) and `NAME.log` (its log).
//!
//! A record with a free lock is stale: its process has died. This file knows files, and disks only
//! by identity.

pub(crate) mod leftovers;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fabrix_block::Device;
use fabrix_block::spec::without_secrets;
use fabrix_rt::process::is_root;
use serde::{Deserialize, Serialize};

use super::declared::files;
use crate::args::FrontEnd;
use crate::clock::since_1970;
use crate::disks::NumberedPath;
use crate::failure::Failure;
use crate::machine::make_private;
use leftovers::{lives, remove_leftovers, waits};

/// Record of an attachment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Number of the attachment, the lowest free one.
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Path or URI for users.
    pub(crate) device: PathBuf,
    /// `ublk`, `nbd`, `fuse`, `file`, `nbd-socket`, `vhost-user` or `kernel`.
    #[serde(rename = "as")]
    pub(crate) front_end: String,
    /// URI with which the disk was attached, without secrets.
    pub(crate) uri: String,
    /// Paths of the disk since they have changed. Empty: they are those of the URI.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) roster: Vec<NumberedPath>,
    /// NQN or target name of a remote disk.
    #[serde(default)]
    pub(crate) subsystem: Option<String>,
    /// UUID of the disk. Empty in records of earlier versions.
    #[serde(default)]
    pub(crate) uuid: String,
    /// Name of the kernel's controller, with `--as kernel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<String>,
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: u32,
    pub(crate) read_only: bool,
    pub(crate) pid: u32,
    /// Start time in seconds since 1970.
    pub(crate) since: u64,
}

impl Record {
    /// The record of a claimed name whose disk becomes `device`. The caller sets `subsystem`. For a
    /// device of the kernel it also sets `controller` and `pid`.
    pub(super) fn new(
        claim: &Claim,
        (front_end, device): (FrontEnd, PathBuf),
        (uri, disk): (&str, &dyn Device),
    ) -> Self {
        let geometry = disk.geometry();
        Self {
            id: claim.id,
            name: claim.name.clone(),
            device,
            front_end: front_end.word(),
            uri: without_secrets(uri),
            roster: Vec::new(),
            subsystem: None,
            uuid: disk.identity().uuid_text(),
            controller: None,
            size_bytes: geometry.bytes(),
            block_bytes: geometry.block_bytes,
            read_only: geometry.read_only,
            pid: std::process::id(),
            since: since_1970().as_secs(),
        }
    }

    /// Writes the device's path to the user's `--devid-file`.
    pub(crate) fn write_device(&self, file: &Path) -> Result<(), Failure> {
        let line = format!("{}\n", self.device.display());
        let written = fs::write(file, line);
        written.map_err(|error| Failure::io(format!("--devid-file {}: {error}", file.display())))
    }
}

/// A record, and whether its process is alive.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) record: Record,
    pub(crate) alive: bool,
}

/// Interval and number of attempts for a lock that another process holds briefly to test it.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(1);
const LOCK_ATTEMPTS_MAX: usize = 50;

/// The folder of attachments.
pub(crate) struct Records {
    folder: PathBuf,
}

/// A name reserved by this process. Dropping it removes the attachment's files.
pub(crate) struct Claim {
    pub(crate) id: u32,
    pub(crate) name: String,
    folder: PathBuf,
    /// Whether the files stay after the drop.
    keeps: bool,
    _lock: File,
}

impl Records {
    /// Opens the folder of this user and creates it if needed: $FABRIX_RUN_DIR, /run/fabrix (for
    /// root) or $XDG_RUNTIME_DIR/fabrix.
    pub(crate) fn open() -> Result<Self, Failure> {
        let folder = match (
            std::env::var_os("FABRIX_RUN_DIR"),
            std::env::var_os("XDG_RUNTIME_DIR"),
        ) {
            (Some(folder), _) => PathBuf::from(folder),
            _ if is_root() => PathBuf::from("/run/fabrix"),
            (None, Some(runtime)) => Path::new(&runtime).join("fabrix"),
            (None, None) => {
                return Err(Failure::usage(
                    "there is no place for what is attached: set XDG_RUNTIME_DIR or FABRIX_RUN_DIR to your own",
                ));
            }
        };
        make_private(&folder).map_err(Failure::at(&folder))?;
        Ok(Self { folder })
    }

    /// All attachments, sorted by number.
    pub(crate) fn all(&self) -> Result<Vec<Found>, Failure> {
        let mut found = Vec::new();
        for path in self.files("json")? {
            // The file may be gone meanwhile, or have another origin.
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            if let Ok(record) = serde_json::from_str::<Record>(&text) {
                let alive = self.is_locked(&record.name) || lives(&record);
                found.push(Found { record, alive });
            }
        }
        found.sort_by_key(|found| found.record.id);
        Ok(found)
    }

    /// The attachment with this device, name or number.
    pub(crate) fn find(&self, which: &str) -> Result<Found, Failure> {
        let by_number = which.parse::<u32>().ok();
        let path = fs::canonicalize(which).ok();
        let is_it = |found: &Found| {
            let record = &found.record;
            record.name == which
                || Some(record.id) == by_number
                || record.device == Path::new(which)
                || path.as_ref().is_some_and(|path| {
                    fs::canonicalize(&record.device).ok().as_ref() == Some(path)
                })
        };
        let found = self.all()?.into_iter().find(is_it);
        found.ok_or_else(|| {
            Failure::usage(format!(
                "nothing that is attached is called {which}; see `fabrix list`"
            ))
        })
    }

    /// Refuses the disk `uri`, to be attached as `name`, if it is already attached under another
    /// name. Two read-only attachments are allowed. Two writable devices on one disk destroy its
    /// data, because each has its own cache.
    pub(crate) fn refuse_twice(
        &self,
        name: &str,
        uri: &str,
        disk: &dyn Device,
    ) -> Result<(), Failure> {
        let (uuid, read_only) = (disk.identity().uuid_text(), disk.geometry().read_only);
        let is_same = |found: &Found| {
            let there = &found.record;
            let both_read = there.read_only && read_only;
            found.alive && there.name != name && there.uuid == uuid && !both_read
        };
        match self.all()?.into_iter().find(is_same) {
            None => Ok(()),
            Some(Found { record, .. }) => Err(Failure::usage(format!(
                "{} and {} are one disk, which is attached as {}: use {}, or `fabrix detach {}` first",
                record.uri,
                without_secrets(uri),
                record.name,
                record.device.display(),
                record.name
            ))),
        }
    }

    /// Reserves a name, by default the first free one. First removes the remains of a dead process
    /// with that name.
    pub(crate) fn claim(&self, name: Option<&str>) -> Result<Claim, Failure> {
        let cannot = Failure::at(&self.folder);
        let everything = self.lock_file("lock").map_err(cannot)?;
        everything.lock().map_err(cannot)?; // unlocked at the end of this function
        let others = self.all()?;
        let of_others = others
            .iter()
            .filter(|other| Some(other.record.name.as_str()) != name)
            .map(|other| other.record.id);
        let numbers: Vec<u32> = of_others.chain(self.living_numbers()?).collect();
        let id = (1..).find(|id| !numbers.contains(id)).unwrap_or(0);
        let taken = |name: &str| {
            others.iter().any(|other| other.record.name == name) || self.is_locked(name)
        };
        let name = match name {
            Some(name) => name.to_owned(),
            None => (id..)
                .map(|number| format!("disk{number}"))
                .find(|name| !taken(name))
                .unwrap_or_default(),
        };
        let mut lock = self.lock_file(&format!("{name}.lock")).map_err(cannot)?;
        match lock_permanently(&lock) {
            Ok(())
                if !others
                    .iter()
                    .any(|other| other.alive && other.record.name == name) => {}
            Ok(()) | Err(TryLockError::WouldBlock) => {
                return Err(Failure::usage(format!(
                    "the name {name} is taken: see `fabrix list`, choose another with --name, or detach it"
                )));
            }
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
        if let Some(stale) = others.iter().find(|other| other.record.name == name)
            && !waits(&stale.record)
        {
            remove_leftovers(&stale.record, &self.mount_point(&name));
        }
        let noted = lock.set_len(0).and_then(|()| write!(lock, "{id}"));
        noted.map_err(cannot)?;
        Ok(Claim {
            id,
            name,
            folder: self.folder.clone(),
            keeps: false,
            _lock: lock,
        })
    }

    /// Control socket of an attachment.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.sock"))
    }

    /// Mount point of an attachment's file.
    pub(crate) fn mount_point(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.disk"))
    }

    /// Whether the process of an attachment is alive.
    pub(crate) fn is_locked(&self, name: &str) -> bool {
        File::open(self.folder.join(format!("{name}.lock"))).is_ok_and(|lock| is_held(&lock))
    }

    /// Numbers of all living processes, with or without a record.
    fn living_numbers(&self) -> Result<Vec<u32>, Failure> {
        let mut numbers = Vec::new();
        for path in self.files("lock")? {
            if File::open(&path).is_ok_and(|lock| is_held(&lock))
                && let Ok(text) = fs::read_to_string(&path)
            {
                numbers.extend(text.parse::<u32>());
            }
        }
        Ok(numbers)
    }

    /// The files of all attachments with an extension.
    fn files(&self, extension: &str) -> Result<Vec<PathBuf>, Failure> {
        files(&self.folder, extension).map_err(Failure::at(&self.folder))
    }

    fn lock_file(&self, name: &str) -> std::io::Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.folder.join(name))
    }
}

/// Whether a process holds the lock permanently. Concurrent tests do not disturb each other,
/// because they use a shared lock.
fn is_held(lock: &File) -> bool {
    matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Takes a lock permanently. Retries, because a test of another process holds it briefly.
fn lock_permanently(lock: &File) -> Result<(), TryLockError> {
    for _ in 0..LOCK_ATTEMPTS_MAX {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_RETRY_INTERVAL),
            done => return done,
        }
    }
    lock.try_lock()
}

impl Claim {
    /// Path of one of the attachment's files.
    pub(crate) fn path(&self, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", self.name))
    }

    /// Sets whether the record stays after the drop, because it describes a remaining device.
    pub(crate) fn keep(&mut self, keeps: bool) {
        self.keeps = keeps;
    }

    /// The file of the record.
    pub(crate) fn record_file(&self) -> RecordFile {
        RecordFile {
            path: self.path("json"),
            fresh: self.path("json.new"),
        }
    }
}

/// The file of an attachment's record.
pub(crate) struct RecordFile {
    path: PathBuf,
    fresh: PathBuf,
}

impl RecordFile {
    /// Writes the record atomically.
    pub(crate) fn write(&self, record: &Record) -> Result<(), Failure> {
        let text = serde_json::to_string(record).map_err(Failure::io)?;
        let written = File::create(&self.fresh)
            .and_then(|mut file| writeln!(file, "{text}"))
            .and_then(|()| fs::rename(&self.fresh, &self.path));
        written.map_err(Failure::at(&self.path))
    }
}

impl Drop for Claim {
    /// Removes the files before the lock is released, so a free lock means no record. The lock file
    /// stays, because another process may wait for it.
    fn drop(&mut self) {
        if self.keeps {
            return;
        }
        for extension in ["json", "json.new", "log", "disk"] {
            let _was_not_there = fs::remove_file(self.path(extension));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> (tempfile::TempDir, Records) {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().to_owned();
        (place, Records { folder })
    }

    #[test]
    fn those_that_begin_at_once_get_numbers_and_names_of_their_own() {
        let (_place, records) = records();
        let one = records.claim(None).expect("a name");
        let two = records.claim(None).expect("another");
        let named = records.claim(Some("named")).expect("a third");
        let all = [&one, &two, &named].map(|claim| (claim.id, claim.name.clone()));
        let wanted = [(1, "disk1"), (2, "disk2"), (3, "named")];
        assert_eq!(all, wanted.map(|(id, name)| (id, name.to_owned())));
        drop(one);
        let next = records.claim(Some("next")).expect("a fourth");
        assert_eq!(next.id, 1, "a number that was given back");
        assert!(records.claim(Some("named")).is_err());
    }

    #[test]
    fn who_looks_takes_nobodys_name_and_sees_nobody_who_looks() {
        let (_place, records) = records();
        drop(records.claim(Some("one")).expect("a name"));
        let path = records.folder.join("one.lock");
        let looking = File::open(&path).expect("its lock");
        looking.lock_shared().expect("nobody has it");
        assert!(!records.is_locked("one"), "another look is no owner");
        let ends = std::thread::spawn(move || drop(looking));
        let claim = records.claim(Some("one"));
        ends.join().expect("it has looked");
        assert!(claim.is_ok());
        assert!(records.is_locked("one"));
    }
}
