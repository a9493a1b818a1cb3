//! The demonstration's table: the same workloads on a disk as it is and through the network. Plain
//! values.

use crate::results::Results;

/// What one workload reached on one disk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second.
    pub bw_bytes: f64,
    /// Mean latency in microseconds, reads and writes together.
    pub mean_us: f64,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: f64,
    /// Cores that the initiator's side (the load generator and its disk) kept busy.
    pub cpu_initiator: f64,
    /// Cores that the target kept busy; `None` where there is no target, or it cannot be seen.
    pub cpu_target: Option<f64>,
}

impl Cell {
    /// The figures of a finished run; the caller, who knows the target, adds its CPU.
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
    /// On the disk as it is.
    pub local: Cell,
    /// Through the network.
    pub remote: Cell,
}

impl Row {
    /// Remote IOPS as a part of local ones; `None` when there is nothing to divide by.
    pub fn ratio(&self) -> Option<f64> {
        (self.local.iops > 0.0).then(|| self.remote.iops / self.local.iops)
    }
}

/// The whole table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    /// What stands over the local columns, for example `ram:1G`.
    pub local: String,
    /// What stands over the remote columns, for example `nvme+tcp over loopback`.
    pub remote: String,
    /// The rows, in the order they were run.
    pub rows: Vec<Row>,
}
