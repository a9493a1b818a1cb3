//! Texts from files that a user names: read with a limit, and only from regular files, because a
//! name may mean a device without end, or a pipe into which nobody writes.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Reads a text of at most `bytes_max`.
///
/// Errors: what the system says, or that the file is longer, no text, or no regular file.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<String> {
    let found = path.metadata()?;
    if !found.is_file() && !found.is_dir() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "it is a pipe or a device; name a regular file",
        ));
    }
    let mut text = String::new();
    let length = File::open(path)?
        .take(bytes_max + 1)
        .read_to_string(&mut text)?;
    if length as u64 > bytes_max {
        return Err(Error::new(
            ErrorKind::FileTooLarge,
            format!("it has more than {bytes_max} bytes"),
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let error = read("/dev/zero".as_ref(), 1000).expect_err("it has no end");
        assert!(error.to_string().contains("a device"), "{error}");
        let error = read("/proc/self/status".as_ref(), 10).expect_err("it is longer");
        assert!(error.to_string().contains("10 bytes"), "{error}");
        assert!(read("/proc/self/status".as_ref(), 1 << 20).is_ok());
    }
}
