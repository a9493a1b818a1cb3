//! Where the holes of a sparse file are.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use crate::sys::file;

/// A part of a file without space, or with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// Nothing is kept up to `end`, which may be the end of the file.
    Hole {
        /// In bytes from the start of the file.
        end: u64,
    },
    /// Something is kept up to `end`.
    Data {
        /// In bytes from the start of the file.
        end: u64,
    },
}

/// What lies at `offset`. The file system may read its own tables first; a file system without
/// holes says data. The file's own position moves.
///
/// Errors: what lseek says, for block devices that it is no file.
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
