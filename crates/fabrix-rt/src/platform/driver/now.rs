//! Operations of sockets and of message devices as nonblocking system calls.
//!
//! Sockets stay in blocking mode, and every call has a flag that it must not wait. Only listeners,
//! and sockets while they connect, are in nonblocking mode.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use crate::sys::{epoll::is_readable, socket};
use crate::{Completion, Gather, Listener, Loan, Op, Socket};

/// Outcome of one attempt.
pub(super) enum Tried {
    /// The operation has ended.
    Ended(Completion),
    /// A send has sent as much as one call may send. The rest is for the next turn.
    InPart(Op),
    /// The operation would wait. Bytes that were sent stay sent.
    WouldWait(Op),
}

/// Tries a receive. None: it would wait, as nearly all attempts do.
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

/// Tries an operation without waiting.
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
            Op::Readable { file } => readable(file.as_fd()).map(|()| 0),
            _ => unreachable!("`side` names a descriptor for these six only"),
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
    listener.listener().set_nonblocking(true)?; // the connection may have ended meanwhile
    Ok(Socket::from(socket::accept(listener.as_fd())?))
}

/// Whether a file can be read. `WouldBlock`: not yet.
fn readable(file: BorrowedFd<'_>) -> io::Result<()> {
    match is_readable(file)? {
        true => Ok(()),
        false => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Begins to connect, or asks for the state: a second connect(2) returns it.
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

/// Sends as much as one call may send. `WouldBlock`: the socket has taken less.
fn send(socket: &Socket, gather: &mut Gather) -> io::Result<()> {
    let asked = gather.bytes_at_once();
    if asked == 0 {
        return Ok(());
    }
    match gather
        .wire()
        .send(socket.as_fd(), libc::MSG_DONTWAIT, asked)?
    {
        // The kernel sends at least one byte or reports an error.
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
