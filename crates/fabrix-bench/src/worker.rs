//! One running job: a task that keeps requests in flight on one channel of one shard.
//!
//! A request occupies a slot from its submission to its completion. The slot's buffers are
//! allocated before the first request and travel with the requests. If the disk answers at once,
//! the worker loops without recursion, at most [`TURN_BATCH`] requests per turn, so that timers and
//! other tasks of the shard can run. The completion of a request also starts the next one.
//! `clock.rs` decides how often the clock is read.
//!
//! This file chooses the next request, which `access`, `arrivals` and `verify` determine. `slot.rs`
//! keeps requests and their buffers. `submission.rs` hands requests to the disk, and `ending.rs`
//! handles completions. `lifecycle.rs` leads the job from the first read to the report.

mod backlog;
mod clock;
mod copy;
mod ending;
mod flushing;
mod lifecycle;
mod limits;
mod pieces;
mod setup;
mod slot;
mod submission;
mod timers;
mod watch;

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use fabrix_block::{Channel, Device, Status};
use fabrix_rt::{Completion, Shard, Task, TaskId};

use crate::access::{Access, Direction, Sequence};
use crate::arrivals::Arrivals;
use crate::contents::Filler;
use crate::latency::Recorder;
use crate::random::mix;
use crate::results::Tally;
use crate::verify::Verifier;
use backlog::Backlog;
use clock::Clock;
use copy::Copy;
use flushing::Flushing;
use lifecycle::{JobPhase, Lifecycle};
use limits::Limits;
use pieces::Pieces;
pub(crate) use setup::{Command, Counters, Destination, Event, Setup};
use slot::{Slot, longest, take_buffers};
use watch::Watch;

/// Largest number of requests that a job starts in one turn of its shard.
const TURN_BATCH: u32 = 256;

/// State of one job.
pub(crate) struct Worker {
    id: TaskId,
    channel: Option<Box<dyn Channel>>,
    setup: Setup,
    sequence: Sequence,
    arrivals: Arrivals,
    verifier: Option<Verifier>,
    /// Written units to be read back before the end (`verify_backlog`).
    backlog: Option<Backlog>,
    copy: Option<Copy>,
    flushing: Flushing,
    slots: Vec<Slot>,
    pieces: Pieces,
    /// Contents of unverified writes.
    filler: Filler,
    /// Free slots, of split requests the first ones. The slot that has been free longest comes
    /// first.
    idle: VecDeque<u32>,
    /// Free slots that are not used for now.
    resting: VecDeque<u32>,
    /// Number of resting slots that the search for the depth keeps back.
    kept_back: usize,
    watch: Option<Watch>,
    /// Whether nothing but counting follows a request: no copy, and no watch.
    is_plain: bool,
    /// Drawn request of a verifying job, with its scheduled start, whose unit is still in flight.
    held: Option<(Access, u64)>,
    /// Slot whose request the disk answered with `Busy`.
    parked: Option<u32>,
    in_flight: u32,
    /// Requests started since the current counting phase began, and their bytes.
    started: u64,
    started_bytes: u64,
    /// Bytes per unit of the region.
    unit_bytes: u32,
    /// Buffer lengths in bytes: the longest read and the longest write.
    longest: [usize; 2],
    limits: Limits,
    lifecycle: Lifecycle,
    clock: Clock,
    tally: Tally,
}

impl Worker {
    /// Opens the disk on this shard and submits a first read.
    ///
    /// Errors: a sentence when the disk cannot be opened or the shard lacks memory.
    pub(crate) fn start(
        shard: &mut Shard,
        device: &dyn Device,
        setup: Setup,
    ) -> Result<(), String> {
        let channel = device.open(shard).map_err(|error| error.to_string())?;
        let copy = match &setup.copy_to {
            Some(to) => Some(Copy::open(shard, to, setup.job.iodepth)?),
            None => None,
        };
        let id = shard.reserve();
        let mut worker = Self::new(shard, id, channel, setup)?;
        worker.copy = copy;
        let worker = Rc::new(RefCell::new(worker));
        shard.install(id, Rc::clone(&worker) as Rc<RefCell<dyn Task>>);
        worker.borrow_mut().pump(shard);
        Ok(())
    }

    /// Allocates all buffers and tables of the job.
    fn new(
        shard: &mut Shard,
        id: TaskId,
        channel: Box<dyn Channel>,
        mut setup: Setup,
    ) -> Result<Self, String> {
        let flow = setup.flow.take();
        let job = &setup.job;
        let seed = mix(job.seed ^ u64::from(setup.index));
        let shortest = job.sizes(true).iter().map(|share| share.bytes).min();
        let shortest = shortest.unwrap_or(job.block_bytes);
        let mut filler = Filler::new(job.contents.clone(), shortest, seed);
        let pieces = Pieces::new(&setup);
        let slots = take_buffers(shard, job, &pieces, &mut filler).ok_or_else(|| {
            let bytes = job.buffer_bytes();
            format!(
                "job {} cannot have its {bytes} bytes of buffers; lower iodepth or bs",
                setup.index
            )
        })?;
        let mut tally = Tally::new(job.is_open_loop(), job.verify.is_some());
        tally.depth = job.iodepth;
        tally.sync = (job.flushes.every > 0).then(Recorder::new);
        Ok(Self {
            id,
            channel: Some(channel),
            sequence: Sequence::new(job, setup.index, &setup.region),
            arrivals: Arrivals::new(job.rate, job.side_rates, job.bursts, flow, mix(seed)),
            verifier: job.verify.as_ref().map(|options| {
                let writes = job.percent_read() < 100;
                Verifier::new(options, setup.region, setup.block_bytes, setup.run, writes)
            }),
            backlog: job
                .verify
                .as_ref()
                .and_then(|options| Backlog::new(options, &setup.region, job.iodepth)),
            copy: None,
            flushing: Flushing::new(job),
            slots,
            filler,
            idle: pieces.first_slots(job.iodepth),
            resting: VecDeque::with_capacity(job.iodepth as usize),
            kept_back: 0,
            watch: Watch::new(job),
            is_plain: setup.copy_to.is_none() && Watch::new(job).is_none(),
            held: None,
            parked: None,
            in_flight: 0,
            started: 0,
            started_bytes: 0,
            longest: [false, true].map(|write| longest(job, write).min(pieces.longest_bytes())),
            pieces,
            unit_bytes: setup.region.blocks_per_unit * setup.block_bytes,
            limits: Limits::new(&setup),
            lifecycle: Lifecycle::default(),
            clock: Clock::new(),
            tally,
            setup,
        })
    }

    /// Starts requests until the disk is busy, the depth is reached, the schedule says wait, or the
    /// turn's batch is used up.
    fn pump(&mut self, shard: &mut Shard) {
        for _ in 0..TURN_BATCH {
            let Some(slot) = self.next_slot(shard) else {
                return self.check_phase_complete(shard);
            };
            if !self.submit(shard, slot) {
                return self.wait_for_room(shard);
            }
        }
        shard.flush_later(self.id);
    }

    /// The slot of the next request, prepared. None when no request may start now.
    fn next_slot(&mut self, shard: &mut Shard) -> Option<u32> {
        self.advance(shard);
        if let Some(slot) = self.next_copy().or_else(|| self.parked.take()) {
            return Some(slot);
        }
        if let Some(slot) = self.next_piece(shard) {
            return Some(slot);
        }
        let slot = *self.idle.front()?;
        // The reads of the verification do not bring the job nearer to its end.
        let mut is_load = true;
        let (access, scheduled_ns) = match self.lifecycle.phase {
            JobPhase::Probe if self.started == 0 => (self.probe(), self.clock.now_ns()),
            JobPhase::Ramp { .. } | JobPhase::Measure { .. } if self.flushing.is_due => {
                return self.next_flush();
            }
            JobPhase::Ramp { .. } | JobPhase::Measure { .. } => match self.next_of_backlog() {
                Some(access) => {
                    is_load = false;
                    (access, self.clock.now_ns())
                }
                None => self.next_access(shard)?,
            },
            JobPhase::ReadBack { next } => {
                is_load = false;
                (self.next_known(next)?, self.clock.now_ns())
            }
            _ => return None,
        };
        self.idle.pop_front();
        let free = self.idle.len() + self.resting.len();
        self.tally
            .depths
            .count(self.setup.job.iodepth as usize - free);
        // As in fio, the trim before a write does not count.
        let counts = access.direction != Direction::Trim || self.setup.job.rw.trims_only();
        if is_load && counts {
            self.started += 1;
            self.started_bytes += self.bytes(access) as u64;
            self.flushing.count(access.direction == Direction::Write);
        }
        self.prepare(shard, slot, access, scheduled_ns);
        Some(slot)
    }

    /// The first read, which establishes the disk's connections. It is not counted, and its failure
    /// ends the job.
    fn probe(&mut self) -> Access {
        let first = Access {
            unit: 0,
            units: 1,
            direction: Direction::Read,
        };
        self.verifier
            .iter_mut()
            .for_each(|verifier| assert!(verifier.claim(first.unit), "nothing is in flight"));
        first
    }

    /// The next request of the job and its scheduled start, if it is due.
    fn next_access(&mut self, shard: &mut Shard) -> Option<(Access, u64)> {
        let next = match self.held.take() {
            Some(held) => held,
            None => {
                let Some(start) = self.arrivals.due(self.clock.now_ns()) else {
                    self.wait_for_arrival(shard);
                    return None;
                };
                let access = match start.write {
                    None => self.sequence.draw(),
                    Some(write) => self.sequence.draw_side(write),
                };
                (access, start.scheduled_ns)
            }
        };
        if let Some(verifier) = &mut self.verifier
            && !verifier.claim(next.0.unit)
        {
            // The completion of the request in flight there starts this one.
            self.held = Some(next);
            return None;
        }
        Some(next)
    }

    /// The next unit to read back.
    fn next_known(&mut self, from: u64) -> Option<Access> {
        let verifier = self
            .verifier
            .as_mut()
            .expect("only a verifying job reads back");
        let unit = match &mut self.backlog {
            // A unit that was written twice may be read back already.
            Some(backlog) => {
                std::iter::from_fn(|| backlog.next_left()).find(|unit| verifier.claim(*unit))
            }
            None => {
                let unit = verifier.next_known(from);
                let free = unit.is_none_or(|unit| verifier.claim(unit));
                assert!(free, "everything was drained before reading back");
                unit
            }
        };
        let next = match self.backlog {
            Some(_) if unit.is_some() => from,
            _ => unit.map_or(self.setup.region.units, |unit| unit + 1),
        };
        self.lifecycle.phase = JobPhase::ReadBack { next };
        let unit = unit?;
        Some(Access {
            unit,
            units: 1,
            direction: Direction::Read,
        })
    }

    fn bytes(&self, access: Access) -> usize {
        (access.units * self.unit_bytes) as usize
    }
}

impl Task for Worker {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        if self.verifier.is_some() {
            // Verification takes longer than a clock reading, so the clock is read for every
            // completion.
            self.clock.read();
        } else {
            self.clock.ending(shard.now());
        }
        self.finish(
            shard,
            slot,
            Status::from_result(completion.result),
            completion.loan,
        );
        self.pump(shard);
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        self.clock.read();
        self.woken(shard, slot);
        self.pump(shard);
    }

    fn flush(&mut self, shard: &mut Shard) {
        self.clock.read();
        self.pump(shard);
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        self.clock.read();
        match message.downcast().map(|command| *command) {
            Ok(Command::Start) => self.begin(shard),
            Ok(Command::Stop) => self.stop(shard),
            Ok(Command::End) => self.end_now(shard),
            Err(_) => debug_assert!(false, "only the run knows this task, and it sends commands"),
        }
    }
}
