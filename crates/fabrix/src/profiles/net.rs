//! The wire alone, so that a disk's figures can be divided by what the network can do: streams like iperf3's, and
//! requests shaped like block I/O (72 bytes out; 24 bytes and the data back, as a read over NVMe/TCP).
//!
//! Plain blocking sockets and threads: what an ordinary program gets from this network. `server` is the other end.

mod client;
mod server;
mod wire;

use std::process::ExitCode;

use crate::cli::bench::args::NetArgs;
use crate::cli::bench::session::{publish, stop_flag};
use crate::failure::Failure;
use crate::report::sheet::{Cell, Drawing, Figure, Report, Shown, Table};
use client::Outcome;
use wire::{Mode, Order};

pub(crate) fn run(args: &NetArgs) -> Result<ExitCode, Failure> {
    let stop = stop_flag()?;
    if let Some(address) = &args.server {
        return server::run(address, &stop);
    }
    let host = args.host.as_deref().unwrap_or_default();
    let address = if host.contains(':') {
        host.to_owned()
    } else {
        format!("{host}:{}", wire::PORT)
    };
    let length = u32::try_from(args.length)
        .ok()
        .filter(|length| (1..=wire::LENGTH_MOST).contains(length));
    let length = length.ok_or_else(|| {
        Failure::usage(format!(
            "--length {}: a send has 1 byte to {}",
            args.length,
            wire::LENGTH_MOST
        ))
    })?;
    let data = u32::try_from(args.bs)
        .ok()
        .filter(|data| *data <= wire::LENGTH_MOST);
    let data = data.ok_or_else(|| {
        Failure::usage(format!(
            "--bs {}: a response has at most {} bytes of data",
            args.bs,
            wire::LENGTH_MOST
        ))
    })?;
    let mut report = Report {
        profile: "net".into(),
        title: format!("{address}: the wire alone"),
        lead: format!(
            "{} streams for {} s each; requests of 72 bytes, responses of 24 and {data}",
            args.parallel,
            args.time.as_secs_f64()
        ),
        notes: vec!["RDMA is not measured; Gb/s is 10^9 bits".into()],
        ..Report::default()
    };
    let measure = |mode: Mode, length: u32, depth: u32| {
        let order = Order {
            mode,
            length,
            depth,
            millis: u64::try_from(args.time.as_millis()).unwrap_or(u64::MAX),
        };
        client::measure(&address, order, args.parallel, &stop)
    };
    let mut streams = Table::new(
        "streams",
        "Streams",
        [
            ("", "direction"),
            ("", "Gb/s"),
            ("", "MB/s"),
            ("", "least of a stream"),
            ("", "greatest"),
        ],
    );
    let mut bars = Vec::new();
    for (name, mode) in [
        ("to the server", Mode::Send),
        ("from the server", Mode::Receive),
        ("both ways", Mode::Both),
    ] {
        let found = measure(mode, length, 1)?;
        streams.push(stream_row(name, &found));
        bars.push((name.to_owned(), vec![Some(found.bytes_per_second() / 1e6)]));
    }
    let heads = [
        ("", "depth"),
        ("", "requests/s"),
        ("", "MB/s of data"),
        ("us", "mean"),
        ("us", "p50"),
        ("us", "p99"),
        ("us", "p99.9"),
    ];
    let mut requests = Table::new("requests", "Requests like block I/O", heads);
    for depth in &args.iodepth {
        let found = measure(Mode::Request, data, *depth)?;
        let latency = &found.latency;
        let us = |ns: f64| Cell::Number(ns / 1e3, Shown::Short);
        let percentile = |percent| us(latency.percentile_ns(percent).unwrap_or(0) as f64);
        let rate = latency.count as f64 / found.seconds.max(1e-9);
        requests.push(vec![
            Cell::text(depth.to_string()),
            Cell::Number(rate, Shown::Grouped),
            Cell::Number(rate * f64::from(data) / 1e6, Shown::Short),
            us(latency.mean_ns),
            percentile(50.0),
            percentile(99.0),
            percentile(99.9),
        ]);
    }
    report.tables = vec![streams, requests];
    report.figures.push(Figure {
        name: "streams".into(),
        title: "Streams".into(),
        unit: "MB/s, all streams together; more is better".into(),
        drawing: Drawing::Bars {
            series: vec!["TCP".into()],
            groups: bars,
        },
    });
    publish(&report, args.report.as_deref(), args.output)?;
    Ok(ExitCode::SUCCESS)
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
