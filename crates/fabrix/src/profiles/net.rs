//! Measures the network alone, as a reference for remote disks: streams like iperf3's, and requests
//! shaped like block I/O. A request has 72 bytes, and its response 24 bytes plus the data, as a
//! read over NVMe/TCP.
//!
//! It uses plain blocking sockets and threads, as an ordinary program does. `server` is the other
//! end.

mod client;
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

use crate::cli::bench::args::NetArgs;
use crate::cli::bench::publish::{make_folder, publish};
use crate::cli::bench::session::stop_flag;
use crate::failure::Failure;
use crate::report::sheet::{Cell, Drawing, Figure, Report, Shown, Table};
use client::Outcome;
use wire::{Mode, Order};

pub(crate) fn run(args: &NetArgs) -> Result<ExitCode, Failure> {
    make_folder(args.report.as_deref())?;
    let stop = stop_flag()?;
    if let Some(address) = &args.server {
        return server::run(address, args.output, &stop);
    }
    let address = address(args.host.as_deref().unwrap_or_default()).map_err(Failure::usage)?;
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
    let mut report = Report {
        profile: "net".into(),
        title: format!("{address}: the wire alone"),
        lead: format!(
            "{} for {} s each; requests of 72 bytes, responses of 24 and {data}",
            Counted(args.parallel.into(), "stream"),
            args.runtime.as_secs_f64()
        ),
        notes: vec!["RDMA is not measured; Gb/s is 10^9 bits".into()],
        ..Report::default()
    };
    let measure = |mode: Mode, length: u32, depth: u32| {
        let order = Order {
            mode,
            length,
            depth,
            millis: u64::try_from(args.runtime.as_millis()).unwrap_or(u64::MAX),
        };
        client::measure(&address, order, args.parallel, &stop)
    };
    // Results measured before a failure are still shown.
    let trouble = streams(args, &mut report, |mode| measure(mode, length, 1))
        .and_then(|()| match args.reverse || args.bidir {
            true => Ok(()),
            false => requests(args, &mut report, data, |depth| {
                measure(Mode::Request, data, depth)
            }),
        })
        .err();
    if report.tables.iter().all(|table| table.rows.is_empty()) {
        return trouble.map_or(Ok(ExitCode::SUCCESS), Err);
    }
    report
        .warnings
        .extend(trouble.iter().map(|why| format!("not complete: {why}")));
    publish(&report, args.report.as_deref(), args.output)?;
    Ok(trouble.map_or(ExitCode::SUCCESS, |trouble| trouble.report()))
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

/// The host and port of an argument: HOST, HOST:PORT, or the host of a disk's URI.
fn address(word: &str) -> Result<String, String> {
    let host = match word.contains("://") {
        true => match Spec::parse(word).map_err(|error| error.to_string())?.disk {
            SpecDisk::Remote(remote) => remote.host,
            _ => return Err(format!("{word} is a disk of this machine; name a host")),
        },
        false => word.to_owned(),
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<Ipv6Addr>() {
        return Ok(format!("[{address}]:{}", wire::PORT));
    }
    match host.rsplit_once(':') {
        None => Ok(format!("{host}:{}", wire::PORT)),
        Some((_, port)) if port.parse::<u16>().is_ok() => Ok(host),
        Some(_) => Err(format!(
            "{word} is neither HOST[:PORT] nor the URI of a remote disk"
        )),
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
        for (word, expected) in [
            ("192.0.2.1", "192.0.2.1:5301"),
            ("storage:911", "storage:911"),
            ("::1", "[::1]:5301"),
            ("[::1]", "[::1]:5301"),
            ("[::1]:911", "[::1]:911"),
            ("nvme+tcp://192.0.2.1:4420", "192.0.2.1:5301"),
            (
                "iscsi://[fe80::1]/iqn.2026-01.io.fabrix:disk/0",
                "[fe80::1]:5301",
            ),
        ] {
            assert_eq!(address(word), Ok(expected.to_owned()), "{word}");
        }
        for word in [
            "file:///tmp/disk",
            "nvme+tcp://",
            "ram:64M",
            "storage:99999",
        ] {
            assert!(address(word).is_err(), "{word}");
        }
    }
}
