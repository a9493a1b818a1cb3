//! Fabrix: networked block storage in user space, as one program.
//!
//! This file dispatches subcommands and converts their results into exit codes: 0 done, 1 failed or
//! I/O error, 2 wrong usage, 3 cannot connect, 5 data differs, 6 slower than allowed. Data goes to
//! stdout, sentences to stderr.

mod access;
mod api;
mod args;
mod attached;
mod cli;
mod clock;
mod counters;
mod disks;
mod export_names;
mod failure;
mod group;
mod guard;
mod host_names;
mod locks;
mod log;
mod machine;
mod profiles;
mod report;
mod secrets;
mod served;
mod shards;
mod signals;
mod state;
mod texts;

use std::process::ExitCode;
use std::time::Duration;

use args::{Arguments, Verb, asks_for_json, given};
use cli::terminal::{has_printed, print};
use failure::Failure;

fn main() -> ExitCode {
    let arguments = Arguments::read();
    let outcome = match arguments.verb {
        Verb::Serve(options) => cli::serve::run(&options),
        Verb::Attach(options) => cli::attach::run(&options),
        Verb::Hold => cli::attach::hold_in_background(),
        Verb::Detach(options) => cli::detach::run(&options),
        Verb::List(options) => cli::list::run(&options),
        Verb::Top(options) => cli::top::run(&options),
        Verb::Path(options) => cli::path::run(&options),
        Verb::Resize(options) => cli::detach::resize(&options),
        Verb::Discovery(options) => cli::seed::discovery(&options),
        Verb::Insert(options) => cli::seed::insert(&options),
        Verb::Remove(options) => cli::seed::remove(&options),
        Verb::Ctl(options) => cli::ctl::run(&options),
        Verb::Discover(options) => cli::discover::run(&options),
        Verb::Bench(options) => cli::bench::run(&options),
        Verb::Demo(options) => cli::demo::run(&options),
        Verb::Doctor(options) => cli::doctor::run(&options),
        Verb::Completion(options) => cli::packaging::completion(&options),
        Verb::Man(options) => cli::packaging::man(&options),
    };
    let code = outcome.unwrap_or_else(|failure| end(&failure));
    fabrix_rbd::finish(CLOSE_TIMEOUT);
    log::finish();
    code
}

/// Longest wait for a cluster of Ceph to close its images. An image that is not closed stays locked
/// for half a minute.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Reports a failure. With `-o json` it is an object on stdout too, unless results stand there
/// already.
fn end(failure: &Failure) -> ExitCode {
    if asks_for_json(given()) && !has_printed() {
        // The failure itself decides the exit code.
        let _closed_or_full = print(&format!("{:#}\n", failure.json()));
    }
    failure.report()
}
