//! What the program says: data to stdout, sentences to stderr.
//!
//! Whoever reads may go away at any time (`fabrix bench ... | head`): that ends nothing. Knows no
//! subcommand.

use std::fmt;
use std::io::{ErrorKind, Write, stdout};

use crate::failure::Failure;
use crate::log::{self, Level};

/// Prints data, all of it at once.
///
/// Errors: stdout takes no more, a full disk for instance. A reader that has gone has seen enough.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_on(text).map(drop)
}

/// The same for who prints on and on; false: nobody reads any more.
pub(crate) fn print_on(text: &str) -> Result<bool, Failure> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::io(format!("cannot print: {error}"))),
    }
}

/// A word as a shell takes it: in quotes, where something in it means something to a shell.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Says a sentence to the person, or to the log once there is one, from any thread.
pub(crate) fn say(sentence: impl fmt::Display) {
    log::say(Level::Info, sentence);
}
