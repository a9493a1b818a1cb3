//! Secrets of this process: reads them from files, and keeps them out of visible command lines and
//! core dumps.
//!
//! It knows files and command lines. `disks` and `access` know what the secrets are for.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fabrix_block::spec::{LINE_END, Secret, without_secrets};
use fabrix_rt::process;

use crate::failure::Failure;

/// The secret that a disk's address contains or names. `place` is the address without secrets, for
/// errors.
///
/// # Errors
/// The file cannot be read, other users may read it, or it has more than one line.
pub(crate) fn read(secret: &Secret, place: &dyn Display) -> Result<String, Failure> {
    process::leave_no_core();
    let path = match secret {
        Secret::Text(text) => return Ok(text.clone()),
        Secret::File(path) => Path::new(path),
    };
    // A relative name may itself be a secret that begins with @. If no such file exists, the error
    // does not show it.
    if path.is_relative() && !path.exists() {
        return Err(Failure::usage(format!(
            "{place}: there is no file of the name behind the @ of its secret; a secret that begins with @ is written \
             %40"
        )));
    }
    let from = format!("{place}: the secret in {}", path.display());
    let text = read_private(&from, path)?;
    let secret = line(&text);
    if secret.is_empty() || secret.contains(LINE_END) {
        return Err(Failure::usage(format!(
            "{from}: one line is expected, with the secret alone"
        )));
    }
    Ok(secret.to_owned())
}

/// Reads a file that only this user or root can read and write. Errors start with `from`.
pub(crate) fn read_private(from: &str, path: &Path) -> Result<String, Failure> {
    process::leave_no_core();
    let wrong = |why: &dyn Display| Failure::usage(format!("{from}: {why}"));
    let cannot = |error: io::Error| match error.kind() {
        ErrorKind::InvalidData => wrong(&"it is not text in UTF-8"),
        _ => wrong(&error),
    };
    // Checked before opening, because opening a pipe would wait for its writer.
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(wrong(&"not a file"));
    }
    let file = File::open(path).map_err(cannot)?;
    // Checked on the open file, because the path may point to another file meanwhile.
    let (found, us) = (file.metadata().map_err(cannot)?, own_uid().map_err(cannot)?);
    if !found.is_file() {
        return Err(wrong(&"not a file"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(wrong(&"others may read or write it; run chmod 600 on it"));
    }
    if found.uid() != us && found.uid() != 0 {
        return Err(wrong(&"it belongs to another user"));
    }
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    if read.map_err(cannot)? as u64 > FILE_BYTES_MAX {
        return Err(wrong(&"longer than a name and a secret can be"));
    }
    Ok(text)
}

/// The text of a file with one line, without byte order mark and newline.
pub(crate) fn line(text: &str) -> &str {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

/// The effective user of this process.
pub(crate) fn own_uid() -> io::Result<u32> {
    Ok(std::fs::metadata("/proc/self")?.uid())
}

/// A command line without its secrets.
pub(crate) fn shown(words: &[OsString]) -> Vec<OsString> {
    let mut is_credential = false;
    let show = |word: &OsString| {
        let text = word.to_string_lossy();
        let option = CREDENTIALS
            .into_iter()
            .find(|option| text.starts_with(option));
        let value = option.map_or(0, |option| {
            option.len() + usize::from(text.len() > option.len())
        });
        let shown =
            match std::mem::replace(&mut is_credential, option.is_some_and(|it| *it == text)) {
                false if option.is_none() => without_secrets(&text),
                _ => format!("{}{}", &text[..value], credential(&text[value..])),
            };
        if shown == text {
            word.clone()
        } else {
            shown.into()
        }
    };
    words.iter().map(show).collect()
}

/// `USER%SECRET` without the secret. `@FILE` contains no secret.
fn credential(text: &str) -> String {
    match text.split_once('%') {
        Some((user, _)) if !text.starts_with('@') => format!("{user}%..."),
        None if !text.starts_with('@') && !text.is_empty() => "...".to_owned(),
        _ => text.to_owned(),
    }
}

/// Removes the secrets from the command line that other processes see, and disables core dumps.
pub(crate) fn hide(words: &[OsString]) {
    let shown = shown(words);
    if shown != words {
        process::leave_no_core();
        // Without /proc, other processes cannot see the command line either.
        let _seen_by_others = process::show_words(&shown);
    }
}

/// Options with a value `USER%SECRET`.
const CREDENTIALS: [&str; 2] = ["--chap", "--mutual-chap"];
/// Largest file in bytes: a name and a secret of 255 bytes each, plus separators.
const FILE_BYTES_MAX: u64 = 520;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_see_of_a_command_line_has_no_secrets() {
        for (given, expected) in [
            (
                "bench iscsi://me%hush@box/x -o json",
                "bench iscsi://me%...@box/x -o json",
            ),
            ("serve --chap me%hush ram:1M", "serve --chap me%... ram:1M"),
            (
                "serve --chap=me%hush --mutual-chap hush",
                "serve --chap=me%... --mutual-chap ...",
            ),
            (
                "serve --chap @secret --mutual-chap=@a%b",
                "serve --chap @secret --mutual-chap=@a%b",
            ),
            (
                "bench sgp_dd if=iscsi://me%hush@box/x",
                "bench sgp_dd if=iscsi://me%...@box/x",
            ),
        ] {
            let words: Vec<OsString> = given.split(' ').map(OsString::from).collect();
            let shown = shown(&words);
            let shown: Vec<_> = shown.iter().filter_map(|word| word.to_str()).collect();
            assert_eq!(shown.join(" "), expected);
        }
    }

    #[test]
    fn the_end_of_a_line_and_a_byte_order_mark_belong_to_no_secret() {
        for text in [
            "a secret",
            "a secret\n",
            "a secret\r\n",
            "\u{feff}a secret\r\n",
        ] {
            assert_eq!(line(text), "a secret");
        }
        assert_eq!(line("a\n\n"), "a\n");
    }
}
