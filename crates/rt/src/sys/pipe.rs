//! A pipe through which pages reach a socket without being copied: first the pipe refers to them, then the socket.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::{check, check_bytes};

/// An empty pipe between two calls, or a spoiled one that nobody uses any more.
#[derive(Debug)]
pub(crate) struct Pipe {
    takes: OwnedFd,
    gives: OwnedFd,
    spoiled: Cell<bool>,
}

impl Pipe {
    /// Makes one. Errors: no descriptors are left.
    pub(crate) fn new() -> io::Result<Self> {
        let mut ends = [-1; 2];
        // SAFETY: the kernel writes two numbers into an array of two.
        // WHY UNSAFE: std makes pipes only for children.
        check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
        // SAFETY: both descriptors were just given to us and have no other owner.
        // WHY UNSAFE: ownership of a number cannot be checked.
        let [gives, takes] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        // SAFETY: takes numbers and touches no memory. Refused, the pipe keeps its 16 pages, which only means more
        // calls.
        // WHY UNSAFE: std has no fcntl.
        unsafe { libc::fcntl(takes.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) };
        Ok(Self {
            takes,
            gives,
            spoiled: Cell::new(false),
        })
    }

    /// Whether something stayed in it: what it would send next belongs to a send that went on in another way.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.spoiled.get()
    }

    /// Sends as much of a part as the socket takes, by reference, with more to follow or not. The kernel goes on
    /// reading its pages until the peer's kernel or program has them. Result: bytes; fewer than all spoil the pipe.
    ///
    /// Errors: what the kernel says; nothing was sent then, and the pipe is spoiled as well.
    pub(crate) fn send(
        &self,
        part: libc::iovec,
        socket: BorrowedFd<'_>,
        more: bool,
    ) -> io::Result<usize> {
        self.spoiled.set(true);
        let mut sent = 0;
        while sent < part.iov_len {
            let rest = libc::iovec {
                iov_base: part.iov_base.wrapping_byte_add(sent),
                iov_len: part.iov_len - sent,
            };
            let moved = self.refer(&rest).and_then(|bytes| {
                let more = more || bytes < rest.iov_len;
                Ok((bytes, self.deliver(socket, bytes, more)?))
            });
            match moved {
                Ok((bytes, delivered)) => {
                    sent += delivered;
                    if delivered < bytes {
                        return Ok(sent);
                    }
                }
                Err(error) if sent == 0 => return Err(error),
                Err(_) => return Ok(sent),
            }
        }
        self.spoiled.set(false);
        Ok(sent)
    }

    fn refer(&self, part: &libc::iovec) -> io::Result<usize> {
        // SAFETY: the kernel checks the addresses, holds the pages by counts of its own, and only reads them, now and
        // later; whoever pushed the part promised that racing with that is legal.
        // WHY UNSAFE: std has no vmsplice.
        check_bytes(unsafe {
            libc::vmsplice(self.takes.as_raw_fd(), part, 1, libc::SPLICE_F_NONBLOCK)
        })
    }

    /// Moves so many bytes, in several calls where one moves less.
    fn deliver(&self, socket: BorrowedFd<'_>, bytes: usize, more: bool) -> io::Result<usize> {
        let flags = libc::SPLICE_F_NONBLOCK | if more { libc::SPLICE_F_MORE } else { 0 };
        let mut delivered = 0;
        while delivered < bytes {
            // SAFETY: takes descriptors, null offsets and numbers; touches no memory of ours.
            // WHY UNSAFE: std has no splice.
            let moved = check_bytes(unsafe {
                libc::splice(
                    self.gives.as_raw_fd(),
                    ptr::null_mut(),
                    socket.as_raw_fd(),
                    ptr::null_mut(),
                    bytes - delivered,
                    flags,
                )
            });
            match moved {
                Ok(moved) if moved > 0 => delivered += moved,
                Err(error) if delivered == 0 => return Err(error),
                _ => break,
            }
        }
        Ok(delivered)
    }
}

/// As much as an unprivileged user gets: 256 pages.
const PIPE_BYTES: libc::c_int = 1 << 20;
