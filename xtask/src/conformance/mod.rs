//! libiscsi's test suite against our iSCSI target: every test of it, on loopback, as `cargo xtask
//! test` runs it.
//!
//! The suite is Debian's `iscsi-test-cu`; `suite` reads what it says, `exceptions` what it may
//! skip. Nothing that it does not run goes unnoticed: a skip that is not listed fails,
//! and so does a listed one that has not happened. The suite offers its tests in four families, of
//! which three repeat the first: that one runs.

mod exceptions;
mod suite;

use crate::interop::install_tool;
use crate::process::{Background, command, output, root, side_by_side, target_folder};
use crate::programs;
use crate::summary::{Counts, Stop};
use exceptions::Exceptions;
use std::fs;
use std::path::Path;
use suite::Tested;

/// What the suite is run against, and which tests.
struct Run {
    name: &'static str,
    /// What is served, as `fabrix serve` takes it; FOLDER is the folder of the logs.
    disk: &'static str,
    /// The tests, as the suite's `--test` takes them.
    tests: &'static str,
}

/// One test of the suite knows no physical block but one logical block, hence `physical=512`; five
/// others need a larger one, hence the runs `pages-...`.
///
/// `ram` answers at once; `file` takes its time, and has a volatile cache and holes. Most tests
/// write whatever the disk says of itself, hence the one test of `read-only`. A `null` disk keeps
/// nothing, so it keeps whole writes or nothing of them: `atomic`.
const RUNS: [Run; 7] = [
    Run::of("ram", "ram:1G,physical=512", "ALL"),
    Run::of(
        "file",
        "file:FOLDER/disk,size=1G,direct=off,physical=512",
        "ALL",
    ),
    Run::of("read-only", "ram:1G --read-only", "ALL.ReadOnly"),
    Run::of("atomic", "null:1G", "ALL.WriteAtomic16"),
    Run::of("pages-compare", "ram:1G", "ALL.CompareAndWrite"),
    Run::of("pages-same10", "ram:1G", "ALL.WriteSame10"),
    Run::of("pages-same16", "ram:1G", "ALL.WriteSame16"),
];
/// The whole suite takes half a minute, most of it waiting for answers that must not come.
const SECONDS_MAX: &str = "240";

/// Runs the suite against each disk, with a line for each and one for everything that is not as it
/// should be.
pub(crate) fn run() -> Result<Counts, Stop> {
    install_tool(suite::PROGRAM).map_err(Stop::Skipped)?;
    let exceptions = Exceptions::read(&root().join(exceptions::FILE))?;
    exceptions.check_runs(&RUNS.each_ref().map(|run| run.name))?;
    let program = programs::build()?.join("fabrix");
    let logs = target_folder()?.join("conformance");
    // Without what an earlier run has left.
    let _there_may_be_none = fs::remove_dir_all(&logs);
    let made = fs::create_dir_all(&logs);
    made.map_err(|error| format!("cannot write {}: {error}", logs.display()))?;
    // Most of the time the suite waits: side by side they take no longer than the longest.
    let ended = side_by_side(&RUNS, RUNS.len(), |_, run| run.tested(&program, &logs));
    let mut counts = Counts::default();
    for (run, tested) in RUNS.iter().zip(ended) {
        let tested = tested.map_err(|why| format!("{}: {why}", run.name))?;
        let found = exceptions.judge(run.name, &tested);
        let Run { name, disk, tests } = run;
        println!("{name:13} {tests} of {disk}: {}", found.last_line());
        counts.passed += found.passed;
        counts.failed += found.failed;
        counts.skipped += found.skipped;
    }
    if counts.failed > 0 {
        println!("what the suite said stands in {}", logs.display());
    }
    Ok(counts)
}

impl Run {
    const fn of(name: &'static str, disk: &'static str, tests: &'static str) -> Self {
        Self { name, disk, tests }
    }

    /// Serves the disk at two portals, and lets the suite loose on both.
    fn tested(&self, program: &Path, folder: &Path) -> Result<Vec<Tested>, String> {
        let log = folder.join(format!("{}.log", self.name));
        let words = self.disk.replace("FOLDER", &folder.to_string_lossy());
        let mut serve = command(program);
        serve.arg("serve").args(words.split(' '));
        serve.args(["--listen", "iscsi://127.0.0.1:0"]);
        serve.args(["--listen", "iscsi://127.0.0.1:0"]);
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

/// The disk's address at each of its portals. We print the first; discovery tells the others.
fn urls(served: &mut Background) -> Result<Vec<String>, String> {
    let lines = served.lines();
    let url = |line: String| {
        let word = line.split_whitespace().next()?.to_owned();
        word.starts_with("iscsi://").then_some(word)
    };
    let first = lines.iter().find_map(url);
    let first = first.ok_or("`fabrix serve` ended without saying where the disk is")?;
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
