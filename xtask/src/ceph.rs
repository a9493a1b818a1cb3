//! A real cluster of Ceph on loopback, and our disks at its images: `cargo xtask ceph`.
//!
//! Each file of tests/ceph but `lib.sh` and `cluster.sh` is a script. It runs on this machine, with
//! the shell functions of tests/interop before it, and a cluster of its own runs for all of them. A
//! script's head says what it shows, `# seconds: N`, `# run: core` if every run of `cargo xtask test`
//! has it, and `# network: own` if it makes network namespaces: then it begins in an empty one, and
//! all of them end with it.

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
/// Programs of Debian's packages ceph-mon, ceph-osd and ceph-common.
const PROGRAMS: [&str; 4] = ["ceph-mon", "ceph-osd", "ceph", "rbd"];

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
        let named = |name: &String| script.name.starts_with(name);
        let is_named = self.names.is_empty() || self.names.iter().any(named);
        is_named && (script.is_core || !self.core)
    }
}

/// A file with shell commands.
struct Script {
    name: String,
    text: String,
    seconds: u64,
    is_core: bool,
    has_own_network: bool,
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
    for program in PROGRAMS {
        install_tool(program).map_err(Stop::Skipped)?;
    }
    let mut scripts = read_all()?;
    scripts.retain(|script| options.wants(script));
    let program = programs::build()?.join("fabrix");
    let cluster = Cluster::start(&target_folder()?.join("ceph"))?;
    let mut counts = Counts::default();
    for script in &scripts {
        match script.run(&program, &cluster.folder)? {
            true => counts.passed += 1,
            false => counts.failed += 1,
        }
    }
    Ok(counts)
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
        let seconds = text
            .lines()
            .find_map(|line| line.strip_prefix("# seconds: ")?.trim().parse().ok());
        let seconds =
            seconds.ok_or_else(|| format!("{SCRIPTS}/{name}.sh has no `# seconds: N`"))?;
        Ok(Self {
            name: name.to_owned(),
            is_core: text.lines().any(|line| line == "# run: core"),
            has_own_network: text.lines().any(|line| line == "# network: own"),
            text,
            seconds,
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
    vec![
        ("PATH", format!("{}:{path}", ours.display())),
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
