//! Descriptors that travel over a Unix socket beside bytes.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

pub use crate::sys::descriptors::{MOST, receive, send};

/// Waits for one descriptor, with one byte.
///
/// Errors: the message carries no descriptor, and what recvmsg(2) says.
pub(crate) fn receive_one(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut descriptors = Vec::new();
    receive(socket, &mut [0], &mut descriptors)?;
    let first = descriptors.into_iter().next();
    first.ok_or_else(|| io::Error::other("no descriptor was handed over"))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

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
