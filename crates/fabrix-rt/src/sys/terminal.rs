//! Settings of terminals, which std lacks.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

/// Settings of a terminal.
#[derive(Clone, Copy)]
pub(crate) struct Settings(libc::termios);

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Settings({:#x})", self.0.c_lflag)
    }
}

impl Settings {
    /// The settings without line mode and without echo. Keys still raise signals.
    pub(crate) fn key_by_key(mut self) -> Self {
        self.0.c_lflag &= !(libc::ICANON | libc::ECHO);
        self
    }
}

/// Reads the settings of a terminal.
pub(crate) fn settings(terminal: BorrowedFd<'_>) -> io::Result<Settings> {
    // SAFETY: a termios is plain numbers; zero is valid for all of them.
    // WHY UNSAFE: it has fields that differ between C libraries, so it cannot be written as a
    // literal.
    let mut found: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one termios into `found`, which outlives the call.
    // WHY UNSAFE: std knows no terminals.
    check(unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut found) })?;
    Ok(Settings(found))
}

/// Changes the settings of a terminal at once.
pub(crate) fn set(terminal: BorrowedFd<'_>, settings: &Settings) -> io::Result<()> {
    let settings = &raw const settings.0;
    // SAFETY: the kernel reads one termios, which outlives the call.
    // WHY UNSAFE: as above.
    check(unsafe { libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, settings) })?;
    Ok(())
}
