//! Handles of files and sockets: cheap clones of one descriptor, which is closed with the last
//! clone.
//!
//! An operation in progress holds a clone. So its descriptor is not closed, and the number is not
//! used again, while the kernel works with it. A task ends a waiting operation by shutting the
//! socket down.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;

use crate::simulated::{SimulatedListener, SimulatedSocket};
use crate::{Apart, Buf, Gather, sys};

/// A descriptor that a sleeping shard can wait for.
pub type Waitable<'a> = BorrowedFd<'a>;

/// An open file or block device.
#[derive(Clone, Debug)]
pub struct File {
    file: Rc<Apart<std::fs::File>>,
    in_memory: bool,
}

/// A stream socket, connected or to be connected.
#[derive(Clone, Debug)]
pub struct Socket {
    stream: Rc<Apart<Stream>>,
}

/// A stream socket that no shard holds, so that it may move to another thread.
#[derive(Debug)]
pub struct DetachedSocket(Stream);

#[derive(Debug)]
enum Stream {
    Kernel(TcpStream),
    Simulated(Box<dyn SimulatedSocket>),
}

/// A listening socket.
#[derive(Clone, Debug)]
pub struct Listener {
    listener: Rc<Listening>,
}

#[derive(Debug)]
enum Listening {
    Kernel(TcpListener),
    Simulated(Box<dyn SimulatedListener>),
}

impl File {
    /// Takes the next message of a device (see [`Op::TakeMessage`](crate::Op::TakeMessage)) without
    /// waiting. A task calls this when it has just taken a message and expects more.
    ///
    /// Errors: `WouldBlock` without a message, and what the device says.
    pub fn take_message(&self, buf: &mut Buf, start: usize, bytes: usize) -> io::Result<usize> {
        (&**self.file).read(&mut buf.bytes_mut()[start..start + bytes])
    }

    /// Writes all of `gather` at `offset` in one call, for a device that copies the data and does
    /// not wait. Result: bytes, fewer if the device takes no more.
    ///
    /// Errors: what the device says.
    pub fn give_at(&self, gather: &mut Gather, offset: u64) -> io::Result<usize> {
        gather.wire().write_at(self.file.as_fd(), offset)
    }

    /// Whether the file lies in memory (tmpfs, hugetlbfs), so that no operation waits for a device.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// The same file as a file of std, for size, locks and ioctls.
    pub fn file(&self) -> &std::fs::File {
        &self.file
    }
}

/// Whether a file lies in memory (tmpfs, hugetlbfs), so that its operations are copies, which a
/// shard runs in place. A device does not: only its name is in memory.
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
    /// Ends both directions. Waiting operations end, and the peer sees the end of the stream. An
    /// unconnected socket is ignored.
    pub fn shutdown(&self) {
        self.end(Shutdown::Both);
    }

    /// Ends the sending direction.
    pub fn shutdown_send(&self) {
        self.end(Shutdown::Write);
    }

    fn end(&self, how: Shutdown) {
        match &**self.stream {
            Stream::Kernel(stream) => {
                let _not_connected = stream.shutdown(how);
            }
            Stream::Simulated(socket) => socket.shutdown(how),
        }
    }

    /// Makes close(2) reset the connection and drop the queued bytes (SO_LINGER).
    pub fn linger_zero(&self) -> io::Result<()> {
        match &**self.stream {
            Stream::Kernel(stream) => sys::socket::linger_zero(stream.as_fd()),
            Stream::Simulated(socket) => {
                socket.linger_zero();
                Ok(())
            }
        }
    }

    /// Address of the peer.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// Address of this end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &**self.stream {
            Stream::Kernel(stream) => stream.local_addr(),
            Stream::Simulated(socket) => socket.local_addr(),
        }
    }

    /// Sets the sizes of the kernel's buffers, in bytes. The system may apply limits silently. A
    /// simulated network sizes its buffers itself.
    pub fn set_buffer_bytes(&self, send: usize, receive: usize) -> io::Result<()> {
        match &**self.stream {
            Stream::Kernel(stream) => sys::socket::set_buffer_bytes(stream.as_fd(), send, receive),
            Stream::Simulated(_) => Ok(()),
        }
    }

    /// The same socket as a stream of std.
    ///
    /// # Panics
    /// With a simulated socket.
    pub fn stream(&self) -> &TcpStream {
        self.stream.kernel()
    }

    /// The socket of a simulated network. None: it is the kernel's.
    pub fn simulated(&self) -> Option<&dyn SimulatedSocket> {
        match &**self.stream {
            Stream::Kernel(_) => None,
            Stream::Simulated(socket) => Some(&**socket),
        }
    }

    /// The socket without its shard, for another shard, which takes it with `Socket::from`. It is a
    /// second descriptor if a clone or an operation in progress holds the first.
    ///
    /// Errors: no descriptor is free, or a simulated socket has another holder.
    pub fn detach(self) -> io::Result<DetachedSocket> {
        let alone = Rc::try_unwrap(self.stream).map(Apart::into_inner);
        let stream = alone.or_else(|shared| match &**shared {
            Stream::Kernel(stream) => stream.try_clone().map(Stream::Kernel),
            Stream::Simulated(_) => Err(io::ErrorKind::ResourceBusy.into()),
        })?;
        Ok(DetachedSocket(stream))
    }
}

impl DetachedSocket {
    /// Address of the peer.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }
}

impl Stream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(stream) => stream.peer_addr(),
            Self::Simulated(socket) => socket.peer_addr(),
        }
    }

    /// The kernel's stream, for its drivers and for system calls.
    fn kernel(&self) -> &TcpStream {
        match self {
            Self::Kernel(stream) => stream,
            Self::Simulated(_) => panic!("a simulated socket has no descriptor"),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.kernel().as_fd()
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.kernel().as_raw_fd()
    }
}

impl From<Stream> for Socket {
    fn from(stream: Stream) -> Self {
        Self {
            stream: Rc::new(Apart::new(stream)),
        }
    }
}

/// Sets the stream to blocking mode, which drivers expect.
impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        let _ = stream.set_nonblocking(false); // fails on no open socket
        Self::from(Stream::Kernel(stream))
    }
}

impl From<OwnedFd> for Socket {
    fn from(descriptor: OwnedFd) -> Self {
        Self::from(Stream::Kernel(TcpStream::from(descriptor)))
    }
}

impl From<DetachedSocket> for Socket {
    fn from(detached: DetachedSocket) -> Self {
        Self::from(detached.0)
    }
}

impl From<Box<dyn SimulatedSocket>> for Socket {
    fn from(socket: Box<dyn SimulatedSocket>) -> Self {
        Self::from(Stream::Simulated(socket))
    }
}

impl Listener {
    /// The address, with the port that the system has chosen.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &*self.listener {
            Listening::Kernel(listener) => listener.local_addr(),
            Listening::Simulated(listener) => Ok(listener.local_addr()),
        }
    }

    /// Stops listening. A waiting accept ends with an error.
    pub fn shutdown(&self) {
        match &*self.listener {
            Listening::Kernel(listener) => sys::socket::shutdown(listener.as_fd()),
            Listening::Simulated(listener) => listener.shutdown(),
        }
    }

    /// The listening socket of a simulated network. None: it is the kernel's.
    pub fn simulated(&self) -> Option<&dyn SimulatedListener> {
        match &*self.listener {
            Listening::Kernel(_) => None,
            Listening::Simulated(listener) => Some(&**listener),
        }
    }

    pub(crate) fn listener(&self) -> &TcpListener {
        self.listener.kernel()
    }
}

impl Listening {
    /// The kernel's socket, for its drivers and for system calls.
    fn kernel(&self) -> &TcpListener {
        match self {
            Self::Kernel(listener) => listener,
            Self::Simulated(_) => panic!("a simulated listener has no descriptor"),
        }
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.kernel().as_fd()
    }
}

impl AsRawFd for Listening {
    fn as_raw_fd(&self) -> RawFd {
        self.kernel().as_raw_fd()
    }
}

/// A listener of any stream socket, for instance of a Unix socket, whose `local_addr` is an error.
impl From<OwnedFd> for Listener {
    fn from(descriptor: OwnedFd) -> Self {
        Self::from(TcpListener::from(descriptor))
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self {
            listener: Rc::new(Listening::Kernel(listener)),
        }
    }
}

impl From<Box<dyn SimulatedListener>> for Listener {
    fn from(listener: Box<dyn SimulatedListener>) -> Self {
        Self {
            listener: Rc::new(Listening::Simulated(listener)),
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
