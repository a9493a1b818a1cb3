//! The network over RDMA: a ping that checks its bytes, then messages (SEND), RDMA WRITEs and RDMA
//! READs, one at a time for the latency and many for the bandwidth.
//!
//! The ping is rping's, so it also works between ours and rping, in both directions.

mod client;
mod endpoint;
mod limits;
mod load;
mod ping;
mod served;
pub(super) mod server;
mod wire;

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fabrix_bench::latency::{Latency, PERCENTILES, Recorder};
use fabrix_block::spec::Size;
use fabrix_rt::SpinPolicy;

use crate::cli::bench::args::NetArgs;
use crate::failure::{Failure, Kind};
use crate::report::sheet::{Cell, Drawing, Figure, Report, Shown, Table};
use client::Found;
use endpoint::{Events, NOT_OVER_LOOPBACK};
use wire::{BYTES_MOST, DEPTH_MOST, IN_FLIGHT_MOST, Mode, Order};

/// The measurements over RDMA that a command asks for.
pub(super) struct Plan {
    address: String,
    sizes: Vec<u32>,
    depth: u32,
    parallel: u16,
    time: Duration,
    spin: SpinPolicy,
    stop: Arc<AtomicBool>,
}

/// Sum of the connections of one measurement.
struct Sum {
    bytes_per_second: f64,
    per_second: f64,
    latency: Latency,
}

/// Figures of one chart: a group for each size, with a value for each operation.
type Groups = Vec<(String, Vec<Option<f64>>)>;

impl Plan {
    /// Errors: sizes or depths that a server would refuse.
    pub(super) fn new(
        args: &NetArgs,
        address: &str,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let sizes = args.sizes.iter().map(|size| within(*size));
        let sizes = sizes.collect::<Result<Vec<u32>, _>>()?;
        let depth = args.iodepth.iter().copied().max().unwrap_or(1);
        let plan = Self {
            address: address.to_owned(),
            sizes,
            depth,
            parallel: args.parallel,
            time: args.runtime,
            spin: args.spin,
            stop: Arc::clone(stop),
        };
        let largest = plan.sizes.iter().copied().max().unwrap_or(1);
        if plan.order(Mode::Send, largest, depth).is_within_limits() {
            return Ok(plan);
        }
        let sentence = match depth {
            1..=DEPTH_MOST if u64::from(depth) * u64::from(largest) > IN_FLIGHT_MOST => format!(
                "--sizes {largest} with --iodepth {depth}: at most {} are in flight over RDMA",
                Size(IN_FLIGHT_MOST)
            ),
            _ => "--runtime: a measurement over RDMA lasts an hour at most".to_owned(),
        };
        Err(Failure::usage(sentence))
    }

    /// What is measured, for the head of the report.
    pub(super) fn lead(&self) -> String {
        let sizes: Vec<String> = self.sizes.iter().map(|size| name(*size)).collect();
        format!(
            "RDMA: {} for {} s each",
            sizes.join(", "),
            self.time.as_secs_f64()
        )
    }

    /// Errors: this machine has no RDMA, or the address cannot be reached over RDMA.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let cannot = |why: String| Failure::new(Kind::Connect, format!("{}: {why}", self.address));
        Events::open().map_err(cannot)?;
        match self.resolve()?.ip().is_loopback() {
            true => Err(cannot(format!(
                "{NOT_OVER_LOOPBACK}; name another address of that machine"
            ))),
            false => Ok(()),
        }
    }

    /// Measures everything. Stops at the first failure.
    pub(super) fn run(&self, report: &mut Report) -> Result<(), Failure> {
        let address = self.resolve()?;
        let is_ours = self.ping(address, report)?;
        if !is_ours {
            report.notes.push(format!(
                "{}: the other end is a plain rping, so only pings over RDMA are measured",
                self.address
            ));
            return Ok(());
        }
        self.latency(address, report)?;
        self.bandwidth(address, report)
    }

    fn resolve(&self) -> Result<SocketAddr, Failure> {
        let unknown = |why: String| Failure::new(Kind::Connect, format!("{}: {why}", self.address));
        let mut found =
            (self.address.to_socket_addrs()).map_err(|error| unknown(error.to_string()))?;
        found
            .next()
            .ok_or_else(|| unknown("it has no address".to_owned()))
    }

    fn order(&self, mode: Mode, bytes: u32, depth: u32) -> Order {
        Order {
            mode,
            bytes,
            depth,
            millis: u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Carries an order out on `parallel` connections at the same time. With the sum comes the
    /// failure that has ended it early.
    ///
    /// Errors: a connection did not come about.
    fn measure(
        &self,
        address: SocketAddr,
        order: Order,
        parallel: u16,
    ) -> Result<(Sum, bool, Option<Failure>), Failure> {
        let one = || client::measure(address, order, self.spin, &self.stop);
        let found: Vec<Result<Found, Failure>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..parallel).map(|_| scope.spawn(one)).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined
                .map(|found| found.unwrap_or_else(|_| Err(Failure::io("a thread is gone"))))
                .collect()
        });
        let named =
            |failure: Failure| Failure::new(failure.kind(), format!("{}: {failure}", self.address));
        let found = found.into_iter().collect::<Result<Vec<Found>, _>>();
        let mut found = found.map_err(named)?;
        let early = found.iter_mut().find_map(|found| found.early.take());
        let is_ours = found.iter().all(|found| found.is_ours);
        Ok((Sum::of(&found), is_ours, early.map(named)))
    }

    /// Result: whether the server is one of ours.
    fn ping(&self, address: SocketAddr, report: &mut Report) -> Result<bool, Failure> {
        let bytes = self.sizes.first().copied().unwrap_or(1);
        let (sum, is_ours, early) = self.measure(address, self.order(Mode::Ping, bytes, 1), 1)?;
        let columns = [("", "size"), ("", "pings/s")].into_iter().chain(LATENCY);
        let mut table = Table::new("rdma-ping", "RDMA: pings with checked bytes", columns);
        if sum.latency.count > 0 {
            let rate = Cell::Number(sum.per_second, Shown::Grouped);
            let row = [Cell::text(name(bytes)), rate].into_iter();
            table.push(row.chain(sum.times()).collect());
        }
        report.tables.push(table);
        early.map_or(Ok(is_ours), Err)
    }

    fn latency(&self, address: SocketAddr, report: &mut Report) -> Result<(), Failure> {
        let columns = [("", "operation"), ("", "size")].into_iter().chain(LATENCY);
        let mut table = Table::new("rdma-latency", "RDMA: latency of one at a time", columns);
        let operations = [
            ("SEND", Mode::Echo),
            ("WRITE", Mode::Write),
            ("READ", Mode::Read),
        ];
        let mut groups = self.groups();
        let ended = self.each(operations, |(operation, mode), at| {
            let bytes = self.sizes[at];
            let (sum, _, early) = self.measure(address, self.order(mode, bytes, 1), 1)?;
            if sum.latency.count > 0 {
                let row = [Cell::text(operation), Cell::text(name(bytes))].into_iter();
                table.push(row.chain(sum.times()).collect());
            }
            groups[at]
                .1
                .push((sum.latency.count > 0).then_some(sum.latency.mean_ns / 1e3));
            early.map_or(Ok(()), Err)
        });
        report.tables.push(table);
        let unit = "mean latency of one at a time; less is better";
        report
            .figures
            .push(bars("rdma-latency", unit, true, groups));
        ended
    }

    fn bandwidth(&self, address: SocketAddr, report: &mut Report) -> Result<(), Failure> {
        let columns = [
            ("", "operation"),
            ("", "size"),
            ("", "depth"),
            ("", "Gb/s"),
            ("", "MB/s"),
            ("", "operations/s"),
        ];
        let mut table = Table::new("rdma-bandwidth", "RDMA: bandwidth", columns);
        let operations = [
            ("SEND", Mode::Send),
            ("WRITE", Mode::Write),
            ("READ", Mode::Read),
        ];
        let mut groups = self.groups();
        let ended = self.each(operations, |(operation, mode), at| {
            let order = self.order(mode, self.sizes[at], self.depth);
            let (sum, _, early) = self.measure(address, order, self.parallel)?;
            if sum.latency.count > 0 {
                table.push(sum.rates(operation, order));
            }
            groups[at]
                .1
                .push((sum.latency.count > 0).then_some(sum.bytes_per_second / 1e6));
            early.map_or(Ok(()), Err)
        });
        report.tables.push(table);
        let unit = "MB/s, all connections together; more is better";
        report
            .figures
            .push(bars("rdma-bandwidth", unit, false, groups));
        ended
    }

    /// Measures each operation with each size, named by its index. Stops at the first failure.
    fn each(
        &self,
        operations: [(&'static str, Mode); 3],
        mut measure: impl FnMut((&'static str, Mode), usize) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut all = operations
            .into_iter()
            .flat_map(|operation| (0..self.sizes.len()).map(move |at| (operation, at)));
        all.try_for_each(|(operation, at)| measure(operation, at))
    }

    fn groups(&self) -> Groups {
        let sizes = self.sizes.iter();
        sizes.map(|size| (name(*size), Vec::new())).collect()
    }
}

impl Sum {
    fn of(found: &[Found]) -> Self {
        let mut all = Recorder::new();
        found.iter().for_each(|found| all.add(&found.latency));
        let seconds = found.iter().map(|found| found.seconds).fold(1e-9, f64::max);
        let bytes: u64 = found.iter().map(|found| found.bytes).sum();
        let latency = all.summary(&PERCENTILES);
        Self {
            bytes_per_second: bytes as f64 / seconds,
            per_second: latency.count as f64 / seconds,
            latency,
        }
    }

    /// Cells of the columns [`LATENCY`].
    fn times(&self) -> [Cell; 4] {
        let us = |ns: f64| Cell::Number(ns / 1e3, Shown::Time);
        let percentile = |percent| us(self.latency.percentile_ns(percent).unwrap_or(0) as f64);
        [
            us(self.latency.mean_ns),
            percentile(50.0),
            percentile(99.0),
            percentile(99.9),
        ]
    }

    fn rates(&self, operation: &str, order: Order) -> Vec<Cell> {
        let rate = self.bytes_per_second;
        vec![
            Cell::text(operation),
            Cell::text(name(order.bytes)),
            Cell::text(order.depth.to_string()),
            Cell::Number(rate * 8.0 / 1e9, Shown::Fixed(2)),
            Cell::Number(rate / 1e6, Shown::Short),
            Cell::Number(self.per_second, Shown::Grouped),
        ]
    }
}

fn within(size: u64) -> Result<u32, Failure> {
    let bytes = u32::try_from(size).ok();
    let bytes = bytes.filter(|bytes| (1..=BYTES_MOST).contains(bytes));
    bytes.ok_or_else(|| {
        Failure::usage(format!(
            "--sizes {size}: a message over RDMA has 1 byte to {}",
            Size(BYTES_MOST.into())
        ))
    })
}

fn name(bytes: u32) -> String {
    Size(bytes.into()).to_string()
}

fn bars(name: &str, unit: &str, time: bool, groups: Groups) -> Figure {
    let title = match time {
        true => "RDMA: latency",
        false => "RDMA: bandwidth",
    };
    let series = ["SEND", "WRITE", "READ"].map(str::to_owned).to_vec();
    let complete = |(size, mut values): (String, Vec<Option<f64>>)| {
        values.resize(series.len(), None);
        (size, values)
    };
    Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        unit: unit.to_owned(),
        drawing: Drawing::Bars {
            groups: groups.into_iter().map(complete).collect(),
            time,
            series,
        },
    }
}

const LATENCY: [(&str, &str); 4] = [
    ("latency us", "mean"),
    ("latency us", "p50"),
    ("latency us", "p99"),
    ("latency us", "p99.9"),
];
