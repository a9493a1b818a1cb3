//! Whose process is at the other end of a TCP connection within this machine.
//!
//! Knows the kernel's table of sockets, which everybody may ask; nothing waits: the kernel answers while it is asked.
//! Source: include/uapi/linux/inet_diag.h and sock_diag.h of the Linux kernel.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};

use crate::{Socket, sys};

/// Whether the other end is a process that may look into this one's memory anyway: of this machine, in this network
/// namespace, and of our own user or of root. False where the kernel does not tell.
pub fn is_ours(socket: &Socket) -> bool {
    let owner = owner(socket);
    owner.is_ok_and(|owner| {
        owner.is_some_and(|user| [sys::process::user(), sys::process::ROOT].contains(&user))
    })
}

/// The user of the process at the other end. None: it is not in this machine and namespace, or has closed its end.
fn owner(socket: &Socket) -> io::Result<Option<u32>> {
    let (ours, theirs) = (socket.local_addr()?, socket.peer_addr()?);
    let mut table = sys::netlink::sockets()?;
    table.write_all(&question(theirs, ours))?;
    let mut answer = [0; ANSWER_BYTES];
    let bytes = table.read(&mut answer)?;
    Ok(owner_in(&answer[..bytes], ours))
}

/// Asks for one socket, from its own address to another.
fn question(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let family = if from.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let word = |number: usize| u32::try_from(number).expect("a few").to_ne_bytes();
    let mut all = Vec::with_capacity(QUESTION_BYTES);
    all.extend(word(QUESTION_BYTES));
    all.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    all.extend(NLM_F_REQUEST.to_ne_bytes());
    all.extend([0; 8]); // sequence, port
    all.extend([byte(family), byte(libc::IPPROTO_TCP), 0, 0]);
    all.extend(word(1 << ESTABLISHED));
    all.extend(from.port().to_be_bytes());
    all.extend(to.port().to_be_bytes());
    all.extend(address(from.ip()));
    all.extend(address(to.ip()));
    all.extend([0; 4]); // any interface
    all.extend([0xff; 8]); // no cookie
    all
}

/// Who owns the socket that an answer tells of, if it is one that is connected to `ours`: without such a one the kernel
/// shows one that listens.
fn owner_in(answer: &[u8], ours: SocketAddr) -> Option<u32> {
    let word = |at: usize| {
        let bytes = answer.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().expect("four")))
    };
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().expect("two"));
    let is_it = kind == SOCK_DIAG_BY_FAMILY
        && answer.get(STATE_AT) == Some(&ESTABLISHED)
        && answer.get(TO_PORT_AT..TO_PORT_AT + 2)? == ours.port().to_be_bytes()
        && answer.get(TO_AT..TO_AT + 16)? == address(ours.ip());
    // Without a number it is no process's any more.
    (is_it && word(NUMBER_AT)? != 0).then(|| word(USER_AT))?
}

/// As the table has it: an IPv4 address is the first of four words.
fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut words = [0; 16];
            words[..4].copy_from_slice(&ip.octets());
            words
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn byte(number: libc::c_int) -> u8 {
    u8::try_from(number).expect("below 256")
}

const HEADER_BYTES: usize = 16;
const QUESTION_BYTES: usize = HEADER_BYTES + 56;
/// More than an answer is.
const ANSWER_BYTES: usize = 1024;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
/// `TCP_ESTABLISHED`.
const ESTABLISHED: u8 = 1;
/// In an answer: header, then struct `inet_diag_msg`.
const STATE_AT: usize = HEADER_BYTES + 1;
const TO_PORT_AT: usize = HEADER_BYTES + 6;
const TO_AT: usize = HEADER_BYTES + 24;
const USER_AT: usize = HEADER_BYTES + 64;
const NUMBER_AT: usize = HEADER_BYTES + 68;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn connected(address: &str) -> Option<(TcpListener, Socket, TcpStream)> {
        let listener = TcpListener::bind((address, 0)).ok()?;
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("room");
        let (far, _) = listener.accept().expect("somebody waits");
        Some((listener, Socket::from(near), far))
    }

    #[test]
    fn a_process_of_the_same_user_is_ours() {
        let (_listener, near, _far) = connected("127.0.0.1").expect("loopback");
        assert!(is_ours(&near));
    }

    #[test]
    fn the_same_over_ipv6_where_there_is_any() {
        let Some((_listener, near, _far)) = connected("::1") else {
            eprintln!("skipped: this machine has no IPv6 loopback");
            return;
        };
        assert!(is_ours(&near));
    }

    #[test]
    fn who_has_closed_its_end_is_nobody() {
        let (_listener, near, far) = connected("127.0.0.1").expect("loopback");
        drop(far);
        assert!(!is_ours(&near));
    }

    #[test]
    fn a_listener_in_place_of_the_peer_is_not_the_peer() {
        let (listener, near, _far) = connected("127.0.0.1").expect("loopback");
        let (ours, theirs) = (near.local_addr(), listener.local_addr());
        let (ours, theirs) = (ours.expect("open"), theirs.expect("open"));
        let mut elsewhere = ours;
        elsewhere.set_port(1);
        let mut table = sys::netlink::sockets().expect("everybody may ask");
        table.write_all(&question(theirs, elsewhere)).expect("room");
        let mut answer = [0; ANSWER_BYTES];
        let bytes = table.read(&mut answer).expect("an answer");
        assert_eq!(owner_in(&answer[..bytes], elsewhere), None);
        assert_eq!(owner_in(&answer[..bytes.min(50)], elsewhere), None);
    }
}
