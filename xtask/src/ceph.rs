//! A real cluster of Ceph on loopback, and our disks at its images: `cargo xtask ceph`.
//!
//! Each file of tests/ceph but `lib.sh` and `cluster.sh` is a script. It runs on this machine, with
//! the shell functions of tests/interop before it, and a cluster of its own runs for all of them. A
//! script's head says what it shows, `# seconds: N`, and `# tools: NAME...` for programs that it
//! needs besides Ceph's. `# run: core` puts it among those of `cargo xtask test`. `# run:
//! measurement` is for one that runs by its name only, and with the optimized program. `# network:
//! own` is for one that makes network namespaces: it begins in an empty one, and all of them end
//! with it. What a script prints in lines that begin with `figure: ` is shown when it passes, too.

use crate::interop::install_tool;
use crate::process::{command, output, root, target_folder};
use crate::programs;
use crate::summary::{Counts, Stop};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

const SCRIPTS: &str = "tests/ceph";
/// The shell functions that scripts have, in this order.
const LIBRARIES: [&str; 2] = ["tests/interop/lib.sh", "tests/ceph/lib.sh"];
/// What starts and ends a cluster.
const CLUSTER: &str = "tests/ceph/cluster.sh";
/// Programs of Debian's packages ceph-mon, ceph-osd and ceph-common. Every script has them.
const PROGRAMS: [&str; 4] = ["ceph-mon", "ceph-osd", "ceph", "rbd"];
/// Folder of the examples that scripts call, below that of our program.
const EXAMPLES: &str = "examples";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Names of scripts, or their beginnings; all scripts if there is none
    names: Vec<String>,
    /// Only those of `cargo xtask test`
    #[arg(long)]
    core: bool,
}

impl Options {
    pub(crate) fn of_test(whole: bool) -> Self {
        let (names, core) = (Vec::new(), !whole);
        Self { names, core }
    }

    fn wants(&self, script: &Script) -> bool {
        let is_named = self.names.iter().any(|name| script.name.starts_with(name));
        match self.names.is_empty() {
            true => !script.measures && (script.is_core || !self.core),
            false => is_named && (script.is_core || !self.core),
        }
    }
}

/// A file with shell commands.
struct Script {
    name: String,
    text: String,
    seconds: u64,
    tools: Vec<String>,
    is_core: bool,
    has_own_network: bool,
    measures: bool,
}

/// A running cluster. It ends with this value.
struct Cluster {
    folder: PathBuf,
}

/// Runs the scripts, with a line for each.
pub(crate) fn run(options: &Options) -> Result<Counts, Stop> {
    let is_root = output(command("id").arg("-u"))?.trim() == "0";
    if !is_root {
        return Err(Stop::Skipped(
            "the daemons of Ceph want to be started by root".to_owned(),
        ));
    }
    let mut scripts = read_all()?;
    scripts.retain(|script| options.wants(script));
    let tools = scripts.iter().flat_map(|script| &script.tools);
    for program in PROGRAMS.into_iter().chain(tools.map(String::as_str)) {
        install_tool(program).map_err(Stop::Skipped)?;
    }
    let programs = Programs::build(&scripts)?;
    let cluster = Cluster::start(&target_folder()?.join("ceph"))?;
    let mut counts = Counts::default();
    for script in &scripts {
        match script.run(programs.of(script), &cluster.folder)? {
            true => counts.passed += 1,
            false => counts.failed += 1,
        }
    }
    Ok(counts)
}

/// Our program for each kind of script. None: no script needs it.
struct Programs {
    tested: Option<PathBuf>,
    measured: Option<PathBuf>,
}

impl Programs {
    fn build(scripts: &[Script]) -> Result<Self, String> {
        let some_measures = scripts.iter().any(|script| script.measures);
        let some_tests = scripts.iter().any(|script| !script.measures);
        let tested = some_tests.then(programs::build).transpose()?;
        Ok(Self {
            tested: tested.map(|folder| folder.join("fabrix")),
            measured: some_measures.then(programs::build_optimized).transpose()?,
        })
    }

    fn of(&self, script: &Script) -> &Path {
        let program = if script.measures {
            &self.measured
        } else {
            &self.tested
        };
        program.as_deref().expect("it was built for its scripts")
    }
}

fn read_all() -> Result<Vec<Script>, String> {
    let folder = root().join(SCRIPTS);
    let cannot = |error| format!("cannot read {SCRIPTS}: {error}");
    let mut scripts = Vec::new();
    for entry in fs::read_dir(&folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if !matches!(&*name, "lib" | "cluster") {
            scripts.push(Script::read(&path, &name)?);
        }
    }
    scripts.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(scripts)
}

impl Script {
    fn read(path: &Path, name: &str) -> Result<Self, String> {
        let text = fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let word = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let seconds = word("# seconds: ").and_then(|number| number.trim().parse().ok());
        let seconds =
            seconds.ok_or_else(|| format!("{SCRIPTS}/{name}.sh has no `# seconds: N`"))?;
        let tools = word("# tools: ").unwrap_or_default().split_whitespace();
        Ok(Self {
            name: name.to_owned(),
            has_own_network: word("# network: ") == Some("own"),
            seconds,
            tools: tools.map(str::to_owned).collect(),
            is_core: word("# run: ") == Some("core"),
            measures: word("# run: ") == Some("measurement"),
            text,
        })
    }

    /// True: it has passed. What it printed is shown only if it has not.
    fn run(&self, program: &Path, cluster: &Path) -> Result<bool, String> {
        let folder = cluster.join("script");
        let _there_may_be_none = fs::remove_dir_all(&folder);
        let made = fs::create_dir_all(&folder);
        made.map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        let mut text = "set -eu\n".to_owned();
        for library in LIBRARIES {
            text += &fs::read_to_string(root().join(library))
                .map_err(|error| format!("cannot read {library}: {error}"))?;
        }
        text += &self.text;
        let started = Instant::now();
        let mut shell = command("timeout");
        shell.args(["--kill-after=10", &self.seconds.to_string()]);
        if self.has_own_network {
            // Names of network namespaces are mounts in /run/netns.
            shell.args(["unshare", "--net", "--mount"]);
            text = format!("mkdir -p /run/netns && mount -t tmpfs none /run/netns\n{text}");
        }
        shell.args(["dash", "-c", &text]);
        shell
            .current_dir(&folder)
            .envs(surroundings(program, cluster));
        let ended = shell.output();
        let ended = ended.map_err(|error| format!("cannot start {}: {error}", self.name))?;
        let passed = ended.status.success();
        let word = if passed { "pass  " } else { "FAIL  " };
        println!(
            "{word} {:6.1} s  ceph/{}",
            started.elapsed().as_secs_f64(),
            self.name
        );
        let said = [&ended.stdout[..], &ended.stderr].concat();
        for line in String::from_utf8_lossy(&said).lines() {
            if !passed || line.starts_with("figure: ") {
                println!("    {line}");
            }
        }
        Ok(passed)
    }
}

/// Where a script finds our program, the cluster, and a state of its own.
fn surroundings(program: &Path, cluster: &Path) -> Vec<(&'static str, String)> {
    let path = std::env::var("PATH").unwrap_or_default();
    let ours = program.parent().unwrap_or_else(|| Path::new("."));
    let examples = ours.join(EXAMPLES);
    let path = format!("{}:{}:{path}", ours.display(), examples.display());
    vec![
        ("PATH", path),
        ("CEPH_CONF", cluster.join("ceph.conf").display().to_string()),
        ("CLUSTER", cluster.display().to_string()),
        ("CLUSTER_SH", root().join(CLUSTER).display().to_string()),
        ("WORK", cluster.join("script").display().to_string()),
        (
            "XDG_RUNTIME_DIR",
            cluster.join("script").display().to_string(),
        ),
    ]
}

impl Cluster {
    fn start(folder: &Path) -> Result<Self, String> {
        let cluster = Self {
            folder: folder.to_owned(),
        };
        cluster.ask("down")?;
        cluster.ask("up")?;
        Ok(cluster)
    }

    fn ask(&self, verb: &str) -> Result<(), String> {
        let script = root().join(CLUSTER);
        output(command("dash").arg(script).arg(verb).arg(&self.folder)).map(drop)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(why) = self.ask("down") {
            println!(
                "the cluster in {} was not ended: {why}",
                self.folder.display()
            );
        }
    }
}
