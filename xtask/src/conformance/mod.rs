//! libiscsi's test suite against our iSCSI target: every test of it, on loopback, as `cargo xtask
//! test` runs it.
//!
//! The suite is Debian's `iscsi-test-cu`; `suite` reads what it says, `exceptions` what it may skip
//! and where it errs. Nothing that it does not run goes unnoticed: a skip that is not listed fails,
//! and so does a listed one that has not happened. The suite offers its tests in four families, of
//! which three repeat the first: that one runs.

mod exceptions;
mod suite;

use crate::interop::install_tool;
use crate::process::{Background, cargo, command, output, root, run as run_program, target_folder};
use crate::tally::Counts;
use exceptions::Exceptions;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::thread;
use suite::Tested;

/// What the suite is run against, and which tests.
struct Run {
    name: &'static str,
    /// What is served, as `fabrix serve` takes it; FOLDER is the folder of the logs.
    disk: &'static [&'static str],
    /// The tests, as the suite's `--test` takes them.
    tests: &'static str,
}

// One test of the suite knows no physical block but one logical block, hence `physical=512`; five
// others need a larger one, hence the runs `pages-...`.
const RUNS: [Run; 7] = [
    // A disk that answers at once.
    Run {
        name: "ram",
        disk: &["ram:1G,physical=512"],
        tests: "ALL",
    },
    // One that takes its time, and has a volatile cache and holes.
    Run {
        name: "file",
        disk: &["file:FOLDER/disk,size=1G,direct=off,physical=512"],
        tests: "ALL",
    },
    // Most tests write whatever the disk says of itself.
    Run {
        name: "read-only",
        disk: &["ram:1G", "--read-only"],
        tests: "ALL.ReadOnly",
    },
    // It keeps nothing, so it keeps whole writes or nothing of them.
    Run {
        name: "atomic",
        disk: &["null:1G"],
        tests: "ALL.WriteAtomic16",
    },
    Run {
        name: "pages-compare",
        disk: &["ram:1G"],
        tests: "ALL.CompareAndWrite",
    },
    Run {
        name: "pages-same10",
        disk: &["ram:1G"],
        tests: "ALL.WriteSame10",
    },
    Run {
        name: "pages-same16",
        disk: &["ram:1G"],
        tests: "ALL.WriteSame16",
    },
];
/// The whole suite takes half a minute, most of it waiting for answers that must not come.
const SECONDS_MAX: &str = "240";

/// Runs everything and ends in a line of counts; true when all is as it should be.
///
/// # Errors
/// As for [`run_all`].
pub(crate) fn run() -> Result<bool, String> {
    let counts = run_all()??;
    println!(
        "{} passed, {} failed, {} skipped",
        counts.passed, counts.failed, counts.skipped
    );
    Ok(counts.failed == 0)
}

/// Runs the suite against each disk, with a line for each and one for everything that is not as it
/// should be.
///
/// # Errors
/// Outside: the suite cannot be had here. Inside: it, or our target, did not do its part.
pub(crate) fn run_all() -> Result<Result<Counts, String>, String> {
    install_tool(suite::PROGRAM)?;
    Ok(run_all_here())
}

fn run_all_here() -> Result<Counts, String> {
    let exceptions = Exceptions::read(&root().join(exceptions::FILE))?;
    exceptions.check_runs(&RUNS.each_ref().map(|run| run.name))?;
    run_program(cargo().args(["build", "--quiet", "--package", "fabrix"]))?;
    let folder = target_folder()?;
    let program = folder.join("debug/fabrix");
    let logs = folder.join("conformance");
    empty(&logs).map_err(|error| format!("cannot write {}: {error}", logs.display()))?;
    // Most of the time the suite waits: side by side they take no longer than the longest.
    let ended: Vec<Result<Vec<Tested>, String>> = thread::scope(|scope| {
        let runs = RUNS.each_ref().map(|run| {
            let (program, logs) = (&program, &logs);
            scope.spawn(move || run.tested(program, logs))
        });
        let joined = runs.into_iter().map(|run| match run.join() {
            Ok(tested) => tested,
            Err(_) => Err("the run panicked".to_owned()),
        });
        joined.collect()
    });
    let mut counts = Counts::default();
    for (run, tested) in RUNS.iter().zip(ended) {
        let tested = tested.map_err(|why| format!("{}: {why}", run.name))?;
        let verdict = exceptions.judge(run.name, &tested);
        println!(
            "{:13} {} of {}: {} tests passed, {} skipped as listed, {} failed",
            run.name,
            run.tests,
            run.disk.join(" "),
            verdict.counts.passed,
            verdict.counts.skipped,
            verdict.counts.failed
        );
        for wrong in &verdict.wrong {
            println!("{wrong}");
        }
        counts.passed += verdict.counts.passed;
        counts.failed += verdict.counts.failed;
        counts.skipped += verdict.counts.skipped;
    }
    if counts.failed > 0 {
        println!("what the suite said stands in {}", logs.display());
    }
    Ok(counts)
}

impl Run {
    /// Serves the disk at two portals, and lets the suite loose on both.
    fn tested(&self, program: &Path, folder: &Path) -> Result<Vec<Tested>, String> {
        let log = folder.join(format!("{}.log", self.name));
        let place = folder.display().to_string();
        let words = self.disk.iter().map(|word| word.replace("FOLDER", &place));
        let mut serve = command(program);
        serve.arg("serve").args(words);
        for _ in 0..2 {
            serve.args(["--listen", "iscsi://127.0.0.1:0"]);
        }
        let mut served = Background::start(&mut serve)?;
        let urls = urls(&mut served)?;
        let mut suite = command("timeout");
        suite.args(["--kill-after=10", SECONDS_MAX, suite::PROGRAM]);
        suite.args(["--dataloss", "--test", self.tests]).args(&urls);
        let said = suite
            .output()
            .map_err(|error| format!("cannot start {}: {error}", suite::PROGRAM))?;
        let text = String::from_utf8_lossy(&said.stdout);
        fs::write(&log, text.as_bytes())
            .map_err(|error| format!("cannot write {}: {error}", log.display()))?;
        if said.status.code() == Some(124) {
            return Err(format!("the suite did not end within {SECONDS_MAX} s"));
        }
        suite::read(&text)
    }
}

/// Makes the folder, without what an earlier run has left.
fn empty(folder: &Path) -> std::io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)
}

/// The disk's address at each of its portals. We print the first; discovery tells the others.
fn urls(served: &mut Background) -> Result<Vec<String>, String> {
    let stdout = served.0.stdout.take().expect("the output was asked for");
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let first = lines
        .find_map(|line| {
            let word = line.split_whitespace().next()?;
            word.starts_with("iscsi://").then(|| word.to_owned())
        })
        .ok_or("`fabrix serve` ended without saying where the disk is")?;
    // What is still to come is little, and stays in the pipe.
    let (portal, name) = suite::split_url(&first)
        .ok_or_else(|| format!("`{first}` is no address of a logical unit"))?;
    let discovered = output(command("iscsi-ls").arg(format!("iscsi://{portal}")))?;
    let portals = suite::portals(&discovered);
    if portals.len() < 2 {
        return Err(format!("discovery names {} of two portals", portals.len()));
    }
    let url = |portal: &String| format!("iscsi://{portal}/{name}");
    Ok(portals.iter().map(url).collect())
}
