//! Writes an archive that the kernel unpacks as its first file system: cpio in the "newc" form.
//!
//! Knows the form and nothing of what is in it. Device nodes need no privilege here: they are lines
//! of an archive.
//! Source: Documentation/driver-api/early-userspace/buffer-format.rst of the Linux kernel.

use std::collections::BTreeSet;

/// An archive in memory. Every path is relative to the root and has no leading slash.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    folders: BTreeSet<String>,
}

/// The type bits of a mode.
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

impl Archive {
    /// A folder and those above it, unless they are there.
    pub(super) fn folder(&mut self, path: &str) {
        if path.is_empty() || !self.folders.insert(path.to_owned()) {
            return;
        }
        self.folders_above(path);
        self.entry(path, FOLDER | 0o755, (0, 0), &[]);
    }

    /// A file that everybody may read and run.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.folders_above(path);
        self.entry(path, FILE | 0o755, (0, 0), content);
    }

    /// A symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.folders_above(path);
        self.entry(path, LINK | 0o777, (0, 0), target.as_bytes());
    }

    /// A character device.
    pub(super) fn device(&mut self, path: &str, number: (u32, u32)) {
        self.folders_above(path);
        self.entry(path, CHARACTER_DEVICE | 0o600, number, &[]);
    }

    /// The whole archive. Several in a row are one to the kernel.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn folders_above(&mut self, path: &str) {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folder(above);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("the form has 32 bits for a size");
        let name_size = u32::try_from(path.len() + 1).expect("a path is short");
        // Inode, mode, owner, group, links, time, size, device of the file, device it is, name's
        // size, checksum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            device.0,
            device.1,
            name_size,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    /// Names and contents end at a multiple of four.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_its_header_its_name_and_its_content_each_padded_to_four() {
        let mut archive = Archive::default();
        archive.file("init", b"hello");
        let bytes = archive.finish();
        let header = String::from_utf8_lossy(&bytes[..110]).into_owned();
        assert!(header.starts_with("07070100000001000081ED"), "{header}");
        assert_eq!(&header[54..62], "00000005", "the size of the content");
        assert_eq!(&bytes[110..124], b"init\0\0hello\0\0\0");
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.windows(10).any(|window| window == b"TRAILER!!!"));
    }

    #[test]
    fn folders_come_once_and_before_what_is_in_them() {
        let mut archive = Archive::default();
        archive.file("usr/bin/a", b"");
        archive.file("usr/bin/b", b"");
        let text = String::from_utf8_lossy(&archive.finish()).into_owned();
        let place = |name: &str| text.find(name).expect("it is there");
        assert!(place("usr\0") < place("usr/bin\0") && place("usr/bin\0") < place("usr/bin/a\0"));
        assert_eq!(text.matches("usr/bin\0").count(), 1);
    }
}
