//! Texts from files that a user names: read with a limit, because a name may mean a device without
//! end.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Reads a text of at most `bytes_max`.
///
/// Errors: what the system says, or that the file is longer or no text.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<String> {
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
        assert!(error.to_string().contains("1000 bytes"), "{error}");
        assert!(read("/proc/self/status".as_ref(), 1 << 20).is_ok());
    }
}
