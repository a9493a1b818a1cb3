//! Ends of long sends that are held back until the next turn, in which more may follow.
//!
//! A long answer fills whole packets and leaves the last one nearly empty, and that one costs the sender, and whoever
//! receives it, a third of what a full one costs. Where the next answer follows at once, the two leave better as one
//! stretch of full packets (`TCP_CORK`; `MSG_MORE` does not last: the next acknowledgement pushes what it held).
//!
//! Nobody waits long for an end: it is let go in the next turn, which comes at once, unless that sends half a packet or
//! more behind it. Knows sockets and lengths only; whether a peer can do without the end meanwhile says who sends
//! ([`Gather::let_end_wait`]).

use std::os::fd::AsFd;

use super::warm::MOST;
use crate::sys::socket;
use crate::{Gather, Socket};

/// The sockets whose ends are held back.
pub(super) struct Tails {
    held: Vec<Tail>,
    /// So many long sends leave whole before one is held back again.
    pause: u32,
    /// The same, after the next hold that is in vain.
    next_pause: u32,
}

struct Tail {
    socket: Socket,
    /// Whether anything was sent behind it in this turn, or it is of this turn itself.
    is_new: bool,
    /// Whether anything left with it.
    was_followed: bool,
}

impl Tails {
    /// None so far. All memory is taken here.
    pub(super) fn new() -> Self {
        Self {
            held: Vec::with_capacity(MOST),
            pause: 0,
            next_pause: 1,
        }
    }

    /// A send is about to be tried: its end is held back from now on if that may pay, and what was held is on its way.
    #[inline]
    pub(super) fn before(&mut self, socket: &Socket, gather: &Gather) {
        let bytes = gather.bytes_at_once();
        if bytes >= PACKET_BYTES / 2 && gather.end_may_wait() {
            self.before_long(socket, bytes);
        }
    }

    fn before_long(&mut self, socket: &Socket, bytes: usize) {
        if let Some(tail) = self.held.iter_mut().find(|tail| tail.socket.is(socket)) {
            (tail.is_new, tail.was_followed) = (true, true);
            self.next_pause = 1;
        } else if bytes <= PACKET_BYTES || self.held.len() == MOST {
            // There is no second packet, or no place.
        } else if self.pause > 0 {
            self.pause -= 1;
        } else if socket::cork(socket.as_fd(), true).is_ok() {
            self.held.push(Tail {
                socket: socket.clone(),
                is_new: true,
                was_followed: false,
            });
        }
    }

    /// All sends of a turn were tried: lets go what none of them was behind.
    #[inline]
    pub(super) fn sends_were_tried(&mut self) {
        let mut index = 0;
        while let Some(tail) = self.held.get_mut(index) {
            if std::mem::take(&mut tail.is_new) {
                index += 1;
            } else {
                let tail = self.held.swap_remove(index);
                self.let_go(&tail);
            }
        }
    }

    /// Held in vain, the next sends are left alone, twice as many each time.
    fn let_go(&mut self, tail: &Tail) {
        // Refused, the connection has failed: there is nothing left to hold.
        let _ = socket::cork(tail.socket.as_fd(), false);
        if !tail.was_followed {
            self.pause = self.next_pause;
            self.next_pause = (2 * self.next_pause).min(PAUSE_MOST);
        }
    }
}

/// What loopback carries in one packet, and a network card takes at once. Longer sends leave as several.
const PACKET_BYTES: usize = 65_483;
/// An end that is held in vain costs two calls, a packet saved is worth ten.
const PAUSE_MOST: u32 = 64;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const LONG: usize = PACKET_BYTES + 1;

    fn connected() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let peer = TcpStream::connect(address).expect("it listens");
        let (stream, _) = listener.accept().expect("it is there");
        (Socket::from(stream), peer)
    }

    fn of(bytes: usize) -> Gather {
        let mut gather = Gather::new(bytes, 1);
        gather.push_bytes(&vec![0; bytes]);
        gather.let_end_wait();
        gather
    }

    fn is_held(socket: &Socket) -> bool {
        socket::is_corked(socket.as_fd()).expect("it is open")
    }

    /// A turn that sends so much, and whether the end is held back while it goes on.
    fn turn(tails: &mut Tails, socket: &Socket, bytes: usize) -> bool {
        tails.before(socket, &of(bytes));
        tails.sends_were_tried();
        is_held(socket)
    }

    #[test]
    fn an_end_is_held_back_from_turn_to_turn_as_long_as_more_follows() {
        let ((socket, _peer), mut tails) = (connected(), Tails::new());
        assert!(turn(&mut tails, &socket, LONG));
        assert!(turn(&mut tails, &socket, LONG / 2), "a turn that sends on");
        assert!(turn(&mut tails, &socket, LONG));
        tails.sends_were_tried();
        assert!(!is_held(&socket));
    }

    #[test]
    fn an_end_does_not_wait_for_a_turn_that_sends_little_or_to_somebody_else() {
        let ([(socket, _peer), (other, _its_peer)], mut tails) =
            ([(); 2].map(|()| connected()), Tails::new());
        assert!(turn(&mut tails, &socket, LONG));
        assert!(turn(&mut tails, &socket, LONG));
        assert!(!turn(&mut tails, &socket, 4120), "a short send");
        assert!(turn(&mut tails, &socket, LONG));
        assert!(turn(&mut tails, &other, LONG), "each has its own");
        assert!(!is_held(&socket), "a turn without it");
    }

    #[test]
    fn only_what_is_longer_than_a_packet_and_may_wait_is_held_back() {
        let ((socket, _peer), mut tails) = (connected(), Tails::new());
        assert!(!turn(&mut tails, &socket, PACKET_BYTES));
        let mut in_a_hurry = of(LONG);
        in_a_hurry.clear();
        in_a_hurry.push_bytes(&[0; LONG]);
        tails.before(&socket, &in_a_hurry);
        assert!(!is_held(&socket));
    }

    #[test]
    fn who_never_sends_on_is_asked_ever_less_often() {
        let ((socket, _peer), mut tails) = (connected(), Tails::new());
        let mut held = 0;
        for _ in 0..1000 {
            held += u32::from(turn(&mut tails, &socket, LONG));
            tails.sends_were_tried();
        }
        assert!((10..30).contains(&held), "held {held} times of 1000");
        while !turn(&mut tails, &socket, LONG) {}
        assert!(turn(&mut tails, &socket, LONG), "now somebody does");
        tails.sends_were_tried();
        assert!(turn(&mut tails, &socket, LONG), "which counts at once");
    }
}
