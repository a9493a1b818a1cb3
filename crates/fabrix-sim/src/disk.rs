//! A simulated disk with a volatile cache: every request takes effect at one instant between its
//! submission and its end, and both instants are choices.

mod channel;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fabrix_block::{
    Channel, Deallocate, Device, Durability, Geometry, Identity, OpenError, Operation, Status,
};
use fabrix_rt::Shard;

use self::channel::Pending;
pub(crate) use self::channel::source;
use crate::backing::{self, Backing};
use crate::choices::Choices;
use crate::disk_faults::DiskFaults;
use crate::images::{BLOCK_BYTES, Images, Place};
use crate::trace;

/// How the disk of a world behaves.
#[derive(Clone, Debug)]
pub(crate) struct DiskHabits {
    /// Blocks of the disk.
    pub(crate) blocks: u64,
    /// Most time that a request takes.
    pub(crate) longest: Duration,
    /// Whether a loss of power may take answered writes that no flush has followed.
    pub(crate) volatile_cache: bool,
    /// What a deallocated block holds.
    pub(crate) deallocate: Deallocate,
    /// Whether some requests end when they are submitted.
    pub(crate) ends_at_once: bool,
    /// Whether processes of several machines use the disk. Such a disk compares and writes itself,
    /// and executes each write that a process has submitted, also after the end of the process.
    pub(crate) is_shared: bool,
    /// How the disk fails.
    pub(crate) faults: DiskFaults,
}

impl DiskHabits {
    /// Habits of a disk that does not fail.
    pub(crate) fn draw(blocks: u64, choices: &mut Choices) -> Self {
        Self {
            blocks,
            longest: backing::longest(choices),
            volatile_cache: !choices.once_in(4),
            deallocate: choices.one_of(&[Deallocate::Zeroes, Deallocate::Undefined]),
            ends_at_once: choices.once_in(3),
            is_shared: false,
            faults: DiskFaults::default(),
        }
    }
}

/// A disk of a world.
pub(crate) struct SimDisk {
    geometry: Geometry,
    identity: Identity,
    state: Arc<Mutex<State>>,
    /// Requests in progress.
    requests: Arc<AtomicUsize>,
}

struct State {
    images: Images,
    habits: DiskHabits,
    choices: Choices,
    next_channel: u64,
    power_losses: u64,
    /// A flush has failed: none is believed until the power fails, and everything is read again.
    is_degraded: bool,
}

impl SimDisk {
    /// A disk of zeroes.
    pub(crate) fn new(habits: DiskHabits, choices: Choices) -> Arc<Self> {
        Self::named("simulated", habits, choices)
    }

    /// A disk of zeroes, whose identity is derived from a name.
    pub(crate) fn named(name: &str, habits: DiskHabits, choices: Choices) -> Arc<Self> {
        let mut geometry = Geometry::new(BLOCK_BYTES, habits.blocks);
        geometry.volatile_cache = habits.volatile_cache;
        geometry.durability = Durability::Device;
        geometry.deallocate = habits.deallocate;
        let bytes = usize::try_from(geometry.bytes()).expect("a small disk");
        Arc::new(Self {
            geometry,
            identity: Identity::derive("simulated", name, "Simulated disk"),
            state: Arc::new(Mutex::new(State {
                images: Images::new(bytes),
                habits,
                choices,
                next_channel: 0,
                power_losses: 0,
                is_degraded: false,
            })),
            requests: Arc::default(),
        })
    }

    /// The same disk for another machine, whose requests are counted apart.
    pub(crate) fn for_another_machine(&self) -> Arc<Self> {
        Arc::new(Self {
            geometry: self.geometry.clone(),
            identity: self.identity.clone(),
            state: Arc::clone(&self.state),
            requests: Arc::default(),
        })
    }

    /// Requests in progress of processes that have not ended.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic in a disk")
    }
}

impl Backing for Arc<SimDisk> {
    fn open(&self) -> Arc<dyn Device> {
        Self::clone(self) as _
    }

    fn image(&self) -> Vec<u8> {
        self.state().images.seen().to_vec()
    }

    fn lose_power(&self) {
        let state = &mut *self.state();
        state.images.lose_power(&mut state.choices);
        state.power_losses += 1;
        state.is_degraded = false;
    }
}

impl Device for SimDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn compares_and_writes(&self) -> bool {
        self.state().habits.is_shared
    }

    /// A smaller disk loses what is behind its end. A larger one has zeroes there.
    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        let mut state = self.state();
        if let Some(bytes) = bytes {
            let bytes = usize::try_from(bytes).expect("a small disk");
            state.images.resize(bytes);
        }
        let mut geometry = self.geometry.clone();
        geometry.blocks = state.images.whole().end as u64 / u64::from(BLOCK_BYTES);
        Ok(Arc::new(Self {
            geometry,
            identity: self.identity.clone(),
            state: Arc::clone(&self.state),
            requests: Arc::clone(&self.requests),
        }))
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let mut state = self.state();
        state.next_channel += 1;
        let channel = state.next_channel;
        drop(state);
        let geometry = self.geometry.clone();
        let shared = (&self.state, &self.requests);
        Ok(channel::open(shard, channel, geometry, shared))
    }
}

impl State {
    fn take_effect(&mut self, pending: &mut Pending, place: Place) -> Status {
        let status = self.carry_out(pending, place);
        trace::note(|| pending.entry(self.images.seen()).status(status));
        status
    }

    /// A write takes effect whose process has ended, unless the power was lost since.
    fn take_late_effect(&mut self, pending: &mut Pending, place: Place) {
        match pending.power_losses == self.power_losses {
            true => drop(self.take_effect(pending, place)),
            false => self.images.give_back(place),
        }
    }

    fn carry_out(&mut self, pending: &mut Pending, place: Place) -> Status {
        if pending.range.end > self.images.whole().end {
            // The disk has become smaller.
            self.images.give_back(place);
            return Status::OutOfRange;
        }
        let operation = pending.operation;
        let faults = &self.habits.faults;
        let verdict = faults.verdict(&mut self.choices, operation, &pending.blocks());
        match operation {
            Operation::Read => {
                let buf = pending.buf.as_mut().expect("a read has a buffer");
                let into = &mut buf.bytes_mut()[..pending.range.len()];
                match verdict {
                    Status::Ok => into.copy_from_slice(&self.images.seen()[pending.range.clone()]),
                    _ => into.fill(WRONG),
                }
                verdict
            }
            Operation::Flush => self.make_durable(self.images.whole()),
            _ if !pending.finds_expected(self.images.seen()) => Status::CompareFailed,
            Operation::Write { .. }
            | Operation::WriteZeroes { .. }
            | Operation::Deallocate
            | Operation::CompareAndWrite { .. } => {
                if let Some(comparison) = pending.comparison.take() {
                    self.images.begin(place, comparison.write);
                }
                if !verdict.is_ok() {
                    self.images.tear(place, &mut self.choices);
                    return verdict;
                }
                let bytes = pending.range.len();
                let changed = self.images.take_effect(place, bytes, &mut self.choices);
                match operation.promises_durability() || !self.habits.volatile_cache {
                    true => self.make_durable(changed),
                    false => Status::Ok,
                }
            }
        }
    }

    /// Writes a range back to the medium. When that fails, nothing is durable any more.
    fn make_durable(&mut self, range: Range<usize>) -> Status {
        let fails = self.choices.below(1000) < self.habits.faults.lost_flushes;
        if fails
            && self.habits.volatile_cache
            && self.images.give_up(range.clone(), &mut self.choices)
        {
            self.is_degraded = true;
        }
        self.images.write_back(range);
        match self.is_degraded {
            true => Status::Degraded,
            false => Status::Ok,
        }
    }
}

/// Fills the buffer of a read that has failed. Nobody may take it for data.
const WRONG: u8 = 0xEE;
