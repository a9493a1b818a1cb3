//! Runs one job specification: a thread per job, a common start, the progress meanwhile, the results at the end.
//!
//! The calling thread waits and adds up; it touches no disk. Every way out, good or bad, ends and joins all
//! threads.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use fabrix_block::Device;
use fabrix_rt::{ShardConfig, ShardThread, TaskId, spawn};

use crate::cpu::Snapshot;
use crate::job::{Job, JobError, Region};
use crate::latency::real;
use crate::results::{Results, Tally};
use crate::worker::{Command, Counters, Event, Setup, Worker};

/// How a run is carried out; nothing here changes what is asked of the disk.
#[derive(Clone)]
pub struct Config {
    /// What each job's shard is made of. Its memory limit is raised to what the job's buffers need.
    pub shard: ShardConfig,
    /// The cores of the jobs, job `i` on core `i % len`; empty: the scheduler's choice.
    pub pin: Vec<usize>,
    /// How often the progress is told.
    pub progress_every: Duration,
    /// How long the disk may take to answer its first read.
    pub ready: Duration,
    /// How long the last requests may go without any answer.
    pub drain: Duration,
    /// Becomes true when the user has seen enough; the results until then are given.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            shard: ShardConfig::default(),
            pin: Vec::new(),
            progress_every: Duration::from_millis(500),
            ready: Duration::from_secs(30),
            drain: Duration::from_secs(30),
            stop: None,
        }
    }
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The load runs and does not count yet.
    Ramp,
    /// The load runs and counts.
    Measuring,
    /// The load is over; last answers are waited for, or what was written is read back.
    Finishing,
}

/// What can be said while a run lasts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// What the run is doing.
    pub phase: Phase,
    /// Time since the load began.
    pub elapsed: Duration,
    /// Ramp and measured time together.
    pub planned: Duration,
    /// Requests done since measuring began, during the ramp since the load began.
    pub ios: u64,
    /// Requests per second since the progress was last told.
    pub iops: f64,
    /// Bytes per second since the progress was last told.
    pub bw_bytes: f64,
    /// Failed requests so far.
    pub errors: u64,
}

/// Why there are no results: a sentence for the user.
#[derive(Debug)]
pub enum RunError {
    /// The job cannot be run on these disks.
    Job(JobError),
    /// A thread, a channel or memory was not to be had, or the disk did not answer its first read.
    Start(String),
    /// A thread ended without a result: our own mistake.
    Lost(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(error) => error.fmt(f),
            Self::Start(sentence) | Self::Lost(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for RunError {}

/// Runs a job on one disk or several, and waits for its end.
///
/// Each of `numjobs` jobs has a thread, a shard and a channel of its own; job `i` works on disk `i % disks`.
/// All begin together, when every channel has answered a first read. `progress` is called on this thread every
/// `config.progress_every`.
///
/// Errors: see [`RunError`]. Requests that fail are not errors of the run; they stand in the results.
pub fn run(
    devices: &[Arc<dyn Device>],
    job: &Job,
    config: &Config,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Results, RunError> {
    let regions = plan(devices, job).map_err(RunError::Job)?;
    let mut crew = Crew::gather(devices, job, config, &regions)?;
    crew.wait_until_ready(config.ready)?;
    crew.tell_all(|| Command::Start)?;
    crew.watch(job, config, progress)
}

/// The regions of all jobs, or why one of them cannot be.
fn plan(devices: &[Arc<dyn Device>], job: &Job) -> Result<Vec<Region>, JobError> {
    let disks = u32::try_from(devices.len()).unwrap_or(u32::MAX);
    if disks == 0 {
        return Err(JobError(format!("job \"{}\" names no disk", job.name)));
    }
    if job.numjobs < disks {
        return Err(JobError(format!(
            "job \"{}\": numjobs={} leaves disks idle, there are {disks}; each job works on one of them",
            job.name, job.numjobs
        )));
    }
    (0..job.numjobs)
        .map(|index| job.region(index, device(devices, index).geometry()))
        .collect()
}

fn device(devices: &[Arc<dyn Device>], index: u32) -> &Arc<dyn Device> {
    &devices[index as usize % devices.len()]
}

/// The threads of a run. Dropping it stops and joins them.
struct Crew {
    threads: Vec<ShardThread>,
    /// The jobs that are ready: whose shard, and which task of it.
    ready: Vec<(u32, TaskId)>,
    counters: Vec<Arc<Counters>>,
    events: Receiver<Event>,
    /// Jobs that have told how they ended.
    ended: usize,
}

impl Crew {
    /// Starts a thread per job; their channels open while this returns.
    fn gather(
        devices: &[Arc<dyn Device>],
        job: &Job,
        config: &Config,
        regions: &[Region],
    ) -> Result<Self, RunError> {
        let (sender, events) = mpsc::channel();
        let counters = regions.iter().map(|_| Arc::default()).collect();
        let mut crew = Self {
            threads: Vec::with_capacity(regions.len()),
            ready: Vec::new(),
            counters,
            events,
            ended: 0,
        };
        // Blocks of an earlier run with the same seed must not pass for this one's.
        let run = RandomState::new().hash_one(job.seed);
        for (index, region) in (0..job.numjobs).zip(regions) {
            let device = Arc::clone(device(devices, index));
            let setup = Setup {
                index,
                job: job.clone(),
                region: *region,
                block_bytes: device.geometry().block_bytes,
                run,
                drain: config.drain,
                counters: Arc::clone(&crew.counters[index as usize]),
                events: sender.clone(),
            };
            crew.threads.push(start(device, setup, config)?);
        }
        Ok(crew)
    }

    /// Waits until every disk has answered once.
    fn wait_until_ready(&mut self, patience: Duration) -> Result<(), RunError> {
        let deadline = Instant::now() + patience;
        while self.ready.len() < self.threads.len() {
            match self.next_event(deadline)? {
                Some(Event::Ready(index, task)) => self.ready.push((index, task)),
                Some(Event::Failed(sentence)) => return Err(RunError::Start(sentence)),
                Some(Event::Ended(index, tally)) => {
                    let why = tally.ended_early.unwrap_or_default();
                    let sentence = format!("job {index} ended before it began: {why}");
                    return Err(RunError::Start(sentence));
                }
                None if Instant::now() < deadline => {}
                None => {
                    let (ready, jobs) = (self.ready.len(), self.threads.len());
                    let seconds = patience.as_secs_f64();
                    return Err(RunError::Start(format!(
                        "{ready} of {jobs} jobs have a disk that answered a first read within {seconds} s"
                    )));
                }
            }
        }
        Ok(())
    }

    /// The next event; none by `deadline`, or when it is time to look around.
    ///
    /// Errors: a thread is over that has not told how its job ended.
    fn next_event(&mut self, deadline: Instant) -> Result<Option<Event>, RunError> {
        // Counted before waiting: what these threads have said is in the queue by now, so silence is a loss.
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

    fn tell_all(&self, command: fn() -> Command) -> Result<(), RunError> {
        for (index, task) in &self.ready {
            let told = self.threads[*index as usize]
                .remote
                .send(*task, Box::new(command()));
            told.map_err(|_| {
                RunError::Lost(format!("job {index} does not take messages any more"))
            })?;
        }
        Ok(())
    }

    /// From the common start to the last result.
    fn watch(
        &mut self,
        job: &Job,
        config: &Config,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Results, RunError> {
        let mut watch = Watch::new(job);
        let mut tallies: Vec<Option<Box<Tally>>> = self.threads.iter().map(|_| None).collect();
        let mut next_progress = watch.began + config.progress_every;
        let mut stopping = false;
        while self.ended < tallies.len() {
            let event = self.next_event(watch.wake(next_progress))?;
            if let Some(Event::Ended(index, tally)) = event {
                tallies[index as usize] = Some(tally);
                watch.ended();
            }
            watch.sample();
            if Instant::now() >= next_progress {
                next_progress += config.progress_every;
                progress(&watch.progress(&self.counters));
            }
            if !stopping && config.stop.as_ref().is_some_and(|stop| stop.load(Relaxed)) {
                stopping = true;
                self.tell_all(|| Command::Stop)?;
            }
        }
        let tallies: Vec<Box<Tally>> = tallies.into_iter().flatten().collect();
        Ok(watch.results(&tallies))
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.threads.iter().for_each(|thread| thread.remote.stop());
        for thread in self.threads.drain(..) {
            // A thread that panicked has already said so; its job is reported as lost.
            let _ = thread.join.join();
        }
    }
}

/// Starts the thread of one job.
fn start(device: Arc<dyn Device>, setup: Setup, config: &Config) -> Result<ShardThread, RunError> {
    let index = setup.index;
    let pinned = (!config.pin.is_empty()).then(|| config.pin[index as usize % config.pin.len()]);
    let mut shard = config.shard;
    shard.id = index as usize;
    let buffers = usize::try_from(setup.job.buffer_bytes()).unwrap_or(usize::MAX);
    // A page-aligned buffer may take up to twice its length, and the disk needs memory of its own.
    shard.arena_bytes = shard.arena_bytes.saturating_add(buffers.saturating_mul(2));
    let begun = spawn(shard, pinned, move |shard| {
        let events = setup.events.clone();
        if let Err(sentence) = Worker::start(shard, &*device, setup) {
            // Nobody listens when the run has already failed.
            let _ = events.send(Event::Failed(sentence));
            shard.stop();
        }
    });
    begun.map_err(|error| RunError::Start(format!("job {index} cannot have a thread: {error}")))
}

/// Time, progress and CPU of a run.
struct Watch<'a> {
    job: &'a Job,
    began: Instant,
    /// When measuring begins and ends, if nothing ends it before.
    window: (Instant, Instant),
    /// CPU at the beginning and at the end of the measured time.
    cpu: (Option<Snapshot>, Option<Snapshot>),
    told: (Instant, u64),
}

impl<'a> Watch<'a> {
    fn new(job: &'a Job) -> Self {
        let began = Instant::now();
        let measuring = began + job.ramp;
        let window = (measuring, measuring + job.runtime);
        let mut watch = Self {
            job,
            began,
            window,
            cpu: (None, None),
            told: (began, 0),
        };
        watch.sample();
        watch
    }

    /// Until when nothing is to be done: the next progress or CPU sample.
    fn wake(&self, next_progress: Instant) -> Instant {
        match &self.cpu {
            (None, _) => self.window.0.min(next_progress),
            (_, None) => self.window.1.min(next_progress),
            _ => next_progress,
        }
    }

    /// Reads the CPU counters when the measured time begins and when it ends.
    fn sample(&mut self) {
        let now = Instant::now();
        if self.cpu.0.is_none() && now >= self.window.0 {
            self.cpu.0 = Some(Snapshot::take());
        }
        if self.cpu.1.is_none() && now >= self.window.1 {
            self.cpu.1 = Some(Snapshot::take());
        }
    }

    /// A job has ended; when it is the first and before its time, the window ends here.
    fn ended(&mut self) {
        self.window.1 = self.window.1.min(Instant::now());
    }

    fn progress(&mut self, counters: &[Arc<Counters>]) -> Progress {
        let now = Instant::now();
        let ios: u64 = counters
            .iter()
            .map(|counters| counters.ios.load(Relaxed))
            .sum();
        let seconds = now.duration_since(self.told.0).as_secs_f64().max(1e-9);
        // The counters start over when measuring begins.
        let done = if ios >= self.told.1 {
            ios - self.told.1
        } else {
            ios
        };
        let iops = real(done.into()) / seconds;
        self.told = (now, ios);
        let phase = match () {
            () if now < self.window.0 => Phase::Ramp,
            () if now < self.window.1 => Phase::Measuring,
            () => Phase::Finishing,
        };
        Progress {
            phase,
            elapsed: now.duration_since(self.began),
            planned: self.job.ramp + self.job.runtime,
            ios,
            iops,
            bw_bytes: iops * f64::from(self.job.block_bytes),
            errors: counters
                .iter()
                .map(|counters| counters.errors.load(Relaxed))
                .sum(),
        }
    }

    fn results(self, tallies: &[Box<Tally>]) -> Results {
        let mut sum = Tally::new(self.job.rate.is_some(), self.job.verify);
        tallies.iter().for_each(|tally| sum.add(tally));
        let end = self.cpu.1.unwrap_or_else(Snapshot::take);
        let begin = self.cpu.0.unwrap_or_else(|| end.clone());
        let mut cpu = end.since(&begin);
        cpu.job_cores = tallies.iter().map(|tally| tally.cores()).sum();
        Results {
            job: self.job.clone(),
            jobs: tallies.iter().map(|tally| tally.result()).collect(),
            aggregate: sum.result(),
            cpu,
        }
    }
}

const LOST: &str =
    "a job's thread is gone without a result; this is a fault of the program, please report it";

/// How long a lost thread may stay unnoticed.
const NOTICE: Duration = Duration::from_millis(200);
