//! The developers' tool: everything one runs on this repository besides cargo itself.
//!
//! It knows the repository (where it is, what its rules are) and may start cargo, git, and the
//! programs built from here. It depends on none of our crates, and no crate depends on it: it
//! judges them from outside.

mod ceph;
mod ci;
mod conformance;
mod count;
mod deps;
mod fuzz;
mod interop;
mod no_os;
mod pages;
mod perf;
mod process;
mod programs;
mod sharing;
mod sim;
mod summary;
mod tidy;

use clap::Parser;
use std::process::ExitCode;
use summary::{Counts, Stop};

/// Everything one runs on this repository besides cargo itself
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// What one runs all day, in minutes: format, tidy, deps, clippy, tests in memory
    Check,
    /// Everything that must hold before a change is in: what `check` runs, and all tests
    Test {
        /// At length: documentation, licences, a minute for each fuzz target, every peer's script
        #[arg(long)]
        all: bool,
    },
    /// Rules about the text of the sources (the rules stand in xtask/src/tidy.rs)
    Tidy,
    /// The crates depend only on what docs/ARCHITECTURE.md allows
    Deps,
    /// The protocol crate compiles without an operating system
    NoOs,
    /// Instructions, operations and shared cache lines per command, against what they were
    Count {
        /// Writes the counts down
        #[arg(long)]
        record: bool,
    },
    /// Our speed against bare sockets on this machine, in turns
    Perf(perf::Options),
    /// libiscsi's test suite against our iSCSI target
    Conformance,
    /// A real cluster of Ceph on loopback, and our disks at its images
    Ceph(ceph::Options),
    /// Real peers in emulated machines: Linux's host and target against ours
    Interop(interop::Options),
    /// Reports in a browser: what a reader would stumble over
    Pages(pages::Options),
    /// The fuzz targets, each for a minute
    Fuzz(fuzz::Options),
    /// Simulated worlds of hosts, targets, networks and disks, one for each seed
    Sim(sim::Options),
}

fn main() -> ExitCode {
    match run(Task::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        // What does not hold stands above, in order.
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            let command = std::env::args().nth(1).unwrap_or_default();
            eprintln!("xtask {command}: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// True when everything holds.
fn run(task: Task) -> Result<bool, String> {
    let holds = |()| true;
    match task {
        Task::Check => ci::check(),
        Task::Test { all } => ci::test(all),
        Task::Tidy => tidy::check().map(holds),
        Task::Deps => deps::check().map(holds),
        Task::NoOs => no_os::check().map(holds),
        Task::Count { record: true } => count::record().map(holds),
        Task::Count { record: false } => told(count::check()).map(|_| true),
        Task::Perf(options) => perf::run(&options).map(holds),
        Task::Conformance => suite(conformance::run()),
        Task::Ceph(options) => suite(ceph::run(&options)),
        Task::Interop(options) => suite(interop::run(&options)),
        Task::Pages(options) => suite(pages::run(&options)),
        Task::Fuzz(options) => suite(fuzz::run(&options)),
        Task::Sim(options) => suite(sim::run(&options)),
    }
}

/// A suite by itself ends in its own line of counts.
fn suite(outcome: Result<Counts, Stop>) -> Result<bool, String> {
    let counts = told(outcome)?;
    println!("{}", counts.last_line());
    Ok(counts.failed == 0)
}

fn told(outcome: Result<Counts, Stop>) -> Result<Counts, String> {
    outcome.map_err(|(Stop::Failed(why) | Stop::Skipped(why))| why)
}
