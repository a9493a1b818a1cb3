//! System calls for sockets that std lacks: unconnected sockets, options, nonblocking calls.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{check, check_bytes};
use crate::Buf;

/// A socket address in the layout of the kernel.
pub(crate) struct RawAddress {
    storage: libc::sockaddr_storage,
    bytes: libc::socklen_t,
}

impl RawAddress {
    pub(crate) fn new(address: &SocketAddr) -> Self {
        // SAFETY: a sockaddr_storage is plain bytes; all zero is the unspecified family.
        // WHY UNSAFE: it has private padding, so it cannot be written as a literal.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let bytes = match address {
            SocketAddr::V4(v4) => {
                let raw = libc::sockaddr_in {
                    sin_family: AF_INET,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(v4.ip().octets()),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: a sockaddr_storage is large enough and aligned for every socket address.
                // WHY UNSAFE: C's union of address families.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(raw) };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: AF_INET6,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.ip().octets(),
                    },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                // WHY UNSAFE: as above.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(raw) };
                size_of::<libc::sockaddr_in6>()
            }
        };
        Self {
            storage,
            bytes: libc::socklen_t::try_from(bytes).expect("below 128"),
        }
    }

    pub(crate) fn pointer(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(crate) fn bytes(&self) -> libc::socklen_t {
        self.bytes
    }
}

/// An unconnected TCP socket of the address's family.
pub(crate) fn stream(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    // SAFETY: takes three numbers and touches no memory.
    // WHY UNSAFE: std makes only connected sockets.
    let descriptor =
        check(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    // WHY UNSAFE: ownership of a number cannot be checked.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Binds a socket to an address of this machine.
pub(crate) fn bind(socket: BorrowedFd<'_>, address: &SocketAddr) -> io::Result<()> {
    let raw = RawAddress::new(address);
    // SAFETY: the kernel reads `bytes()` bytes of the address, which outlives the call.
    // WHY UNSAFE: std binds only listeners and datagram sockets.
    check(unsafe { libc::bind(socket.as_raw_fd(), raw.pointer(), raw.bytes()) })?;
    Ok(())
}

/// Begins to connect. `EINPROGRESS` for a nonblocking socket.
pub(crate) fn connect(socket: BorrowedFd<'_>, address: &SocketAddr) -> io::Result<()> {
    let raw = RawAddress::new(address);
    // SAFETY: the kernel reads `bytes()` bytes of the address, which outlives the call.
    // WHY UNSAFE: std connects only while making the socket.
    check(unsafe { libc::connect(socket.as_raw_fd(), raw.pointer(), raw.bytes()) })?;
    Ok(())
}

/// Accepts a connection of any address family. The socket is in blocking mode.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (nobody, asks) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: both pointers are null, so the kernel writes no address.
    // WHY UNSAFE: std's listeners know the addresses of one family each.
    let descriptor =
        check(unsafe { libc::accept4(listener.as_raw_fd(), nobody, asks, libc::SOCK_CLOEXEC) })?;
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    // WHY UNSAFE: ownership of a number cannot be checked.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Lets a listener use a port at once after another listener (SO_REUSEADDR).
pub(crate) fn reuse_address(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1)
}

/// Lets an IPv6 socket accept IPv4 too, against the system's default if necessary.
pub(crate) fn take_ipv4_too(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &0)
}

/// Listens. At most `backlog` connections wait to be accepted.
pub(crate) fn listen(socket: BorrowedFd<'_>, backlog: libc::c_int) -> io::Result<()> {
    // SAFETY: takes two numbers and touches no memory.
    // WHY UNSAFE: std chooses the backlog itself.
    check(unsafe { libc::listen(socket.as_raw_fd(), backlog) })?;
    Ok(())
}

/// Receives into a buffer without other holders. `WouldBlock` if no byte is there.
pub(crate) fn receive_now(
    socket: BorrowedFd<'_>,
    buf: &mut Buf,
    start: usize,
    bytes: usize,
) -> io::Result<usize> {
    let target = buf.chunk().target(start, bytes);
    // SAFETY: `target` has checked that the range lies inside the buffer and that the buffer has no
    // other holder. `&mut` keeps it so during the call.
    // WHY UNSAFE: std has no recv with MSG_DONTWAIT.
    check_bytes(unsafe {
        libc::recv(
            socket.as_raw_fd(),
            target.as_ptr().cast(),
            bytes,
            libc::MSG_DONTWAIT,
        )
    })
}

/// Waits until the socket has room for bytes to send.
pub(crate) fn wait_writable(socket: BorrowedFd<'_>) -> io::Result<()> {
    poll(socket, libc::POLLOUT, -1).map(drop)
}

/// Whether the peer has closed a stream, or either end has shut it down.
pub(crate) fn is_over(socket: BorrowedFd<'_>) -> io::Result<bool> {
    poll(socket, libc::POLLRDHUP, 0).map(|events| events != 0)
}

/// Waits for one of `events`, at most for `timeout_ms`. -1: without limit. Result: the events that
/// were found.
fn poll(
    socket: BorrowedFd<'_>,
    events: libc::c_short,
    timeout_ms: libc::c_int,
) -> io::Result<libc::c_short> {
    let mut poll = libc::pollfd {
        fd: socket.as_raw_fd(),
        events,
        revents: 0,
    };
    // SAFETY: one pollfd, valid through the call.
    // WHY UNSAFE: std has no poll(2).
    check(unsafe { libc::poll(&raw mut poll, 1, timeout_ms) })?;
    Ok(poll.revents)
}

/// Ends both directions. An unconnected socket is ignored.
pub(crate) fn shutdown(socket: BorrowedFd<'_>) {
    // SAFETY: takes two numbers and touches no memory.
    // WHY UNSAFE: std shuts down streams only, not listeners.
    let _ = unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
}

/// Sends small segments at once. Accepted sockets inherit it from their listener.
pub(crate) fn no_delay(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, &1)
}

/// Makes the kernel notice a vanished peer. It probes an idle connection after a minute, and ends a
/// connection whose bytes are not acknowledged for a minute.
pub(crate) fn notice_silence(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, &1)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, &SILENCE_S)?;
    set(
        socket,
        libc::IPPROTO_TCP,
        libc::TCP_KEEPINTVL,
        &PROBE_EVERY_S,
    )?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, &PROBES)?;
    set(
        socket,
        libc::IPPROTO_TCP,
        libc::TCP_USER_TIMEOUT,
        &(SILENCE_S * 1000),
    )
}

/// Makes Reno the congestion control of a socket, and of those that it accepts.
pub(crate) fn choose_reno(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"reno")
}

/// Makes the kernel choose the port of a bound socket when the socket connects.
pub(crate) fn choose_port_later(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &1)
}

/// Makes the close a reset.
pub(crate) fn linger_zero(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(
        socket,
        libc::SOL_SOCKET,
        libc::SO_LINGER,
        &libc::linger {
            l_onoff: 1,
            l_linger: 0,
        },
    )
}

/// Asks for kernel buffers of about these sizes.
pub(crate) fn set_buffer_bytes(
    socket: BorrowedFd<'_>,
    send: usize,
    receive: usize,
) -> io::Result<()> {
    let clamp = |bytes: usize| libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &clamp(send))?;
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &clamp(receive))
}

fn set<T: Copy>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let bytes = libc::socklen_t::try_from(size_of::<T>()).expect("options are small");
    // SAFETY: the kernel reads `bytes` from a value that is exactly that long.
    // WHY UNSAFE: std sets only a few options.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            bytes,
        )
    })?;
    Ok(())
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "address families are below 50"
)]
const AF_INET: libc::sa_family_t = libc::AF_INET as libc::sa_family_t;
#[expect(
    clippy::cast_possible_truncation,
    reason = "address families are below 50"
)]
const AF_INET6: libc::sa_family_t = libc::AF_INET6 as libc::sa_family_t;

/// Silence of a peer before the first probe, in seconds.
const SILENCE_S: libc::c_int = 60;
const PROBE_EVERY_S: libc::c_int = 10;
const PROBES: libc::c_int = 6;
