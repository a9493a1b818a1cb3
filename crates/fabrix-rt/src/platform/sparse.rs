//! Holes of sparse files.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use crate::sys::file;

/// A range of a file: a hole, or data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// A range without space.
    Hole {
        /// End of the range, in bytes from the start of the file. It may be the end of the file.
        end: u64,
    },
    /// A range with space.
    Data {
        /// End of the range, in bytes from the start of the file.
        end: u64,
    },
}

/// The range at `offset`. A file system without holes answers "data". The call may wait for the
/// tables of the file system, and it moves the position of the file.
///
/// Errors: what lseek(2) says; a block device is refused.
pub fn stretch(file: &File, offset: u64) -> io::Result<Stretch> {
    let length = file.metadata()?.len();
    let data = file::next_data(file.as_fd(), offset)?.unwrap_or(length);
    if data > offset {
        return Ok(Stretch::Hole { end: data });
    }
    let end = file::next_hole(file.as_fd(), offset)?;
    Ok(Stretch::Data { end })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn finds_what_was_written_between_two_holes() {
        let path = std::env::temp_dir().join(format!("fabrix-sparse-{}", std::process::id()));
        let file = File::create_new(&path).expect("a file");
        std::fs::remove_file(&path).expect("ours");
        file.set_len(1 << 20).expect("a size");
        file.write_all_at(&[1; 4096], 128 << 10).expect("written");
        let found = |offset| stretch(&file, offset).expect("an answer");
        // Without holes everything is data, which is allowed.
        if found(0) != (Stretch::Data { end: 1 << 20 }) {
            assert_eq!(found(0), Stretch::Hole { end: 128 << 10 });
            assert_eq!(found(128 << 10), Stretch::Data { end: 132 << 10 });
            assert_eq!(found(132 << 10), Stretch::Hole { end: 1 << 20 });
        }
    }
}
