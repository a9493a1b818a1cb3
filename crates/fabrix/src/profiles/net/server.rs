//! The other end of `bench net`: executes one order per connection, until interrupted.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::rdma;
use super::wire::{Mode, Order, PATIENCE, REQUEST, RESPONSE};
use crate::cli::bench::args::NetArgs;
use crate::cli::terminal::{say, show};
use crate::failure::Failure;

/// Largest number of connections. Further ones are closed at once.
const CONNECTIONS_MOST: usize = 256;

pub(super) fn run(
    address: &str,
    args: &NetArgs,
    stop: &Arc<AtomicBool>,
) -> Result<ExitCode, Failure> {
    if let Some((_, bare)) = address.split_once("://") {
        return Err(Failure::usage(format!(
            "--server {address}: write ADDR:PORT --rdma, like {bare} --rdma; without --rdma only TCP is served"
        )));
    }
    let listener = TcpListener::bind(address).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => Failure::usage(format!(
            "--server {address}: {error}; write ADDR:PORT, like 127.0.0.1:5301"
        )),
        _ => Failure::io(format!("cannot listen at {address}: {error}")),
    })?;
    let cannot = |error| Failure::io(format!("{address}: {error}"));
    let bound = listener.local_addr().map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    let rdma = match args.rdma {
        true => Some(rdma::server::start(bound, args.spin, stop)?),
        false => None,
    };
    let also = if rdma.is_some() { ", for RDMA too" } else { "" };
    say(format_args!("listening at {bound}{also}"));
    show(
        args.output,
        String::new,
        || json!({ "listening": bound.to_string(), "rdma": args.rdma }),
    )?;
    let open = Arc::new(AtomicUsize::new(0));
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) if open.load(Ordering::Relaxed) >= CONNECTIONS_MOST => drop(stream),
            Ok((stream, peer)) => {
                let (open, stop) = (Arc::clone(&open), Arc::clone(stop));
                open.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || {
                    let ordered = || say(format_args!("a client from {peer}"));
                    if let Err(error) = serve(&stream, ordered, &stop) {
                        say(format_args!("{peer}: {error}"));
                    }
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(10))
            }
            Err(error) => return Err(Failure::io(format!("{bound}: {error}"))),
        }
    }
    if let Some(thread) = rdma {
        let _panicked = thread.join();
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves one connection: the order, then the bytes. Calls `ordered` between the two.
pub(super) fn serve(
    stream: &TcpStream,
    ordered: impl FnOnce(),
    stop: &AtomicBool,
) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let order = Order::receive(stream)?;
    (&*stream).write_all(b"ok\n")?;
    ordered();
    let outcome = match order.mode {
        Mode::Send => receive(stream, stop).map(drop),
        Mode::Receive => send(stream, order, stop).map(drop),
        Mode::Both => both(stream, order, stop).map(drop),
        Mode::Request => answer(stream, order),
    };
    // A client that disconnects has finished.
    outcome.or_else(|error| match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => Ok(()),
        _ => Err(error),
    })
}

/// Sends and receives at the same time. Returns the number of bytes in both directions.
pub(super) fn both(stream: &TcpStream, order: Order, stop: &AtomicBool) -> std::io::Result<u64> {
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(stream, order, stop));
        let received = receive(stream, stop);
        let sent = sender
            .join()
            .map_err(|_| std::io::Error::other("the sending thread is gone"))?;
        Ok(sent? + received?)
    })
}

/// Receives until the other end closes or an interrupt. Returns the number of bytes.
pub(super) fn receive(mut stream: &TcpStream, stop: &AtomicBool) -> std::io::Result<u64> {
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0;
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer)? {
            0 => break,
            length => bytes += length as u64,
        }
    }
    Ok(bytes)
}

/// Sends for the ordered time or until an interrupt, then shuts down its side. Returns the number
/// of bytes.
pub(super) fn send(
    mut stream: &TcpStream,
    order: Order,
    stop: &AtomicBool,
) -> std::io::Result<u64> {
    let buffer = vec![0x5a; order.length as usize];
    let until = Instant::now() + Duration::from_millis(order.millis);
    let mut bytes = 0;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        stream.write_all(&buffer)?;
        bytes += buffer.len() as u64;
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(bytes)
}

/// Answers requests until the other end closes. Requests received together are answered together.
fn answer(mut stream: &TcpStream, order: Order) -> std::io::Result<()> {
    let whole = RESPONSE + order.length as usize;
    let mut requests = vec![0; REQUEST * order.depth as usize];
    let at_once = (RESPONSES_BYTES / whole).max(1);
    let responses = vec![0x5a; whole * at_once];
    let mut partial = 0;
    loop {
        let length = stream.read(&mut requests)?;
        if length == 0 {
            return Ok(());
        }
        let mut due = (partial + length) / REQUEST;
        partial = (partial + length) % REQUEST;
        while due > 0 {
            let now = due.min(at_once);
            stream.write_all(&responses[..whole * now])?;
            due -= now;
        }
    }
}

/// Largest send of responses in bytes.
const RESPONSES_BYTES: usize = 256 << 10;
