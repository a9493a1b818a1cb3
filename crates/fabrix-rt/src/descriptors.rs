//! Descriptors that come over a Unix socket, beside bytes; and counters that wake who waits for
//! them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::{File, sys};

/// Waits for bytes and for descriptors beside them; these are appended. Result: bytes, 0 at the end
/// of the stream.
///
/// Errors: more descriptors than [`MOST`] (`InvalidData`); what recvmsg says.
pub fn receive(
    socket: &UnixStream,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    sys::socket::receive_with_descriptors(socket.as_fd(), bytes, descriptors)
}

/// Sends bytes, and descriptors beside them, at most [`MOST`]. Result: bytes.
///
/// Errors: more descriptors (`InvalidInput`); what sendmsg says.
pub fn send(
    socket: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    sys::socket::send_with_descriptors(socket.as_fd(), bytes, descriptors)
}

/// Waits for one descriptor, with one byte.
///
/// Errors: none came; what recvmsg says.
pub(crate) fn receive_one(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut descriptors = Vec::new();
    receive(socket, &mut [0], &mut descriptors)?;
    let first = descriptors.into_iter().next();
    first.ok_or_else(|| io::Error::other("no descriptor was handed over"))
}

/// A counter (eventfd) that somebody else has made, for [`Op::TakeMessage`](crate::Op::TakeMessage)
/// of 8 bytes and for [`ring`]. Calls on it do not wait from now on, for whoever else has it
/// either.
///
/// Errors: it is something else (`InvalidInput`): a file, a socket, a pipe.
pub fn counter(descriptor: OwnedFd) -> io::Result<std::fs::File> {
    let file = std::fs::File::from(descriptor);
    // What has no place in any file system has no type either.
    if std::os::unix::fs::MetadataExt::mode(&file.metadata()?) & libc::S_IFMT != 0 {
        let sentence = "it is no counter (eventfd)";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
    }
    sys::file::set_nonblocking(file.as_fd())?;
    Ok(file)
}

/// Adds one to a counter: who waits for it wakes. A counter that is full wakes him all the same.
pub fn ring(counter: &File) {
    use std::io::Write;
    let _full = counter.file().write(&1_u64.to_ne_bytes());
}

/// A new counter, as [`counter`] wants it.
///
/// Errors: no descriptor is free.
pub fn new_counter() -> io::Result<std::fs::File> {
    let event = sys::file::event()?;
    sys::file::set_nonblocking(event.as_fd())?;
    Ok(event)
}

/// Descriptors that one message may bring.
pub const MOST: usize = sys::socket::DESCRIPTORS_MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn descriptors_arrive_beside_their_bytes_and_too_many_do_not() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let counter = new_counter().expect("a counter");
        let mut descriptors = Vec::new();
        let mut bytes = [0; 8];
        for count in [0, 1, MOST] {
            send(&ours, b"some", &vec![counter.as_fd(); count]).expect("it is sent");
            descriptors.clear();
            let received = receive(&theirs, &mut bytes, &mut descriptors).expect("it arrives");
            assert_eq!((received, descriptors.len()), (4, count));
        }
        ring(&File::from(std::fs::File::from(descriptors.remove(0))));
        (&counter).read_exact(&mut bytes).expect("it was rung");
        assert_eq!(bytes, 1_u64.to_ne_bytes());
        assert!(send(&ours, b"many", &[counter.as_fd(); MOST + 1]).is_err());
        drop(ours);
        assert_eq!(
            receive(&theirs, &mut bytes, &mut descriptors).expect("the end"),
            0
        );
    }

    #[test]
    fn what_is_no_counter_is_refused() {
        assert!(counter(new_counter().expect("a counter").into()).is_ok());
        let (socket, _other) = UnixStream::pair().expect("a pair");
        assert!(counter(socket.into()).is_err());
        assert!(counter(tempfile::tempfile().expect("a file").into()).is_err());
    }
}
