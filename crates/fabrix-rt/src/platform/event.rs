//! The wake-up of a sleeping shard.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use crate::sys;

/// An eventfd in blocking mode: io_uring would answer `EAGAIN` for a nonblocking one.
#[derive(Debug)]
pub(crate) struct Event(File);

impl Event {
    /// Errors: no descriptor is free.
    pub(crate) fn new() -> io::Result<Self> {
        sys::file::event().map(Self)
    }

    /// Makes the descriptor readable.
    pub(crate) fn signal(&self) {
        // A write fails only when the counter would overflow. The descriptor is readable then.
        let _full = (&self.0).write(&1_u64.to_ne_bytes());
    }

    /// Makes a readable descriptor unreadable. Waits for a signal otherwise.
    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        // The read of an open eventfd into eight bytes fails only when a signal interrupts it.
        // The descriptor stays readable then, and is cleared the next time.
        let _interrupted = (&self.0).read(&mut count);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
