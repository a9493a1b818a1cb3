//! Whether bytes to be sent had better be referred to than copied on this machine ([`Stage`](crate::Stage)).
//!
//! An ordinary send copies into pages of the kernel's that a receiver on this machine has just read. On some machines
//! that takes four times as long as a copy into memory of our own, on others less. Which, depends on how the kernel
//! copies there and on what the caches do, and no copy of our own shows it: so two threads send to each other in both
//! ways. Once in a process, when somebody first asks.

use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::driver::send_references;
use crate::{Gather, HugePages, LocalRegion, Nanos, Region, Socket, Stage, net, topology};

/// Whether a [`Stage`] saves time where the receiver is on this machine. The first to ask waits some milliseconds,
/// while two processors send and receive. Where there is only one, or they do not get to it, the answer is no.
pub fn staging_pays() -> bool {
    static PAYS: OnceLock<bool> = OnceLock::new();
    *PAYS.get_or_init(|| {
        measure().is_ok_and(|times| times.is_some_and(|[copied, referred]| pays(copied, referred)))
    })
}

/// A tenth at least: less is within what two measurements differ by.
fn pays(copied: Duration, referred: Duration) -> bool {
    referred * 10 < copied * 9
}

/// The shortest time that a round took in either way: what disturbs only makes it longer. None: there is no other
/// processor, or it took too long.
fn measure() -> io::Result<Option<[Duration; 2]>> {
    let cpus = topology::cpus_of_process();
    let [sender, .., receiver] = cpus[..] else {
        return Ok(None);
    };
    let [near, far] = connection()?;
    let relay = Relay {
        received: AtomicUsize::new(0),
        end: Nanos::now() + TIME_MOST,
    };
    thread::scope(|scope| {
        let thread = || thread::Builder::new().name("measuring".to_owned());
        let receives = thread().spawn_scoped(scope, || relay.receive(far, receiver))?;
        let sends = thread().spawn_scoped(scope, || relay.send(near, sender))?;
        let panicked = |_| io::Error::other("a thread that measures panicked");
        let times = sends.join().map_err(panicked)?;
        receives.join().map_err(panicked)??;
        times
    })
}

/// Both ends of one over loopback, as ours there are.
fn connection() -> io::Result<[TcpStream; 2]> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let near = TcpStream::connect(address)?;
    net::skip_pacing(near.as_fd(), address);
    let (far, peer) = listener.accept()?;
    if peer != near.local_addr()? {
        return Err(io::Error::other("somebody else connected"));
    }
    Ok([near, far])
}

/// What one sends and the other receives.
struct Relay {
    received: AtomicUsize,
    /// Nobody waits longer.
    end: Nanos,
}

impl Relay {
    fn send(&self, stream: TcpStream, cpu: usize) -> io::Result<Option<[Duration; 2]>> {
        topology::pin(cpu)?;
        let mut sender = Sender::new(Socket::from(stream))?;
        let mut shortest = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            for (way, shortest) in [Way::Copied, Way::Referred].into_iter().zip(&mut shortest) {
                let began = Nanos::now();
                for _ in 0..PIECES {
                    if !self.wait(sender.sent.saturating_sub(IN_FLIGHT_BYTES)) {
                        return Ok(None);
                    }
                    sender.send(way)?;
                }
                if !self.wait(sender.sent) {
                    return Ok(None);
                }
                *shortest = (*shortest).min(Nanos::now() - began);
            }
        }
        Ok(Some(shortest))
    }

    /// Until the sender has gone. Does not sleep: waking it would cost the sender as much as what is measured.
    fn receive(&self, mut stream: TcpStream, cpu: usize) -> io::Result<()> {
        topology::pin(cpu)?;
        stream.set_nonblocking(true)?;
        let mut piece = vec![0; PIECE_BYTES];
        while Nanos::now() < self.end {
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(bytes) => {
                    self.received.fetch_add(bytes, Ordering::Release);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until so many bytes have arrived; false: it took too long.
    fn wait(&self, bytes: usize) -> bool {
        while self.received.load(Ordering::Acquire) < bytes {
            if Nanos::now() > self.end {
                return false;
            }
            std::hint::spin_loop();
        }
        true
    }
}

#[derive(Clone, Copy)]
enum Way {
    Copied,
    Referred,
}

struct Sender {
    socket: Socket,
    stage: Stage,
    gather: Gather,
    /// What a user would have for so many requests, used in turn.
    payload: LocalRegion,
    /// Bytes.
    sent: usize,
}

impl Sender {
    fn new(socket: Socket) -> io::Result<Self> {
        let stage = Stage::new(&socket, STAGE_BYTES)?;
        let payload = Region::new(IN_FLIGHT_BYTES, HugePages::Try)?;
        payload.populate()?;
        socket.stream().set_write_timeout(Some(TIME_MOST))?;
        Ok(Self {
            stage,
            socket,
            gather: Gather::new(0, 1),
            payload: Region::local(&payload),
            sent: 0,
        })
    }

    /// One piece. Whatever the socket has no room for by reference is copied in this way too.
    fn send(&mut self, way: Way) -> io::Result<()> {
        let start = self.sent % IN_FLIGHT_BYTES;
        self.gather.push_lent(self.payload.lend(start, PIECE_BYTES));
        if let Way::Referred = way {
            let staged = self.stage.part(self.sent % STAGE_BYTES, PIECE_BYTES);
            self.gather.send_through(staged);
            send_references(&self.socket, &mut self.gather);
        }
        net::send_now(&self.socket, &mut self.gather)?;
        self.gather.clear();
        self.sent += PIECE_BYTES;
        Ok(())
    }
}

const PIECE_BYTES: usize = 128 << 10;
const IN_FLIGHT_BYTES: usize = 8 * PIECE_BYTES;
/// More than a core's own cache and less than all cores'; a part is used again long after the peer has it.
const STAGE_BYTES: usize = 32 * PIECE_BYTES;
/// In one round of one way; the first rounds of both also let the connection get up to speed.
const PIECES: usize = 16;
const ROUNDS: usize = 8;
/// Some twenty times what it takes: where a program spins on one of the processors it takes much longer.
const TIME_MOST: Duration = Duration::from_millis(150);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_decides() {
        let time = Duration::from_micros;
        assert!(pays(time(400), time(300)));
        assert!(!pays(time(300), time(300)));
        assert!(!pays(time(300), time(280)));
        assert!(!pays(time(300), time(400)));
    }

    #[test]
    fn both_ways_arrive() {
        let [near, far] = connection().expect("loopback");
        let relay = Relay {
            received: AtomicUsize::new(0),
            end: Nanos::now() + Duration::from_secs(60),
        };
        thread::scope(|scope| {
            let receives = scope.spawn(|| relay.receive(far, topology::cpus_of_process()[0]));
            let mut sender = Sender::new(Socket::from(near)).expect("memory and descriptors");
            for way in [Way::Copied, Way::Referred, Way::Referred, Way::Copied] {
                sender.send(way).expect("a reader is there");
            }
            assert!(relay.wait(4 * PIECE_BYTES), "all of it arrives");
            drop(sender);
            let ended = receives.join().expect("no panic");
            assert!(ended.is_ok(), "{ended:?}");
        });
    }

    #[test]
    fn who_receives_nothing_is_not_waited_for() {
        let relay = Relay {
            received: AtomicUsize::new(0),
            end: Nanos::now(),
        };
        assert!(!relay.wait(1));
    }

    #[test]
    fn two_processors_measure_and_the_answer_stays() {
        if topology::cpus_of_process().len() > 1 {
            assert!(measure().is_ok(), "a connection and two threads");
        }
        assert_eq!(staging_pays(), staging_pays());
    }
}
