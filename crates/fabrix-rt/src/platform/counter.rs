//! Counters of the kernel (eventfd) that wake whoever waits for them: between threads, processes
//! and virtual machines.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use crate::{File, sys};

/// A new counter. Calls on it do not wait.
///
/// Errors: no descriptor is free.
pub fn new() -> io::Result<fs::File> {
    let event = sys::file::event()?;
    sys::file::set_nonblocking(event.as_fd())?;
    Ok(event)
}

/// A counter that another process has made, for [`Op::TakeMessage`](crate::Op::TakeMessage) of 8
/// bytes and for [`ring`]. Calls on it do not wait from now on, in the other process either.
///
/// Errors: `InvalidInput` for a file, a socket or a pipe.
pub fn from_descriptor(descriptor: OwnedFd) -> io::Result<fs::File> {
    let file = fs::File::from(descriptor);
    // A counter belongs to no file system, so its mode has no file type.
    if file.metadata()?.mode() & libc::S_IFMT != 0 {
        let sentence = "it is no counter (eventfd)";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
    }
    sys::file::set_nonblocking(file.as_fd())?;
    Ok(file)
}

/// Adds one to a counter and so wakes whoever waits for it. A full counter wakes as well.
pub fn ring(counter: &File) {
    let _full = counter.file().write(&1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_is_no_counter_is_refused() {
        assert!(from_descriptor(new().expect("a counter").into()).is_ok());
        let (socket, _other) = UnixStream::pair().expect("a pair");
        assert!(from_descriptor(socket.into()).is_err());
        assert!(from_descriptor(tempfile::tempfile().expect("a file").into()).is_err());
    }
}
