//! The scripts of `tests/interop`: what each one shows and what it needs, read from the comments at
//! its start.
//!
//! ```text
//! # The Linux host finds our subsystem and connects to it.
//! # modules: nvme-tcp
//! # tools: nvme
//! # run: core
//! # kernel: newer
//! # seconds: 60
//! # log: nvme nvme[0-9]+: starting error recovery
//! # attached: file:disk,size=512M
//! # boots: 2
//! # clock: instructions
//! ```
//! The first line says what it shows; a list that is too long for its line goes on in another one
//! of its kind. `kernel: newer` runs it on the kernel that the distribution offers beside its own,
//! for what its own lacks, and `kernel: newest` on the newest that Debian offers for a stable
//! release: downloads of a hundred megabytes each, so such a script is not `core`. With several
//! words, `own newer` for instance, it runs on each of these kernels, as a script each, and `core`
//! is the one on the distribution's own. `run: core` puts it among those of `cargo xtask test`; the
//! others run with `--all`, or by name. `log` is a pattern of complaints of the guest's kernel that
//! belong to what is shown; any other complaint fails the script. `attached` is a disk that our
//! program, outside of the guest, gives it over vhost-user-blk: /dev/vda, from which it starts if
//! it can. `boots` machines run the script, one after the other, with the same disk. A script that
//! prints `@@outside kill` has the process that serves the disk killed with -9 and another one
//! started; after `@@outside grow BYTES` the disk's file has that length. `clock: instructions`:
//! the machine has one processor, and its clock counts instructions, one in a nanosecond, whatever
//! else the real one does. What such a script prints is shown when it passes, too, and so is each
//! line of any script that begins with `figure: `.

use std::fs;
use std::path::{Path, PathBuf};

/// Debian's kernels that scripts run on: that of this distribution, that of its backports, and the
/// newest of any stable release's backports.
pub(super) const KERNELS: [&str; 3] = ["own", "newer", "newest"];
const OWN: usize = 0;

/// One script, to be run in a guest of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    /// Peer and subject: the path below `tests/interop` without its ending. One that runs on
    /// another kernel too ends there in its word: `attach/loop@newer`.
    pub(super) name: String,
    /// What it shows, in a sentence.
    pub(super) shows: String,
    /// Kernel modules that are loaded before it starts.
    pub(super) modules: Vec<String>,
    /// Programs that it calls besides those of busybox and ours.
    pub(super) tools: Vec<String>,
    /// Whether `cargo xtask test` runs it.
    pub(super) is_core: bool,
    /// The kernel that it runs on, as an index into [`KERNELS`].
    pub(super) kernel: usize,
    /// It hangs if it takes longer than this.
    pub(super) seconds: u64,
    /// Patterns (extended regular expressions) of what the kernel may complain about.
    pub(super) log: Vec<String>,
    /// The disk that the guest has over vhost-user-blk.
    pub(super) attached: Option<String>,
    /// Whether the clock of its machine counts instructions.
    pub(super) counts_instructions: bool,
    /// How many machines run it, one after the other.
    pub(super) boots: u32,
    /// The script itself.
    pub(super) text: String,
}

const SECONDS: u64 = 120;
const LIBRARY: &str = "lib.sh";

/// All scripts below `folder`, sorted by name.
pub(super) fn read_all(folder: &Path) -> Result<Vec<Script>, String> {
    let mut scripts = Vec::new();
    for peer in entries(folder)? {
        if !peer.is_dir() {
            continue;
        }
        for path in entries(&peer)? {
            scripts.extend(read(folder, &path)?);
        }
    }
    Ok(scripts)
}

/// What a guest runs before the script: functions that the scripts share.
pub(super) fn read_library(folder: &Path) -> Result<String, String> {
    text_of(&folder.join(LIBRARY))
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let cannot = |error| format!("cannot list {}: {error}", folder.display());
    let listed = fs::read_dir(folder).map_err(cannot)?.flatten();
    let mut paths: Vec<_> = listed.map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

fn text_of(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn read(folder: &Path, path: &Path) -> Result<Vec<Script>, String> {
    let relative = path.strip_prefix(folder).unwrap_or(path);
    let name = relative.with_extension("").to_string_lossy().into_owned();
    let text = text_of(path)?;
    parse(&name, &text).map_err(|wrong| format!("{}: {wrong}", path.display()))
}

/// Reads the comments at the start of a script: one for each kernel that it runs on.
fn parse(name: &str, text: &str) -> Result<Vec<Script>, String> {
    let mut script = Script {
        name: name.to_owned(),
        seconds: SECONDS,
        boots: 1,
        text: text.to_owned(),
        ..Script::default()
    };
    let mut kernels = Vec::new();
    let head = text.lines().filter(|line| !line.starts_with("#!"));
    for line in head.map_while(|line| line.strip_prefix("# ")) {
        match line.strip_prefix("kernel: ") {
            Some(words) => {
                for word in words.split_whitespace() {
                    let kernel = KERNELS.iter().position(|kernel| *kernel == word);
                    let wrong = || format!("`kernel: {word}`: write `own`, `newer` or `newest`");
                    kernels.push(kernel.ok_or_else(wrong)?);
                }
            }
            None => script.take(line)?,
        }
    }
    if kernels.is_empty() {
        kernels.push(OWN);
    }
    if script.shows.is_empty() {
        return Err("its first line must say what it shows: `# ...`".to_owned());
    }
    if script.is_core && !kernels.contains(&OWN) {
        return Err("another kernel is too much of a download for `run: core`".to_owned());
    }
    let runs_also = kernels.contains(&OWN);
    let on = |kernel: usize| Script {
        name: match kernel {
            1.. if runs_also => format!("{name}@{}", KERNELS[kernel]),
            _ => name.to_owned(),
        },
        is_core: script.is_core && kernel == OWN,
        kernel,
        ..script.clone()
    };
    Ok(kernels.into_iter().map(on).collect())
}

impl Script {
    fn take(&mut self, line: &str) -> Result<(), String> {
        let words = |text| str::split_whitespace(text).map(str::to_owned);
        let number = |text: &str| {
            let number = text.parse::<u32>();
            number.map_err(|_| format!("`{line}`: `{text}` is not a number"))
        };
        match line.split_once(": ") {
            Some(("modules", names)) => self.modules.extend(words(names)),
            Some(("tools", names)) => self.tools.extend(words(names)),
            Some(("run", "core")) => self.is_core = true,
            Some(("run", other)) => {
                return Err(format!("`run: {other}`: write `run: core`, or nothing"));
            }
            Some(("clock", "instructions")) => self.counts_instructions = true,
            Some(("clock", other)) => {
                return Err(format!(
                    "`clock: {other}`: write `clock: instructions`, or nothing"
                ));
            }
            Some(("seconds", text)) => self.seconds = number(text)?.into(),
            Some(("attached", disk)) => self.attached = Some(disk.to_owned()),
            Some(("boots", text)) => self.boots = number(text)?,
            Some(("log", pattern)) => self.log.push(pattern.to_owned()),
            _ if self.shows.is_empty() => self.shows = line.to_owned(),
            _ => {
                self.shows.push(' ');
                self.shows.push_str(line);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "#!/bin/sh
# It shows this,
# and that.
# modules: nvme-tcp null_blk
# tools: nvme
# tools: fio
# run: core
# seconds: 30
# log: error recovery
# log: reconnecting
# attached: ram:1G
# boots: 2

# not the head any more
true
";

    #[test]
    fn the_head_says_what_a_script_shows_and_needs() {
        let scripts = parse("kernel-host/connect", TEXT).expect("well formed");
        let [script] = &scripts[..] else {
            panic!("one kernel, one script: {scripts:?}");
        };
        assert_eq!(script.shows, "It shows this, and that.");
        assert_eq!(script.modules, ["nvme-tcp", "null_blk"]);
        assert_eq!(script.tools, ["nvme", "fio"]);
        assert!(script.is_core);
        assert_eq!(script.seconds, 30);
        assert_eq!(script.log, ["error recovery", "reconnecting"]);
        assert_eq!(script.attached.as_deref(), Some("ram:1G"));
        assert_eq!(script.boots, 2);
    }

    #[test]
    fn what_is_no_head_is_refused() {
        let wrong = parse("x", "# It shows.\n# run: sometimes\n").expect_err("no such word");
        assert!(wrong.contains("sometimes"), "{wrong}");
        for head in [
            "#!/bin/sh\n# run: core\ntrue",
            "# It shows.\n# seconds: long",
            "# It shows.\n# kernel: older",
            "# It shows.\n# kernel: newer\n# run: core",
        ] {
            assert!(parse("x", head).is_err(), "{head}");
        }
    }

    #[test]
    fn a_script_runs_on_every_kernel_that_it_names_and_is_core_on_our_own() {
        let names = |head: &str| {
            let scripts = parse("x", head).expect("well formed").into_iter();
            let named = scripts.map(|script| (script.name, script.kernel, script.is_core));
            named.collect::<Vec<_>>()
        };
        let named = |name: &str, kernel, is_core| (name.to_owned(), kernel, is_core);
        let newest = names("# It shows.\n# kernel: newest\n");
        assert_eq!(newest, [named("x", 2, false)]);
        let all = names("# It shows.\n# kernel: own newer newest\n# run: core\n");
        let wanted = [
            named("x", 0, true),
            named("x@newer", 1, false),
            named("x@newest", 2, false),
        ];
        assert_eq!(all, wanted);
    }
}
