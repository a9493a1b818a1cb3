//! The programs of one side, started once and asked in turns.
//!
//! A target that starts and ends with every measurement takes and gives back a gibibyte each time.
//! The next one waits for that memory, and a virtual machine whose balloon reports free pages loses
//! a third of its processors to the hypervisor for moments afterwards. So our target, SPDK's, and
//! the ceiling stay from one measurement to the next, and sleep while the other side runs.

use super::ceiling::Ceiling;
use super::fabrix::{self, Target};
use super::rows::Row;
use super::side::{Client, DISK_BYTES, Measured, Server, Side};
use super::spdk::{Served, Spdk};
use super::{Programs, attach, fio, iscsi};
use std::rc::Rc;

/// A side that is ready to be measured.
pub(super) struct Started<'a> {
    side: Side,
    programs: &'a Programs,
    serving: Serving,
}

/// What stays from one measurement to the next.
#[derive(Clone)]
enum Serving {
    Ours(Rc<Target>),
    Bare(Rc<[Ceiling]>),
    Spdk(Rc<Served>),
    /// Everything that takes part starts and ends with each measurement.
    Nothing,
}

impl<'a> Started<'a> {
    /// The sides of a row, ours first. Sides that differ in the host alone share a target.
    pub(super) fn all(row: &Row, programs: &'a Programs) -> Result<Vec<Self>, String> {
        let mut started: Vec<Self> = Vec::new();
        for side in row.sides() {
            let ours = started.first();
            let shared = ours.filter(|ours| side.is_served_like(&ours.side));
            let shared = shared.map(|ours| ours.serving.clone());
            started.push(Self {
                side: *side,
                programs,
                serving: shared.map_or_else(|| Serving::start(side, programs), Ok)?,
            });
        }
        Ok(started)
    }

    /// Measures for so many seconds, after warming up.
    pub(super) fn measure(&self, seconds: u32) -> Result<Measured, String> {
        let (side, programs) = (&self.side, self.programs);
        match &self.serving {
            Serving::Ours(target) => target.process.awake(|| match side.client {
                Client::IscsiPerf => iscsi::perf(side, &target.uri, seconds),
                Client::SpdkPerf => Spdk::find()?.perf(side, &target.uri, seconds),
                _ => target.measure(side, programs, seconds),
            }),
            Serving::Bare(pairs) => {
                pairs.iter().try_for_each(|pair| pair.ask(seconds))?;
                let mut whole = pairs[0].answer(seconds)?;
                for pair in &pairs[1..] {
                    let iops = pair.answer(seconds)?.number("iops");
                    whole.add("iops", whole.number("iops") + iops);
                }
                Ok(whole)
            }
            Serving::Spdk(served) => served.process.awake(|| match side.client {
                Client::SpdkPerf => Spdk::find()?.perf(side, &served.uri, seconds),
                _ => fabrix::bench(programs, &served.uri, side, seconds),
            }),
            Serving::Nothing => self.measure_whole(seconds),
        }
    }

    fn measure_whole(&self, seconds: u32) -> Result<Measured, String> {
        let (side, programs) = (&self.side, self.programs);
        match side.server {
            Server::Tgt => iscsi::measure_tgt(side, programs, seconds),
            Server::IscsiLimit => iscsi::measure_limit(side, programs, seconds),
            Server::Nobody => {
                let path = programs.path(side.disk).ok_or("this disk is no file")?;
                let path = path.to_string_lossy();
                match side.client {
                    Client::Bench => fabrix::bench(programs, &path, side, seconds),
                    _ => fio::measure(side, &path, seconds),
                }
            }
            _ => attach::measure(side, programs, seconds),
        }
    }
}

impl Serving {
    /// Starts what stays, and writes its disk once; it sleeps until it is measured.
    fn start(side: &Side, programs: &Programs) -> Result<Self, String> {
        Ok(match side.server {
            Server::Fabrix => {
                let target = Target::start(side, programs)?;
                target.fill(programs)?;
                target.process.pause()?;
                Self::Ours(Rc::new(target))
            }
            Server::BareSockets => {
                let region_mib = (DISK_BYTES >> 20) / u64::from(side.shards);
                let pairs = side
                    .cpus()
                    .map(|cpus| Ceiling::start(side, programs, cpus, region_mib));
                Self::Bare(pairs.collect::<Result<_, _>>()?)
            }
            Server::Spdk => {
                let served = Spdk::find()?.serve(side.disk, programs)?;
                served.process.pause()?;
                Self::Spdk(Rc::new(served))
            }
            _ => Self::Nothing,
        })
    }
}
