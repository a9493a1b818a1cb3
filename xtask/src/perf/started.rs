//! The programs of one side, started once and asked in turns.
//!
//! A target that starts and ends with every measurement takes and gives back a gibibyte each time:
//! the next one waits for that memory, and a virtual machine whose balloon reports free pages loses
//! a third of its processors to the hypervisor for moments afterwards. So our target, SPDK's, and
//! the ceiling stay, and none of them takes a processor while the other side runs: a polling target
//! left running takes half of it. What a side is stands in `side.rs`.

use super::Programs;
use super::fabrix::{self, Target};
use super::side::{Client, Measured, Server, Side, parse_json, positive, runtime};
use super::spdk::{Served, Spdk};
use crate::process::{Background, command};
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};
use std::rc::Rc;

/// A side that is ready to be measured.
pub(super) struct Started<'a> {
    side: Side,
    programs: &'a Programs,
    serving: Serving,
}

/// What stays from one measurement to the next.
enum Serving {
    Ours(Rc<Target>),
    Bare(Ceiling),
    Spdk(Rc<Served>),
    /// Everything that takes part starts and ends with each measurement.
    Nothing,
}

impl<'a> Started<'a> {
    /// Starts what stays, and writes its disk once; it sleeps until it is measured.
    pub(super) fn start(side: &Side, programs: &'a Programs) -> Result<Self, String> {
        let serving = match side.server {
            Server::Fabrix => {
                let target = Target::start(&programs.fabrix, side, programs)?;
                target.fill()?;
                target.process().pause()?;
                Serving::Ours(Rc::new(target))
            }
            Server::BareSockets => Serving::Bare(Ceiling::start(side, programs)?),
            Server::Spdk => {
                let served = Spdk::find()?.serve(side.disk, programs)?;
                served.process().pause()?;
                Serving::Spdk(Rc::new(served))
            }
            _ => Serving::Nothing,
        };
        Ok(Self {
            side: *side,
            programs,
            serving,
        })
    }

    /// Another load for what this side has started, where it serves both: then the host alone makes
    /// the difference.
    pub(super) fn share(&self, side: &Side) -> Option<Self> {
        let serving = match &self.serving {
            _ if !side.is_served_like(&self.side) => None,
            Serving::Ours(target) => Some(Serving::Ours(Rc::clone(target))),
            Serving::Spdk(served) => Some(Serving::Spdk(Rc::clone(served))),
            Serving::Bare(_) | Serving::Nothing => None,
        }?;
        Some(Self {
            side: *side,
            programs: self.programs,
            serving,
        })
    }

    /// Measures for so many seconds, after warming up.
    pub(super) fn measure(&mut self, seconds: u32) -> Result<Measured, String> {
        let (side, programs) = (&self.side, self.programs);
        match &mut self.serving {
            Serving::Ours(target) => target.process().awake(|| match side.client {
                Client::IscsiPerf => super::iscsi::perf(side, target.uri(), seconds),
                Client::SpdkPerf => Spdk::find()?.perf(side, target.uri(), seconds),
                _ => target.measure(side, seconds),
            }),
            Serving::Bare(ceiling) => ceiling.measure(seconds),
            Serving::Spdk(served) => served.process().awake(|| match side.client {
                Client::SpdkPerf => Spdk::find()?.perf(side, served.uri(), seconds),
                _ => fabrix::bench(&programs.fabrix, served.uri(), side, &runtime(seconds)),
            }),
            Serving::Nothing => side.measure(programs, seconds),
        }
    }
}

/// The example `ceiling`, both ends of it, which sleep until they are asked.
struct Ceiling {
    _process: Background,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Ceiling {
    fn start(side: &Side, programs: &Programs) -> Result<Self, String> {
        let mut ceiling = command(&programs.ceiling.to_string_lossy());
        let mut process = Background::start_asked(ceiling.args(side.words_of_the_ceiling()))?;
        let asks = process.0.stdin.take().expect("the input was asked for");
        let answers = process.0.stdout.take().expect("the output was asked for");
        let mut started = Self {
            _process: process,
            asks,
            answers: BufReader::new(answers),
        };
        match started.line()?.as_str() {
            "ready" => Ok(started),
            other => Err(format!("the ceiling said `{other}` instead of ready")),
        }
    }

    fn measure(&mut self, seconds: u32) -> Result<Measured, String> {
        writeln!(self.asks, "{seconds}")
            .map_err(|error| format!("cannot ask the ceiling: {error}"))?;
        let raw = parse_json("the ceiling", &self.line()?)?;
        Ok(Measured {
            iops: positive(&raw, "/iops")?,
            // Only one request at a time, and those of an open loop, have their latency taken.
            p50_us: positive(&raw, "/p50_us").unwrap_or(0.0),
            p95_us: positive(&raw, "/p95_us").unwrap_or(0.0),
            p99_us: positive(&raw, "/p99_us").unwrap_or(0.0),
            target_cpu: 0.0,
            raw,
        })
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(bytes) if bytes > 0 => Ok(line.trim().to_owned()),
            _ => Err("the ceiling ended before it was asked to".to_owned()),
        }
    }
}
