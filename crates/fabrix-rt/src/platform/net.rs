//! Addresses to listen on, sockets to connect, and a send that waits.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::{Gather, Listener, Socket, sys};

/// Listens on an address (port 0: the system chooses), 1,024 connections may wait. Restarting on
/// the same port works at once (SO_REUSEADDR); `::` takes IPv4 too; accepted sockets send small
/// segments at once (TCP_NODELAY) and end when their peer has vanished for a minute or two
/// (SO_KEEPALIVE).
///
/// Errors: what the system says, with the address.
pub fn listen(address: SocketAddr) -> io::Result<Listener> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("listening on {address}: {error}"));
    let socket = bound(&address).map_err(named)?;
    sys::socket::listen(socket.as_fd(), BACKLOG).map_err(named)?;
    Ok(Listener::from(socket))
}

/// A socket with this address, before it listens.
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

/// An unconnected socket for this kind of address, for [`Op::Connect`](crate::Op::Connect); sends
/// small segments at once.
pub fn stream(address: &SocketAddr) -> io::Result<Socket> {
    let descriptor = sys::socket::stream(address)?;
    sys::socket::no_delay(descriptor.as_fd())?;
    skip_pacing(descriptor.as_fd(), *address);
    Ok(Socket::from(descriptor))
}

/// The same, to be connected from `local`, an address of this machine. A link-local one is taken to
/// be of the link that `address` names.
///
/// Errors: `AddrNotAvailable` where it is none, and what the system says.
pub fn stream_from(address: &SocketAddr, local: IpAddr) -> io::Result<Socket> {
    let socket = stream(address)?;
    // Without it the port is chosen before the other end is known: fewer connections are possible,
    // and it works.
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

/// Sends all that is left of a gather on the calling thread, waiting as long as it takes; for
/// programs without a shard. The result counts the bytes this call has sent; on an error some may
/// have been.
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

/// Whether a stream is over: its other end has closed it, or either has shut it down. Bytes may
/// still be there to be read.
pub fn is_over(stream: BorrowedFd<'_>) -> bool {
    // A descriptor that cannot be asked is none that anybody speaks over.
    sys::socket::is_over(stream).unwrap_or(true)
}

/// On the way from this machine to itself there is nothing to be congested. BBR, where it is the
/// system's choice, paces there too, by timers that take a fifth of a sender's time and cost
/// throughput; Reno, which every kernel has, does not. It is chosen before a connection begins: one
/// that BBR has begun stays paced.
pub(crate) fn skip_pacing(socket: BorrowedFd<'_>, address: SocketAddr) {
    if address.ip().is_loopback() {
        // Refused, the connection is only slower.
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
