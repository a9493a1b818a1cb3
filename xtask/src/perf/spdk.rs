//! SPDK's target and SPDK's host, if somebody has built them: rows that appear where
//! `FABRIX_PERF_SPDK` names a build.
//!
//! It is its folder, with `build/bin/nvmf_tgt` and `build/bin/spdk_nvme_perf`. Both have huge
//! pages, as SPDK means it, where the machine has enough of them free and a mount of them; else
//! they do without.

use super::fabrix::fill;
use super::iscsi::free_port;
use super::side::{DISK_BYTES, Disk, Measured, Side};
use super::{Programs, START_TIME_MAX};
use crate::process::{Background, command, output};
use serde_json::json;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

const VARIABLE: &str = "FABRIX_PERF_SPDK";
const NQN: &str = "nqn.2026-01.io.fabrix:perf";
const HOST_NQN: &str = "nqn.2026-01.io.fabrix:perf-host";
/// The processors of target and host, as masks.
const TARGET_MASK: &str = "0x1";
const HOST_MASK: &str = "0x2";
/// The memory of target and host.
const TARGET_MIB: u32 = 2048;
const HOST_MIB: u32 = 512;

/// A build.
pub(super) struct Spdk {
    target: PathBuf,
    perf: PathBuf,
}

impl Spdk {
    /// # Errors
    /// Why there is none.
    pub(super) fn find() -> Result<Self, String> {
        let folder = std::env::var_os(VARIABLE)
            .ok_or_else(|| format!("{VARIABLE} names no folder with a build of SPDK"))?;
        let program = |name: &str| {
            let path = PathBuf::from(&folder).join("build/bin").join(name);
            match path.is_file() {
                true => Ok(path),
                false => Err(format!("{VARIABLE}: there is no {}", path.display())),
            }
        };
        Ok(Self {
            target: program("nvmf_tgt")?,
            perf: program("spdk_nvme_perf")?,
        })
    }

    /// Its host with a side's load, against the subsystem at `uri`.
    pub(super) fn perf(&self, side: &Side, uri: &str, seconds: u32) -> Result<Measured, String> {
        let (address, nqn) = split(uri).ok_or_else(|| format!("{uri} is no address of a disk"))?;
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "4420"));
        // Without the last word it says that it has no name, which is no name of a host.
        let way = format!(
            "trtype:TCP adrfam:IPv4 traddr:{host} trsvcid:{port} subnqn:{nqn} hostnqn:{HOST_NQN}"
        );
        let mut perf = command(&self.perf);
        perf.args(["--core-mask", HOST_MASK]).args(memory(HOST_MIB));
        perf.args(["-q", &side.depth.to_string()]);
        perf.args(["-o", &side.block_bytes.to_string()]);
        perf.args(["-w", side.access.fio(), "-r", &way]);
        perf.args(["-a", "1", "-t", &seconds.to_string()]);
        let said = output(&mut perf)?;
        let iops =
            total(&said).ok_or_else(|| format!("spdk_nvme_perf measured nothing: {said}"))?;
        Ok(Measured::rate(iops, &said))
    }

    /// Its target with a file, or with a RAM disk, which `fabrix` writes once from end to end as it
    /// does ours: without huge pages its memory is nobody's until then.
    pub(super) fn serve(&self, disk: Disk, programs: &Programs) -> Result<Served, String> {
        let port = free_port()?;
        let name = format!("fabrix-perf-spdk-{}", std::process::id());
        let config = std::env::temp_dir().join(format!("{name}.json"));
        let file = programs.path(disk);
        fs::write(&config, self::config(port, file.as_deref()).to_string())
            .map_err(|error| format!("cannot write {}: {error}", config.display()))?;
        let mut target = command(&self.target);
        target.args(["-m", TARGET_MASK]).args(memory(TARGET_MIB));
        target.arg("-c").arg(&config);
        target.arg("-r").arg(config.with_extension("sock"));
        let served = Served {
            process: Background::start(&mut target)?,
            config,
            uri: format!("nvme+tcp://127.0.0.1:{port}/{NQN}/1"),
        };
        let deadline = Instant::now() + START_TIME_MAX;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > deadline {
                return Err("nvmf_tgt does not listen".to_owned());
            }
            thread::sleep(Duration::from_millis(100));
        }
        if file.is_none() {
            fill(programs, &served.uri)?;
        }
        Ok(served)
    }
}

/// A running target of SPDK.
pub(super) struct Served {
    pub(super) process: Background,
    config: PathBuf,
    pub(super) uri: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _written_by_us = fs::remove_file(&self.config);
    }
}

/// The words for so much memory, which both programs understand. Asked once, before any of them
/// runs: a target takes most of the huge pages, and its host must not do without them therefore.
fn memory(mib: u32) -> Vec<String> {
    static HUGE: OnceLock<bool> = OnceLock::new();
    let huge = *HUGE.get_or_init(|| {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let huge = has_huge_pages(&read("/proc/meminfo"), &read("/proc/mounts"));
        let with = if huge { "with" } else { "without" };
        eprintln!("SPDK runs {with} huge pages");
        huge
    });
    let mut words = vec!["-s".to_owned(), mib.to_string()];
    if !huge {
        words.push("--no-huge".to_owned());
    }
    words
}

/// Whether there are huge pages for one of the programs beside the other.
fn has_huge_pages(memory: &str, mounts: &str) -> bool {
    let number = |name: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let free_kib = number("HugePages_Free:").zip(number("Hugepagesize:"));
    let free_kib = free_kib.map_or(0, |(pages, kib)| pages.saturating_mul(kib));
    let is_mounted = mounts.lines().any(|line| line.contains(" hugetlbfs "));
    is_mounted && free_kib >= u64::from(TARGET_MIB + HOST_MIB) << 10
}

/// What nvmf_tgt does at its start, as its `-c` takes it. A file is read and written by libaio past
/// the page cache.
fn config(port: u16, file: Option<&Path>) -> serde_json::Value {
    let call =
        |method: &str, params: serde_json::Value| json!({ "method": method, "params": params });
    let disk = match file {
        Some(file) => call(
            "bdev_aio_create",
            json!({ "name": "Disk", "filename": file, "block_size": 512 }),
        ),
        None => call(
            "bdev_malloc_create",
            json!({ "name": "Disk", "num_blocks": DISK_BYTES / 512, "block_size": 512 }),
        ),
    };
    let listen = json!({
        "trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": port.to_string(),
    });
    json!({ "subsystems": [
        { "subsystem": "bdev", "config": [disk] },
        { "subsystem": "nvmf", "config": [
            call("nvmf_create_transport", json!({ "trtype": "TCP" })),
            call("nvmf_create_subsystem", json!({ "nqn": NQN, "allow_any_host": true })),
            call("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": { "bdev_name": "Disk" } })),
            call("nvmf_subsystem_add_listener", json!({ "nqn": NQN, "listen_address": listen })),
        ]},
    ]})
}

/// Address and subsystem of a disk.
fn split(uri: &str) -> Option<(&str, &str)> {
    let (address, path) = uri.split_once("://")?.1.split_once('/')?;
    Some((address, path.split('/').next()?))
}

/// The requests per second in the line `Total : IOPS MiB/s ...`.
fn total(said: &str) -> Option<f64> {
    let mut lines = said.lines();
    let line = lines.find(|line| line.trim_start().starts_with("Total"))?;
    let (_, numbers) = line.split_once(':')?;
    let iops: f64 = numbers.split_whitespace().next()?.parse().ok()?;
    (iops > 0.0).then_some(iops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_must_be_free_and_mounted() {
        let memory = "HugePages_Free:     1500\nHugepagesize:       2048 kB\n";
        let mounts = "proc /proc proc rw 0 0\nnone /dev/hugepages hugetlbfs rw 0 0\n";
        assert!(has_huge_pages(memory, mounts));
        assert!(!has_huge_pages(memory, "proc /proc proc rw 0 0\n"));
        assert!(!has_huge_pages(&memory.replace("1500", "1000"), mounts));
    }
}
