//! This machine's id, and the folders in which this program keeps files for one user.
//!
//! The names of the machine's disks, exports, hosts and initiators are derived from the id. The id
//! is unique to the machine and the same after every start. Only hashes of it leave this process.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::cli::terminal::say;
use crate::clock::since_1970;

/// The id of this machine.
pub(crate) fn id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        system_id(read("/etc/machine-id"))
            .or_else(|| usual_folder().and_then(|folder| kept_id(&folder)))
            .or_else(|| host_name(read("/proc/sys/kernel/hostname")))
            .unwrap_or_else(|| {
                say(
                    "this machine has no /etc/machine-id, no folder for state and no name of its own, so the names of \
                     its disks and of its host change at every start; make an id with systemd-machine-id-setup",
                );
                random()
            })
    })
}

/// 128 random bits in hexadecimal.
pub(crate) fn random() -> String {
    let mut bytes = [0; 16];
    if fabrix_rt::random::fill(&mut bytes).is_err() {
        // Without a random source, the time and the process id are used.
        let nanoseconds = since_1970().as_nanos();
        bytes = (nanoseconds << 32 | u128::from(std::process::id())).to_be_bytes();
    }
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// Text of a small file without spaces around it. None: the file is empty or cannot be read.
pub(crate) fn read(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The usual folder for state: `$XDG_STATE_HOME/fabrix`, for root `/var/lib/fabrix`, else
/// `~/.local/state/fabrix`.
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

/// Creates a folder and those above it, for this user alone.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    let mut folders = DirBuilder::new();
    folders.recursive(true).mode(0o700).create(folder)
}

/// The content of /etc/machine-id. An image that was never started contains the word
/// `uninitialized`.
fn system_id(text: Option<String>) -> Option<String> {
    text.filter(|id| id != "uninitialized")
}

/// The id stored in the state directory. The first process creates it. None if it cannot be stored.
fn kept_id(folder: &Path) -> Option<String> {
    let path = folder.join(FILE);
    if let Some(id) = read(&path) {
        return Some(id);
    }
    fs::create_dir_all(folder).ok()?;
    // The complete file is linked to its final name, so a second process never reads a part of it.
    let fresh = folder.join(format!("{FILE}.{}", std::process::id()));
    let id = random();
    let written = File::create(&fresh)
        .and_then(|mut file| writeln!(file, "{id}").and_then(|()| file.sync_all()))
        .and_then(|()| fs::hard_link(&fresh, &path));
    let _it_was_never_made = fs::remove_file(&fresh);
    match written {
        Ok(()) => Some(id),
        // Another process was faster: use its id.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => read(&path),
        Err(_) => None,
    }
}

/// The host name, unless it is a common default.
fn host_name(name: Option<String>) -> Option<String> {
    name.filter(|name| {
        !matches!(
            name.as_str(),
            "(none)" | "localhost" | "localhost.localdomain"
        )
    })
}

/// Name of the file in the state directory.
const FILE: &str = "machine-id";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_an_id_keeps_one_in_its_state_directory() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("state/fabrix");
        let first = kept_id(&folder).expect("an id");
        assert_eq!(first.len(), 32);
        assert_eq!(kept_id(&folder), Some(first.clone()));
        assert_eq!(fs::read_dir(&folder).expect("the folder").count(), 1);
        let other = tempfile::tempdir().expect("a folder");
        assert_ne!(kept_id(other.path()), Some(first));
        let file = place.path().join("file");
        fs::write(&file, "").expect("a file");
        assert_eq!(kept_id(&file), None);
    }

    #[test]
    fn words_that_every_machine_may_have_are_no_id() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(system_id(some("uninitialized")), None);
        assert_eq!(system_id(some("0123")), some("0123"));
        assert_eq!(host_name(some("localhost")), None);
        assert_eq!(host_name(some("(none)")), None);
        assert_eq!(host_name(some("storage7")), some("storage7"));
        assert_ne!(random(), random());
    }
}
