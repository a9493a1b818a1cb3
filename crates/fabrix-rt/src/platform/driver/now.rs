//! Operations of sockets, and of devices that hand out messages, that are tried at once: done in
//! one system call, or given back because they would wait.
//!
//! Sockets stay in blocking mode and every call says that it must not wait; only listeners, and
//! sockets while they connect, are switched.

use std::io::{self, Read};
use std::os::fd::AsFd;

use crate::sys::socket;
use crate::{Completion, Gather, Listener, Loan, Op, Socket};

/// What came of a try.
pub(super) enum Tried {
    /// It has ended.
    Ended(Completion),
    /// As much of it was sent as one call may send: the rest is for the next turn.
    InPart(Op),
    /// It would wait; what was sent of it stays sent.
    WouldWait(Op),
}

/// Tries a receive where it is; None: it would wait, as nearly all do that are tried.
pub(super) fn receive(op: &mut Op) -> Option<i32> {
    let Op::Receive {
        socket,
        buf,
        start,
        bytes,
    } = op
    else {
        unreachable!("only receives are tried in place");
    };
    loop {
        match socket::receive_now(socket.as_fd(), buf, *start, *bytes) {
            Ok(received) => return Some(count(received)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return None,
                io::ErrorKind::Interrupted => {}
                _ => return Some(errno(&error)),
            },
        }
    }
}

/// Tries a socket's operation without waiting.
pub(super) fn attempt(mut op: Op) -> Tried {
    if matches!(op, Op::Receive { .. }) {
        return match receive(&mut op) {
            Some(result) => Tried::Ended(ended(result, op)),
            None => Tried::WouldWait(op),
        };
    }
    let tried = loop {
        let tried = match &mut op {
            Op::Accept { listener } => match accept(listener) {
                Ok(socket) => {
                    return Tried::Ended(Completion {
                        result: 0,
                        loan: Loan::Socket(socket),
                    });
                }
                Err(error) => Err(error),
            },
            Op::Connect { socket, address } => connect(socket, address).map(|()| 0),
            Op::Send { socket, gather } => match send(socket, gather) {
                Ok(()) if gather.unsent_bytes() > 0 => return Tried::InPart(op),
                sent => sent.map(|()| gather.total_bytes()),
            },
            Op::TakeMessage {
                file,
                buf,
                start,
                bytes,
            } => file
                .file()
                .read(&mut buf.bytes_mut()[*start..*start + *bytes]),
            _ => unreachable!("`side` names a descriptor for these five only"),
        };
        match tried {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other,
        }
    };
    match tried {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Tried::WouldWait(op),
        other => Tried::Ended(ended(other.map_or_else(|error| errno(&error), count), op)),
    }
}

fn accept(listener: &Listener) -> io::Result<Socket> {
    listener.listener().set_nonblocking(true)?; // the connection may be gone again when we come
    Ok(Socket::from(socket::accept(listener.as_fd())?))
}

/// Connects, or asks how far it has come: connecting again is the question.
fn connect(socket: &Socket, address: &std::net::SocketAddr) -> io::Result<()> {
    socket.stream().set_nonblocking(true)?;
    let connected = match socket::connect(socket.as_fd(), address) {
        Err(error) => match error.raw_os_error() {
            Some(libc::EINPROGRESS | libc::EALREADY) => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Some(libc::EISCONN) => Ok(()),
            _ => Err(error),
        },
        Ok(()) => Ok(()),
    };
    socket.stream().set_nonblocking(false)?;
    connected
}

/// Sends what one call may send; what was sent stays sent. Would wait: the socket has no room for
/// all of that.
fn send(socket: &Socket, gather: &mut Gather) -> io::Result<()> {
    let asked = gather.bytes_at_once();
    if asked == 0 {
        return Ok(());
    }
    match gather
        .wire()
        .send(socket.as_fd(), libc::MSG_DONTWAIT, asked)?
    {
        // The kernel sends a byte or says why not.
        0 => Err(io::Error::from_raw_os_error(libc::EIO)),
        sent if sent < asked => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

pub(super) fn ended(result: i32, op: Op) -> Completion {
    Completion {
        result,
        loan: op.into_loan(),
    }
}

pub(super) fn count(bytes: usize) -> i32 {
    i32::try_from(bytes).expect("no operation moves 2 GiB")
}

pub(super) fn errno(error: &io::Error) -> i32 {
    -error.raw_os_error().unwrap_or(libc::EIO)
}
