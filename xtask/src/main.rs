//! The developers' tool: everything one runs on this repository besides cargo itself.
//!
//! It knows the repository (where it is, what its rules are) and may start cargo, git, and the
//! programs built from here. It depends on none of our crates, and no crate depends on it: it
//! judges them from outside.

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
mod sharing;
mod summary;
mod tidy;

use std::process::ExitCode;
use summary::{Counts, Stop};

const USAGE: &str = "\
cargo xtask COMMAND

  check   what one runs all day, in minutes: format, tidy, deps, clippy, unit tests and tests in memory
  test    everything that must hold before a change is in: format, tidy, deps, no-os, clippy, all tests
  test --all  the same at length: documentation, licences, a minute for each fuzz target, every peer's script
  tidy    rules about the text of the sources (the rules stand in xtask/src/tidy.rs)
  deps    the crates depend only on what docs/ARCHITECTURE.md allows
  no-os   the protocol crate compiles without an operating system
  count   instructions, operations and shared cache lines per command, against what they were; --record writes them down
  perf    our speed against bare sockets on this machine, in turns
  conformance  libiscsi's test suite against our iSCSI target
  interop real peers in emulated machines: Linux's host and target against ours
  pages   reports in a browser: what a reader would stumble over
  fuzz    the fuzz targets, each for a minute

cargo xtask fuzz [NAME] [--seconds S]
  NAME          only the targets whose name contains NAME
  --seconds S   so many seconds for each (60)

cargo xtask interop [NAME | --all | --list]
  (nothing)     the scripts that `cargo xtask test` runs
  NAME          the scripts whose name contains NAME
  --all         all scripts
  --list        what there is

cargo xtask pages [--pictures FOLDER] [FOLDER ...]
  (nothing)     the pages and pictures that the tests hold fast
  FOLDER        the reports and pictures in these folders
  --pictures FOLDER  leaves what was seen there, as PNG

cargo xtask perf [--quick | --full] [--all] [--pairs N] [--seconds S] [--only WORD] [--bin FOLDER]
  --quick       2 pairs of 2 s per row: does it still work
  --full        every row, 10 pairs of 2 s, about two hours: figures to quote
  --all         every row: digests, files, many connections, open loops, iSCSI, ...; some need other programs
  --pairs N     so many pairs per row (5), three times as many where those do not tell
  --seconds S   so many seconds per measurement (3)
  --only WORD   only the rows whose name begins with WORD, or whose group is called so
  --bin FOLDER  the programs of this folder (fabrix, examples/ceiling) instead of building them

cargo xtask perf --scale [--shards N,N] [--seconds S] [--bin FOLDER]
  --scale       1, 2, 4 and 8 shards with as many host cores, and as many pairs of bare sockets: within 6 minutes
  --shards N,N  these numbers of shards, even where both ends have to share processors
Without cargo, where the programs have been brought: xtask perf --scale --bin FOLDER";

/// True when everything holds. The outer error is about usage, the inner one says what failed.
type Outcome = Result<Result<bool, String>, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    match run(command, rest) {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        // What does not hold stands above, in order.
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(failure)) => {
            eprintln!("xtask {command}: {failure}");
            ExitCode::FAILURE
        }
        Err(usage) => {
            eprintln!("xtask: {usage}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run(command: &str, rest: &[String]) -> Outcome {
    let holds = |()| true;
    Ok(match command {
        "perf" => perf::run(&perf::Options::parse(rest)?).map(holds),
        "interop" => suite(interop::run(&interop::Options::parse(rest)?)),
        "fuzz" => suite(fuzz::run(&fuzz::Options::parse(rest)?)),
        "pages" => suite(pages::run(&pages::Options::parse(rest)?)),
        "count" if rest == ["--record"] => count::record().map(holds),
        "test" if rest == ["--all"] => ci::test(true),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(true)
        }
        _ if !rest.is_empty() => return Err(format!("`{command}` takes no such arguments")),
        "check" => ci::check(),
        "test" => ci::test(false),
        "count" => told(count::check()).map(|_| true),
        "conformance" => suite(conformance::run()),
        "tidy" => tidy::check().map(holds),
        "deps" => deps::check().map(holds),
        "no-os" => no_os::check().map(holds),
        other => return Err(format!("there is no command `{other}`")),
    })
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
