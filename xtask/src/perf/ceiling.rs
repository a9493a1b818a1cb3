//! Bare sockets: the example `ceiling` of `crates/fabrix-rt`, both ends of it.
//!
//! It moves the bytes of a load with no protocol at all, so its rate is what this machine can do.

use super::side::{Access, Measured, Side, Spin};
use super::{Programs, START_TIME_MAX};
use crate::process::{Background, command};
use std::io::Write;
use std::process::ChildStdin;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Both ends, which sleep until they are asked.
pub(super) struct Ceiling {
    _process: Background,
    asks: ChildStdin,
    answers: Receiver<String>,
}

impl Ceiling {
    /// Starts a pair on these processors, target first, with so much memory to read and write.
    pub(super) fn start(
        side: &Side,
        programs: &Programs,
        cpus: [u32; 2],
        region_mib: u64,
    ) -> Result<Self, String> {
        let mut ceiling = command(&programs.ceiling);
        ceiling.args(["--cpus", &format!("{},{}", cpus[0], cpus[1])]);
        let mut process = Background::start_asked(ceiling.args(words(side, region_mib)))?;
        let started = Self {
            asks: process.0.stdin.take().expect("the input was asked for"),
            answers: process.lines(),
            _process: process,
        };
        match started.line(START_TIME_MAX)?.as_str() {
            "ready" => Ok(started),
            other => Err(format!("the ceiling said `{other}` instead of ready")),
        }
    }

    /// Begins a measurement of so many seconds.
    pub(super) fn ask(&self, seconds: u32) -> Result<(), String> {
        let asked = writeln!(&self.asks, "{seconds}");
        asked.map_err(|error| format!("cannot ask the ceiling: {error}"))
    }

    /// Waits for what the measurement has found.
    pub(super) fn answer(&self, seconds: u32) -> Result<Measured, String> {
        let time = Duration::from_secs(seconds.into()) + START_TIME_MAX;
        Measured::from_ceiling(&self.line(time)?)
    }

    fn line(&self, time: Duration) -> Result<String, String> {
        let line = self.answers.recv_timeout(time);
        line.map_err(|_| "the ceiling ended, or does not answer".to_owned())
    }
}

/// The load of a side. The host of an open loop spins, as ours does there.
fn words(side: &Side, region_mib: u64) -> Vec<String> {
    let direction = match side.access {
        Access::Read => "read".to_owned(),
        Access::Write => "write".to_owned(),
        Access::Mixed { percent_read } => percent_read.to_string(),
    };
    let waiting = match (side.spin, side.iops) {
        (Spin::Never, None) => "block",
        (Spin::Never, Some(_)) => "block-target",
        (Spin::Auto | Spin::Always, _) => "spin",
    };
    let (depth, block) = (side.depth.to_string(), side.block_bytes.to_string());
    let mut words = vec![depth, block, direction, waiting.to_owned(), "-".to_owned()];
    words.push(region_mib.to_string());
    words.extend(side.iops.map(|iops| iops.to_string()));
    words
}
