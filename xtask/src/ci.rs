//! All that must hold, in one go, with times and one last line: `cargo xtask test`, and the quick
//! part of it for every day, `cargo xtask check`.
//!
//! Every step runs, whatever the others found: one run tells everything that is wrong. The rules
//! themselves stand in the modules named here.

use crate::process::{cargo, cargo_name, command, lines_of, run, works};
use crate::summary::{Counts, Stop, Summary, Tally};
use crate::{ceph, conformance, count, deps, fuzz, interop, no_os, pages, sim, tidy};
use std::io::IsTerminal;
use std::process::Stdio;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// Tests that take longer, once built, hang. `cargo xtask test` has 25 minutes on two cores in all.
const TESTS_SECONDS_MAX: &str = "660";

/// A name, and what runs; true: at length.
type Step = (&'static str, fn(bool) -> Result<Counts, Stop>);

const TEST: [Step; 13] = [
    ("fmt", |_| fmt()),
    ("tidy", |_| held(tidy::check())),
    ("deps", |_| held(deps::check())),
    ("no-os", |_| held(no_os::check())),
    ("clippy", |_| clippy()),
    ("count", |_| count::check()),
    // By itself, so that the limit of the tests is about the tests alone.
    ("build", |_| held(build())),
    ("tests", |_| tests(&["--workspace"])),
    ("sim", |_| sim::run(&sim::Options::of_test())),
    ("conformance", |_| conformance::run()),
    ("ceph", |whole| ceph::run(&ceph::Options::of_test(whole))),
    ("pages", |_| pages::run(&pages::Options::default())),
    ("interop", |whole| {
        interop::run(&interop::Options::of_test(whole))
    }),
];
const MORE: [Step; 4] = [
    // The tests of fabrix-proto run the same bodies over the corpus and over random input.
    ("fuzz", |_| fuzz::run(&fuzz::Options::of_all())),
    ("prove", |_| sim::run(&sim::Options::of_proof())),
    ("doc", |_| held(doc())),
    ("deny", |_| deny()),
];
/// No socket under load, no guest, no suite that waits.
const CHECK: [Step; 6] = [
    ("fmt", |_| fmt()),
    ("tidy", |_| held(tidy::check())),
    ("deps", |_| held(deps::check())),
    ("clippy", |_| clippy()),
    ("unit", |_| tests(&["--workspace", "--lib", "--bins"])),
    ("machines", |_| {
        tests(&["--package", "fabrix-proto", "--test", "*"])
    }),
];

/// Everything; true when it holds. `whole` adds what is slower or needs more tools.
pub(crate) fn test(whole: bool) -> Result<bool, String> {
    let more = if whole { &MORE[..] } else { &[] };
    run_steps(TEST.iter().chain(more), whole)
}

/// What takes minutes only; true when it holds.
pub(crate) fn check() -> Result<bool, String> {
    run_steps(CHECK.iter(), false)
}

fn run_steps<'a>(steps: impl Iterator<Item = &'a Step>, whole: bool) -> Result<bool, String> {
    let mut summary = Summary::new()?;
    for (name, step) in steps {
        println!("== {name}");
        let started = Instant::now();
        let outcome = step(whole);
        // Here, because a test of the summary prints no skip: the run would count it.
        if let Err(Stop::Skipped(why)) = &outcome {
            println!("SKIPPED: {name}: {why}");
        }
        summary.step(name, started.elapsed(), outcome);
    }
    Ok(summary.print())
}

/// A check that has nothing to count.
fn held(outcome: Result<(), String>) -> Result<Counts, Stop> {
    Ok(outcome.map(|()| Counts::default())?)
}

fn fmt() -> Result<Counts, Stop> {
    require_component("fmt", "rustfmt")?;
    let formatted = run(cargo().args(["fmt", "--all", "--check"]));
    held(formatted.map_err(|_| "run `cargo fmt --all`: the sources are not formatted".to_owned()))
}

fn clippy() -> Result<Counts, Stop> {
    require_component("clippy", "clippy")?;
    let mut clippy = cargo();
    clippy.args(["clippy", "--quiet", "--workspace", "--all-targets"]);
    held(run(clippy.args(["--", "-D", "warnings"])))
}

fn build() -> Result<(), String> {
    run(cargo().args(["test", "--quiet", "--workspace", "--no-run"]))
}

fn doc() -> Result<(), String> {
    let mut doc = cargo();
    doc.args(["doc", "--quiet", "--workspace", "--no-deps"]);
    doc.arg("--document-private-items");
    run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

fn deny() -> Result<Counts, Stop> {
    if !works(cargo().args(["deny", "--version"])) {
        let why = "cargo-deny is not installed (`cargo install cargo-deny`)";
        return Err(Stop::Skipped(why.to_owned()));
    }
    held(run(cargo().args(["deny", "check"])))
}

/// Makes sure that `cargo TOOL` works, by asking rustup for its component where there is a rustup.
fn require_component(tool: &str, component: &str) -> Result<(), Stop> {
    let here = || works(cargo().args([tool, "--version"]));
    if here() || (works(command("rustup").args(["component", "add", component])) && here()) {
        return Ok(());
    }
    Err(Stop::Skipped(format!(
        "`cargo {tool}` is missing (`rustup component add {component}`)"
    )))
}

/// Runs `cargo test` with these words and counts.
fn tests(words: &[&str]) -> Result<Counts, Stop> {
    let mut tests = if std::io::stdin().is_terminal() {
        // Somebody is there who can interrupt.
        cargo()
    } else {
        // coreutils' timeout ends the whole group: a hanging test must not outlive its cargo.
        let mut watched = command("timeout");
        watched.args(["--kill-after=10", TESTS_SECONDS_MAX, &cargo_name()]);
        watched
    };
    tests.args(["test", "--no-fail-fast"]).args(words);
    tests.args(["--", "--show-output"]).stdout(Stdio::piped());
    let child = tests.spawn();
    let mut child = child.map_err(|error| format!("cannot start the tests: {error}"))?;
    let lines = lines_of(child.stdout.take().expect("the output was asked for"));
    let mut tally = Tally::default();
    let left = loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(line) if tally.line(&line) => println!("{line}"),
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => break false,
            // Nothing to read: is anybody left who could write?
            Err(RecvTimeoutError::Timeout) if matches!(child.try_wait(), Ok(None)) => {}
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    let status = child.wait();
    let status = status.map_err(|error| format!("cannot wait for the tests: {error}"))?;
    let mut counts = tally.finish();
    if left {
        let left = "a test left a process behind that holds its output";
        counts.failures.push(left.to_owned());
    } else if matches!(status.code(), Some(124 | 137)) {
        let late = format!("the tests did not end within {TESTS_SECONDS_MAX} s");
        counts.failures.push(late);
    } else if !status.success() && counts.failed == 0 {
        let bad = format!("`cargo test` ended with {status}: see above");
        counts.failures.push(bad);
    }
    Ok(counts)
}
