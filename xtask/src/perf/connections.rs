//! What connections cost that ask for nothing, and whether there can be many.

use super::fabrix::{Target, port_of};
use super::noise::{read, run_time_ns};
use super::side::{HOST_CPU, Measured, Side};
use super::{Programs, START_TIME_MAX};
use crate::process::{Background, command, output};
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};

const IDLE_TIME: Duration = Duration::from_secs(5);
/// Each end has a descriptor for a connection, and some others.
const OTHER_FILES: u64 = 200;
/// The connections of a host: its admin queue's and one I/O queue's.
const OF_A_HOST: u32 = 2;
/// How often one more host comes, before and after: the median counts.
const VISITS: usize = 5;

/// Why this machine cannot have so many.
pub(super) fn refusal(count: u32) -> Result<(), String> {
    let limits = read("/proc/self/limits")?;
    // Max open files, soft limit, hard limit, unit. `unlimited` is no number.
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let hard = line.and_then(|rest| rest.split_whitespace().nth(1)?.parse::<u64>().ok());
    match hard.filter(|most| *most < u64::from(count) + OTHER_FILES) {
        None => Ok(()),
        Some(most) => Err(format!(
            "a process may open {most} files here, and each connection is one: raise the hard limit of `ulimit -n`"
        )),
    }
}

/// Holds the connections of a side and takes the number that is asked for.
pub(super) fn measure(
    side: &Side,
    name: &'static str,
    programs: &Programs,
) -> Result<Measured, String> {
    let target = Target::start(side, programs)?;
    let pid = target.process.0.id();
    let alone_kib = resident_kib(pid)?;
    let alone_s = (name == "one-more").then(|| visit_seconds(&target, programs));
    let alone_s = alone_s.transpose()?;
    let hosts = side.connections.div_ceil(OF_A_HOST);
    let _hosts = hold(&target, programs, hosts)?;
    let connections = wait_for_connections(&target.uri, hosts * OF_A_HOST)?;
    let number = if let Some(alone_s) = alone_s {
        let among_s = visit_seconds(&target, programs)?;
        let alive = connections_at(port_of(&target.uri)?)?;
        if alive < connections {
            return Err(format!(
                "only {alive} of {connections} connections are left"
            ));
        }
        among_s / alone_s
    } else if name == "memory" {
        f64::from(resident_kib(pid)?.saturating_sub(alone_kib)) / f64::from(connections)
    } else {
        let (start_ns, started) = (run_time_ns(pid)?, Instant::now());
        thread::sleep(IDLE_TIME);
        let used = Duration::from_nanos(run_time_ns(pid)?.saturating_sub(start_ns));
        used.as_secs_f64() / started.elapsed().as_secs_f64()
    };
    let raw = json!({ name: number, "connections": connections, "alone_s": alone_s });
    Ok(Measured::of([(name, number)], raw))
}

/// Hosts that connect and ask for nothing.
fn hold(target: &Target, programs: &Programs, hosts: u32) -> Result<Background, String> {
    let hold = (START_TIME_MAX * 3 + IDLE_TIME * 2).as_secs().to_string();
    let mut bench = command(&programs.fabrix);
    bench.args(["bench", &target.uri, "--cores", HOST_CPU, "--hold", &hold]);
    Background::start(bench.args(["--numjobs", &hosts.to_string()]))
}

/// Seconds from the start of one more host to its end, with one read: the median of some.
fn visit_seconds(target: &Target, programs: &Programs) -> Result<f64, String> {
    let mut seconds = Vec::new();
    for _ in 0..VISITS {
        let mut bench = command(&programs.fabrix);
        bench.args(["bench", &target.uri, "--cores", HOST_CPU]);
        let started = Instant::now();
        output(bench.args(["--number-ios", "1", "-o", "json"]))?;
        seconds.push(started.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[VISITS / 2])
}

/// Waits until so many connections stand and no more come.
fn wait_for_connections(uri: &str, at_least: u32) -> Result<u32, String> {
    let port = port_of(uri)?;
    let deadline = Instant::now() + START_TIME_MAX * 3;
    let (mut before, mut quiet_rounds) = (0, 0);
    while Instant::now() < deadline {
        let now = connections_at(port)?;
        let quiet = now == before && now >= at_least;
        quiet_rounds = if quiet { quiet_rounds + 1 } else { 0 };
        if quiet_rounds == 5 {
            return Ok(now);
        }
        before = now;
        thread::sleep(Duration::from_millis(200));
    }
    Err(format!(
        "only {before} of {at_least} connections came to {uri}"
    ))
}

/// Established TCP connections that end at this local port.
fn connections_at(port: u16) -> Result<u32, String> {
    let ends_here = format!(":{port:04X}");
    let table = read("/proc/net/tcp")?;
    // columns: number, local address, remote address, state (01 is established)
    let here = table.lines().filter(|line| {
        let row: Vec<&str> = line.split_whitespace().take(4).collect();
        matches!(row[..], [_, local, _, "01"] if local.ends_with(&ends_here))
    });
    Ok(u32::try_from(here.count()).expect("there are 65,535 ports"))
}

/// Memory that a running process has in use.
fn resident_kib(pid: u32) -> Result<u32, String> {
    let path = format!("/proc/{pid}/status");
    let status = read(&path)?;
    let field = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = field.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.ok_or_else(|| format!("{path} has no VmRSS"))
}
