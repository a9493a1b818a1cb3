//! Real peers: each script of `tests/interop` in a guest of its own, with Debian's kernel, its
//! tools and our program.
//!
//! The guest is emulated, so any machine with Debian's packages can run it; both ends are in the
//! guest, so nothing touches a network or the machine's own kernel. `script` reads what a script
//! needs, `packages` gets it, `image` puts it together, `guest` runs it. What a passed run has
//! shown is left in `target/interop/results.md`.

mod attached;
mod cpio;
mod guest;
mod image;
mod packages;
mod script;

use crate::process::{cargo, command, output, root, run as run_program, target_folder};
use crate::tally::Counts;
use attached::Attached;
use guest::Outcome;
use packages::Kernel;
use script::{Choice, Script};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const SCRIPTS: &str = "tests/interop";
/// Guests at a time: each has two processors, and spends much of its time in start and waiting.
const AT_ONCE: usize = 2;

/// What the command line asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Options {
    /// What `cargo xtask test` runs.
    Core,
    /// All scripts.
    All,
    /// Those whose name contains this.
    Named(String),
    /// Only say what there is.
    List,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        match arguments {
            [] => Ok(Self::Core),
            [one] if one == "--all" => Ok(Self::All),
            [one] if one == "--list" => Ok(Self::List),
            [one] if !one.starts_with('-') => Ok(Self::Named(one.clone())),
            [one] => Err(format!("interop does not know `{one}`")),
            _ => Err("interop takes one name, --all or --list".to_owned()),
        }
    }

    fn wants(&self, script: &Script) -> bool {
        match self {
            Self::Core => script.is_core,
            Self::All | Self::List => true,
            Self::Named(name) => script.name.contains(name.as_str()),
        }
    }
}

/// Sees to it that a program from Debian's packages is here.
///
/// # Errors
/// A sentence that says what to install.
pub(crate) fn install_tool(tool: &str) -> Result<(), String> {
    packages::require_one(tool)
}

/// Runs the scripts that were asked for and ends in a line `N passed, N failed`; true when all
/// passed.
pub(crate) fn run(options: &Options) -> Result<bool, String> {
    let counts = run_scripts(options)?;
    println!("{} passed, {} failed", counts.passed, counts.failed);
    Ok(counts.failed == 0)
}

/// Runs the scripts that were asked for, with a line for each.
///
/// # Errors
/// What the guests need cannot be had, or no script was meant.
pub(crate) fn run_scripts(options: &Options) -> Result<Counts, String> {
    let folder = root().join(SCRIPTS);
    let library = script::read_library(&folder)?;
    let mut scripts = script::read_all(&folder)?;
    scripts.retain(|script| options.wants(script));
    if scripts.is_empty() {
        return Err(format!(
            "no script below {SCRIPTS} is meant: see `cargo xtask interop --list`"
        ));
    }
    if *options == Options::List {
        for script in &scripts {
            let core = if script.is_core { "core" } else { "all" };
            println!("{:32} {core:5} {}", script.name, script.shows);
        }
        return Ok(Counts::default());
    }
    let bench = Bench::build(&scripts)?;
    let outcomes = bench.run_all(&scripts, &library);
    let passed = outcomes
        .iter()
        .filter(|outcome| outcome.failure.is_none())
        .count();
    bench.write_results(&scripts, &outcomes)?;
    Ok(Counts {
        passed,
        failed: outcomes.len() - passed,
        skipped: 0,
    })
}

/// Everything that the guests share.
struct Bench {
    /// For each kernel, in the order of [`Choice::ALL`]; None: no script runs on it.
    boots: [Option<Boot>; Choice::ALL.len()],
    folder: PathBuf,
    tools: Vec<String>,
}

/// What the guests with one kernel share.
struct Boot {
    kernel: Kernel,
    base: Vec<u8>,
}

impl Bench {
    fn build(scripts: &[Script]) -> Result<Self, String> {
        let tools: BTreeSet<&String> = scripts.iter().flat_map(|script| &script.tools).collect();
        let tools: Vec<String> = tools.into_iter().cloned().collect();
        packages::require(&tools)?;
        let folder = target_folder()?.join("interop");
        fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot write {}: {error}", folder.display()))?;
        let programs = programs(&folder)?;
        let boot = |choice: Choice| -> Result<Option<Boot>, String> {
            let of_these = |script: &&Script| script.kernel == choice;
            let scripts: Vec<&Script> = scripts.iter().filter(of_these).collect();
            if scripts.is_empty() {
                return Ok(None);
            }
            let kernel = match choice {
                Choice::Own => packages::kernel(&folder.join("kernel"))?,
                Choice::Newer => packages::newer_kernel(&folder.join("newer-kernel"))?,
                Choice::Newest => packages::newest_kernel(&folder.join("newest-kernel"))?,
            };
            let base = image::base(&kernel, &scripts, &tools, &programs)?;
            Ok(Some(Boot { kernel, base }))
        };
        Ok(Self {
            boots: [
                boot(Choice::Own)?,
                boot(Choice::Newer)?,
                boot(Choice::Newest)?,
            ],
            folder,
            tools,
        })
    }

    /// Runs all scripts, some at a time, in the order of their names.
    fn run_all(&self, scripts: &[Script], library: &str) -> Vec<Outcome> {
        let next = AtomicUsize::new(0);
        let outcomes: Vec<Mutex<Option<Outcome>>> =
            scripts.iter().map(|_| Mutex::new(None)).collect();
        thread::scope(|scope| {
            for _ in 0..AT_ONCE.min(scripts.len()) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(script) = scripts.get(index) else {
                            return;
                        };
                        let outcome = self.run_one(index, script, library);
                        print(script, &outcome);
                        *outcomes[index].lock().expect("nobody panics with it") = Some(outcome);
                    }
                });
            }
        });
        let outcomes = outcomes
            .into_iter()
            .map(|outcome| outcome.into_inner().expect("as above"));
        outcomes
            .map(|outcome| outcome.expect("every script was run"))
            .collect()
    }

    fn run_one(&self, index: usize, script: &Script, library: &str) -> Outcome {
        // Two runs in one tree do not meet.
        let name = format!("image-{}-{index}.cpio", std::process::id());
        let image = self.folder.join(name);
        let boot = self.boots[script.kernel as usize].as_ref();
        let boot = boot.expect("there is one for each kind of script");
        let mut bytes = boot.base.clone();
        bytes.extend_from_slice(&image::overlay(script, library));
        if let Err(error) = fs::write(&image, bytes) {
            return Outcome {
                failure: Some(format!("cannot write {}: {error}", image.display())),
                ..Outcome::default()
            };
        }
        let outcome = self.boot(&boot.kernel, (index, script), &image);
        // The next run writes it again; what is left only takes room.
        let _left = fs::remove_file(&image);
        outcome.unwrap_or_else(|failure| Outcome {
            failure: Some(failure),
            ..Outcome::default()
        })
    }

    /// Runs as many machines as the script wants, one after the other, and stops at the first that
    /// fails.
    fn boot(
        &self,
        kernel: &Kernel,
        (index, script): (usize, &Script),
        image: &Path,
    ) -> Result<Outcome, String> {
        let limit = Duration::from_secs(script.seconds);
        let program = self.folder.join("fabrix");
        let disk = script.attached.as_deref();
        let mut disk = disk
            .map(|uri| Attached::start(&program, uri, index))
            .transpose()?;
        let mut whole = Outcome::default();
        for _ in 0..script.boots {
            let outcome = guest::run(kernel, image, disk.as_mut(), limit);
            whole.time += outcome.time;
            whole.output = outcome.output;
            whole.failure = outcome.failure;
            if whole.failure.is_some() {
                return Ok(whole);
            }
        }
        disk.map_or(Ok(()), Attached::detach)?;
        Ok(whole)
    }

    /// The table for docs/INTEROP.md.
    fn write_results(&self, scripts: &[Script], outcomes: &[Outcome]) -> Result<(), String> {
        let path = self.folder.join("results.md");
        let date = output(command("date").args(["-u", "+%Y-%m-%d"]))?;
        let mut packages = vec!["qemu-system-x86"];
        packages.extend(packages::of(&self.tools));
        let boots = self.boots.iter().flatten();
        let kernels: Vec<_> = boots.map(|boot| boot.kernel.release.as_str()).collect();
        let mut text = format!(
            "{}: Linux {}, {}\n\n| script | shows | result |\n|---|---|---|\n",
            date.trim(),
            kernels.join(" and "),
            packages::versions(&packages),
        );
        for (script, outcome) in scripts.iter().zip(outcomes) {
            let result = match &outcome.failure {
                None => format!("passed, {:.0} s", outcome.time.as_secs_f64()),
                Some(why) => format!("FAILED: {why}"),
            };
            text += &format!("| {} | {} | {result} |\n", script.name, script.shows);
        }
        fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

/// Our programs without what only a debugger reads: a guest unpacks them into its memory.
fn programs(folder: &Path) -> Result<Vec<PathBuf>, String> {
    run_program(cargo().args(["build", "--quiet", "--package", "fabrix"]))?;
    let ledger = ["--package", "fabrix-bench", "--example", "ledger"];
    run_program(cargo().args(["build", "--quiet"]).args(ledger))?;
    let built = target_folder()?.join("debug");
    let built = ["fabrix", "examples/ledger"].map(|program| built.join(program));
    let strip = |built: PathBuf| {
        let stripped = folder.join(built.file_name().expect("a program has a name"));
        run_program(command("strip").arg("-o").arg(&stripped).arg(&built))?;
        Ok(stripped)
    };
    built.into_iter().map(strip).collect()
}

fn print(script: &Script, outcome: &Outcome) {
    let time = outcome.time.as_secs_f64();
    match &outcome.failure {
        None => println!("pass  {:6.1} s  {}", time, script.name),
        Some(why) => {
            let said: String = outcome
                .output
                .iter()
                .map(|line| format!("    {line}\n"))
                .collect();
            println!("FAIL  {:6.1} s  {}: {why}\n{said}", time, script.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Options::parse(&words)
    }

    #[test]
    fn a_name_means_the_scripts_that_contain_it() {
        let named = parse(&["kernel-host"]).expect("a name");
        let script = |name: &str| Script {
            name: name.to_owned(),
            ..Script::default()
        };
        assert!(named.wants(&script("kernel-host/connect")));
        assert!(!named.wants(&script("kernel-target/connect")));
    }

    #[test]
    fn without_a_word_only_the_core_runs() {
        let core = parse(&[]).expect("nothing");
        assert!(!core.wants(&Script::default()));
        assert!(parse(&["--all"]).expect("all").wants(&Script::default()));
        assert!(parse(&["--soon"]).is_err() && parse(&["a", "b"]).is_err());
    }
}
