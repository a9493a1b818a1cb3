//! What a guest finds when it starts: programs with their libraries, kernel modules, and the first
//! program.
//!
//! Knows how programs name their libraries (`ldd`) and modules theirs (`modules.dep`); runs nothing
//! in a guest. The large part, the same for all scripts, is an archive of its own; what differs is
//! appended to it: the kernel unpacks both.

use super::cpio::Archive;
use super::packages::{Kernel, find};
use super::script::Script;
use crate::process::{command, output};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The first program of a guest.
const INIT: &str = include_str!("init.sh");
/// Folders that the first program fills.
const FOLDERS: [&str; 7] = ["proc", "sys", "dev", "tmp", "run", "mnt", "etc/nvme"];
/// What a kernel says about its machine being emulated, on a busy one: it says nothing about us.
const EMULATION: [&str; 2] = ["hrtimer: interrupt took", "clocksource: "];

/// The part that all guests have: `tools`, `programs` (ours), and the modules of all scripts.
///
/// # Errors
/// A sentence that names the program, library or module that cannot be read.
pub(super) fn base(
    kernel: &Kernel,
    scripts: &[&Script],
    tools: &[String],
    programs: &[PathBuf],
) -> Result<Vec<u8>, String> {
    let mut archive = Archive::default();
    for (alias, folder) in [("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib")] {
        archive.folder(folder);
        archive.link(alias, folder);
    }
    archive.link("lib64", "usr/lib64");
    FOLDERS.iter().for_each(|folder| archive.folder(folder));
    archive.device("dev/console", (5, 1));
    archive.device("dev/null", (1, 3));
    let mut libraries = BTreeSet::new();
    let always = ["busybox", "dash", "modprobe"].map(str::to_owned);
    for tool in tools.iter().chain(&always) {
        let path = find(tool).ok_or_else(|| format!("{tool} is not installed"))?;
        add_program(
            &mut archive,
            &mut libraries,
            &path,
            &format!("usr/bin/{tool}"),
        )?;
    }
    for path in programs {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        add_program(
            &mut archive,
            &mut libraries,
            path,
            &format!("usr/bin/{name}"),
        )?;
    }
    for library in &libraries {
        archive.file(&in_usr(library), &read(Path::new(library))?);
    }
    add_modules(&mut archive, kernel, scripts)?;
    archive.file("init", INIT.as_bytes());
    Ok(archive.finish())
}

/// The part of one script.
pub(super) fn overlay(script: &Script, library: &str) -> Vec<u8> {
    let mut archive = Archive::default();
    archive.file("interop/script", script.text.as_bytes());
    archive.file("interop/lib.sh", library.as_bytes());
    archive.file(
        "interop/modules",
        (script.modules.join("\n") + "\n").as_bytes(),
    );
    let expected = script.log.iter().map(String::as_str);
    let patterns: String = expected
        .chain(EMULATION)
        .map(|pattern| format!("{pattern}\n"))
        .collect();
    archive.file("interop/log", patterns.as_bytes());
    archive.finish()
}

fn add_program(
    archive: &mut Archive,
    libraries: &mut BTreeSet<String>,
    path: &Path,
    name: &str,
) -> Result<(), String> {
    archive.file(name, &read(path)?);
    // A static program has none, and `ldd` says so with an error.
    let listed = command("ldd")
        .arg(path)
        .output()
        .map_err(|error| format!("cannot start `ldd`: {error}"))?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    libraries.extend(listed.lines().filter_map(library));
    Ok(())
}

/// The path in a line of `ldd`: `libc.so.6 => /lib/libc.so.6 (0x...)`, or that of the loader,
/// without an arrow.
fn library(line: &str) -> Option<String> {
    let (path, _) = line.trim().rsplit_once(" (0x")?;
    let path = path
        .rsplit_once("=> ")
        .map_or(path, |(_, path)| path)
        .trim();
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
fn add_modules(archive: &mut Archive, kernel: &Kernel, scripts: &[&Script]) -> Result<(), String> {
    let mut files = BTreeSet::new();
    for module in scripts.iter().flat_map(|script| &script.modules) {
        files.extend(files_of(kernel, module)?);
    }
    let from = kernel.modules();
    let to = format!("usr/lib/modules/{}", kernel.release);
    for file in &files {
        let relative = file.strip_prefix(&from).unwrap_or(file);
        archive.file(&format!("{to}/{}", relative.display()), &read(file)?);
    }
    for index in [
        "modules.dep",
        "modules.alias",
        "modules.softdep",
        "modules.builtin",
        "modules.order",
    ] {
        archive.file(&format!("{to}/{index}"), &read(&from.join(index))?);
    }
    Ok(())
}

/// The files of a module and all that it needs; none if it is part of the kernel. Its options are
/// words after it.
fn files_of(kernel: &Kernel, module: &str) -> Result<Vec<std::path::PathBuf>, String> {
    let module = module.split(',').next().unwrap_or(module);
    let mut modprobe = command("modprobe");
    modprobe
        .arg("-d")
        .arg(&kernel.folder)
        .args(["-S", &kernel.release, "--show-depends", module]);
    let listed = output(&mut modprobe)?;
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
    fn finds_the_libraries_that_ldd_names() {
        let with_arrow = "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)";
        assert_eq!(
            library(with_arrow).as_deref(),
            Some("/lib/x86_64-linux-gnu/libc.so.6")
        );
        let loader = "\t/lib64/ld-linux-x86-64.so.2 (0x00007f)";
        assert_eq!(
            library(loader).as_deref(),
            Some("/lib64/ld-linux-x86-64.so.2")
        );
        assert_eq!(library("\tlinux-vdso.so.1 (0x00007f)"), None);
        assert_eq!(library("\tstatically linked"), None);
    }

    #[test]
    fn a_module_has_a_file_whatever_options_this_machine_gives_it() {
        let wanted = Some(PathBuf::from("/lib/modules/nbd.ko"));
        assert_eq!(module_file("insmod /lib/modules/nbd.ko "), wanted);
        assert_eq!(
            module_file("insmod /lib/modules/nbd.ko max_part=15"),
            wanted
        );
        assert_eq!(module_file("builtin ext4"), None);
    }

    #[test]
    fn a_library_lies_where_the_links_lead() {
        assert_eq!(in_usr("/lib64/ld.so"), "usr/lib64/ld.so");
        assert_eq!(in_usr("/usr/lib/libfoo.so"), "usr/lib/libfoo.so");
    }
}
