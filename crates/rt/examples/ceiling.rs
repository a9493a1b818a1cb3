//! What plain sockets can do on this machine for traffic shaped like NVMe/TCP, without any
//! protocol.
//!
//! Two processes on loopback, the target bound to CPU 0 and the initiator to CPU 1, one connection.
//! A request is 72 bytes (and a block when writing), a response 24 bytes (and a block from a random
//! place of the region when reading); in a mix the first byte of a request says which. DEPTH
//! requests are kept in flight; what one receive finds is answered by one send. Prints one line of
//! JSON; latency is measured at depth 1. Only the quotient of a real benchmark and this, run in
//! turns, means something.

use std::collections::VecDeque;
use std::env;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use fabrix_rt::{Gather, HugePages, LocalRegion, Region, Socket, net, topology};

const USAGE: &str =
    "usage: ceiling DEPTH BLOCK read|write|PERCENT_READ spin|block SECONDS [REGION_MIB]";
const REQUEST_BYTES: usize = 72;
const RESPONSE_BYTES: usize = 24;
const BUFFER_BYTES: usize = 2 << 20;
const GATHER_BYTES: usize = 64 << 10;
const GATHER_PARTS: usize = 1024;
const WARM_UP: Duration = Duration::from_millis(500);
/// First byte of a request that brings a block.
const WRITES: u8 = 1;
const SEED: u64 = 0x2545_f491_4f6c_dd1d;
const LATENCIES_MAX: usize = 4 << 20;

/// What is measured.
#[derive(Clone, Copy)]
struct Shape {
    depth: usize,
    block: usize,
    percent_read: usize,
    spin: bool,
    seconds: f64,
    region_bytes: usize,
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
            "{USAGE}\nwhere DEPTH >= 1 and 512 <= BLOCK <= {}",
            BUFFER_BYTES / 2
        );
        return ExitCode::from(2);
    };
    let result = match address {
        Some(address) => Target::connect(shape, &address).and_then(Target::serve_until_gone),
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
        let [depth, block, direction, mode, seconds, rest @ ..] = words else {
            return None;
        };
        let mib: usize = rest.first().map_or(Some(1024), |word| word.parse().ok())?;
        let shape = Self {
            depth: depth.parse().ok()?,
            block: block.parse().ok()?,
            percent_read: match direction.as_str() {
                "read" => 100,
                "write" => 0,
                percent => percent.parse().ok().filter(|percent| *percent <= 100)?,
            },
            spin: mode == "spin",
            seconds: seconds.parse().ok()?,
            region_bytes: mib.checked_mul(1 << 20)?,
        };
        let sane = shape.depth >= 1
            && (512..=BUFFER_BYTES / 2).contains(&shape.block)
            && shape.region_bytes >= shape.block
            && shape.seconds.is_finite();
        sane.then_some(shape)
    }

    fn request_bytes(&self, writing: bool) -> usize {
        REQUEST_BYTES + if writing { self.block } else { 0 }
    }

    fn response_bytes(&self, writing: bool) -> usize {
        RESPONSE_BYTES + if writing { 0 } else { self.block }
    }
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

/// Answers until the initiator goes away.
struct Target {
    shape: Shape,
    end: End,
    region: LocalRegion,
    random: Random,
}

impl Target {
    fn connect(shape: Shape, address: &str) -> io::Result<Self> {
        topology::pin(0)?;
        let region = Region::new(shape.region_bytes, HugePages::Try)?;
        let ones = vec![1; 1 << 20];
        for offset in (0..shape.region_bytes).step_by(ones.len()) {
            region.write(offset, &ones[..ones.len().min(shape.region_bytes - offset)]);
        }
        let end = End::new(TcpStream::connect(address)?, shape.spin)?;
        end.socket.stream().write_all(b"r")?;
        Ok(Self {
            shape,
            end,
            region: Region::local(&region),
            random: Random(SEED),
        })
    }

    fn serve_until_gone(self) -> io::Result<()> {
        self.serve().or_else(|error| match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Ok(()), // the measurement is over
            _ => Err(error),
        })
    }

    fn serve(mut self) -> io::Result<()> {
        let mut have = 0;
        loop {
            match self.end.receive(have)? {
                None => continue,
                Some(0) => return Ok(()),
                Some(bytes) => have += bytes,
            }
            let mut start = 0;
            while have - start >= REQUEST_BYTES {
                let writing = self.end.received[start] == WRITES;
                let bytes = self.shape.request_bytes(writing);
                if have - start < bytes {
                    break;
                }
                self.answer(start, writing)?;
                start += bytes;
            }
            self.end.send()?;
            self.end.received.copy_within(start..have, 0);
            have -= start;
        }
    }

    fn answer(&mut self, start: usize, writing: bool) -> io::Result<()> {
        let block = self.shape.block;
        let place = self.random.below(self.shape.region_bytes / block) * block;
        self.end.make_room(RESPONSE_BYTES)?;
        self.end.gather.push_bytes(&[0; RESPONSE_BYTES]);
        if writing {
            let data = start + REQUEST_BYTES;
            self.region
                .region()
                .write(place, &self.end.received[data..data + block]);
        } else {
            self.end.gather.push_lent(self.region.lend(place, block));
        }
        Ok(())
    }
}

/// Marsaglia's xorshift; good enough to defeat the caches.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 32).expect("32 bits") % limit
    }
}

fn measure(shape: Shape, words: &[String]) -> io::Result<()> {
    topology::pin(1)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let target = Command::new(env::current_exe()?)
        .arg("target")
        .arg(address)
        .args(words)
        .spawn()?;
    let mut target = EndsWithUs(target);
    let initiator = Initiator::new(shape, listener.accept()?.0)?;
    initiator.run()?;
    target.0.wait()?;
    Ok(())
}

/// The target's process, ended when we fail; after a good run it has ended by itself.
struct EndsWithUs(Child);

impl Drop for EndsWithUs {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks, counts, and measures at depth 1.
struct Initiator {
    shape: Shape,
    end: End,
    data: LocalRegion,
    random: Random,
    /// Of every request in flight, in order, whether it writes.
    asked: VecDeque<bool>,
    latencies_us: Vec<f32>,
}

impl Initiator {
    fn new(shape: Shape, stream: TcpStream) -> io::Result<Self> {
        let end = End::new(stream, shape.spin)?;
        let data = Region::new(shape.block * shape.depth, HugePages::No)?;
        let latencies = if shape.depth == 1 { LATENCIES_MAX } else { 0 };
        let latencies_us = Vec::with_capacity(latencies);
        let mut new = Self {
            shape,
            end,
            data: Region::local(&data),
            random: Random(SEED),
            asked: VecDeque::with_capacity(shape.depth),
            latencies_us,
        };
        while new.end.receive(0)?.is_none() {} // the target's "ready"
        Ok(new)
    }

    fn run(mut self) -> io::Result<()> {
        let warm = Instant::now() + WARM_UP;
        let end = warm + Duration::from_secs_f64(self.shape.seconds.max(0.0));
        let (mut counted_from, mut counted_since) = (None, warm);
        let (mut done, mut partial, mut due) = (0_u64, 0, self.shape.depth);
        let mut sent = warm;
        for turn in 0_u64.. {
            if due > 0 {
                if self.latencies_us.capacity() > 0 {
                    sent = Instant::now();
                }
                self.ask(due)?;
            }
            partial += match self.end.receive(0)? {
                Some(0) => return Err(io::Error::other("the target went away")),
                Some(bytes) => bytes,
                None if turn % 4096 != 0 => {
                    due = 0;
                    continue;
                }
                None => 0,
            };
            due = self.take_answers(&mut partial);
            done += due as u64;
            let timed = self.latencies_us.capacity() > 0 && due > 0;
            if !timed && turn % 64 != 0 {
                continue;
            }
            let now = Instant::now();
            if counted_from.is_none() && now > warm {
                (counted_from, counted_since) = (Some(done), now);
                self.latencies_us.clear();
            }
            if timed && self.latencies_us.len() < self.latencies_us.capacity() {
                self.latencies_us.push((now - sent).as_secs_f32() * 1e6);
            }
            if now > end {
                let counted = done - counted_from.unwrap_or(done);
                self.report(counted, now - counted_since);
                break;
            }
        }
        Ok(())
    }

    /// How many whole answers there are in what was received; they are taken off it.
    fn take_answers(&mut self, received: &mut usize) -> usize {
        let mut answers = 0;
        while let Some(writing) = self.asked.front() {
            let bytes = self.shape.response_bytes(*writing);
            if *received < bytes {
                break;
            }
            *received -= bytes;
            self.asked.pop_front();
            answers += 1;
        }
        answers
    }

    fn ask(&mut self, requests: usize) -> io::Result<()> {
        for index in 0..requests {
            let writing = self.random.below(100) >= self.shape.percent_read;
            let mut request = [0; REQUEST_BYTES];
            request[0] = if writing { WRITES } else { 0 };
            self.asked.push_back(writing);
            self.end.make_room(REQUEST_BYTES)?;
            self.end.gather.push_bytes(&request);
            if writing {
                let data = self.data.lend(index * self.shape.block, self.shape.block);
                self.end.gather.push_lent(data);
            }
        }
        self.end.send()
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of a few seconds")]
    fn report(&mut self, counted: u64, length: Duration) {
        let iops = counted as f64 / length.as_secs_f64();
        let bytes = iops * self.shape.block as f64;
        print!("{{\"iops\":{iops:.0},\"bytes_per_s\":{bytes:.0}");
        let all = &mut self.latencies_us;
        if !all.is_empty() {
            all.sort_unstable_by(f32::total_cmp);
            let at = |percent: usize| all[all.len() * percent / 100];
            print!(",\"p50_us\":{:.2},\"p99_us\":{:.2}", at(50), at(99));
        }
        println!("}}");
    }
}
