//! What the program says: data to stdout, sentences to stderr.
//!
//! Whoever reads may go away at any time (`fabrix bench ... | head`): that ends nothing. Knows no subcommand.

use std::fmt;
use std::io::{ErrorKind, Write, stderr, stdout};

use crate::failure::Failure;

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

/// Says a sentence to the person, in one piece, from any thread. Without anybody to hear it is dropped: a shard
/// must not end because of that.
pub(crate) fn say(sentence: impl fmt::Display) {
    let line = format!("fabrix: {sentence}\n");
    let _nobody_listens = stderr().lock().write_all(line.as_bytes());
}
