//! What plain sockets can do on this machine for traffic shaped like NVMe/TCP, without any
//! protocol.
//!
//! Two processes on loopback, the target bound to CPU 0 and the initiator to CPU 1 (or, with
//! `--cpus`, to others), one connection.
//! A request is 72 bytes (and a block when writing), a response 24 bytes (and a block from a random
//! place of the region when reading); in a mix the first byte of a request says which. DEPTH
//! requests are kept in flight; what one receive finds is answered by one send. Prints one line of
//! JSON; latency is measured at depth 1. Only the quotient of a real benchmark and this, run in
//! turns, means something.
//!
//! With `-` in place of SECONDS it says `ready` when the target's memory is written, and then
//! measures once for each line that it reads, which says for how many seconds; in between both ends
//! sleep.
//!
//! With `OFFERED` it is an open loop instead: so many requests a second at random moments, DEPTH of
//! them in flight at most, and latency counts from when a request was due.

mod initiator;
mod target;

use std::env;
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

use fabrix_rt::{Gather, Socket, net};

use initiator::measure;
use target::Target;

const USAGE: &str = "usage: ceiling [--cpus TARGET,INITIATOR] DEPTH BLOCK read|write|PERCENT_READ \
                     spin|block|block-target SECONDS|- [REGION_MIB [OFFERED]]";
const REQUEST_BYTES: usize = 72;
const RESPONSE_BYTES: usize = 24;
const BUFFER_BYTES: usize = 2 << 20;
const GATHER_BYTES: usize = 64 << 10;
const GATHER_PARTS: usize = 1024;
/// First byte of a request that brings a block.
const WRITES: u8 = 1;
/// What the target waits for before it spins.
const BEGIN: u8 = b'b';
const SEED: u64 = 0x2545_f491_4f6c_dd1d;

/// What is measured.
#[derive(Clone, Copy)]
struct Shape {
    /// The processors of the target and of the initiator.
    cpus: [usize; 2],
    depth: usize,
    block: usize,
    percent_read: usize,
    /// Which ends look for what comes next without sleeping.
    target_spins: bool,
    initiator_spins: bool,
    /// How long it is measured; None: whoever writes to us says so.
    seconds: Option<f64>,
    region_bytes: usize,
    /// Requests per second of an open loop.
    offered: Option<f64>,
}

fn main() -> ExitCode {
    let mut words: Vec<String> = env::args().skip(1).collect();
    let target = words.first().is_some_and(|word| word == "target");
    let address = if target {
        words.drain(..2).nth(1)
    } else {
        None
    };
    let Some(shape) = Shape::parse(&words) else {
        eprintln!(
            "{USAGE}\nwhere DEPTH >= 1, 512 <= BLOCK <= {} and OFFERED >= 1, with an initiator that spins",
            BUFFER_BYTES / 2
        );
        return ExitCode::from(2);
    };
    let result = match address {
        Some(address) => Target::new(shape).and_then(|target| target.serve_at(&address)),
        None => measure(shape, &words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ceiling: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Shape {
    fn parse(words: &[String]) -> Option<Self> {
        let (cpus, words) = match words {
            [flag, cpus, rest @ ..] if flag == "--cpus" => {
                let (target, initiator) = cpus.split_once(',')?;
                ([target.parse().ok()?, initiator.parse().ok()?], rest)
            }
            _ => ([0, 1], words),
        };
        let [depth, block, direction, mode, seconds, rest @ ..] = words else {
            return None;
        };
        let mib: usize = rest.first().map_or(Some(1024), |word| word.parse().ok())?;
        let (target_spins, initiator_spins) = match mode.as_str() {
            "spin" => (true, true),
            "block" => (false, false),
            "block-target" => (false, true),
            _ => return None,
        };
        let offered = match rest.get(1) {
            Some(word) => Some(word.parse().ok().filter(|offered| *offered >= 1.0)?),
            None => None,
        };
        let shape = Self {
            cpus,
            depth: depth.parse().ok()?,
            block: block.parse().ok()?,
            percent_read: match direction.as_str() {
                "read" => 100,
                "write" => 0,
                percent => percent.parse().ok().filter(|percent| *percent <= 100)?,
            },
            target_spins,
            initiator_spins,
            seconds: match seconds.as_str() {
                "-" => None,
                seconds => Some(parse_seconds(seconds)?),
            },
            region_bytes: mib.checked_mul(1 << 20)?,
            offered,
        };
        let sane = shape.depth >= 1
            && (512..=BUFFER_BYTES / 2).contains(&shape.block)
            && shape.region_bytes >= shape.block
            // Who waits for an answer asks nothing meanwhile.
            && (offered.is_none() || initiator_spins);
        sane.then_some(shape)
    }

    fn request_bytes(&self, writing: bool) -> usize {
        REQUEST_BYTES + if writing { self.block } else { 0 }
    }

    fn response_bytes(&self, writing: bool) -> usize {
        RESPONSE_BYTES + if writing { 0 } else { self.block }
    }
}

/// A time that can be measured.
fn parse_seconds(word: &str) -> Option<f64> {
    let seconds: f64 = word.parse().ok()?;
    (seconds.is_finite() && seconds >= 0.0).then_some(seconds)
}

/// One end of the connection.
struct End {
    socket: Socket,
    gather: Gather,
    received: Vec<u8>,
}

impl End {
    fn new(stream: TcpStream, spin: bool) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let socket = Socket::from(stream);
        socket.stream().set_nonblocking(spin)?;
        let gather = Gather::new(GATHER_BYTES, GATHER_PARTS);
        Ok(Self {
            socket,
            gather,
            received: vec![0; BUFFER_BYTES],
        })
    }

    /// Receives behind the `kept` bytes. None: nothing there, and spinning.
    fn receive(&mut self, kept: usize) -> io::Result<Option<usize>> {
        match self.socket.stream().read(&mut self.received[kept..]) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn make_room(&mut self, bytes: usize) -> io::Result<()> {
        if self.gather.has_room(bytes, 2) {
            Ok(())
        } else {
            self.send()
        }
    }

    fn send(&mut self) -> io::Result<()> {
        if !self.gather.is_empty() {
            net::send_now(&self.socket, &mut self.gather)?;
            self.gather.clear();
        }
        Ok(())
    }
}

/// Marsaglia's xorshift; good enough to defeat the caches.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next()).expect("32 bits") % limit
    }

    /// A time whose mean is that of `mean_s` seconds: the distance of two moments that know nothing
    /// of each other.
    fn exponential(&mut self, mean_s: f64) -> Duration {
        let even = (f64::from(self.next()) + 1.0) / (f64::from(u32::MAX) + 1.0);
        Duration::from_secs_f64(-even.ln() * mean_s)
    }

    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 >> 32).expect("32 bits")
    }
}
