//! The open disks of this process by identity. It detects one disk under two URIs, and
//! distinguishes it from two disks that only look alike.
//!
//! Local files also have locks between processes. A remote disk is known by its identity only.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use fabrix_block::Identity;

use crate::failure::Failure;
use crate::locks::lock;

/// The open disks.
#[derive(Default)]
pub(crate) struct Opened {
    list: Mutex<Vec<Weak<Claim>>>,
}

/// Registration of an open disk. Dropping it ends the registration.
pub(crate) struct Claim {
    /// Text form for messages.
    text: String,
    names: Vec<Name>,
    /// Whether other shared registrations of the same disk are allowed.
    shared: bool,
}

/// A globally unique name of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Uuid([u8; 16]),
    Nguid([u8; 16]),
    /// WWID in the kernel's spelling.
    Wwid(String),
}

impl Opened {
    /// Registers the disk `text` with its names. If `shared` is set for both, the same disk may be
    /// registered again.
    ///
    /// # Errors
    /// The same disk is already open.
    pub(super) fn claim(
        &self,
        text: String,
        names: Vec<Name>,
        shared: bool,
    ) -> Result<Arc<Claim>, Failure> {
        let claim = Claim {
            text,
            names,
            shared,
        };
        let mut list = lock(&self.list);
        list.retain(|other| other.strong_count() > 0);
        let mut others = list.iter().filter_map(Weak::upgrade);
        if let Some(same) = others.find(|other| claim.meets(other)) {
            return Err(Failure::usage(format!(
                "{} and {} are one disk, and as two each would write over the other's blocks; name one of them only",
                same.text, claim.text
            )));
        }
        let claim = Arc::new(claim);
        list.push(Arc::downgrade(&claim));
        Ok(claim)
    }

    /// Whether a disk with this identity is open.
    pub(super) fn has(&self, identity: &Identity) -> bool {
        let name = Name::Uuid(identity.uuid);
        let list = lock(&self.list);
        let mut all = list.iter().filter_map(Weak::upgrade);
        all.any(|other| other.names.contains(&name))
    }
}

impl Claim {
    fn meets(&self, other: &Self) -> bool {
        let is_same = self.names.iter().any(|name| other.names.contains(name));
        is_same && !(self.shared && other.shared)
    }
}

/// The names of an identity.
pub(super) fn names(identity: &Identity) -> Vec<Name> {
    vec![Name::Uuid(identity.uuid), Name::Nguid(identity.nguid)]
}

/// The kernel's names of a block device. The device may lead to a disk that is already open over
/// the kernel's own host or initiator. Partitions have no names, because the kernel's names belong
/// to the whole disk.
pub(super) fn kernel_names(path: &Path) -> Vec<Name> {
    let Ok(metadata) = fs::metadata(path) else {
        return Vec::new();
    };
    if !metadata.file_type().is_block_device() {
        return Vec::new();
    }
    names_in(&kernel_folder(metadata.rdev()))
}

/// The kernel's folder of the block device with this number.
pub(crate) fn kernel_folder(number: u64) -> PathBuf {
    format!("/sys/dev/block/{}:{}", major(number), minor(number)).into()
}

fn names_in(folder: &Path) -> Vec<Name> {
    let read = |file: &str| crate::machine::read(folder.join(file));
    let bytes = |file: &str| {
        let id = crate::args::parse_uuid(&read(file)?).ok()?;
        Some(id.0)
    };
    let wwid = read("wwid").or_else(|| read("device/wwid"));
    // Names made of vendor and model are not unique, so they are ignored.
    let wwid = wwid.filter(|id| {
        ["naa.", "eui.", "uuid."]
            .iter()
            .any(|kind| id.starts_with(kind))
    });
    let all = [
        bytes("uuid").map(Name::Uuid),
        bytes("nguid").map(Name::Nguid),
        wwid.map(Name::Wwid),
    ];
    all.into_iter().flatten().collect()
}

/// The major number of a device. Source: the C library's `gnu_dev_major`.
const fn major(number: u64) -> u64 {
    number >> 8 & 0xFFF | number >> 32 & !0xFFF
}

/// The minor number of a device. Source: the C library's `gnu_dev_minor`.
const fn minor(number: u64) -> u64 {
    number & 0xFF | number >> 12 & !0xFF & 0xFFFF_FFFF
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(seed: &str) -> Identity {
        Identity::derive(seed, seed, "a disk")
    }

    #[test]
    fn one_disk_under_two_uris_is_named_by_both() {
        let opened = Opened::default();
        let claim = |text: &str, names| opened.claim(text.to_owned(), names, false);
        let first = claim("one", names(&identity("a"))).expect("the first");
        claim("other", names(&identity("b"))).expect("another disk");
        let sentence = claim("two", names(&identity("a"))).err().expect("the same");
        let sentence = sentence.to_string();
        assert!(sentence.contains("one and two are one disk"), "{sentence}");
        // A single common name suffices, because not every source has all names.
        assert!(claim("two", vec![Name::Nguid(identity("a").nguid)]).is_err());
        assert!(opened.has(&identity("a")));
        drop(first);
        assert!(!opened.has(&identity("a")));
        claim("two", names(&identity("a"))).expect("nobody has it any more");
    }

    #[test]
    fn those_that_share_a_disk_may_all_have_it() {
        let opened = Opened::default();
        let claim = |shared| opened.claim("disk".to_owned(), names(&identity("a")), shared);
        let _first = claim(true).expect("the first");
        let _second = claim(true).expect("the second");
        assert!(claim(false).is_err());
    }

    #[test]
    fn the_kernels_names_of_a_disk_are_those_of_its_target() {
        let place = tempfile::tempdir().expect("a folder");
        let put = |file: &str, text: &str| fs::write(place.path().join(file), text).expect(file);
        assert_eq!(names_in(place.path()), []);
        put("uuid", "01020304-0506-0708-090a-0b0c0d0e0f10\n");
        put("nguid", "00000000-0000-0000-0000-000000000000\n");
        put("wwid", "uuid.01020304-0506-0708-090a-0b0c0d0e0f10\n");
        let uuid = Name::Uuid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        let wwid = Name::Wwid("uuid.01020304-0506-0708-090a-0b0c0d0e0f10".to_owned());
        assert_eq!(names_in(place.path()), [uuid, wwid]);
        put("wwid", "t10.ATA     QEMU HARDDISK\n");
        assert_eq!(names_in(place.path()).len(), 1);
        assert_eq!(kernel_names(place.path()), [], "a folder is no disk");
        assert_eq!((major(0x803), minor(0x803)), (8, 3));
        assert_eq!((major(0x10_0302), minor(0x10_0302)), (3, 0x102));
    }
}
