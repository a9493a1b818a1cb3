//! What a guest finds when it starts: programs with their libraries, kernel modules, and the first
//! program.
//!
//! Runs nothing in a guest. Everything is laid out in a folder, the large part by `image.sh`, and
//! Debian's `cpio` makes an archive of the folder. The large part, the same for all scripts, is an
//! archive of its own. The part of one script is appended to it: the kernel unpacks both. The
//! kernel brings /dev/console itself.

use super::packages::{Kernel, find};
use super::script::Script;
use crate::process::{bytes, command, run};
use std::fs;
use std::path::{Path, PathBuf};

/// The first program of a guest.
const INIT: &str = include_str!("init.sh");
const LAY_OUT: &str = "xtask/src/interop/image.sh";
/// Complaints of a kernel about a busy machine that emulates it. They say nothing about us.
const EMULATION: [&str; 3] = [
    "hrtimer: interrupt took",
    "clocksource: ",
    "TSC found unstable",
];
/// In the order of their names: a folder stands before its files.
const PACK: &str = "find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0";

/// The part that all guests have: `tools`, `programs` (ours), and the modules of all scripts. It is
/// laid out in `folder`.
pub(super) fn base(
    folder: &Path,
    kernel: &Kernel,
    scripts: &[&Script],
    tools: &[String],
    programs: &[PathBuf],
) -> Result<Vec<u8>, String> {
    let always = ["busybox", "dash", "modprobe"].map(str::to_owned);
    let mut list = String::new();
    for tool in tools.iter().chain(&always) {
        let path = find(tool).ok_or_else(|| format!("{tool} is not installed"))?;
        list += &format!("program {} {tool}\n", path.display());
    }
    for path in programs {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        list += &format!("program {} {name}\n", path.display());
    }
    for module in scripts.iter().flat_map(|script| &script.modules) {
        list += &format!("module {module}\n");
    }
    archive(folder, || {
        let mut lay_out = command("sh");
        lay_out.arg(LAY_OUT).arg(folder).arg(&kernel.folder);
        run(lay_out.arg(&kernel.release).arg(list.trim_end()))
    })
}

/// The part of one script, laid out in `folder`. `fabrix` takes the place of the one in the large
/// part.
pub(super) fn overlay(
    folder: &Path,
    script: &Script,
    library: &str,
    fabrix: Option<&Path>,
) -> Result<Vec<u8>, String> {
    let lines = |words: &[String]| words.join("\n") + "\n";
    let patterns = [&script.log[..], &EMULATION.map(str::to_owned)].concat();
    let files = [
        ("init", INIT),
        ("interop/script", &script.text),
        ("interop/lib.sh", library),
        ("interop/modules", &lines(&script.modules)),
        ("interop/log", &lines(&patterns)),
    ];
    archive(folder, || {
        let inner = folder.join("interop");
        let made = fs::create_dir_all(&inner);
        made.map_err(|error| format!("cannot write {}: {error}", inner.display()))?;
        for (path, content) in files {
            fs::write(folder.join(path), content)
                .map_err(|error| format!("cannot write {path} of a guest: {error}"))?;
        }
        if let Some(fabrix) = fabrix {
            let place = ["-D", "-m", "755"];
            run(command("install")
                .args(place)
                .arg(fabrix)
                .arg(folder.join("usr/bin/fabrix")))?;
        }
        run(command("chmod").arg("+x").arg(folder.join("init")))
    })
}

/// The archive of a folder that `lay_out` fills. The folder goes again.
fn archive(folder: &Path, lay_out: impl FnOnce() -> Result<(), String>) -> Result<Vec<u8>, String> {
    let packed = lay_out().and_then(|()| {
        let mut pack = command("sh");
        bytes(pack.args(["-c", PACK]).current_dir(folder))
    });
    // The folder of a failed run only takes room.
    let _left = fs::remove_dir_all(folder);
    packed
}
