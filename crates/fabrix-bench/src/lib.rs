//! The load generator: a front end that invents its requests.
//!
//! It knows a disk only as `Arc<dyn block::Device>`, and the machine only through `rt`; what the
//! disk is, and how a job or a result is written down (command line, JSON, HTML), is the business
//! of the program.
//!
//! A [`Job`] says what to do, [`run()`] does it on threads of its own, [`Results`] says what came
//! of it. The words of jobs and results are fio's, and so is their meaning; where ours differs,
//! [`job`] says so.

pub mod access;
pub mod arrivals;
pub mod cpu;
pub mod job;
pub mod latency;
pub mod matrix;
pub mod results;
pub mod run;
pub mod series;
pub mod spread;
pub mod steady;
pub mod verify;
pub mod words;
pub mod workloads;

mod random;
mod worker;

pub use job::{Job, JobError, RUNTIME_MAX, Rw};
pub use matrix::{Cell, Matrix, Row};
pub use results::Results;
pub use run::{Config, CopyTo, Part, Phase, Progress, RunError, run, run_together};
pub use words::Counted;
