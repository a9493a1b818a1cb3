//! What connections cost that ask for nothing, and whether there can be many.

use super::Programs;
use super::fabrix::{START_TIME_MAX, Target, port_of};
use super::machine::connections_at;
use super::processes::{open_files_most, resident_bytes, run_time_ns};
use super::rows::Held;
use super::side::{Access, Client, Disk, HOST_CPU, Server, Side, Spin};
use crate::process::{Background, command, output};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

const IDLE_TIME: Duration = Duration::from_secs(5);
/// Each end has a descriptor for a connection, and some others.
const OTHER_FILES: u64 = 200;
/// The connections of a host: its admin queue's and one I/O queue's.
const OF_A_HOST: u32 = 2;
/// How often one more host comes, before and after: the median counts.
const VISITS: usize = 5;
const SERVED: Side = Side {
    server: Server::Fabrix,
    client: Client::Bench,
    disk: Disk::Ram,
    access: Access::Read,
    block_bytes: 4096,
    depth: 1,
    spin: Spin::Auto,
    data_digest: false,
    iops: None,
    beside: false,
};

/// Why this machine cannot have so many.
pub(super) fn refusal(count: u32) -> Result<(), String> {
    let most = open_files_most()?;
    if most < u64::from(count) + OTHER_FILES {
        return Err(format!(
            "a process may open {most} files here, and each connection is one: raise the hard limit of `ulimit -n`"
        ));
    }
    Ok(())
}

/// The number, and what it was made of.
pub(super) fn measure(
    count: u32,
    number: Held,
    programs: &Programs,
) -> Result<(f64, Value), String> {
    let target = Target::start(&programs.fabrix, &SERVED, programs)?;
    let alone_bytes = resident_bytes(target.pid())?;
    let alone = (number == Held::OneMore)
        .then(|| visits(&target, programs))
        .transpose()?;
    let _hosts = hold(&target, programs, count)?;
    let connections = wait_for_connections(target.uri(), (hosts(count) * OF_A_HOST) as usize)?;
    match number {
        Held::Cpu => {
            let (start_ns, started) = (run_time_ns(target.pid())?, Instant::now());
            thread::sleep(IDLE_TIME);
            let used = Duration::from_nanos(run_time_ns(target.pid())?.saturating_sub(start_ns));
            let share = used.as_secs_f64() / started.elapsed().as_secs_f64();
            Ok((
                share,
                json!({ "cpu_share": share, "connections": connections }),
            ))
        }
        Held::Memory => {
            let bytes = resident_bytes(target.pid())?.saturating_sub(alone_bytes);
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
            let kib = bytes as f64 / 1024.0 / connections as f64;
            Ok((kib, json!({ "bytes": bytes, "connections": connections })))
        }
        Held::OneMore => {
            let alone = alone.ok_or("nobody came before the others")?;
            let among = visits(&target, programs)?;
            let alive = connections_at(port_of(target.uri())?)?;
            if alive < connections {
                return Err(format!(
                    "only {alive} of {connections} connections are left"
                ));
            }
            let raw = json!({ "alone_s": alone, "among_s": among, "connections": alive });
            Ok((among / alone, raw))
        }
    }
}

/// How many hosts have so many connections.
fn hosts(connections: u32) -> u32 {
    connections.div_ceil(OF_A_HOST)
}

/// Hosts that connect and ask for nothing, with so many connections together.
fn hold(target: &Target, programs: &Programs, count: u32) -> Result<Background, String> {
    let hold = (START_TIME_MAX * 3 + IDLE_TIME * 2).as_secs().to_string();
    let mut bench = command(&programs.fabrix.to_string_lossy());
    bench.args(["bench", target.uri(), "--cores", HOST_CPU, "--hold", &hold]);
    Background::start(bench.args(["--numjobs", &hosts(count).to_string()]))
}

/// Seconds from the start of one more host to its end, with one read: the median of some.
fn visits(target: &Target, programs: &Programs) -> Result<f64, String> {
    let mut seconds = Vec::new();
    for _ in 0..VISITS {
        let mut bench = command(&programs.fabrix.to_string_lossy());
        bench.args([
            "bench",
            target.uri(),
            "--cores",
            HOST_CPU,
            "--number-ios",
            "1",
        ]);
        let started = Instant::now();
        output(bench.args(["-o", "json"]))?;
        seconds.push(started.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[VISITS / 2])
}

/// Until so many connections stand and no more come.
fn wait_for_connections(uri: &str, at_least: usize) -> Result<usize, String> {
    let port = port_of(uri)?;
    let deadline = Instant::now() + START_TIME_MAX * 3;
    let (mut before, mut quiet_rounds) = (0, 0);
    while Instant::now() < deadline {
        let now = connections_at(port)?;
        quiet_rounds = if now == before && now >= at_least {
            quiet_rounds + 1
        } else {
            0
        };
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
