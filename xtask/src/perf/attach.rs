//! A disk as a block device of this machine: ours over FUSE and a loop device, nbdkit's memory by
//! nbdfuse under another, and a file in memory under a third, each asked by the same fio.
//!
//! Each device is kept by a shell in a session of its own that waits for its standard input to end:
//! when we have measured, have failed, or were ended by Ctrl-C, the kernel closes that, and the
//! shell takes everything away again.

use super::fabrix::{Target, fill};
use super::side::{Disk, Measured, Server, Side, TARGET_CPU};
use super::{MEMORY_FOLDER, Programs, fio};
use crate::interop::install_tool;
use crate::process::command;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

/// # Errors
/// Why this machine cannot have such a device, or not this one.
pub(super) fn need(server: Server) -> Result<(), String> {
    for device in ["/dev/fuse", "/dev/loop-control"] {
        let opened = OpenOptions::new().read(true).write(true).open(device);
        opened.map_err(|error| format!("{device}: {error}; block devices are made as root"))?;
    }
    let theirs: &[&str] = match server {
        Server::NbdFuse => &["nbdkit", "nbdfuse"],
        _ => &[],
    };
    for tool in ["losetup", "setsid", "fio"].iter().chain(theirs) {
        install_tool(tool)?;
    }
    Ok(())
}

/// Makes the device of a side, writes it from end to end, and measures it with fio.
pub(super) fn measure(side: &Side, programs: &Programs, seconds: u32) -> Result<Measured, String> {
    let target = (side.server == Server::Attached)
        .then(|| Target::start(side, programs))
        .transpose()?;
    let uri = target.as_ref().map_or("", |target| &target.uri);
    let device = Kept::start(side.server, programs, uri)?;
    fill(programs, &device.path)?;
    fio::measure(side, &device.path, seconds)
}

/// The shell that keeps a device.
const KEEP: &str = include_str!("attach.sh");

/// A device, and the shell that takes it away.
struct Kept {
    shell: Child,
    path: String,
}

impl Kept {
    fn start(server: Server, programs: &Programs, uri: &str) -> Result<Self, String> {
        let kind = match server {
            Server::NbdFuse => "nbdfuse",
            Server::LocalLoop => "local",
            _ => "fabrix",
        };
        let folder = format!("{MEMORY_FOLDER}/fabrix-perf-{}.d", std::process::id());
        let memory = programs.path(Disk::Tmpfs).unwrap_or_default();
        let mut shell = command("setsid");
        shell
            .args(["sh", "-c", KEEP, "attach.sh", kind])
            .args([Path::new(&folder), &memory, &programs.fabrix])
            .args([uri, TARGET_CPU])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let spawned = shell.spawn();
        let mut shell = spawned.map_err(|error| format!("cannot start a shell: {error}"))?;
        let mut path = String::new();
        if let Some(stdout) = shell.stdout.take() {
            let _nothing_comes = BufReader::new(stdout).read_line(&mut path);
        }
        let path = path.trim().to_owned();
        let kept = Self { shell, path };
        match kept.path.starts_with("/dev/loop") {
            true => Ok(kept),
            false => Err(format!("no device was made for {server:?}; see above")),
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // It can only have ended already.
        let _ = self.shell.wait();
    }
}
