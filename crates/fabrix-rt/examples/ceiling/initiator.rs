//! The end that asks, counts, and measures latency at depth 1 and of an open loop. It starts the
//! other one, and takes answers by their length alone.

use std::collections::VecDeque;
use std::env;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use fabrix_rt::{HugePages, LocalRegion, Region, topology};

use super::{BEGIN, End, REQUEST_BYTES, Random, SEED, Shape, WRITES, parse_seconds};

const WARM_UP: Duration = Duration::from_millis(500);
const LATENCIES_MAX: usize = 4 << 20;

pub(super) fn measure(shape: Shape, words: &[String]) -> io::Result<()> {
    topology::pin(shape.cpus[1])?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let target = Command::new(env::current_exe()?)
        .arg("target")
        .arg(address)
        .args(words)
        .spawn()?;
    let mut target = EndsWithUs(target);
    // It connects when its memory is written, and again when a connection has ended.
    let mut stream = listener.accept()?.0;
    if let Some(seconds) = shape.seconds {
        measure_once(shape, stream, seconds)?;
    } else {
        println!("ready");
        for line in io::stdin().lines() {
            let line = line?;
            let seconds = parse_seconds(line.trim())
                .ok_or_else(|| io::Error::other(format!("`{line}` is no number of seconds")))?;
            measure_once(shape, stream, seconds)?;
            stream = listener.accept()?.0;
        }
        drop(stream);
    }
    drop(listener);
    target.0.wait()?;
    Ok(())
}

fn measure_once(shape: Shape, stream: TcpStream, seconds: f64) -> io::Result<()> {
    let initiator = Initiator::new(shape, stream, seconds)?;
    match shape.offered {
        Some(offered) => initiator.run_open(offered),
        None => initiator.run(),
    }
}

/// The target's process, ended when we fail; after a good run it has ended by itself.
struct EndsWithUs(Child);

impl Drop for EndsWithUs {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Initiator {
    shape: Shape,
    seconds: f64,
    end: End,
    data: LocalRegion,
    random: Random,
    /// Of every request in flight, in order, whether it writes.
    asked: VecDeque<bool>,
    latencies_us: Vec<f32>,
}

impl Initiator {
    fn new(shape: Shape, mut stream: TcpStream, seconds: f64) -> io::Result<Self> {
        stream.write_all(&[BEGIN])?;
        let end = End::new(stream, shape.initiator_spins)?;
        let data = Region::new(shape.block * shape.depth, HugePages::No)?;
        let latencies = if shape.depth == 1 || shape.offered.is_some() {
            LATENCIES_MAX
        } else {
            0
        };
        let latencies_us = Vec::with_capacity(latencies);
        let mut new = Self {
            shape,
            seconds,
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
        let end = warm + Duration::from_secs_f64(self.seconds);
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
            if timed {
                self.note(now - sent);
            }
            if now > end {
                let counted = done - counted_from.unwrap_or(done);
                self.report(counted, now - counted_since);
                break;
            }
        }
        Ok(())
    }

    /// Asks when a request is due, whether others were answered or not.
    fn run_open(mut self, offered: f64) -> io::Result<()> {
        let warm = Instant::now() + WARM_UP;
        let end = warm + Duration::from_secs_f64(self.seconds);
        let (mut due, mut spacing) = (Instant::now(), Random(SEED));
        let mut waiting = VecDeque::with_capacity(self.shape.depth);
        let (mut partial, mut counted) = (0, 0);
        let mut now = Instant::now();
        while now <= end {
            while due <= now && waiting.len() < self.shape.depth {
                self.ask(1)?;
                waiting.push_back(due);
                due += spacing.exponential(1.0 / offered);
            }
            partial += match self.end.receive(0)? {
                Some(0) => return Err(io::Error::other("the target went away")),
                received => received.unwrap_or(0),
            };
            now = Instant::now();
            let answers = self.take_answers(&mut partial);
            for due in waiting.drain(..answers).filter(|due| *due >= warm) {
                counted += 1;
                self.note(now - due);
            }
        }
        self.report(counted, now - warm);
        Ok(())
    }

    /// Keeps a latency, as long as there is room.
    fn note(&mut self, latency: Duration) {
        if self.latencies_us.len() < self.latencies_us.capacity() {
            self.latencies_us.push(latency.as_secs_f32() * 1e6);
        }
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
            for percent in [50, 90, 95, 99] {
                print!(",\"p{percent}_us\":{:.2}", at(percent));
            }
        }
        println!("}}");
    }
}
