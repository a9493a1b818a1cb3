//! Flags of descriptors, and messages that carry descriptors over Unix sockets (SCM_RIGHTS).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::{check, check_bytes};

/// Calls on this file do not wait from now on.
pub(crate) fn set_nonblocking(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes two numbers and touches no memory.
    // WHY UNSAFE: std sets this for sockets only.
    let flags = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: takes three numbers and touches no memory.
    // WHY UNSAFE: as above.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
    Ok(())
}

/// Leaves this socket open in the programs that this process starts.
pub(crate) fn inherit(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes three numbers and touches no memory.
    // WHY UNSAFE: std closes every descriptor in the programs that it starts.
    check(unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFD, 0) })?;
    Ok(())
}

/// Waits for bytes and for descriptors beside them. The descriptors are appended to `descriptors`.
/// Result: bytes, 0 at the end of the stream.
///
/// Errors: `InvalidData` for more than [`MOST`] descriptors, and what recvmsg(2) says.
pub fn receive(
    socket: &UnixStream,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut control = [0_u64; CONTROL_WORDS];
    // SAFETY: a msghdr is plain numbers and pointers; zero is valid for all of them.
    // WHY UNSAFE: on some C libraries it has private padding, so it cannot be written as a literal.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the header, its part and its control bytes live through the call and are as long as
    // they say.
    // WHY UNSAFE: std does not receive descriptors.
    let received = check_bytes(unsafe {
        libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC)
    })?;
    // SAFETY: the kernel has written the control bytes and their length into the header.
    // WHY UNSAFE: C's macros over raw memory.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    // SAFETY: null, or a message within the control bytes, which nobody changes.
    // WHY UNSAFE: as above.
    while let Some(message) = unsafe { next.as_ref() } {
        if (message.cmsg_level, message.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            own_rights(message, descriptors);
        }
        // SAFETY: the header is as the kernel has left it, and the message is one of its own.
        // WHY UNSAFE: as above.
        next = unsafe { libc::CMSG_NXTHDR(&raw const header, next) };
    }
    if header.msg_flags & libc::MSG_CTRUNC != 0 {
        let sentence = "more descriptors than there may be";
        return Err(io::Error::new(io::ErrorKind::InvalidData, sentence));
    }
    Ok(received)
}

/// Sends bytes and at most [`MOST`] descriptors beside them. Result: bytes.
///
/// Errors: `InvalidInput` for more descriptors, and what sendmsg(2) says.
pub fn send(
    socket: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    if descriptors.len() > MOST {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let data_bytes = libc::c_uint::try_from(size_of_val(descriptors)).expect("twelve numbers");
    let mut control = [0_u64; CONTROL_WORDS];
    // SAFETY: a msghdr is plain numbers and pointers; zero is valid for all of them.
    // WHY UNSAFE: on some C libraries it has private padding, so it cannot be written as a literal.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    if !descriptors.is_empty() {
        header.msg_control = control.as_mut_ptr().cast();
        // SAFETY: these take a number and touch no memory.
        // WHY UNSAFE: C's macros.
        let (space, length) = unsafe { (libc::CMSG_SPACE(data_bytes), libc::CMSG_LEN(data_bytes)) };
        header.msg_controllen = space as _;
        // SAFETY: there is room for a message of this length in the control bytes, aligned as C
        // wants it; a borrowed descriptor is a number in memory.
        // WHY UNSAFE: C's macros over raw memory.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = length as _;
            let numbers = libc::CMSG_DATA(message);
            std::ptr::copy_nonoverlapping(
                descriptors.as_ptr().cast(),
                numbers,
                data_bytes as usize,
            );
        }
    }
    // SAFETY: the header, its part and its control bytes live through the call and are as long as
    // they say.
    // WHY UNSAFE: std does not send descriptors.
    check_bytes(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) })
}

/// Takes over the descriptors of a message of rights, just received.
fn own_rights(message: &libc::cmsghdr, descriptors: &mut Vec<OwnedFd>) {
    // SAFETY: takes a number and touches no memory.
    // WHY UNSAFE: C's macros.
    let head = unsafe { libc::CMSG_LEN(0) } as usize;
    // As long a number as the C library has.
    let bytes: usize = message.cmsg_len as _;
    let count = bytes.saturating_sub(head) / size_of::<libc::c_int>();
    // SAFETY: the data follow the message's head.
    // WHY UNSAFE: as above.
    let numbers = unsafe { libc::CMSG_DATA(message) }.cast::<libc::c_int>();
    for index in 0..count {
        // SAFETY: as many numbers follow as the message is long; each is a descriptor just given to
        // us, owned by nobody else.
        // WHY UNSAFE: as above, and ownership of a number cannot be checked.
        descriptors.push(unsafe { OwnedFd::from_raw_fd(numbers.add(index).read_unaligned()) });
    }
}

/// Descriptors that one message may carry: what vhost-user needs for eight regions of memory, and
/// some more.
pub const MOST: usize = 12;
/// Words of control bytes for so many: a head of 16 bytes, and four for each.
const CONTROL_WORDS: usize = 2 + MOST / 2;
