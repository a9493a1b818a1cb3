//! The table of the demonstration: the same workloads on a local disk and through the network,
//! beside the rate of bare TCP sockets.
//! Plain values.

use crate::results::Results;

/// The measurements of one workload on one disk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second.
    pub bw_bytes: f64,
    /// Mean latency of reads and writes together, in microseconds.
    pub mean_us: f64,
    /// 99th percentile of the latency, in microseconds.
    pub p99_us: f64,
    /// Busy cores on the initiator's side: the load generator and its disk.
    pub cpu_initiator: f64,
    /// Busy cores of the target. None without a target, or when its use is unknown.
    pub cpu_target: Option<f64>,
}

impl Cell {
    /// The measurements of a finished run. The caller supplies the target's CPU use.
    pub fn new(results: &Results, cpu_target: Option<f64>) -> Self {
        let total = &results.aggregate.total;
        Self {
            iops: total.iops,
            bw_bytes: total.bw_bytes,
            mean_us: total.latency.mean_ns / 1e3,
            p99_us: total
                .latency
                .percentile_ns(99.0)
                .map_or(0.0, |ns| crate::latency::real(ns.into()) / 1e3),
            cpu_initiator: results.cpu.job_cores,
            cpu_target,
        }
    }
}

/// One workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The workload's name.
    pub name: String,
    /// Measurement on the local disk.
    pub local: Cell,
    /// Measurement through the network.
    pub remote: Cell,
    /// Bytes of a request.
    pub block_bytes: f64,
    /// Requests per second of bare TCP sockets with the workload's block size and depth.
    pub wire_iops: f64,
}

impl Row {
    /// Remote IOPS divided by local IOPS. None without local IOPS.
    pub fn ratio(&self) -> Option<f64> {
        (self.local.iops > 0.0).then(|| self.remote.iops / self.local.iops)
    }

    /// Remote IOPS divided by those of bare TCP sockets. None without the latter.
    pub fn wire_ratio(&self) -> Option<f64> {
        (self.wire_iops > 0.0).then(|| self.remote.iops / self.wire_iops)
    }
}

/// The whole table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    /// Title of the local columns, for example `ram:1G`.
    pub local: String,
    /// Title of the remote columns, for example `nvme+tcp over loopback`.
    pub remote: String,
    /// Requests in flight of the single job.
    pub iodepth: u32,
    /// Measured time of each workload, in milliseconds.
    pub runtime_ms: u64,
    /// The rows, in the order of execution.
    pub rows: Vec<Row>,
    /// Reasons why the figures may be wrong.
    pub warnings: Vec<String>,
}

impl Matrix {
    /// Geometric mean of [`Row::wire_ratio`]. None if no row has one above 0.
    pub fn wire_ratio(&self) -> Option<f64> {
        let logs: Vec<f64> = self.wire_ratios().map(f64::ln).collect();
        let count = crate::latency::real(logs.len() as u128);
        (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / count).exp())
    }

    /// Each [`Row::wire_ratio`] above 0.
    pub fn wire_ratios(&self) -> impl Iterator<Item = f64> {
        let ratios = self.rows.iter().filter_map(Row::wire_ratio);
        ratios.filter(|ratio| *ratio > 0.0)
    }
}
