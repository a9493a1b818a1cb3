//! What a guest finds when it starts: programs with their libraries, kernel modules, and the first
//! program.
//!
//! Knows how programs name their libraries (`ldd`) and modules theirs (`modules.dep`); runs nothing
//! in a guest. Everything is laid out in a folder, of which Debian's `cpio` makes an archive that
//! the kernel unpacks. The large part, the same for all scripts, is an archive of its own; what
//! differs is appended to it: the kernel unpacks both. It brings /dev/console itself.

use super::packages::{Kernel, find};
use super::script::Script;
use crate::process::{command, output, run};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The first program of a guest.
const INIT: &str = include_str!("init.sh");
/// Folders that the first program fills.
const FOLDERS: [&str; 7] = ["proc", "sys", "dev", "tmp", "run", "mnt", "etc/nvme"];
/// What a kernel says about its machine being emulated, on a busy one: it says nothing about us.
const EMULATION: [&str; 2] = ["hrtimer: interrupt took", "clocksource: "];
/// In the order of their names: a folder stands before what is in it.
const PACK: &str = "find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0 >\"$0\"";

/// A folder that becomes an archive, and goes with this value.
struct Layout(PathBuf);

impl Layout {
    fn new(folder: PathBuf) -> Result<Self, String> {
        let _there_was_none = fs::remove_dir_all(&folder);
        let layout = Self(folder);
        layout.made(fs::create_dir_all(&layout.0))?;
        Ok(layout)
    }

    fn made<T>(&self, outcome: std::io::Result<T>) -> Result<T, String> {
        outcome.map_err(|error| format!("cannot write {}: {error}", self.0.display()))
    }

    fn folder(&self, path: &str) -> Result<(), String> {
        self.made(fs::create_dir_all(self.0.join(path)))
    }

    /// A file that everybody may read and run.
    fn file(&self, path: &str, content: &[u8]) -> Result<(), String> {
        let path = self.0.join(path);
        self.made(path.parent().map_or(Ok(()), fs::create_dir_all))?;
        self.made(fs::write(&path, content))?;
        self.made(fs::set_permissions(&path, PermissionsExt::from_mode(0o755)))
    }

    fn link(&self, path: &str, target: &str) -> Result<(), String> {
        self.made(symlink(target, self.0.join(path)))
    }

    /// The archive of everything.
    fn pack(self) -> Result<Vec<u8>, String> {
        let archive = self.0.with_extension("cpio");
        let mut pack = command("sh");
        pack.args(["-c", PACK]).arg(&archive).current_dir(&self.0);
        run(&mut pack)?;
        let bytes = self.made(fs::read(&archive))?;
        self.made(fs::remove_file(&archive))?;
        Ok(bytes)
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // What is left only takes room, and the next run removes it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The part that all guests have: `tools`, `programs` (ours), and the modules of all scripts. It is
/// laid out in `folder`.
pub(super) fn base(
    folder: PathBuf,
    kernel: &Kernel,
    scripts: &[&Script],
    tools: &[String],
    programs: &[PathBuf],
) -> Result<Vec<u8>, String> {
    let layout = Layout::new(folder)?;
    for (alias, folder) in [("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib")] {
        layout.folder(folder)?;
        layout.link(alias, folder)?;
    }
    layout.link("lib64", "usr/lib64")?;
    FOLDERS
        .iter()
        .try_for_each(|folder| layout.folder(folder))?;
    let mut libraries = BTreeSet::new();
    let always = ["busybox", "dash", "modprobe"].map(str::to_owned);
    for tool in tools.iter().chain(&always) {
        let path = find(tool).ok_or_else(|| format!("{tool} is not installed"))?;
        add_program(&layout, &mut libraries, &path, tool)?;
    }
    for path in programs {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        add_program(&layout, &mut libraries, path, &name)?;
    }
    for library in &libraries {
        layout.file(&in_usr(library), &read(Path::new(library))?)?;
    }
    add_modules(&layout, kernel, scripts)?;
    layout.file("init", INIT.as_bytes())?;
    layout.pack()
}

/// The part of one script, laid out in `folder`.
pub(super) fn overlay(folder: PathBuf, script: &Script, library: &str) -> Result<Vec<u8>, String> {
    let layout = Layout::new(folder)?;
    layout.file("interop/script", script.text.as_bytes())?;
    layout.file("interop/lib.sh", library.as_bytes())?;
    let lines = |words: &[String]| {
        words
            .iter()
            .map(|word| format!("{word}\n"))
            .collect::<String>()
    };
    layout.file("interop/modules", lines(&script.modules).as_bytes())?;
    let patterns = [&script.log[..], &EMULATION.map(str::to_owned)].concat();
    layout.file("interop/log", lines(&patterns).as_bytes())?;
    layout.pack()
}

fn add_program(
    layout: &Layout,
    libraries: &mut BTreeSet<String>,
    path: &Path,
    name: &str,
) -> Result<(), String> {
    layout.file(&format!("usr/bin/{name}"), &read(path)?)?;
    // A static program has none, and `ldd` says so with an error.
    let listed = command("ldd").arg(path).output();
    let listed = listed.map_err(|error| format!("cannot start `ldd`: {error}"))?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    libraries.extend(listed.lines().filter_map(library));
    Ok(())
}

/// The path in a line of `ldd`: `libc.so.6 => /lib/libc.so.6 (0x...)`, or that of the loader,
/// without an arrow.
fn library(line: &str) -> Option<String> {
    let (path, _) = line.trim().rsplit_once(" (0x")?;
    let path = path.rsplit("=> ").next()?.trim();
    path.starts_with('/').then(|| path.to_owned())
}

/// The place of a library in the image, where `/lib` is a link.
fn in_usr(path: &str) -> String {
    let path = path.trim_start_matches('/');
    if path.starts_with("usr/") {
        path.to_owned()
    } else {
        format!("usr/{path}")
    }
}

/// The modules that scripts name, those that they need, and the index by which `modprobe` finds
/// them.
fn add_modules(layout: &Layout, kernel: &Kernel, scripts: &[&Script]) -> Result<(), String> {
    let mut files = BTreeSet::new();
    for module in scripts.iter().flat_map(|script| &script.modules) {
        files.extend(files_of(kernel, module)?);
    }
    let from = kernel.modules();
    let index = ["dep", "alias", "softdep", "builtin", "order"];
    files.extend(index.map(|kind| from.join(format!("modules.{kind}"))));
    let to = format!("usr/lib/modules/{}", kernel.release);
    for file in &files {
        let relative = file.strip_prefix(&from).unwrap_or(file);
        layout.file(&format!("{to}/{}", relative.display()), &read(file)?)?;
    }
    Ok(())
}

/// The files of a module and all that it needs; none if it is part of the kernel. Its options are
/// words after it.
fn files_of(kernel: &Kernel, module: &str) -> Result<Vec<PathBuf>, String> {
    let module = module.split(',').next().unwrap_or(module);
    let mut modprobe = command("modprobe");
    modprobe.arg("-d").arg(&kernel.folder);
    let listed = output(modprobe.args(["-S", &kernel.release, "--show-depends", module]))?;
    Ok(listed.lines().filter_map(module_file).collect())
}

/// The file in a line of `modprobe --show-depends`. Options of this machine's /etc/modprobe.d
/// follow it.
fn module_file(line: &str) -> Option<PathBuf> {
    let file = line.strip_prefix("insmod ")?.split_whitespace().next()?;
    Some(file.into())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_libraries_and_modules_that_are_named() {
        let arrow = library("\tlibc.so.6 => /lib/libc.so.6 (0x00007f)");
        assert_eq!(arrow.as_deref(), Some("/lib/libc.so.6"));
        let loader = library("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)");
        assert_eq!(loader.as_deref(), Some("/lib64/ld-linux-x86-64.so.2"));
        assert_eq!(library("\tlinux-vdso.so.1 (0x00007f)"), None);
        let module = module_file("insmod /lib/modules/nbd.ko max_part=15");
        assert_eq!(module, Some(PathBuf::from("/lib/modules/nbd.ko")));
        assert_eq!(module_file("builtin ext4"), None);
        assert_eq!(in_usr("/lib64/ld.so"), "usr/lib64/ld.so");
        assert_eq!(in_usr("/usr/lib/libfoo.so"), "usr/lib/libfoo.so");
    }
}
