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

/// A device, and the shell that takes it away.
struct Kept {
    shell: Child,
    path: String,
}

impl Kept {
    fn start(server: Server, programs: &Programs, uri: &str) -> Result<Self, String> {
        let script = match server {
            Server::NbdFuse => NBDFUSE,
            Server::LocalLoop => LOCAL,
            _ => OURS,
        };
        let folder = format!("{MEMORY_FOLDER}/fabrix-perf-{}.d", std::process::id());
        let memory = programs.path(Disk::Tmpfs).unwrap_or_default();
        let mut shell = command("setsid");
        shell
            .args(["sh", "-c", &format!("{BEGIN}{script}{END}"), "sh"])
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

/// Nobody may listen any more when there is a device: that must not be the shell's end.
const BEGIN: &str = r#"
folder=$1 memory=$2 fabrix=$3 uri=$4 cpu=$5 device=
trap "" PIPE
mkdir "$folder" && cd "$folder" || exit 1
# Waits while a command fails and the process that was started last lives.
until_works() {
    while kill -0 $! 2>/dev/null; do
        "$@" && return
        sleep 0.05
    done
    false
}
"#;

/// The process that keeps our disk is our child, so that its processor time is counted as ours.
const OURS: &str = r#"
export FABRIX_RUN_DIR="$folder"
"$fabrix" attach "$uri" --as fuse --name perf --cores "$cpu" --foreground --devid-file device >/dev/null &
begin() { until_works test -s device && read -r device <device; }
end() {
    "$fabrix" detach perf --force
    wait
    rm -f device perf.* lock
}
"#;

const NBDFUSE: &str = r#"
mkdir mount
taskset --cpu-list "$cpu" nbdkit -f -U "$folder/socket" memory 1G >&2 &
served=$!
begin() {
    until_works test -S socket || return
    taskset --cpu-list "$cpu" nbdfuse mount/disk --unix "$folder/socket" >&2 &
    until_works test -e mount/disk && device=$(losetup --find --show --direct-io=on mount/disk)
}
end() {
    [ -z "$device" ] || losetup --detach "$device"
    umount mount
    kill "$served"
    wait
    rm -f socket
    rmdir mount
}
"#;

/// The file is nowhere to be seen as soon as the loop driver has it, and goes with the device.
const LOCAL: &str = r#"
begin() {
    truncate -s 1G "$memory" && device=$(losetup --find --show --direct-io=on "$memory")
    rm -f "$memory"
    [ -n "$device" ]
}
end() { [ -z "$device" ] || losetup --detach "$device"; }
"#;

const END: &str = r#"
if begin; then
    echo "$device"
    read -r _until_nobody_asks_any_more
fi
end
cd / && rmdir "$folder"
"#;
