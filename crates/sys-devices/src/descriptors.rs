//! Descriptors that travel over a Unix socket beside bytes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::sys::descriptors as sys;

/// Waits for bytes and for descriptors beside them. The descriptors are appended to `descriptors`.
/// Result: bytes, 0 at the end of the stream.
///
/// Errors: `InvalidData` for more than [`MOST`] descriptors, and what recvmsg(2) says.
pub fn receive(
    socket: &UnixStream,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    sys::receive_with_descriptors(socket.as_fd(), bytes, descriptors)
}

/// Sends bytes and at most [`MOST`] descriptors beside them. Result: bytes.
///
/// Errors: `InvalidInput` for more descriptors, and what sendmsg(2) says.
pub fn send(
    socket: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    sys::send_with_descriptors(socket.as_fd(), bytes, descriptors)
}

/// Waits for one descriptor, with one byte.
///
/// Errors: the message carries no descriptor, and what recvmsg(2) says.
pub(crate) fn receive_one(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut descriptors = Vec::new();
    receive(socket, &mut [0], &mut descriptors)?;
    let first = descriptors.into_iter().next();
    first.ok_or_else(|| io::Error::other("no descriptor was handed over"))
}

/// Descriptors that one message may carry: what vhost-user needs for eight regions of memory, and
/// some more.
pub const MOST: usize = sys::DESCRIPTORS_MAX;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use fabrix_rt::{File, counter};

    use super::*;

    #[test]
    fn descriptors_arrive_beside_their_bytes_and_too_many_do_not() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let counter = counter::new().expect("a counter");
        let mut descriptors = Vec::new();
        let mut bytes = [0; 8];
        for count in [0, 1, MOST] {
            send(&ours, b"some", &vec![counter.as_fd(); count]).expect("it is sent");
            descriptors.clear();
            let received = receive(&theirs, &mut bytes, &mut descriptors).expect("it arrives");
            assert_eq!((received, descriptors.len()), (4, count));
        }
        counter::ring(&File::from(std::fs::File::from(descriptors.remove(0))));
        (&counter).read_exact(&mut bytes).expect("it was rung");
        assert_eq!(bytes, 1_u64.to_ne_bytes());
        assert!(send(&ours, b"many", &[counter.as_fd(); MOST + 1]).is_err());
        drop(ours);
        assert_eq!(
            receive(&theirs, &mut bytes, &mut descriptors).expect("the end"),
            0
        );
    }
}
