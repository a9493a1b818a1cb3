//! Identity of a file: one value for all spellings of its path and for all links to it.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A file, whatever path leads to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum FileId {
    /// Device and inode of a file.
    Inode(u64, u64),
    /// Number of a block device.
    BlockDevice(u64),
    /// Path of a file that is not there, in its canonical folder.
    Missing(PathBuf),
}

impl FileId {
    pub(super) fn of(path: &Path) -> Self {
        match path.metadata() {
            Ok(found) if found.file_type().is_block_device() => Self::BlockDevice(found.rdev()),
            Ok(found) => Self::Inode(found.dev(), found.ino()),
            Err(_) => Self::Missing(canonical(path)),
        }
    }
}

/// The path with the canonical form of its folder.
fn canonical(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|one| !one.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new(".")).canonicalize().ok();
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_identity_under_all_its_names() {
        let folder = tempfile::tempdir().expect("there is a folder");
        let path = |name: &str| folder.path().join(name);
        let id = |name: &str| FileId::of(&path(name));
        assert_eq!(id("one"), id("./one"), "before it is made");
        std::fs::write(path("one"), "").expect("it is made");
        std::fs::write(path("two"), "").expect("it is made");
        std::fs::hard_link(path("one"), path("hard")).expect("it is linked");
        std::os::unix::fs::symlink(path("one"), path("soft")).expect("it is linked");
        for name in ["./one", "hard", "soft"] {
            assert_eq!(id(name), id("one"), "{name}");
        }
        assert_ne!(id("two"), id("one"));
    }
}
