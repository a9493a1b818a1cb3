//! All checks in one go, with their times, and one last line that says how it went.
//!
//! Every check runs, whatever the others found: one run tells everything that is wrong. It starts
//! cargo only; the rules themselves stand in the modules named here.

use crate::process::{cargo, cargo_name, command, root, run, works};
use crate::tally::{Counts, Tally, parse_allowed};
use crate::{conformance, count, deps, fuzz, interop, no_os, pages, tidy};
use std::io::{BufRead, BufReader, IsTerminal};
use std::process::{ChildStdout, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Tests that take longer, once built, hang: 25 minutes are to be enough for everything, on two
/// cores, real peers included.
const TESTS_SECONDS_MAX: u32 = 660;
const SKIPS_FILE: &str = "xtask/skips.txt";

type Check = (&'static str, fn() -> Result<(), Stop>);
/// A suite's counts. The outer error says why none of it can run here, the inner one why it did not
/// end well.
type Suite<'a> = dyn Fn() -> Result<Result<Counts, String>, String> + 'a;

const CHECKS: [Check; 7] = [
    ("fmt", fmt),
    ("tidy", || Ok(tidy::check()?)),
    ("deps", || Ok(deps::check()?)),
    ("no-os", || Ok(no_os::check()?)),
    ("clippy", clippy),
    ("count", counted),
    ("build", build),
];
const MORE_CHECKS: [Check; 2] = [("doc", doc), ("deny", deny)];

/// Why a check did not pass.
enum Stop {
    Failed(String),
    /// The tool is not here and cannot be had.
    Skipped(String),
}

impl From<String> for Stop {
    fn from(failure: String) -> Self {
        Self::Failed(failure)
    }
}

/// The checks and all tests; true when everything holds. `whole` adds what is slower or needs more
/// tools.
pub(crate) fn test(whole: bool) -> Result<bool, String> {
    let mut summary = Summary::new(std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1"))?;
    let more = if whole { &MORE_CHECKS[..] } else { &[] };
    for &(name, check) in CHECKS.iter().chain(more) {
        println!("== {name}");
        let started = Instant::now();
        let outcome = check();
        if let Err(Stop::Skipped(why)) = &outcome {
            println!("SKIPPED: {name}: {why}");
        }
        summary.check(name, started.elapsed(), outcome);
    }
    println!("== tests");
    let started = Instant::now();
    let (tally, failure) = run_tests();
    summary.tests(&tally, started.elapsed(), failure);
    let seconds = if whole {
        fuzz::SECONDS_ALL
    } else {
        fuzz::SECONDS
    };
    let scripts = if whole {
        interop::Options::All
    } else {
        interop::Options::Core
    };
    let suites: [(&str, &Suite<'_>); 4] = [
        ("fuzz", &|| fuzz::run_all(seconds)),
        ("conformance", &conformance::run_all),
        ("pages", &pages::run_all),
        ("interop", &|| interop::run_scripts(&scripts).map(Ok)),
    ];
    for (name, suite) in suites {
        println!("== {name}");
        let started = Instant::now();
        let outcome = suite();
        if let Err(why) = &outcome {
            println!("SKIPPED: {name}: {why}");
        }
        summary.suite(name, started.elapsed(), outcome);
    }
    summary.print();
    Ok(summary.failed == 0)
}

fn fmt() -> Result<(), Stop> {
    require_component("fmt", "rustfmt")?;
    run(cargo().args(["fmt", "--all", "--check"])).map_err(|_| {
        Stop::Failed("the sources are not formatted: run `cargo fmt --all`".to_owned())
    })
}

fn clippy() -> Result<(), Stop> {
    require_component("clippy", "clippy")?;
    let arguments = [
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    Ok(run(cargo().args(arguments))?)
}

/// Builds the tests before their time is taken: building takes as long as the machine is slow, and
/// cannot hang.
fn build() -> Result<(), Stop> {
    Ok(run(cargo().args([
        "test",
        "--quiet",
        "--workspace",
        "--no-run",
    ]))?)
}

fn counted() -> Result<(), Stop> {
    match count::check()? {
        count::Outcome::Held => Ok(()),
        count::Outcome::NotCompared(why) => Err(Stop::Skipped(why)),
    }
}

fn doc() -> Result<(), Stop> {
    let arguments = [
        "doc",
        "--quiet",
        "--workspace",
        "--no-deps",
        "--document-private-items",
    ];
    Ok(run(cargo()
        .args(arguments)
        .env("RUSTDOCFLAGS", "-D warnings"))?)
}

fn deny() -> Result<(), Stop> {
    if !works(cargo().args(["deny", "--version"])) {
        return Err(Stop::Skipped(
            "cargo-deny is not installed (`cargo install cargo-deny`)".to_owned(),
        ));
    }
    Ok(run(cargo().args(["deny", "check"]))?)
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

/// Runs every test of the workspace, counting; the second value says what went wrong beyond single
/// tests.
fn run_tests() -> (Tally, Option<String>) {
    let mut tally = Tally::default();
    let limit = TESTS_SECONDS_MAX.to_string();
    let mut tests = if std::io::stdin().is_terminal() {
        // Somebody is there who can interrupt.
        cargo()
    } else {
        // coreutils' timeout ends the whole group: a hanging test must not outlive the cargo that
        // started it.
        let mut watched = command("timeout");
        watched.args(["--kill-after=10", &limit, &cargo_name()]);
        watched
    };
    tests.args([
        "test",
        "--workspace",
        "--no-fail-fast",
        "--",
        "--show-output",
    ]);
    tests.stdout(Stdio::piped());
    let mut child = match tests.spawn() {
        Ok(child) => child,
        Err(error) => return (tally, Some(format!("cannot start the tests: {error}"))),
    };
    let lines = lines_of(child.stdout.take().expect("the output was asked for"));
    let ended = loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(line) if tally.line(&line) => println!("{line}"),
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => break child.wait(),
            // Nothing to read: is anybody left who could write?
            Err(RecvTimeoutError::Timeout) => {
                if let Some(status) = child.try_wait().transpose() {
                    let left = "a test left a process behind that holds its output".to_owned();
                    return (
                        tally,
                        Some(status.map_or_else(|error| error.to_string(), |_| left)),
                    );
                }
            }
        }
    };
    let failure = match ended {
        Ok(status) if status.success() => None,
        Ok(status) if matches!(status.code(), Some(124 | 137)) => {
            Some(format!("the tests did not end within {limit} s"))
        }
        Ok(_) if tally.failed() > 0 => None,
        Ok(status) => Some(format!("`cargo test` ended with {status}: see above")),
        Err(error) => Some(format!("cannot wait for the tests: {error}")),
    };
    (tally, failure)
}

/// Reads a program's output on a thread of its own; the channel closes when nobody can write any
/// more.
fn lines_of(output: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            // Nobody listens any more when the run has been given up.
            let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
    receiver
}

/// What happened so far.
struct Summary {
    /// Whether only the listed skips may happen.
    strict: bool,
    allowed_skips: Vec<String>,
    passed: usize,
    failed: usize,
    skipped: usize,
    times: Vec<(String, Duration, &'static str)>,
    failures: Vec<String>,
}

impl Summary {
    fn new(strict: bool) -> Result<Self, String> {
        let text = std::fs::read_to_string(root().join(SKIPS_FILE))
            .map_err(|error| format!("cannot read {SKIPS_FILE}: {error}"))?;
        let allowed_skips =
            parse_allowed(&text).map_err(|wrong| format!("{SKIPS_FILE}: {wrong}"))?;
        Ok(Self::with(strict, allowed_skips))
    }

    fn with(strict: bool, allowed_skips: Vec<String>) -> Self {
        let (passed, failed, skipped) = (0, 0, 0);
        let (times, failures) = (Vec::new(), Vec::new());
        Self {
            strict,
            allowed_skips,
            passed,
            failed,
            skipped,
            times,
            failures,
        }
    }

    fn check(&mut self, name: &str, time: Duration, outcome: Result<(), Stop>) {
        let word = match outcome {
            Ok(()) => "ok",
            Err(Stop::Failed(why)) => {
                self.fail(format!("{name}: {why}"));
                "FAILED"
            }
            Err(Stop::Skipped(why)) => {
                self.skip(name, &why);
                "skipped"
            }
        };
        self.times.push((name.to_owned(), time, word));
    }

    fn tests(&mut self, tally: &Tally, time: Duration, failure: Option<String>) {
        let word = if tally.failed() == 0 && failure.is_none() {
            "ok"
        } else {
            "FAILED"
        };
        self.times.push(("tests".to_owned(), time, word));
        self.passed += tally.passed();
        self.failed += tally.failed();
        if tally.failed() > 0 {
            self.failures.push(format!(
                "{} tests: their output stands above",
                tally.failed()
            ));
        }
        for skip in tally.skips() {
            self.skip(&skip.name, &skip.why);
        }
        if let Some(failure) = failure {
            self.fail(failure);
        }
    }

    /// A suite that counts its own tests. The outer error says why none of it can run here.
    fn suite(
        &mut self,
        name: &str,
        time: Duration,
        outcome: Result<Result<Counts, String>, String>,
    ) {
        let word = match outcome {
            Ok(Ok(counts)) => {
                self.passed += counts.passed;
                self.failed += counts.failed;
                self.skipped += counts.skipped;
                if counts.failed > 0 {
                    let which = format!("{} of {name}: see above", counts.failed);
                    self.failures.push(which);
                    "FAILED"
                } else {
                    "ok"
                }
            }
            Ok(Err(why)) => {
                self.fail(format!("{name}: {why}"));
                "FAILED"
            }
            Err(why) => {
                self.skip(name, &why);
                "skipped"
            }
        };
        self.times.push((name.to_owned(), time, word));
    }

    /// A skip is harmless on a developer's machine; in CI it would hide what nobody runs any more.
    fn skip(&mut self, name: &str, why: &str) {
        if self.strict && !self.allowed_skips.iter().any(|allowed| allowed == name) {
            self.fail(format!(
                "{name} was skipped ({why}) and is not listed in {SKIPS_FILE}"
            ));
        } else {
            self.skipped += 1;
        }
    }

    fn fail(&mut self, failure: String) {
        self.failed += 1;
        self.failures.push(failure);
    }

    /// The times, what failed, and the one line to look at.
    fn print(&self) {
        println!();
        for (name, time, word) in &self.times {
            println!("{name:11} {:7.1} s  {word}", time.as_secs_f64());
        }
        let total: Duration = self.times.iter().map(|(_, time, _)| *time).sum();
        println!("{:11} {:7.1} s\n", "together", total.as_secs_f64());
        for failure in &self.failures {
            println!("failed: {failure}");
        }
        println!("{}", self.last_line());
    }

    fn last_line(&self) -> String {
        format!(
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped() -> Result<(), Stop> {
        Err(Stop::Skipped("no tool".to_owned()))
    }

    fn last_line(strict: bool, outcomes: Vec<Result<(), Stop>>) -> String {
        let mut summary = Summary::with(strict, vec!["listed".to_owned()]);
        let mut tally = Tally::default();
        tally.line("test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        for outcome in outcomes {
            summary.check("unlisted", Duration::ZERO, outcome);
        }
        summary.tests(&tally, Duration::ZERO, None);
        summary.last_line()
    }

    #[test]
    fn a_failed_check_is_never_hidden_behind_passed_tests() {
        assert_eq!(
            last_line(false, vec![Ok(())]),
            "7 passed, 0 failed, 0 skipped"
        );
        let failed = Err(Stop::Failed("not formatted".to_owned()));
        assert_eq!(
            last_line(false, vec![failed]),
            "7 passed, 1 failed, 0 skipped"
        );
    }

    #[test]
    fn an_unlisted_skip_fails_only_in_ci() {
        assert_eq!(
            last_line(false, vec![skipped()]),
            "7 passed, 0 failed, 1 skipped"
        );
        assert_eq!(
            last_line(true, vec![skipped()]),
            "7 passed, 1 failed, 0 skipped"
        );
    }

    #[test]
    fn a_listed_skip_is_fine_in_ci() {
        let mut summary = Summary::with(true, vec!["listed".to_owned()]);
        summary.check("listed", Duration::ZERO, skipped());
        assert_eq!(summary.last_line(), "0 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn suites_count_like_tests_and_one_that_does_not_end_fails() {
        let mut summary = Summary::with(true, Vec::new());
        let (passed, failed, skipped) = (5, 1, 2);
        let counts = Counts {
            passed,
            failed,
            skipped,
        };
        summary.suite("peers", Duration::ZERO, Ok(Ok(counts)));
        assert_eq!(summary.last_line(), "5 passed, 1 failed, 2 skipped");
        summary.suite("peers", Duration::ZERO, Ok(Err("no end".to_owned())));
        assert_eq!(summary.last_line(), "5 passed, 2 failed, 2 skipped");
    }

    #[test]
    fn a_suite_that_cannot_be_had_is_a_skip_and_fails_in_ci() {
        let mut lenient = Summary::with(false, Vec::new());
        lenient.suite("peers", Duration::ZERO, Err("no package".to_owned()));
        assert_eq!(lenient.last_line(), "0 passed, 0 failed, 1 skipped");
        let mut strict = Summary::with(true, Vec::new());
        strict.suite("peers", Duration::ZERO, Err("no package".to_owned()));
        assert_eq!(strict.last_line(), "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn tests_that_do_not_end_well_fail_the_run() {
        let mut summary = Summary::with(false, Vec::new());
        summary.tests(
            &Tally::default(),
            Duration::ZERO,
            Some("it hung".to_owned()),
        );
        assert_eq!(summary.last_line(), "0 passed, 1 failed, 0 skipped");
    }
}
