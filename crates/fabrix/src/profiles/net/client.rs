//! The measuring end of `bench net`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fabrix_bench::latency::{Latency, PERCENTILES, Recorder};

use super::server::{both, receive, send};
use super::wire::{Mode, Order, PATIENCE, REQUEST, RESPONSE};
use crate::failure::{Failure, Kind};

/// Result of one measurement.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Bytes of each stream, in both directions.
    pub(super) streams: Vec<u64>,
    pub(super) seconds: f64,
    /// Latency of the requests.
    pub(super) latency: Latency,
    /// Reason for an early end.
    early: Option<String>,
}

impl Outcome {
    pub(super) fn bytes_per_second(&self) -> f64 {
        self.streams.iter().sum::<u64>() as f64 / self.seconds.max(1e-9)
    }

    /// Requests per second.
    pub(super) fn iops(&self) -> f64 {
        self.latency.count as f64 / self.seconds.max(1e-9)
    }

    /// Fails if the measurement ended early.
    pub(super) fn whole(&self) -> Result<(), Failure> {
        let why = self.early.as_ref().map(Failure::io);
        why.map_or(Ok(()), Err)
    }
}

/// Executes an order on `parallel` connections at the same time. An interrupt or a lost server ends
/// it early with a partial result.
pub(super) fn measure(
    address: &str,
    order: Order,
    parallel: u16,
    stop: &Arc<AtomicBool>,
) -> Result<Outcome, Failure> {
    let connect = || {
        connect(address, order)
            .map_err(|error| Failure::new(Kind::Connect, format!("{address}: {error}")))
    };
    let streams = (0..parallel)
        .map(|_| connect())
        .collect::<Result<Vec<_>, _>>()?;
    let began = Instant::now();
    let results: Vec<std::io::Result<(u64, Recorder)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .iter()
            .map(|stream| scope.spawn(|| one(stream, order, stop)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|result| result.unwrap_or_else(|_| Err(std::io::Error::other("a thread is gone"))))
            .collect()
    });
    let mut outcome = Outcome {
        seconds: began.elapsed().as_secs_f64(),
        ..Outcome::default()
    };
    let mut all = Recorder::new();
    for result in results {
        match result {
            Ok((bytes, recorder)) => {
                outcome.streams.push(bytes);
                all.add(&recorder);
            }
            Err(error) => outcome.early = Some(format!("{address}: {error}")),
        }
    }
    outcome.latency = all.summary(&PERCENTILES);
    let planned = order.millis as f64 / 1e3;
    if stop.load(Ordering::Relaxed) {
        outcome.early = Some("interrupted: what was measured until then is shown".into());
    } else if outcome.early.is_none() && outcome.seconds < planned * SHORT {
        outcome.early = Some(format!(
            "{address}: the server went away after {:.1} s of {planned} s",
            outcome.seconds
        ));
    }
    if outcome.streams.is_empty() {
        outcome.whole()?;
    }
    Ok(outcome)
}

/// Fraction of the planned time. A stream that the server ends earlier was not ended by its clock.
const SHORT: f64 = 0.7;

fn connect(address: &str, order: Order) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(order.line().as_bytes())?;
    let mut answer = [0; 3];
    stream.read_exact(&mut answer)?;
    if answer == *b"ok\n" {
        return Ok(stream);
    }
    Err(std::io::Error::other(
        "what answers there is no `fabrix bench net --server`",
    ))
}

fn one(stream: &TcpStream, order: Order, stop: &AtomicBool) -> std::io::Result<(u64, Recorder)> {
    let bytes = match order.mode {
        Mode::Send => send(stream, order, stop)?,
        Mode::Receive => receive(stream, stop)?,
        Mode::Both => both(stream, order, stop)?,
        Mode::Request => return request(stream, order, stop),
    };
    Ok((bytes, Recorder::new()))
}

/// Keeps `depth` requests in flight: counts all received responses and sends as many new requests.
fn request(
    mut stream: &TcpStream,
    order: Order,
    stop: &AtomicBool,
) -> std::io::Result<(u64, Recorder)> {
    let depth = order.depth as usize;
    let whole = RESPONSE + order.length as usize;
    let requests = vec![0; REQUEST * depth];
    let mut buffer = vec![0; (whole * depth).clamp(64 << 10, 1 << 20)];
    // Send times of the requests in flight, the oldest first.
    let mut sent = std::collections::VecDeque::from(vec![Instant::now(); depth]);
    let mut recorder = Recorder::new();
    let (mut bytes, mut partial) = (0, 0);
    let until = Instant::now() + Duration::from_millis(order.millis);
    stream.write_all(&requests)?;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Err(std::io::Error::other(
                "the server has closed the connection",
            ));
        }
        bytes += length as u64;
        let done = (partial + length) / whole;
        partial = (partial + length) % whole;
        let now = Instant::now();
        for _ in 0..done {
            let began = sent.pop_front().unwrap_or(now);
            recorder
                .record(u64::try_from(now.duration_since(began).as_nanos()).unwrap_or(u64::MAX));
            sent.push_back(now);
        }
        if done > 0 {
            stream.write_all(&requests[..REQUEST * done])?;
        }
    }
    Ok((bytes, recorder))
}
