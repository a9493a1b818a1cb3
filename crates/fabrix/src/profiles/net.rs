//! Measures the network alone, as a reference for remote disks: streams like iperf3's, and requests
//! shaped like block I/O. A request has 72 bytes, and its response 24 bytes plus the data, as a
//! read over NVMe/TCP.
//!
//! It uses plain blocking sockets and threads, as an ordinary program does. `server` is the other
//! end. `rdma` measures the same network over RDMA.

mod client;
mod rdma;
mod server;
mod wire;

use std::net::{Ipv6Addr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fabrix_bench::Counted;
use fabrix_block::Spec;
use fabrix_block::spec::Disk as SpecDisk;
use fabrix_host::Transport;

use crate::cli::bench::args::NetArgs;
use crate::cli::bench::interrupts::stop_flag;
use crate::cli::bench::publish::{make_folder, publish};
use crate::disks::transport;
use crate::failure::Failure;
use crate::report::sheet::{Cell, Drawing, Figure, Report, Shown, Table};
use client::Outcome;
use wire::{Mode, Order};

pub(crate) fn run(args: &NetArgs) -> Result<ExitCode, Failure> {
    make_folder(args.report.as_deref())?;
    let stop = stop_flag()?;
    if let Some(address) = &args.server {
        return server::run(address, args, &stop);
    }
    let host = Host::parse(args.host.as_deref().unwrap_or_default()).map_err(Failure::usage)?;
    let has_rdma = host.wire != Wire::Tcp || args.rdma;
    if has_rdma && (args.reverse || args.bidir) {
        return Err(Failure::usage("-R and --bidir are for streams over TCP"));
    }
    let address = &host.address;
    let tcp = match host.wire {
        Wire::Rdma => None,
        Wire::Tcp | Wire::Both => Some(Tcp::new(args, address, &stop)?),
    };
    let rdma = match has_rdma {
        true => Some(rdma::Plan::new(args, address, &stop)?),
        false => None,
    };
    // Before the part over TCP, which takes a while.
    rdma.as_ref().map_or(Ok(()), rdma::Plan::check)?;
    let leads = [
        tcp.as_ref().map(Tcp::lead),
        rdma.as_ref().map(rdma::Plan::lead),
    ];
    let mut report = Report {
        profile: "net".into(),
        title: format!("{address}: the wire alone"),
        lead: leads.into_iter().flatten().collect::<Vec<_>>().join("; "),
        notes: vec!["Gb/s is 10^9 bits".into()],
        ..Report::default()
    };
    if rdma.is_none() {
        report.notes.push("RDMA is not measured: see --rdma".into());
    }
    // Results measured before a failure are still shown.
    let measured = tcp.map_or(Ok(()), |tcp| tcp.run(&mut report));
    let measured = measured.and_then(|()| rdma.map_or(Ok(()), |rdma| rdma.run(&mut report)));
    let trouble = measured.err();
    report.tables.retain(|table| !table.rows.is_empty());
    if report.tables.is_empty() {
        return trouble.map_or(Ok(ExitCode::SUCCESS), Err);
    }
    report
        .warnings
        .extend(trouble.iter().map(|why| format!("not complete: {why}")));
    publish(&report, args.report.as_deref(), args.output)?;
    Ok(trouble.map_or(ExitCode::SUCCESS, |trouble| trouble.report()))
}

/// The measurements over TCP that a command asks for.
struct Tcp<'a> {
    args: &'a NetArgs,
    address: &'a str,
    /// Bytes of a send.
    length: u32,
    /// Bytes of data in a response.
    data: u32,
    stop: &'a Arc<AtomicBool>,
}

impl<'a> Tcp<'a> {
    /// Errors: lengths that a server would refuse.
    fn new(
        args: &'a NetArgs,
        address: &'a str,
        stop: &'a Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let most = wire::LENGTH_MOST;
        let within = |bytes: u64, least: u32| {
            let bytes = u32::try_from(bytes).ok();
            bytes.filter(|bytes| (least..=most).contains(bytes))
        };
        let length = within(args.length, 1).ok_or_else(|| {
            let length = args.length;
            Failure::usage(format!("--length {length}: a send has 1 byte to {most}"))
        })?;
        let data = within(args.bs, 0).ok_or_else(|| {
            let bs = args.bs;
            let sentence = format!("--bs {bs}: a response has at most {most} bytes of data");
            Failure::usage(sentence)
        })?;
        Ok(Self {
            args,
            address,
            length,
            data,
            stop,
        })
    }

    /// What is measured, for the head of the report.
    fn lead(&self) -> String {
        format!(
            "{} for {} s each; requests of 72 bytes, responses of 24 and {}",
            Counted(self.args.parallel.into(), "stream"),
            self.args.runtime.as_secs_f64(),
            self.data
        )
    }

    /// Measures everything. Stops at the first failure.
    fn run(&self, report: &mut Report) -> Result<(), Failure> {
        let args = self.args;
        streams(args, report, |mode| self.measure(mode, self.length, 1))?;
        match args.reverse || args.bidir {
            true => Ok(()),
            false => requests(args, report, self.data, |depth| {
                self.measure(Mode::Request, self.data, depth)
            }),
        }
    }

    fn measure(&self, mode: Mode, length: u32, depth: u32) -> Result<Outcome, Failure> {
        let order = Order {
            mode,
            length,
            depth,
            millis: u64::try_from(self.args.runtime.as_millis()).unwrap_or(u64::MAX),
        };
        client::measure(self.address, order, self.args.parallel, self.stop)
    }
}

/// Requests per second of bare TCP sockets on loopback: `depth` requests in flight on one
/// connection, responses with `data` bytes.
pub(crate) fn loopback_iops(
    data: u32,
    depth: u32,
    time: Duration,
    stop: &Arc<AtomicBool>,
) -> Result<f64, Failure> {
    let cannot = |error| Failure::io(format!("cannot measure bare TCP sockets: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?.to_string();
    let order = Order {
        mode: Mode::Request,
        length: data,
        depth,
        millis: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
    };
    let ended = Arc::clone(stop);
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept()?;
        server::serve(&stream, || {}, &ended)
    });
    let found = client::measure(&address, order, 1, stop)?;
    found.whole()?;
    let served = server
        .join()
        .unwrap_or_else(|_| Err(std::io::Error::other("a thread is gone")));
    served.map_err(cannot)?;
    Ok(found.iops())
}

/// The other end, as an argument names it.
#[derive(Debug, PartialEq)]
struct Host {
    /// Host and port.
    address: String,
    wire: Wire,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wire {
    Tcp,
    Rdma,
    Both,
}

impl Host {
    /// Parses HOST, HOST:PORT, rdma://HOST, rdma://HOST:PORT, or a disk's URI, whose host is meant.
    /// The URI of a disk over RDMA means both.
    fn parse(word: &str) -> Result<Self, String> {
        let (host, wire) = match (word.strip_prefix("rdma://"), word.contains("://")) {
            (Some(host), _) => (host.to_owned(), Wire::Rdma),
            (None, true) => host_of_disk(word)?,
            (None, false) => (word.to_owned(), Wire::Tcp),
        };
        let address = with_port(&host)
            .ok_or_else(|| format!("{word} is neither HOST[:PORT] nor the URI of a remote disk"))?;
        Ok(Self { address, wire })
    }
}

fn host_of_disk(uri: &str) -> Result<(String, Wire), String> {
    match Spec::parse(uri).map_err(|error| error.to_string())?.disk {
        SpecDisk::Remote(remote) if transport(&remote) == Some(Transport::Rdma) => {
            Ok((remote.host, Wire::Both))
        }
        SpecDisk::Remote(remote) => Ok((remote.host, Wire::Tcp)),
        _ => Err(format!("{uri} is a disk of this machine; name a host")),
    }
}

/// HOST[:PORT] with a port. None: it is something else.
fn with_port(host: &str) -> Option<String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<Ipv6Addr>() {
        return Some(format!("[{address}]:{}", wire::PORT));
    }
    match host.rsplit_once(':') {
        _ if host.is_empty() || host.contains('/') => None,
        None => Some(format!("{host}:{}", wire::PORT)),
        Some((name, port)) => {
            let is_port = port.parse::<u16>().is_ok() && !name.is_empty();
            is_port.then(|| host.to_owned())
        }
    }
}

/// Measures streams in the requested directions. Stops at the first failure.
fn streams(
    args: &NetArgs,
    report: &mut Report,
    mut measure: impl FnMut(Mode) -> Result<Outcome, Failure>,
) -> Result<(), Failure> {
    let heads = [
        ("", "direction"),
        ("", "Gb/s"),
        ("", "MB/s"),
        ("", "least of a stream"),
        ("", "greatest"),
    ];
    let mut table = Table::new("streams", "Streams", heads);
    let mut bars = Vec::new();
    let all = [
        ("to the server", Mode::Send, !args.reverse && !args.bidir),
        ("from the server", Mode::Receive, !args.bidir),
        ("both ways", Mode::Both, !args.reverse),
    ];
    let wanted = all.into_iter().filter(|(.., wanted)| *wanted);
    let ended = wanted
        .map(|(name, mode, _)| (name, mode))
        .try_for_each(|(name, mode)| {
            let found = measure(mode)?;
            table.push(stream_row(name, &found));
            bars.push((name.to_owned(), vec![Some(found.bytes_per_second() / 1e6)]));
            found.whole()
        });
    report.tables.push(table);
    report.figures.push(Figure {
        name: "streams".into(),
        title: "Streams".into(),
        unit: "MB/s, all streams together; more is better".into(),
        drawing: Drawing::Bars {
            time: false,
            series: vec!["TCP".into()],
            groups: bars,
        },
    });
    ended
}

/// Measures requests at all depths. Stops at the first failure.
fn requests(
    args: &NetArgs,
    report: &mut Report,
    data: u32,
    mut measure: impl FnMut(u32) -> Result<Outcome, Failure>,
) -> Result<(), Failure> {
    let heads = [
        ("", "depth"),
        ("", "requests/s"),
        ("", "MB/s of data"),
        ("latency us", "mean"),
        ("latency us", "p50"),
        ("latency us", "p99"),
        ("latency us", "p99.9"),
    ];
    let mut table = Table::new("requests", "Requests like block I/O", heads);
    let ended = args.iodepth.iter().try_for_each(|depth| {
        let found = measure(*depth)?;
        table.push(request_row(*depth, data, &found));
        found.whole()
    });
    report.tables.push(table);
    ended
}

fn request_row(depth: u32, data: u32, found: &Outcome) -> Vec<Cell> {
    let latency = &found.latency;
    let us = |ns: f64| Cell::Number(ns / 1e3, Shown::Time);
    let percentile = |percent| us(latency.percentile_ns(percent).unwrap_or(0) as f64);
    let rate = found.iops();
    vec![
        Cell::text(depth.to_string()),
        Cell::Number(rate, Shown::Grouped),
        Cell::Number(rate * f64::from(data) / 1e6, Shown::Short),
        us(latency.mean_ns),
        percentile(50.0),
        percentile(99.0),
        percentile(99.9),
    ]
}

fn stream_row(name: &str, found: &Outcome) -> Vec<Cell> {
    let rate = found.bytes_per_second();
    let of = |bytes: Option<&u64>| {
        Cell::optional(
            bytes.map(|bytes| *bytes as f64 / found.seconds.max(1e-9) / 1e6),
            Shown::Short,
        )
    };
    vec![
        Cell::text(name),
        Cell::Number(rate * 8.0 / 1e9, Shown::Fixed(2)),
        Cell::Number(rate / 1e6, Shown::Grouped),
        of(found.streams.iter().min()),
        of(found.streams.iter().max()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_in_whatever_names_it() {
        for (word, expected, wire) in [
            ("192.0.2.1", "192.0.2.1:5301", Wire::Tcp),
            ("storage:911", "storage:911", Wire::Tcp),
            ("::1", "[::1]:5301", Wire::Tcp),
            ("[::1]", "[::1]:5301", Wire::Tcp),
            ("[::1]:911", "[::1]:911", Wire::Tcp),
            ("nvme+tcp://192.0.2.1:4420", "192.0.2.1:5301", Wire::Tcp),
            (
                "iscsi://[fe80::1]/iqn.2026-01.io.fabrix:disk/0",
                "[fe80::1]:5301",
                Wire::Tcp,
            ),
            ("nvme+rdma://192.0.2.1:4420", "192.0.2.1:5301", Wire::Both),
            ("iser://storage", "storage:5301", Wire::Both),
            ("rdma://192.0.2.1", "192.0.2.1:5301", Wire::Rdma),
            ("rdma://storage:7174", "storage:7174", Wire::Rdma),
            ("rdma://[fe80::1]:911", "[fe80::1]:911", Wire::Rdma),
        ] {
            let address = expected.to_owned();
            assert_eq!(Host::parse(word), Ok(Host { address, wire }), "{word}");
        }
        for word in [
            "file:///tmp/disk",
            "nvme+tcp://",
            "ram:64M",
            "storage:99999",
            "",
            ":911",
            "rdma://",
            "rdma://storage/disk",
            "rdma://storage:99999",
        ] {
            assert!(Host::parse(word).is_err(), "{word}");
        }
    }
}
