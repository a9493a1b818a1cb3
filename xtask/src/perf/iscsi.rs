//! libiscsi's `iscsi-perf`, against our target, and on the same processor tgt or a program that is
//! no target at all.
//!
//! tgt is the daemon of the stgt project, from the distribution's package: started here, on ports
//! of its own, and ended with the measurement.

use super::side::{Disk, HOST_CPU, Measured, Side, TARGET_CPU};
use super::{Programs, START_TIME_MAX};
use crate::process::{Background, command, output, works};
use std::net::TcpListener;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const PERF: &str = "iscsi-perf";
const NAME: &str = "iqn.2026-01.io.fabrix:perf";
/// Of our disks and of tgt's.
const BLOCK_BYTES: u32 = 512;
/// tgtd takes no greater number; it names a socket in a folder and is no port.
const CONTROL_PORTS: u16 = 32_768;

pub(super) fn measure_tgt(
    side: &Side,
    programs: &Programs,
    seconds: u32,
) -> Result<Measured, String> {
    let tgt = Tgt::start(side, programs)?;
    let url = format!("iscsi://127.0.0.1:{}/{NAME}/1", tgt.port);
    perf(side, &url, seconds)
}

pub(super) fn measure_limit(
    side: &Side,
    programs: &Programs,
    seconds: u32,
) -> Result<Measured, String> {
    let mut limit = command("taskset");
    limit
        .args(["--cpu-list", TARGET_CPU])
        .arg(&programs.iscsi_limit);
    let memory = if side.disk == Disk::Null {
        "null"
    } else {
        "ram"
    };
    let mut limit = Background::start(limit.arg(memory))?;
    let url = limit.lines().recv_timeout(START_TIME_MAX);
    let url = url.map_err(|_| "iscsi_limit does not say where it listens")?;
    perf(side, url.trim(), seconds)
}

/// Random reads of the disk at `url`.
pub(super) fn perf(side: &Side, url: &str, seconds: u32) -> Result<Measured, String> {
    let mut perf = command("taskset");
    perf.args(["--cpu-list", HOST_CPU, PERF, "--random"]);
    perf.args(["-m", &side.depth.to_string()]);
    perf.args(["-b", &(side.block_bytes / BLOCK_BYTES).to_string()]);
    perf.args(["-t", &(seconds + 1).to_string(), url]);
    let ended = perf
        .output()
        .map_err(|error| format!("cannot start {PERF}: {error}"))?;
    // Its first line has a name that is not UTF-8 everywhere.
    let said = String::from_utf8_lossy(&ended.stdout);
    let iops = average(&said).ok_or_else(|| format!("{PERF} measured nothing: {said}"))?;
    Ok(Measured::rate(iops, &said))
}

/// The last number after `iops average`: the one over the whole run.
fn average(said: &str) -> Option<f64> {
    let (_, rest) = said.rsplit_once("iops average ")?;
    let iops: f64 = rest.split_whitespace().next()?.parse().ok()?;
    (iops > 0.0).then_some(iops)
}

/// A running tgtd with one logical unit, number 1; number 0 is always its controller.
struct Tgt {
    process: Background,
    /// Which of the daemons of this machine it is: part of the name of its control socket.
    control_port: String,
    port: u16,
}

impl Tgt {
    fn start(side: &Side, programs: &Programs) -> Result<Self, String> {
        let port = free_port()?;
        let control_port = (port % CONTROL_PORTS).to_string();
        let mut daemon = command("taskset");
        daemon.args(["--cpu-list", TARGET_CPU, "tgtd", "--foreground"]);
        daemon.args(["--control-port", &control_port]);
        daemon.args(["--iscsi", &format!("portal=127.0.0.1:{port}")]);
        let mut tgt = Self {
            process: Background::start(&mut daemon)?,
            control_port,
            port,
        };
        let deadline = Instant::now() + START_TIME_MAX;
        while !works(tgt.admin().args(["--op", "show", "--mode", "sys"])) {
            if let Ok(Some(ended)) = tgt.process.0.try_wait() {
                return Err(format!("tgtd ended at its start: {ended}"));
            }
            if Instant::now() > deadline {
                return Err("tgtd does not answer".to_owned());
            }
            thread::sleep(Duration::from_millis(50));
        }
        tgt.configure(side, programs)?;
        Ok(tgt)
    }

    fn configure(&self, side: &Side, programs: &Programs) -> Result<(), String> {
        let file = programs.path(Disk::Tmpfs).unwrap_or_default();
        let store = match side.disk {
            Disk::Null => "null --backing-store 1G".to_owned(),
            _ => format!("rdwr --backing-store {}", file.display()),
        };
        for words in [
            &format!("new --mode target --tid 1 --targetname {NAME}"),
            &format!("new --mode logicalunit --tid 1 --lun 1 --bstype {store}"),
            "bind --mode target --tid 1 --initiator-address ALL",
        ] {
            output(self.admin().arg("--op").args(words.split(' ')))?;
        }
        Ok(())
    }

    fn admin(&self) -> Command {
        let mut admin = command("tgtadm");
        admin.args(["--control-port", &self.control_port, "--lld", "iscsi"]);
        admin
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        let socket = format!("/var/run/tgtd/socket.{}", self.control_port);
        // It removes neither when it is ended, and no other daemon has this number.
        for left in [format!("{socket}.lock"), socket] {
            let _may_be_gone = std::fs::remove_file(left);
        }
    }
}

/// A port that nobody has now; tgtd does not let the system choose.
pub(super) fn free_port() -> Result<u16, String> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    address
        .map(|address| address.port())
        .map_err(|error| format!("no port is to be had: {error}"))
}
