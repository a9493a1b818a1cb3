//! The worker threads of a run: started, synchronised, observed and joined.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use fabrix_block::Device;
use fabrix_rt::{ShardThread, TaskId, spawn};

use super::monitor::Monitor;
use super::starts::Starts;
use super::{Config, CopyTo, Part, Progress, RunError, overlap};
use crate::arrivals::{Flow, Member};
use crate::job::{Job, JobError, Region, Rw};
use crate::results::{Results, Tally};
use crate::series::Moved;
use crate::words::Counted;
use crate::worker::{Command, Counters, Destination, Event, Setup, Worker};

/// The worker threads of a run. Dropping this value stops and joins them.
pub(super) struct Workers {
    threads: Vec<ShardThread>,
    /// Workers that are ready: index of the thread, and task on its shard.
    ready: Vec<(usize, TaskId)>,
    counters: Vec<Arc<Counters>>,
    /// Index of the part that each worker belongs to.
    part_of: Vec<usize>,
    events: Receiver<Event>,
    /// Number of jobs that have sent their result.
    ended: usize,
}

impl Workers {
    /// Starts one thread per job. Their channels may still be opening when this function returns.
    pub(super) fn spawn_all(parts: &[Part<'_>], config: &Config) -> Result<Self, RunError> {
        let (sender, events) = mpsc::channel();
        let mut workers = Self {
            threads: Vec::new(),
            ready: Vec::new(),
            counters: Vec::new(),
            part_of: Vec::new(),
            events,
            ended: 0,
        };
        let planned: Result<Vec<_>, _> = parts.iter().map(plan).collect();
        let planned = planned.map_err(RunError::Job)?;
        overlap::check(parts, &planned).map_err(RunError::Job)?;
        let mut flows: HashMap<u32, Arc<Flow>> = HashMap::new();
        for (part, regions) in planned.into_iter().enumerate() {
            let Part {
                devices,
                job,
                copy_to,
                start: part_start,
            } = parts[part];
            // A random run id, so that blocks of an earlier run with the same seed are not mistaken
            // for new ones.
            let run = RandomState::new().hash_one(job.seed);
            for (index, region) in (0..job.numjobs).zip(regions) {
                let device = Arc::clone(device(devices, index));
                let counters = Arc::new(Counters::default());
                let copy_to = copy_to.map(|to| destination(job, region, &device, to));
                let mut flow = job.flow.map(|share| {
                    let flow = flows.entry(share.id).or_default();
                    Member::new(share, Arc::clone(flow))
                });
                if part_start.after.is_none() && part_start.delay.is_zero() {
                    flow.iter_mut().for_each(Member::join);
                }
                let setup = Setup {
                    worker: workers.threads.len(),
                    index,
                    job: job.clone(),
                    region,
                    flow,
                    copy_to: copy_to.transpose().map_err(RunError::Job)?,
                    block_bytes: device.geometry().block_bytes,
                    max_transfer_bytes: device.geometry().max_transfer_bytes,
                    run,
                    drain: config.drain,
                    stop_drain: config.stop_drain,
                    counters: Arc::clone(&counters),
                    events: sender.clone(),
                };
                workers.counters.push(counters);
                workers.part_of.push(part);
                workers.threads.push(start(device, setup, config)?);
            }
        }
        Ok(workers)
    }

    /// Waits until every disk has answered a first read. A stop by the user shortens the wait.
    pub(super) fn wait_until_ready(&mut self, config: &Config) -> Result<(), RunError> {
        let mut deadline = Instant::now() + config.ready;
        let mut stopped = false;
        while self.ready.len() < self.threads.len() {
            if !stopped && config.is_stopped() {
                stopped = true;
                deadline = deadline.min(Instant::now() + config.stop_drain);
            }
            match self.next_event(deadline)? {
                Some(Event::Ready(index, task)) => self.ready.push((index, task)),
                Some(Event::Failed(sentence)) => return Err(RunError::Start(sentence)),
                Some(Event::Ended(worker, tally)) => {
                    let why = tally.errors.first.or(tally.ended_early).unwrap_or_default();
                    let sentence = format!("the first read of job {worker} failed: {why}");
                    return Err(RunError::Start(sentence));
                }
                None if Instant::now() < deadline => {}
                None if stopped => {
                    let sentence = "interrupted before the disk had answered a first read";
                    return Err(RunError::Start(sentence.into()));
                }
                None => {
                    let (ready, jobs) = (self.ready.len(), self.threads.len());
                    let seconds = config.ready.as_secs_f64();
                    return Err(RunError::Start(format!(
                        "{ready} of {jobs} jobs have a disk that answered a first read within {seconds} s"
                    )));
                }
            }
        }
        Ok(())
    }

    /// The next event. None after `deadline`, or after `NOTICE` to let the caller check other
    /// conditions.
    ///
    /// Errors: a thread has ended without sending its result.
    fn next_event(&mut self, deadline: Instant) -> Result<Option<Event>, RunError> {
        // The count is taken before the wait: the events of these threads are already in the queue.
        // If the queue stays empty, a thread ended without an event.
        let over = self
            .threads
            .iter()
            .filter(|thread| thread.join.is_finished())
            .count();
        let wait = deadline
            .saturating_duration_since(Instant::now())
            .min(NOTICE);
        match self.events.recv_timeout(wait) {
            Ok(event) => {
                self.ended += usize::from(matches!(event, Event::Ended(..)));
                Ok(Some(event))
            }
            Err(RecvTimeoutError::Timeout) if over <= self.ended => Ok(None),
            Err(_) => Err(RunError::Lost(LOST.into())),
        }
    }

    /// Starts the workers of a part.
    fn start(&self, part: usize) -> Result<(), RunError> {
        let mut workers = self
            .ready
            .iter()
            .filter(|(index, _)| self.part_of[*index] == part);
        match workers.find(|worker| !self.send(worker, Command::Start)) {
            None => Ok(()),
            Some((index, _)) => {
                let sentence = format!("job {index} does not take messages any more");
                Err(RunError::Lost(sentence))
            }
        }
    }

    /// Sends a command to all workers. Workers that have already ended do not receive it.
    fn send_to_all(&self, command: fn() -> Command) {
        for worker in &self.ready {
            let _has_ended = self.send(worker, command());
        }
    }

    /// Sends a command to a worker. False: the worker has ended.
    fn send(&self, (index, task): &(usize, TaskId), command: Command) -> bool {
        let remote = &self.threads[*index].remote;
        remote.send(*task, Box::new(command)).is_ok()
    }

    /// Observes the run from the common start to the last result.
    pub(super) fn observe(
        &mut self,
        parts: &[Part<'_>],
        config: &Config,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Vec<Results>, RunError> {
        let mut monitor = Monitor::new(parts);
        let mut starts = Starts::new(parts, monitor.began);
        let mut tallies: Vec<Option<Tally>> = self.threads.iter().map(|_| None).collect();
        let mut next_progress = monitor.began + config.progress_every;
        let mut stopping = false;
        while self.ended < tallies.len() {
            for part in starts.due(Instant::now()) {
                self.start(part)?;
            }
            let next = monitor.next_reading(next_progress);
            let next = starts.next().map_or(next, |start| start.min(next));
            if let Some(Event::Ended(worker, tally)) = self.next_event(next)? {
                let part = self.part_of[worker];
                tallies[worker] = Some(*tally);
                monitor.ended(part, |part| self.counted(part));
                if starts.ended(part, Instant::now()) && !stopping {
                    stopping = true;
                    starts.cancel();
                    self.send_to_all(|| Command::End);
                }
            }
            monitor.sample(|part| self.counted(part));
            if Instant::now() >= next_progress {
                next_progress += config.progress_every;
                let (counted, errors) = (|part| self.counted(part), self.errors());
                progress(&monitor.progress(errors, counted));
                if !stopping && monitor.is_steady() {
                    stopping = true;
                    self.send_to_all(|| Command::End);
                }
            }
            if !stopping && config.is_stopped() {
                stopping = true;
                starts.cancel();
                self.send_to_all(|| Command::Stop);
            }
        }
        let mut of_parts: Vec<Vec<Tally>> = parts.iter().map(|_| Vec::new()).collect();
        for (part, tally) in self.part_of.iter().zip(tallies) {
            of_parts[*part].extend(tally);
        }
        Ok(monitor.results(&of_parts))
    }

    /// Counters of all threads of a part.
    fn counted(&self, part: usize) -> [Moved; 3] {
        let mut sum = [Moved::default(); 3];
        let members = self
            .counters
            .iter()
            .zip(&self.part_of)
            .filter(|(_, of)| **of == part);
        for (counters, _) in members {
            for (sum, side) in sum.iter_mut().zip(&counters.sides) {
                sum.add(Moved {
                    ios: side.ios.load(Relaxed),
                    bytes: side.bytes.load(Relaxed),
                    wait_ns: side.wait_ns.load(Relaxed),
                });
            }
        }
        sum
    }

    fn errors(&self) -> u64 {
        self.counters
            .iter()
            .map(|counters| counters.errors.load(Relaxed))
            .sum()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.threads.iter().for_each(|thread| thread.remote.stop());
        for thread in self.threads.drain(..) {
            // A panicking thread has printed its message, and its job is reported as lost.
            let _ = thread.join.join();
        }
    }
}

/// The regions of all jobs of a part, or the reason why one is impossible.
fn plan(part: &Part<'_>) -> Result<Vec<Region>, JobError> {
    let Part { devices, job, .. } = *part;
    let disks = u32::try_from(devices.len()).unwrap_or(u32::MAX);
    if disks == 0 {
        return Err(JobError(format!("job \"{}\" names no disk", job.name)));
    }
    if job.numjobs < disks {
        return Err(JobError(format!(
            "job \"{}\": numjobs={} is too few for {}: each job works on one of them",
            job.name,
            job.numjobs,
            Counted(disks.into(), "disk")
        )));
    }
    (0..job.numjobs)
        .map(|index| job.region(index, device(devices, index).geometry()))
        .collect()
}

/// The destination of a copy, checked against its disk.
fn destination(
    job: &Job,
    region: Region,
    source: &Arc<dyn Device>,
    to: CopyTo<'_>,
) -> Result<Destination, JobError> {
    if job.rw != Rw::Read || job.verify.is_some() {
        let sentence = "a copy reads from start to end, and does not verify";
        return Err(JobError(format!("job \"{}\": {sentence}", job.name)));
    }
    let unit = region.blocks_per_unit * source.geometry().block_bytes;
    for geometry in [source.geometry(), to.device.geometry()] {
        job.check_whole(geometry)?;
    }
    // The writes of the copy are checked like a job on the destination disk.
    let writes = Job {
        name: format!("{}, the copy", job.name),
        rw: Rw::Write,
        offset: to.offset,
        size: Some(region.units * u64::from(unit)),
        offset_increment: 0,
        ..job.clone()
    };
    Ok(Destination {
        device: Arc::clone(to.device),
        region: writes.region(0, to.device.geometry())?,
    })
}

/// The disk of a job.
pub(super) fn device(devices: &[Arc<dyn Device>], index: u32) -> &Arc<dyn Device> {
    &devices[index as usize % devices.len()]
}

/// Starts the thread of one job.
fn start(device: Arc<dyn Device>, setup: Setup, config: &Config) -> Result<ShardThread, RunError> {
    let worker = setup.worker;
    let pinned = (!config.pin.is_empty()).then(|| config.pin[worker % config.pin.len()]);
    let mut shard = config.shard;
    shard.id = worker;
    let buffers = usize::try_from(setup.job.buffer_bytes()).unwrap_or(usize::MAX);
    // A page-aligned buffer may take up to twice its length, and the disk needs memory too.
    shard.arena_bytes = shard.arena_bytes.saturating_add(buffers.saturating_mul(2));
    let begun = spawn(shard, pinned, move |shard| {
        let events = setup.events.clone();
        if let Err(sentence) = Worker::start(shard, &*device, setup) {
            // The receiver is gone when the run has already failed.
            let _ = events.send(Event::Failed(sentence));
            shard.stop();
        }
    });
    begun.map_err(|error| RunError::Start(format!("job {worker} cannot have a thread: {error}")))
}

const LOST: &str =
    "a job's thread is gone without a result; this is a fault of the program, please report it";

/// Longest time until a lost thread is noticed.
const NOTICE: Duration = Duration::from_millis(200);
