//! `fabrix doctor`: checks what this machine offers to the data path, and suggests improvements. It
//! changes nothing.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use fabrix_attach::fuse::{KernelRing, RING_SWITCH};
use fabrix_rt::{engine, local_peer, process, topology};
use serde_json::json;

use super::discover::bracketed;
use super::terminal::show;
use crate::args::DoctorArgs;
use crate::attached::has_fuse;
use crate::failure::Failure;

/// Result of one check.
struct Finding {
    /// Stable key for programs.
    subject: &'static str,
    /// Description of the result.
    found: String,
    /// Remedy. None if the result is good.
    fix: Option<String>,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let ports = sys_rdma::look();
    let findings = [
        io_uring(),
        processors(),
        huge_pages(),
        open_files(),
        locked_memory(ports.is_ok()),
        socket_buffers(),
        congestion_control(),
        local_hosts(),
        fuse(),
        fuse_io_uring(),
        loop_devices(),
        nbd(),
        ublk(),
        nvme_tcp(),
        rdma(&ports),
        ceph(fabrix_rbd::version()),
    ];
    let text = || findings.iter().map(as_text).collect();
    show(args.output, text, || format!("{:#}", as_json(&findings)))?;
    Ok(ExitCode::SUCCESS)
}

fn as_text(finding: &Finding) -> String {
    let mark = if finding.fix.is_none() { "ok " } else { "-- " };
    let fix = finding
        .fix
        .as_ref()
        .map_or_else(String::new, |fix| format!("    {:<16} -> {fix}\n", ""));
    format!("{mark} {:<16} {}\n{fix}", finding.subject, finding.found)
}

fn as_json(findings: &[Finding]) -> serde_json::Value {
    let findings: Vec<_> = findings
        .iter()
        .map(|finding| {
            json!({
                "subject": finding.subject,
                "ok": finding.fix.is_none(),
                "found": finding.found,
                "fix": finding.fix,
            })
        })
        .collect();
    json!({ "schema": 1, "findings": findings })
}

fn io_uring() -> Finding {
    match engine::probe() {
        Ok(features) => {
            let (major, minor) = features.kernel;
            finding("io_uring", format!("usable, kernel {major}.{minor}"), None)
        }
        Err(refused) => {
            let found = format!("{}; epoll is used instead, and is slower", refused.found);
            finding("io_uring", found, Some(&refused.fix))
        }
    }
}

fn processors() -> Finding {
    let cpus = topology::cpus();
    let fix = (cpus.len() <= 1).then_some(
        "to measure a target from the machine that it runs on, use two processors or more: with one, the target \
         and its host slow each other down",
    );
    finding(
        "processors",
        format!("{} usable: {cpus:?}", cpus.len()),
        fix,
    )
}

fn huge_pages() -> Finding {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let good = text.contains("[always]") || text.contains("[madvise]");
    let found = if good {
        "RAM disks get large pages"
    } else {
        "RAM disks have small pages, and are slower"
    };
    let fix = format!("as root: echo madvise > {path}");
    finding("huge pages", found, (!good).then_some(&fix))
}

fn open_files() -> Finding {
    let (now, most) = topology::open_files().unwrap_or((0, 0));
    let found = format!("{now}, may be raised to {most}; every connection is one");
    let fix = "raise the hard limit (ulimit -Hn, or LimitNOFILE= of a systemd unit)";
    finding("open files", found, (most < 4096).then_some(fix))
}

/// Kernels before 5.12 counted rings against this limit. Later kernels count the memory that RDMA
/// devices know: all buffers of a shard.
fn locked_memory(has_rdma: bool) -> Finding {
    let text = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = text
        .lines()
        .find(|line| line.starts_with("Max locked memory"))
        .unwrap_or_default();
    let limit = line.split_whitespace().nth(3).unwrap_or("unknown");
    let is_low = limit
        .parse()
        .is_ok_and(|limit: u64| limit < RDMA_LOCKED_BYTES);
    if !has_rdma || !is_low || process::is_root() {
        return finding("locked memory", format!("{limit} bytes; enough"), None);
    }
    let found = format!(
        "{limit} bytes; little for RDMA, whose devices need their buffers locked in memory"
    );
    let fix = "raise the limit: ulimit -l unlimited, or LimitMEMLOCK=infinity of a systemd unit";
    finding("locked memory", found, Some(fix))
}

/// What is wrong with the limit of locked memory for RDMA, and what to do. None: nothing.
pub(crate) fn little_locked_memory() -> Option<String> {
    let finding = locked_memory(true);
    let fix = finding.fix?;
    Some(format!("{}: {}; {fix}", finding.subject, finding.found))
}

fn socket_buffers() -> Finding {
    let path = "/proc/sys/net/ipv4/tcp_wmem";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let most: u64 = text
        .split_whitespace()
        .last()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0);
    let kib = most >> 10;
    let found = format!("TCP may keep up to {kib} KiB unsent per connection");
    let fix = "as root: sysctl -w net.ipv4.tcp_wmem='4096 65536 4194304'";
    finding("socket buffers", found, (most < 4 << 20).then_some(fix))
}

/// BBR paces sends with a timer, and setting a timer is expensive in a virtual machine. Loopback
/// connections do not use it (`rt::net`).
fn congestion_control() -> Finding {
    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let name = text.trim();
    let good = name != "bbr";
    let found = if good {
        format!("TCP uses {name}")
    } else {
        "TCP uses bbr, whose timers cost a sender up to a fifth of its time; not between programs on this machine"
            .to_owned()
    };
    let fix = "as root: sysctl -w net.ipv4.tcp_congestion_control=cubic";
    finding("congestion", found, (!good).then_some(fix))
}

/// FUSE, which `attach` uses for files and block devices.
fn fuse() -> Finding {
    let has_helper = process::is_root() || is_on_path("fusermount3");
    let (found, fix) = match (has_fuse(), has_helper) {
        (Ok(()), true) => ("usable: attach --as file".to_owned(), None),
        (Ok(()), false) => (
            "there, and fusermount3 is not".to_owned(),
            Some("install the package fuse3; attach --as nbd-socket works without it"),
        ),
        (Err(error), _) => (
            format!("/dev/fuse: {error}"),
            Some("as root: modprobe fuse, or hand /dev/fuse into the container"),
        ),
    };
    finding("fuse", found, fix)
}

/// FUSE over io_uring, which `attach` uses for files and block devices.
fn fuse_io_uring() -> Finding {
    let (found, fix) = match KernelRing::look() {
        KernelRing::On => ("usable by attach --as fuse and --as file", None),
        KernelRing::Off => (
            "switched off: requests are read from /dev/fuse",
            Some(format!(
                "as root: echo Y > {RING_SWITCH} (pays for many small requests at once on fast disks)"
            )),
        ),
        KernelRing::Absent => (
            "not there: requests are read from /dev/fuse",
            Some("Linux 6.14 and later have it; attach needs none of it".to_owned()),
        ),
    };
    finding("fuse io_uring", found, fix.as_deref())
}

fn local_hosts() -> Finding {
    let good = !local_peer::ends_receivers();
    let found = if good {
        "the kernel's NVMe/TCP host may use disks of this machine"
    } else {
        "this kernel ends threads that receive long writes of its own NVMe/TCP host over loopback; `serve` asks such a \
         host for pieces of 4096 bytes, which is slower, and helps where its users' buffers begin with a page"
    };
    let fix = "run Linux 6.5 or later, or boot this one with hardened_usercopy=off";
    finding("local hosts", found, (!good).then_some(fix))
}

fn loop_devices() -> Finding {
    let (found, fix) = match (process::is_root(), File::open("/dev/loop-control")) {
        (true, Ok(_)) => ("usable: attach --as fuse".to_owned(), None),
        (false, _) => (
            "for root only".to_owned(),
            Some("attach as root, or use attach --as file"),
        ),
        (true, Err(error)) => (
            format!("/dev/loop-control: {error}"),
            Some("modprobe loop, or allow it in the container"),
        ),
    };
    finding("loop devices", found, fix)
}

fn nbd() -> Finding {
    let is_there = Path::new("/dev/nbd0").exists();
    let found = if is_there {
        "usable: attach --as nbd"
    } else {
        "not there"
    };
    let fix = (!is_there)
        .then_some("as root: modprobe nbd; programs like qemu need no kernel for the socket");
    finding("kernel nbd", found, fix)
}

fn ublk() -> Finding {
    let is_there = Path::new("/dev/ublk-control").exists();
    let found = if is_there { "there" } else { "not there" };
    let fix = (!is_there)
        .then_some("as root: modprobe ublk_drv (Linux 6.5); loop devices work without it");
    finding("ublk", found, fix)
}

fn nvme_tcp() -> Finding {
    let is_there =
        Path::new("/dev/nvme-fabrics").exists() && Path::new("/sys/module/nvme_tcp").exists();
    let found = if is_there {
        "there: the kernel reaches NVMe/TCP disks by itself too"
    } else {
        "not there"
    };
    let fix = (!is_there).then_some(
        "as root: modprobe nvme-tcp, if `nvme connect` is wanted; attach needs none of it",
    );
    finding("kernel nvme-tcp", found, fix)
}

fn rdma(ports: &Result<Vec<sys_rdma::Port>, sys_rdma::Refused>) -> Finding {
    let ports = match ports {
        Ok(ports) => ports,
        Err(refused) => return finding("rdma", refused.found.as_str(), Some(&refused.fix)),
    };
    let as_text = |port: &sys_rdma::Port| {
        let mut parts = vec![port.state.as_str(), &port.link_layer, &port.rate];
        parts.extend(port.networks.iter().map(String::as_str));
        let listen = port
            .addresses
            .iter()
            .map(|at| format!("--listen nvme+rdma://{}", bracketed(&at.to_string())));
        let listen: Vec<String> = listen.collect();
        parts.extend(listen.iter().map(String::as_str));
        format!("{} port {}: {}", port.device, port.number, parts.join(", "))
    };
    let found: Vec<String> = ports.iter().map(as_text).collect();
    let has_active = ports.iter().any(sys_rdma::Port::is_active);
    let fix = "no port is active: plug in a cable, or, as root: ip link set ETH up, where ETH is the \
               network interface of the port";
    finding("rdma", found.join("; "), (!has_active).then_some(fix))
}

/// Ceph's libraries, for disks `rbd:`. `version` is that of librbd, or why there is none.
fn ceph(version: Result<String, String>) -> Finding {
    match version {
        Ok(version) => finding(
            "ceph",
            format!("librbd {version}: rbd:POOL/IMAGE is usable"),
            None,
        ),
        Err(found) => {
            let found = format!("disks rbd: are not usable: {found}");
            finding("ceph", found, Some(fabrix_rbd::INSTALL))
        }
    }
}

fn finding(subject: &'static str, found: impl Into<String>, fix: Option<&str>) -> Finding {
    Finding {
        subject,
        found: found.into(),
        fix: fix.map(str::to_owned),
    }
}

/// Locked memory with which RDMA connections can work: the buffers of a few shards.
const RDMA_LOCKED_BYTES: u64 = 256 << 20;

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_cephs_libraries_is_told_what_to_install() {
        let missing = ceph(Err("librbd.so.1: cannot open shared object file".to_owned()));
        let text = as_text(&missing);
        assert!(text.starts_with("--  ceph "), "{text}");
        assert!(text.contains("librbd.so.1: cannot open"), "{text}");
        assert!(text.contains("-> apt install librbd1"), "{text}");
    }

    #[test]
    fn a_machine_with_cephs_libraries_is_told_their_version() {
        let there = as_text(&ceph(Ok("1.16.0".to_owned())));
        assert!(there.starts_with("ok  ceph "), "{there}");
        assert!(there.contains("librbd 1.16.0"), "{there}");
    }
}
