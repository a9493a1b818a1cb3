//! The load generator: a front end that generates requests.
//!
//! It accesses disks only as `Arc<dyn block::Device>` and the machine only through `rt`. The
//! program knows the kinds of disks and the formats of jobs and results (command line, JSON, HTML).
//!
//! A [`Job`] describes the load, [`run()`] executes it on its own threads, and [`Results`] holds
//! the measurements. Jobs and results use fio's words with fio's meaning. [`job`] lists the
//! differences.

pub mod access;
pub mod arrivals;
pub mod contents;
pub mod cpu;
pub mod job;
pub mod latency;
pub mod matrix;
pub mod results;
pub mod run;
pub mod search;
pub mod series;
pub mod spread;
pub mod steady;
pub mod verify;
pub mod words;
pub mod workloads;

mod random;
mod worker;

pub use job::{Flushes, Job, JobError, RUNTIME_MAX, Rw};
pub use matrix::{Cell, Matrix, Row};
pub use results::Results;
pub use run::{Config, CopyTo, Part, Phase, Progress, RunError, Start, run, run_together};
pub use words::Counted;
