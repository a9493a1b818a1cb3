//! fio on a file or a block device, without anything of ours in between; and the files that are
//! read and written.

use super::Programs;
use super::fabrix::fill;
use super::side::{DISK_BYTES, Disk, HOST_CPU, Measured, Server, Side};
use crate::process::{command, output};
use std::fs;
use std::path::PathBuf;

/// Reads or writes it directly, as many requests in flight as over the network.
pub(super) fn measure(side: &Side, path: &str, seconds: u32) -> Result<Measured, String> {
    let run = |engine: &str| {
        let mut fio = command("fio");
        fio.args(["--name=perf", "--direct=1", "--time_based", "--ramp_time=1"]);
        fio.arg(format!("--filename={path}"));
        fio.arg(format!("--ioengine={engine}"));
        fio.arg(format!("--rw={}", side.access.fio()));
        fio.arg(format!("--bs={}", side.block_bytes));
        fio.arg(format!("--iodepth={}", side.depth));
        fio.arg(format!("--runtime={seconds}"));
        fio.arg(format!("--cpus_allowed={HOST_CPU}"));
        output(fio.arg("--output-format=json"))
    };
    // Containers often forbid io_uring.
    let said = run("io_uring").or_else(|_| run("libaio"))?;
    // What fio wants to say besides stands before the object.
    let json = said.find('{').map_or("", |start| &said[start..]);
    Measured::from_fio("fio", json, side.access)
}

/// A file that is there as long as a row is measured, written from end to end.
pub(super) struct DiskFile(PathBuf);

impl DiskFile {
    /// What the side reads and writes, if that is a file and is not there already.
    pub(super) fn for_side(side: &Side, programs: &Programs) -> Result<Option<Self>, String> {
        let disk = match (side.server, side.disk) {
            (Server::Tgt, Disk::Ram) => Disk::Tmpfs,
            (_, disk) => disk,
        };
        let Some(path) = programs.path(disk).filter(|path| !path.exists()) else {
            return Ok(None);
        };
        let made = Self(path);
        let uri = format!("file:{},size={DISK_BYTES}", made.0.display());
        fill(programs, &uri)?;
        Ok(Some(made))
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        // Whoever cannot remove it could not have made it.
        let _ = fs::remove_file(&self.0);
    }
}
