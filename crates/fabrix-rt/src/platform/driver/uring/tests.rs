//! Receives that stay out of the ring while a shard spins, and the moment they go into it, on real
//! sockets.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;

use super::*;
use crate::Buf;
use crate::buf::Arena;
use crate::slab::Slabs;
use crate::spin::SpinPolicy;
use crate::sys::entry::Short;

const BYTES: usize = 4096;
/// Sooner than this a look ends only because something has come.
const SHORTLY: Duration = Duration::from_millis(1);

struct Bench {
    driver: UringDriver<Short>,
    arena: Rc<Arena>,
    socket: Socket,
    peer: TcpStream,
}

impl Bench {
    /// A driver that never sleeps, and a connection; None where the kernel gives no ring.
    fn new() -> Option<Self> {
        let bell = Arc::new(Bell::new().expect("an eventfd"));
        let spin = Spin::new(SpinPolicy::Always);
        let driver = match UringDriver::new(8, spin, bell) {
            Ok(driver) => driver,
            Err(error) => {
                eprintln!("skipped: no ring here: {error}");
                return None;
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let peer = TcpStream::connect(address).expect("it listens");
        let (stream, _) = listener.accept().expect("it is there");
        Some(Self {
            driver,
            arena: Arena::new(4 << 20, Slabs::new()),
            socket: Socket::from(stream),
            peer,
        })
    }

    fn receive(&self) -> Submission {
        let op = Op::Receive {
            socket: self.socket.clone(),
            buf: Buf::new(self.arena.take(BYTES).expect("room")),
            start: 0,
            bytes: BYTES,
        };
        (token(1), op)
    }

    /// One turn; the slots of what has ended in it.
    fn turn(&mut self, mut submissions: Vec<Submission>, until: Until) -> Vec<u32> {
        let mut endings = Vec::new();
        self.driver.turn(&mut submissions, &mut endings, until);
        endings.iter().map(|(token, _)| token.slot).collect()
    }

    /// Turns that look until nothing is to be looked at any more, or something has ended.
    fn look(&mut self) -> Vec<u32> {
        self.turn(Vec::new(), Until::At(Nanos::now() + SHORTLY))
    }
}

fn token(slot: u32) -> Token {
    let task = TaskId::new(1, 0);
    Token { task, slot }
}

#[test]
fn a_receive_that_nothing_comes_for_goes_into_the_ring_and_stays_there() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    let receive = vec![bench.receive()];
    bench.turn(receive, Until::Now);
    assert_eq!(bench.driver.warm.len(), 1);
    for _ in 0..3 {
        while bench.driver.warm.len() > 0 {
            assert_eq!(bench.look(), []);
        }
        bench.turn(Vec::new(), Until::Now);
        assert_eq!(bench.driver.warm.len(), 0, "it is tried again by hand");
    }
    bench.peer.write_all(b"at last").expect("connected");
    while bench.look().is_empty() {}
}
