//! Real peers: each script of `tests/interop` in a guest of its own, with Debian's kernel, its
//! tools and our program.
//!
//! The guest is emulated, so any machine with Debian's packages can run it; both ends are in the
//! guest, so nothing touches a network or the machine's own kernel. `script` reads what a script
//! needs, `packages` gets it, `image` puts it together, `guest` runs it. What a passed run has
//! shown is left in `target/interop/results.md`.

mod attached;
mod guest;
mod image;
mod packages;
mod script;

use crate::process::{command, output, root, run as run_program, side_by_side, target_folder};
use crate::programs;
use crate::summary::{Counts, Stop};
use attached::Attached;
use guest::Outcome;
use packages::Kernel;
use script::{KERNELS, Script};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const SCRIPTS: &str = "tests/interop";
/// Guests at a time: each has two processors, and spends much of its time in start and waiting.
const AT_ONCE: usize = 2;
/// Our programs that a guest has, below the folder where they are built.
const PROGRAMS: [&str; 4] = [
    "fabrix",
    "examples/ledger",
    "examples/rdma-ping",
    "examples/rdma-say",
];

/// What the command line asked for; nothing: what `cargo xtask test` runs.
#[derive(clap::Parser, Default)]
pub(crate) struct Options {
    /// The scripts whose name contains NAME [default: those that `cargo xtask test` runs]
    #[arg(conflicts_with_all = ["all", "list"])]
    name: Option<String>,
    /// All scripts
    #[arg(long, conflicts_with = "list")]
    all: bool,
    /// Only says what there is
    #[arg(long)]
    list: bool,
}

impl Options {
    pub(crate) fn of_test(whole: bool) -> Self {
        Self {
            all: whole,
            ..Self::default()
        }
    }

    fn wants(&self, script: &Script) -> bool {
        match &self.name {
            Some(name) => script.name.contains(name.as_str()),
            None => self.all || self.list || script.is_core,
        }
    }
}

/// Sees to it that a program from Debian's packages is here.
pub(crate) fn install_tool(tool: &str) -> Result<(), String> {
    packages::require_all(&[tool])
}

/// Runs the scripts that were asked for, with a line for each.
pub(crate) fn run(options: &Options) -> Result<Counts, Stop> {
    let folder = root().join(SCRIPTS);
    let library = script::read_library(&folder)?;
    let mut scripts = script::read_all(&folder)?;
    scripts.retain(|script| options.wants(script));
    if scripts.is_empty() {
        let none = "no script below tests/interop is meant: see `cargo xtask interop --list`";
        return Err(none.to_owned().into());
    }
    if options.list {
        for script in &scripts {
            let core = if script.is_core { "core" } else { "all" };
            println!("{:32} {core:5} {}", script.name, script.shows);
        }
        return Ok(Counts::default());
    }
    let bench = Bench::build(&scripts).map_err(Stop::Skipped)?;
    let outcomes = bench.run_all(&scripts, &library);
    let failed = outcomes.iter().filter(|outcome| outcome.failure.is_some());
    let failed = failed.count();
    bench.write_results(&scripts, &outcomes)?;
    Ok(Counts {
        passed: outcomes.len() - failed,
        failed,
        ..Counts::default()
    })
}

/// Everything that the guests share.
struct Bench {
    /// For each kernel, in the order of [`KERNELS`]; None: no script runs on it.
    boots: [Option<Boot>; KERNELS.len()],
    folder: PathBuf,
    tools: Vec<String>,
    /// Our program as users have it, for scripts that count instructions. None: no script does.
    optimized: Option<PathBuf>,
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
        let boot = |index: usize| -> Result<Option<Boot>, String> {
            let of_these = |script: &&Script| script.kernel == index;
            let scripts: Vec<&Script> = scripts.iter().filter(of_these).collect();
            if scripts.is_empty() {
                return Ok(None);
            }
            let name = ["kernel", "newer-kernel", "newest-kernel"][index];
            let kernel = packages::kernel(KERNELS[index], &folder.join(name))?;
            let layout = folder.join(format!("{name}-{}", std::process::id()));
            let base = image::base(&layout, &kernel, &scripts, &tools, &programs)?;
            Ok(Some(Boot { kernel, base }))
        };
        let [own, newer, newest] = [0, 1, 2].map(boot);
        let counts = scripts.iter().any(|script| script.counts_instructions);
        let optimized = counts.then(|| optimized(&folder));
        Ok(Self {
            optimized: optimized.transpose()?,
            boots: [own?, newer?, newest?],
            folder,
            tools,
        })
    }

    /// Runs all scripts, some at a time, in the order of their names.
    fn run_all(&self, scripts: &[Script], library: &str) -> Vec<Outcome> {
        side_by_side(scripts, AT_ONCE, |index, script| {
            let outcome = self.run_one(index, script, library);
            let outcome = outcome.unwrap_or_else(Outcome::failed);
            print(script, &outcome);
            outcome
        })
    }

    fn run_one(&self, index: usize, script: &Script, library: &str) -> Result<Outcome, String> {
        // Two runs in one tree do not meet.
        let name = format!("image-{}-{index}", std::process::id());
        let image = self.folder.join(&name).with_extension("cpio");
        let boot = self.boots[script.kernel].as_ref();
        let boot = boot.expect("there is one for each kind of script");
        let optimized = self.optimized.as_deref();
        let optimized = optimized.filter(|_| script.counts_instructions);
        let layout = self.folder.join(&name);
        let overlay = image::overlay(&layout, script, library, optimized)?;
        fs::write(&image, [&boot.base[..], &overlay].concat())
            .map_err(|error| format!("cannot write {}: {error}", image.display()))?;
        let outcome = self.boot(&boot.kernel, (index, script), &image);
        // The next run writes it again; what is left only takes room.
        let _left = fs::remove_file(&image);
        outcome
    }

    /// Runs as many machines as the script wants, one after the other, and stops at the first that
    /// fails.
    fn boot(
        &self,
        kernel: &Kernel,
        (index, script): (usize, &Script),
        image: &Path,
    ) -> Result<Outcome, String> {
        let program = self.folder.join("fabrix");
        let disk = script.attached.as_deref();
        let disk = disk.map(|uri| Attached::start(&program, uri, index));
        let mut disk = disk.transpose()?;
        let mut whole = Outcome::default();
        for _ in 0..script.boots {
            let mut outcome = guest::run(kernel, image, disk.as_mut(), script);
            if outcome.never_began {
                // Rarely, an emulated machine falls over before its first program runs.
                let before = outcome.time;
                outcome = guest::run(kernel, image, disk.as_mut(), script);
                outcome.time += before;
            }
            let time = whole.time + outcome.time;
            whole = Outcome { time, ..outcome };
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
        packages.extend(packages::of(self.tools.iter().map(String::as_str))?);
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
    let built = programs::build()?;
    let built = PROGRAMS.map(|program| built.join(program));
    let name = |built: &Path| folder.join(built.file_name().expect("a program has a name"));
    let strip = |built: PathBuf| strip(&built, name(&built));
    built.into_iter().map(strip).collect()
}

/// Our program with all optimizations.
fn optimized(folder: &Path) -> Result<PathBuf, String> {
    strip(
        &programs::build_optimized()?,
        folder.join("fabrix-optimized"),
    )
}

fn strip(built: &Path, to: PathBuf) -> Result<PathBuf, String> {
    run_program(command("strip").arg("-o").arg(&to).arg(built))?;
    Ok(to)
}

/// How a line begins that is shown when its script passes, too.
const FIGURE: &str = "figure: ";

fn print(script: &Script, outcome: &Outcome) {
    let time = outcome.time.as_secs_f64();
    match &outcome.failure {
        None => {
            println!("pass  {:6.1} s  {}", time, script.name);
            let said = outcome.output.iter();
            let is_shown = |line: &&String| script.counts_instructions || line.starts_with(FIGURE);
            for line in said.filter(is_shown) {
                println!("    {line}");
            }
        }
        Some(why) => {
            let said = outcome.output.iter().map(|line| format!("    {line}\n"));
            let said: String = said.collect();
            println!("FAIL  {:6.1} s  {}: {why}\n{said}", time, script.name);
        }
    }
}
