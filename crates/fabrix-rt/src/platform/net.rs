//! Listening sockets, sockets to connect, and a send that waits.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::{Gather, Listener, Socket, sys};

/// Listens on an address. For port 0 the system chooses a port.
///
/// - A restart can use the port at once (SO_REUSEADDR).
/// - `::` accepts IPv4 too.
/// - 1,024 connections may wait to be accepted.
/// - Accepted sockets send small segments at once (TCP_NODELAY), and end one or two minutes after
///   their peer has vanished (SO_KEEPALIVE).
///
/// Errors: what the system says, with the address.
pub fn listen(address: SocketAddr) -> io::Result<Listener> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("listening on {address}: {error}"));
    let socket = bound(&address).map_err(named)?;
    sys::socket::listen(socket.as_fd(), BACKLOG).map_err(named)?;
    Ok(Listener::from(socket))
}

/// A socket that is bound to this address and does not listen yet.
fn bound(address: &SocketAddr) -> io::Result<OwnedFd> {
    let socket = sys::socket::stream(address)?;
    sys::socket::reuse_address(socket.as_fd())?;
    if address.is_ipv6() {
        sys::socket::take_ipv4_too(socket.as_fd())?;
    }
    sys::socket::no_delay(socket.as_fd())?;
    sys::socket::notice_silence(socket.as_fd())?;
    skip_pacing(socket.as_fd(), *address);
    sys::socket::bind(socket.as_fd(), address)?;
    Ok(socket)
}

/// An unconnected socket of the address's family, for [`Op::Connect`](crate::Op::Connect). It sends
/// small segments at once.
pub fn stream(address: &SocketAddr) -> io::Result<Socket> {
    let descriptor = sys::socket::stream(address)?;
    sys::socket::no_delay(descriptor.as_fd())?;
    skip_pacing(descriptor.as_fd(), *address);
    Ok(Socket::from(descriptor))
}

/// An unconnected socket that is bound to `local`, an address of this machine. A link-local address
/// gets the scope of `address`.
///
/// Errors: `AddrNotAvailable` for an address of another machine, and what the system says.
pub fn stream_from(address: &SocketAddr, local: IpAddr) -> io::Result<Socket> {
    let socket = stream(address)?;
    // Kernels without this option choose the port before the peer is known, so fewer connections
    // are possible.
    let _unknown_to_this_kernel = sys::socket::choose_port_later(socket.as_fd());
    let local_address = match (local, address) {
        (IpAddr::V6(ip), SocketAddr::V6(there)) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, 0, 0, there.scope_id()).into()
        }
        _ => SocketAddr::new(local, 0),
    };
    let bound = sys::socket::bind(socket.as_fd(), &local_address);
    bound.map_err(|error| {
        let sentence = format!("the local address {local} cannot be used here: {error}");
        io::Error::new(error.kind(), sentence)
    })?;
    Ok(socket)
}

/// Sends the unsent bytes of a gather on the calling thread and waits until all are sent, for
/// programs without a shard. Result: bytes of this call. After an error some bytes may have been
/// sent.
pub fn send_now(socket: &Socket, gather: &mut Gather) -> io::Result<usize> {
    let bytes = gather.unsent_bytes();
    while gather.unsent_bytes() > 0 {
        let left = gather.unsent_bytes();
        match gather.wire().send(socket.as_fd(), 0, left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_writable(socket)?,
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Whether the peer has closed a stream, or either end has shut it down. Unread bytes may be left.
pub fn is_over(stream: BorrowedFd<'_>) -> bool {
    // A descriptor that cannot be polled is no open stream.
    sys::socket::is_over(stream).unwrap_or(true)
}

/// Chooses Reno for a connection over loopback, where there is no congestion. BBR, if it is the
/// default of the system, paces there too, with timers that take a fifth of the sender's CPU time.
/// Every kernel has Reno, which does not pace. The choice comes before the connection: BBR leaves
/// it paced.
pub(crate) fn skip_pacing(socket: BorrowedFd<'_>, address: SocketAddr) {
    if address.ip().is_loopback() {
        // Without Reno the connection is only slower.
        let _best_effort = sys::socket::choose_reno(socket);
    }
}

fn wait_writable(socket: &Socket) -> io::Result<()> {
    match sys::socket::wait_writable(socket.as_fd()) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

const BACKLOG: i32 = 1024;
