//! The folder of attachments: for each `NAME.json` with what it is, `NAME.lock` with its number,
//! that its process holds locked as long as it lives, `NAME.sock` where it answers, `NAME.log` with
//! what it says.
//!
//! A record whose lock is free is stale: its process has died. Knows files; of disks it knows their
//! identities.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fabrix_block::Device;
use fabrix_block::spec::without_secrets;
use fabrix_rt::process::is_root;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// What is known of an attachment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Its number, the lowest that was free.
    pub(crate) id: u32,
    pub(crate) name: String,
    /// What users open: a device, a file, a socket.
    pub(crate) device: PathBuf,
    /// `ublk`, `nbd`, `fuse`, `file`, `nbd-socket`, `vhost-user` or `kernel`.
    #[serde(rename = "as")]
    pub(crate) front_end: String,
    pub(crate) uri: String,
    /// The NQN or the target's name, of a remote disk.
    #[serde(default)]
    pub(crate) subsystem: Option<String>,
    /// The disk's UUID; empty in records of earlier versions.
    #[serde(default)]
    pub(crate) uuid: String,
    /// The kernel's controller, where the kernel reaches the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<String>,
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: u32,
    pub(crate) read_only: bool,
    pub(crate) pid: u32,
    /// Seconds since 1970.
    pub(crate) since: u64,
}

impl Record {
    /// Writes the device's path to a file that the user has named.
    pub(crate) fn write_device(&self, file: &Path) -> Result<(), Failure> {
        let line = format!("{}\n", self.device.display());
        let written = fs::write(file, line);
        written.map_err(|error| Failure::io(format!("--devid-file {}: {error}", file.display())))
    }
}

/// A record, and whether its process lives.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) record: Record,
    pub(crate) alive: bool,
}

/// How long somebody may look whether a lock is free.
const LOOK: Duration = Duration::from_millis(1);
const LOOKS_MAX: usize = 50;

/// The folder.
pub(crate) struct Records {
    folder: PathBuf,
}

/// A name that is ours as long as this lives. The record's files go with it.
pub(crate) struct Claim {
    pub(crate) id: u32,
    pub(crate) name: String,
    folder: PathBuf,
    /// The files outlive this.
    keeps: bool,
    _lock: File,
}

impl Records {
    /// The folder of this user, made if there is none: $FABRIX_RUN_DIR, /run/fabrix for root,
    /// $XDG_RUNTIME_DIR/fabrix.
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
        let made = fs::DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&folder);
        made.map_err(|error| Failure::io(format!("{}: {error}", folder.display())))?;
        Ok(Self { folder })
    }

    /// All of them, by number.
    pub(crate) fn all(&self) -> Result<Vec<Found>, Failure> {
        let cannot = |error| Failure::io(format!("{}: {error}", self.folder.display()));
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            // It may have gone since, or be no record of ours.
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            if let Ok(record) = serde_json::from_str::<Record>(&text) {
                let alive = self.is_locked(&record.name) || super::kernel::lives(&record);
                found.push(Found { record, alive });
            }
        }
        found.sort_by_key(|found| found.record.id);
        Ok(found)
    }

    /// The one that is called so: by its device, name or number.
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

    /// Refuses the disk `uri`, to be attached as `name`, where it is attached under another name
    /// already, unless both are only read. Each device has a cache of its own: two of them on one
    /// disk ruin what is on it.
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

    /// Takes a name, or the first that is free. What a dead process has left under it is cleared
    /// away first.
    pub(crate) fn claim(&self, name: Option<&str>) -> Result<Claim, Failure> {
        let cannot = |error| Failure::io(format!("{}: {error}", self.folder.display()));
        let everything = self.lock_file("lock").map_err(cannot)?;
        everything.lock().map_err(cannot)?; // freed when this function is over
        let others = self.all()?;
        let of_others = others
            .iter()
            .filter(|other| Some(other.record.name.as_str()) != name)
            .map(|other| other.record.id);
        let numbers: Vec<u32> = of_others.chain(self.beginning()?).collect();
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
        match take(&lock) {
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
            && !super::takeover::waits(&stale.record)
        {
            super::front::clear_away(&stale.record, &self.mount_point(&name));
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

    /// Where the process of an attachment answers.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.sock"))
    }

    /// Where the file of an attachment is mounted.
    pub(crate) fn mount_point(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.disk"))
    }

    /// Whether the process of an attachment lives.
    pub(crate) fn is_locked(&self, name: &str) -> bool {
        File::open(self.folder.join(format!("{name}.lock"))).is_ok_and(|lock| is_taken(&lock))
    }

    /// The numbers of those whose process lives, whether it has a record yet or not.
    fn beginning(&self) -> Result<Vec<u32>, Failure> {
        let cannot = |error| Failure::io(format!("{}: {error}", self.folder.display()));
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "lock")
                && File::open(&path).is_ok_and(|lock| is_taken(&lock))
                && let Ok(text) = fs::read_to_string(&path)
            {
                numbers.extend(text.parse::<u32>());
            }
        }
        Ok(numbers)
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

/// Whether somebody holds a lock for good. Others who ask the same do not see each other.
fn is_taken(lock: &File) -> bool {
    matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Takes a lock for good. Whoever looks whether it is free has it for a moment, which is waited
/// for.
fn take(lock: &File) -> Result<(), TryLockError> {
    for _ in 0..LOOKS_MAX {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            done => return done,
        }
    }
    lock.try_lock()
}

impl Claim {
    /// One of the record's files.
    pub(crate) fn path(&self, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", self.name))
    }

    /// Whether the record stays when this ends: it tells of something that is left.
    pub(crate) fn keep(&mut self, keeps: bool) {
        self.keeps = keeps;
    }

    /// Writes the record, whole or not at all.
    pub(crate) fn write(&self, record: &Record) -> Result<(), Failure> {
        let path = self.path("json");
        let fresh = self.path("json.new");
        let text = serde_json::to_string(record).map_err(Failure::io)?;
        let written = File::create(&fresh)
            .and_then(|mut file| writeln!(file, "{text}"))
            .and_then(|()| fs::rename(&fresh, &path));
        written.map_err(|error| Failure::io(format!("{}: {error}", path.display())))
    }
}

impl Drop for Claim {
    /// The lock goes last: who finds it free finds no record. Its file stays, for somebody may be
    /// waiting at it.
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
