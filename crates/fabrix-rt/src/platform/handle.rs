//! Files and sockets as tasks hold them: cheap clones of one descriptor, closed with the last of
//! them.
//!
//! An operation in progress holds a clone, so a descriptor is never closed, and its number never
//! used again, under the kernel's hands. Who wants to end a waiting operation shuts the socket
//! down.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;

use crate::{Apart, Buf, Gather, sys};

/// What a sleeping shard can wait for: a descriptor that becomes readable.
pub type Waitable<'a> = BorrowedFd<'a>;

/// An open file or block device.
#[derive(Clone, Debug)]
pub struct File {
    file: Rc<Apart<std::fs::File>>,
    in_memory: bool,
}

/// A stream socket, connected or about to be.
#[derive(Clone, Debug)]
pub struct Socket {
    stream: Rc<Apart<TcpStream>>,
}

/// A listening socket.
#[derive(Clone, Debug)]
pub struct Listener {
    listener: Rc<TcpListener>,
}

impl File {
    /// Takes the next message of a device that hands out one per read (see
    /// [`Op::TakeMessage`](crate::Op::TakeMessage)) without waiting: for whoever has just taken one
    /// and expects more.
    ///
    /// Errors: `WouldBlock` when there is none; what the device says.
    pub fn take_message(&self, buf: &mut Buf, start: usize, bytes: usize) -> io::Result<usize> {
        (&**self.file).read(&mut buf.bytes_mut()[start..start + bytes])
    }

    /// Writes all of `gather` at `offset` in one call, which is to be a copy and no waiting: for
    /// devices that take a request's data so. Result: bytes, less than all only where the device
    /// takes no more.
    ///
    /// Errors: what the device says.
    pub fn give_at(&self, gather: &mut Gather, offset: u64) -> io::Result<usize> {
        gather.wire().write_at(self.file.as_fd(), offset)
    }

    /// Whether it lies in memory (tmpfs, hugetlbfs), where nothing waits for a device.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// The same file, for what the shard's operations do not cover (size, locks, ioctls).
    pub fn file(&self) -> &std::fs::File {
        &self.file
    }
}

/// Whether a file lies in memory (tmpfs, hugetlbfs): its operations are copies, which the shard
/// runs in place. Of a device only the name does.
pub fn is_in_memory(file: &std::fs::File) -> bool {
    let is_a_file = file.metadata().is_ok_and(|about| about.is_file());
    is_a_file && sys::file::is_in_memory(file.as_fd())
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> Self {
        Self {
            in_memory: is_in_memory(&file),
            file: Rc::new(Apart::new(file)),
        }
    }
}

impl Socket {
    /// Ends both directions: what waits on this socket ends, the peer sees the end of the stream.
    /// The socket may already be unconnected; that is no error here.
    pub fn shutdown(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Says that no more will be sent; receiving goes on.
    pub fn shutdown_send(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Makes the close a reset: what is still queued is thrown away at once.
    pub fn linger_zero(&self) -> io::Result<()> {
        sys::socket::linger_zero(self.stream.as_fd())
    }

    /// The other end.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// This end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Asks for kernel buffers of about so many bytes each; the system's limits apply silently.
    pub fn set_buffer_bytes(&self, send: usize, receive: usize) -> io::Result<()> {
        sys::socket::set_buffer_bytes(self.stream.as_fd(), send, receive)
    }

    /// The same socket, for what the shard's operations do not cover.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Leaves this shard, so that another can take it with `Socket::from`. A second descriptor is
    /// made when a clone or an operation in progress still holds this one.
    pub fn into_stream(self) -> io::Result<TcpStream> {
        let alone = Rc::try_unwrap(self.stream).map(Apart::into_inner);
        alone.or_else(|shared| shared.try_clone())
    }
}

/// A nonblocking stream becomes a blocking one: waiting is the driver's business.
impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        let _ = stream.set_nonblocking(false); // fails on no open socket
        Self {
            stream: Rc::new(Apart::new(stream)),
        }
    }
}

impl From<OwnedFd> for Socket {
    fn from(descriptor: OwnedFd) -> Self {
        Self {
            stream: Rc::new(Apart::new(TcpStream::from(descriptor))),
        }
    }
}

impl TryFrom<Socket> for TcpStream {
    type Error = io::Error;
    fn try_from(socket: Socket) -> io::Result<Self> {
        socket.into_stream()
    }
}

impl Listener {
    /// The address it listens on, with the port the system chose.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Stops listening: a waiting accept ends with an error.
    pub fn shutdown(&self) {
        sys::socket::shutdown(self.listener.as_fd());
    }

    pub(crate) fn listener(&self) -> &TcpListener {
        &self.listener
    }
}

/// A listener of any stream socket, a Unix socket's for instance; its `local_addr` is an error
/// then.
impl From<OwnedFd> for Listener {
    fn from(descriptor: OwnedFd) -> Self {
        Self::from(TcpListener::from(descriptor))
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self {
            listener: Rc::new(listener),
        }
    }
}

macro_rules! descriptor {
    ($type:ty, $field:ident) => {
        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.$field.as_fd()
            }
        }
        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                self.$field.as_raw_fd()
            }
        }
    };
}
descriptor!(File, file);
descriptor!(Socket, stream);
descriptor!(Listener, listener);
