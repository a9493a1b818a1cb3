//! Output of the program: data to stdout, sentences to stderr.
//!
//! A reader that closes its end early (`fabrix bench ... | head`) does not end the program.

use std::fmt;
use std::io::{ErrorKind, Write, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::args::Format;
use crate::failure::Failure;
use crate::log::{self, Level};

/// Prints data in one write.
///
/// Errors: stdout fails, for example on a full disk. A closed pipe is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_on(text).map(drop)
}

/// Prints a result in the requested format.
pub(crate) fn show<J: fmt::Display>(
    format: Format,
    text: impl FnOnce() -> String,
    json: impl FnOnce() -> J,
) -> Result<(), Failure> {
    print(&match format {
        Format::Text => text(),
        Format::Json => format!("{}\n", json()),
    })
}

/// Whether data was printed to stdout.
pub(crate) fn has_printed() -> bool {
    PRINTED.load(Ordering::Relaxed)
}

static PRINTED: AtomicBool = AtomicBool::new(false);

/// [`print()`] for repeated output. False: the reader has closed the pipe.
pub(crate) fn print_on(text: &str) -> Result<bool, Failure> {
    PRINTED.store(true, Ordering::Relaxed);
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::io(format!("cannot print: {error}"))),
    }
}

/// Quotes a word for a shell if needed.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Prints a sentence to the terminal, or to the log after its start. Any thread may call it.
pub(crate) fn say(sentence: impl fmt::Display) {
    log::say(Level::Info, sentence);
}
