//! Runs the fuzz targets of `fuzz/`, each for some seconds, on the ordinary toolchain.
//!
//! libFuzzer needs counters at every branch from the compiler, and a C++ compiler for itself.
//! Stable `rustc` has the counters behind `-C` flags, so neither nightly nor cargo-fuzz is needed.
//! New inputs are collected below `target/fuzz/found`, so that the next run begins where this one
//! ended; `fuzz/corpus` is only read. An input that breaks a target is kept below
//! `target/fuzz/broken` and named.

use crate::interop::install_tool;
use crate::process::{cargo, command, output, root, run as run_program, target_folder};
use crate::tally::Counts;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Seconds for each target in `cargo xtask test`.
pub(crate) const SECONDS: u32 = 4;
/// Seconds for each target in `cargo xtask test --all`.
pub(crate) const SECONDS_ALL: u32 = 60;

/// Coverage as cargo-fuzz asks the compiler for it: a counter for each branch, a table of their
/// places, and the values of comparisons. The checks of debug builds stay on (`fuzz/Cargo.toml`).
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// What the command line asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    seconds: u32,
    /// Only targets whose name contains this.
    only: Option<String>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            seconds: SECONDS_ALL,
            only: None,
        };
        let mut rest = arguments.iter();
        while let Some(word) = rest.next() {
            match word.as_str() {
                "--seconds" => {
                    let number = rest.next().and_then(|text| text.parse().ok());
                    let positive = number.filter(|seconds| *seconds > 0);
                    options.seconds = positive.ok_or("--seconds takes a number above 0")?;
                }
                name if !name.starts_with('-') && options.only.is_none() => {
                    options.only = Some(name.to_owned());
                }
                other => return Err(format!("fuzz does not know `{other}`")),
            }
        }
        Ok(options)
    }
}

/// Runs the targets that were asked for and ends in a line `N passed, N failed`; true when nothing
/// broke.
pub(crate) fn run(options: &Options) -> Result<bool, String> {
    let counts = run_targets(options.seconds, options.only.as_deref())??;
    println!("{} passed, {} failed", counts.passed, counts.failed);
    Ok(counts.failed == 0)
}

/// Runs every target for so many seconds. The outer error says why none can run here.
pub(crate) fn run_all(seconds: u32) -> Result<Result<Counts, String>, String> {
    run_targets(seconds, None)
}

fn run_targets(seconds: u32, only: Option<&str>) -> Result<Result<Counts, String>, String> {
    install_tool("c++")?;
    Ok(run_here(seconds, only))
}

fn run_here(seconds: u32, only: Option<&str>) -> Result<Counts, String> {
    let mut names = target_names()?;
    names.retain(|name| only.is_none_or(|word| name.contains(word)));
    if names.is_empty() {
        return Err("no fuzz target has such a name: see fuzz/fuzz_targets".to_owned());
    }
    let folder = target_folder()?.join("fuzz");
    let programs = build(&folder)?;
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(0);
    let at_once = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = run_one(name, seconds, &programs, &folder) {
                        println!("FAILED  {name}: {why}");
                        *failed.lock().expect("nobody panics with it") += 1;
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("as above");
    Ok(Counts {
        passed: names.len() - failed,
        failed,
        skipped: 0,
    })
}

/// The names of the targets: those of their sources.
fn target_names() -> Result<Vec<String>, String> {
    let folder = root().join("fuzz/fuzz_targets");
    let cannot = |error| format!("cannot read {}: {error}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        names.extend(
            path.file_stem()
                .and_then(|stem| stem.to_str())
                .map(str::to_owned),
        );
    }
    names.sort_unstable();
    Ok(names)
}

/// Builds all targets; gives the folder in which they are.
fn build(folder: &Path) -> Result<PathBuf, String> {
    let about = output(command("rustc").arg("-vV"))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("`rustc -vV` names no host")?;
    // A named target keeps the flags away from build scripts, which have no fuzzer to link with.
    let mut build = cargo();
    build.args([
        "build",
        "--quiet",
        "--release",
        "--locked",
        "--target",
        host,
    ]);
    build.args(["--manifest-path", "fuzz/Cargo.toml", "--target-dir"]);
    run_program(build.arg(folder).env("RUSTFLAGS", FLAGS))?;
    Ok(folder.join(host).join("release"))
}

/// Runs one target until its time is over or an input breaks it.
fn run_one(name: &str, seconds: u32, programs: &Path, folder: &Path) -> Result<(), String> {
    let found = folder.join("found").join(name);
    let broken = folder.join("broken");
    for needed in [&found, &broken] {
        fs::create_dir_all(needed)
            .map_err(|error| format!("cannot write {}: {error}", needed.display()))?;
    }
    let mut fuzzer = command(programs.join(name));
    fuzzer
        .arg(&found)
        .arg(root().join("fuzz/corpus").join(name));
    fuzzer.arg(format!("-max_total_time={seconds}"));
    fuzzer.arg(format!("-artifact_prefix={}/{name}-", broken.display()));
    fuzzer.args(["-timeout=20", "-rss_limit_mb=2048", "-verbosity=0"]);
    let ended = fuzzer
        .output()
        .map_err(|error| format!("cannot start: {error}"))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    Err(format!(
        "{}\nMend the fault, then keep the input as fuzz/corpus/{name}/WHAT_IT_SHOWED.",
        said.trim_end()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Options::parse(&words)
    }

    #[test]
    fn a_name_and_a_time_are_understood_and_nothing_else_is() {
        let only = Some("tcp".to_owned());
        let seconds = 7;
        assert_eq!(
            parse(&["tcp", "--seconds", "7"]),
            Ok(Options { seconds, only })
        );
        assert_eq!(parse(&[]).map(|options| options.seconds), Ok(SECONDS_ALL));
        for wrong in [
            &["--seconds"][..],
            &["--seconds", "0"],
            &["a", "b"],
            &["--no"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_target_has_a_corpus_and_is_built() {
        let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).expect("it is there");
        for name in target_names().expect("there are some") {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            assert!(root().join("fuzz/corpus").join(&name).is_dir(), "{name}");
        }
    }
}
