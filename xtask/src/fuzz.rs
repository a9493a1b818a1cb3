//! Runs the fuzz targets of `fuzz/`, each for some seconds, on the ordinary toolchain.
//!
//! libFuzzer needs counters at every branch from the compiler, and a C++ compiler for itself.
//! Stable `rustc` has the counters behind `-C` flags, so neither nightly nor cargo-fuzz is needed.
//! New inputs are collected below `target/fuzz/found`, so that the next run begins where this one
//! ended; `fuzz/corpus` is only read. An input that breaks a target is kept below
//! `target/fuzz/broken` and named.

use crate::interop::install_tool;
use crate::process::{
    cargo, command, cores, output, root, run as run_program, side_by_side, target_folder,
};
use crate::summary::{Counts, Stop};
use std::fs;
use std::path::{Path, PathBuf};

/// Seconds for each target.
const SECONDS: u32 = 60;

/// Coverage as cargo-fuzz asks the compiler for it: a counter for each branch, a table of their
/// places, and the values of comparisons. The checks of debug builds stay on (`fuzz/Cargo.toml`).
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// What the command line asked for.
#[derive(clap::Parser)]
pub(crate) struct Options {
    /// Only the targets whose name contains NAME
    name: Option<String>,
    /// So many seconds for each
    #[arg(long, default_value_t = SECONDS, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

impl Options {
    /// What `cargo xtask test --all` runs.
    pub(crate) fn of_all() -> Self {
        Self {
            seconds: SECONDS,
            name: None,
        }
    }
}

/// Runs the targets that were asked for, as many at a time as there are processors.
pub(crate) fn run(options: &Options) -> Result<Counts, Stop> {
    install_tool("c++").map_err(Stop::Skipped)?;
    let mut names = target_names()?;
    names.retain(|name| options.name.as_ref().is_none_or(|word| name.contains(word)));
    if names.is_empty() {
        let none = "no fuzz target has such a name: see fuzz/fuzz_targets";
        return Err(none.to_owned().into());
    }
    let folder = target_folder()?.join("fuzz");
    let programs = build(&folder)?;
    let failed = side_by_side(&names, cores(), |_, name| {
        let ran = run_one(name, options.seconds, &programs, &folder);
        ran.inspect_err(|why| println!("FAILED  {name}: {why}"))
            .is_err()
    });
    let failed = failed.into_iter().filter(|failed| *failed).count();
    Ok(Counts {
        passed: names.len() - failed,
        failed,
        ..Counts::default()
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
                .map(|stem| stem.to_string_lossy().into_owned()),
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

    #[test]
    fn every_target_has_a_corpus_and_is_built() {
        let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).expect("it is there");
        for name in target_names().expect("there are some") {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            assert!(root().join("fuzz/corpus").join(&name).is_dir(), "{name}");
        }
    }
}
