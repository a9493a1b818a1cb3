//! The terminal of this process, for a program that answers to single keys.

use std::io;
use std::os::fd::AsFd;

use crate::sys;

/// Mode of the terminal in which every key is read at once and not echoed. It ends when this value
/// is dropped.
#[derive(Debug)]
pub struct KeyByKey {
    before: sys::terminal::Settings,
}

impl KeyByKey {
    /// Sets the mode of the terminal at standard input.
    ///
    /// Errors: standard input is no terminal.
    pub fn begin() -> io::Result<Self> {
        let input = io::stdin();
        let before = sys::terminal::settings(input.as_fd())?;
        sys::terminal::set(input.as_fd(), &before.key_by_key())?;
        Ok(Self { before })
    }
}

impl Drop for KeyByKey {
    fn drop(&mut self) {
        let _it_is_gone = sys::terminal::set(io::stdin().as_fd(), &self.before);
    }
}
