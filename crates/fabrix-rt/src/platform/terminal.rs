//! The terminal of this process, as a program needs it that answers to single keys.

use std::io;
use std::os::fd::AsFd;

use crate::sys;

/// Keys come one by one, and are not shown, until this value goes.
#[derive(Debug)]
pub struct KeyByKey {
    before: sys::terminal::Settings,
}

impl KeyByKey {
    /// Begins, on standard input.
    ///
    /// Errors: it is no terminal.
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
