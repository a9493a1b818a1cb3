//! The world: shards, the network, and planned events, on one thread and by one clock.
//!
//! Which of several things that are due comes first is a choice. Control threads (a target that
//! starts, a host that connects) let the world go on while they wait.

mod control;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use std::sync::Arc;

use fabrix_rt::driver::Until;
use fabrix_rt::{Control, Nanos, Shard, ShardConfig, SpinPolicy, StartError, Wait};

use self::control::SimControl;
pub(crate) use self::control::{current, leave};
use crate::choices::Choices;
use crate::driver::SimDriver;
use crate::files::Files;
use crate::net::{Habits, Net};
use crate::rdma::Rdma;
use crate::report::Report;
use crate::run::{Cut, Run};
use crate::trace::{self, Entry};

/// Everything that happens in one run.
pub(crate) struct World {
    net: Net,
    files: Files,
    rdma: Rdma,
    choices: RefCell<Choices>,
    random: RefCell<Choices>,
    shards: RefCell<Vec<(usize, Rc<RefCell<Shard>>)>>,
    /// Shards that stand still, and until when.
    stopped: RefCell<BTreeMap<usize, Nanos>>,
    plans: RefCell<BinaryHeap<Reverse<(Nanos, u64)>>>,
    actions: RefCell<BTreeMap<u64, Action>>,
    next_plan: Cell<u64>,
    cut: Cut,
    faults_planned: Cell<u64>,
    calm_from: Cell<Nanos>,
    disk_hangs: Cell<bool>,
    turns: Cell<u64>,
    /// Most bytes of buffers in use on one shard.
    buffer_bytes: Cell<usize>,
    /// More than this is a fault.
    buffer_bytes_max: Cell<usize>,
    turns_at_once: Cell<(Nanos, u64)>,
}

/// Something planned for a time.
type Action = Box<dyn FnOnce(&Rc<World>)>;

impl World {
    /// A world without shards. It is the world of this thread until the next one is made.
    pub(crate) fn new(run: &Run, habits: Habits) -> Rc<Self> {
        let world = Rc::new(Self {
            net: Net::new(habits, run.choices(1)),
            files: Files::default(),
            rdma: Rdma::new(run.choices(RDMA)),
            choices: RefCell::new(run.choices(2)),
            random: RefCell::new(run.choices(3)),
            shards: RefCell::default(),
            stopped: RefCell::default(),
            plans: RefCell::default(),
            actions: RefCell::default(),
            next_plan: Cell::new(0),
            cut: run.cut().clone(),
            faults_planned: Cell::new(0),
            calm_from: Cell::default(),
            disk_hangs: Cell::new(false),
            turns: Cell::new(0),
            buffer_bytes: Cell::new(0),
            buffer_bytes_max: Cell::new(BUFFER_BYTES_MAX),
            turns_at_once: Cell::new((Nanos(0), 0)),
        });
        control::enter(&world);
        world
    }

    /// The network.
    pub(crate) fn net(&self) -> &Net {
        &self.net
    }

    /// The files.
    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// The RDMA network.
    pub(crate) fn rdma(&self) -> &Rdma {
        &self.rdma
    }

    /// The time.
    pub(crate) fn now(&self) -> Nanos {
        self.net.now()
    }

    /// Tells what has been counted until now. Much memory in use on a shard is a fault.
    pub(crate) fn count_into(&self, report: &mut Report) {
        report.digest = self.net.digest();
        report.turns = self.turns.get();
        report.buffer_bytes = self.buffer_bytes.get();
        report.faults.extend(self.rdma.faults());
        if report.buffer_bytes > self.buffer_bytes_max.get() {
            let fault = format!("a shard used {} bytes of buffers", report.buffer_bytes);
            report.faults.push(fault);
        }
    }

    /// Allows a shard so many bytes of buffers: its requests are long.
    pub(crate) fn allow_buffers(&self, bytes: usize) {
        self.buffer_bytes_max.set(bytes);
    }

    /// What hosts that have left have left behind in the network and in all shards, with a name for
    /// each.
    pub(crate) fn left(&self) -> Vec<(&'static str, usize)> {
        let shards = self.shards.borrow();
        let bytes = shards.iter().map(|(_, shard)| {
            let bytes = shard.borrow().buffer_bytes_in_use();
            bytes.checked_sub(ZEROES_BYTES).unwrap_or(bytes)
        });
        vec![
            ("sockets", self.net.ends()),
            ("ends of RDMA connections", self.rdma.ends()),
            ("bytes of buffers", bytes.sum()),
        ]
    }

    /// A control thread of this world.
    pub(crate) fn control(&self) -> Arc<dyn Control> {
        Arc::new(SimControl)
    }

    /// Adds a shard, which the world turns.
    pub(crate) fn add_shard(&self) -> (usize, Rc<RefCell<Shard>>) {
        let (id, shard) = self.make_shard(ShardConfig::default()).expect("a shard");
        let shard = Rc::new(RefCell::new(shard));
        self.shards.borrow_mut().push((id, Rc::clone(&shard)));
        (id, shard)
    }

    fn make_shard(&self, config: ShardConfig) -> Result<(usize, Shard), StartError> {
        let id = self.net.take_number();
        let config = ShardConfig {
            id,
            arena_bytes: ARENA_BYTES,
            spin: SpinPolicy::Never,
            ..config
        };
        let driver = Box::new(SimDriver::new(&self.net, &self.files, id));
        let mut shard = Shard::with_driver(&config, driver)?;
        self.rdma.add_shard(&mut shard);
        Ok((id, shard))
    }

    /// Ends a shard as kill -9 does: its tasks are dropped where they are, and the kernel closes
    /// their sockets.
    pub(crate) fn kill(&self, id: usize) {
        let mut shards = self.shards.borrow_mut();
        let index = shards.iter().position(|(it, _)| *it == id);
        let shard = index.map(|index| shards.remove(index));
        drop(shards);
        drop(shard);
    }

    /// The numbers of the shards that the world turns.
    pub(crate) fn shard_ids(&self) -> Vec<usize> {
        self.shards.borrow().iter().map(|(id, _)| *id).collect()
    }

    /// Requests hang at the disk of this world for longer than an outage takes.
    pub(crate) fn set_disk_hangs(&self) {
        self.disk_hangs.set(true);
    }

    /// Whether requests hang at the disk.
    pub(crate) fn disk_hangs(&self) -> bool {
        self.disk_hangs.get()
    }

    /// Lets a shard stand still until a time, as a suspended process does.
    pub(crate) fn stop_shard(&self, id: usize, until: Nanos) {
        self.stopped.borrow_mut().insert(id, until);
    }

    /// Plans an action.
    pub(crate) fn plan(&self, at: Nanos, action: impl FnOnce(&Rc<Self>) + 'static) {
        let number = self.next_plan.replace(self.next_plan.get() + 1);
        self.plans.borrow_mut().push(Reverse((at, number)));
        self.actions.borrow_mut().insert(number, Box::new(action));
    }

    /// A fault lasts until a time.
    pub(crate) fn is_disturbed_until(&self, at: Nanos) {
        self.calm_from.set(self.calm_from.get().max(at));
    }

    /// The time from which on no planned fault lasts.
    pub(crate) fn calm_from(&self) -> Nanos {
        self.calm_from.get()
    }

    /// Plans a fault. It has the next number, and happens unless the run leaves that number out.
    /// The action tells in words what it has done. None: there was nothing to do it to.
    pub(crate) fn plan_fault(
        &self,
        at: Nanos,
        action: impl FnOnce(&Rc<Self>) -> Option<String> + 'static,
    ) {
        self.is_disturbed_until(at);
        let number = self.faults_planned.get() + 1;
        self.faults_planned.set(number);
        trace::note_planned(number);
        if self.cut.keeps_fault(number) {
            self.plan(at, move |world| {
                if let Some(words) = action(world) {
                    trace::note(|| Entry::new("world:", words).fault(number));
                }
            });
        }
    }

    /// The next step: a turn of a shard that is due, or else the first event. False: nothing
    /// happens before `until`, which is the time then.
    ///
    /// # Panics
    /// Shards turn on and on without any time passing.
    pub(crate) fn step(self: &Rc<Self>, until: Nanos) -> bool {
        let (event, timer) = match self.look() {
            Next::Turn(shard) => {
                self.count_turn();
                let mut shard = shard.borrow_mut();
                self.net.note(shard.id() as u64);
                shard.turn(Wait::Never);
                let bytes = shard.buffer_bytes_in_use();
                self.buffer_bytes.set(bytes.max(self.buffer_bytes.get()));
                return true;
            }
            // What threads of a test have done comes before the time goes on.
            Next::Later { .. } if self.net.await_threads() => return true,
            Next::Later { event, timer } => (event, timer),
        };
        let plan = self.next_plan_at();
        let first = [event, plan, timer].into_iter().flatten().min();
        let Some(at) = first.filter(|at| *at <= until) else {
            self.net.advance_to(until.max(self.now()));
            return false;
        };
        self.net.advance_to(at.max(self.now()));
        if event == Some(at) {
            self.net.carry_out_event();
        } else if plan == Some(at) {
            self.carry_out_plan();
        }
        true
    }

    /// Lets the world go on until a time.
    pub(crate) fn run_until(self: &Rc<Self>, until: Nanos) {
        while self.step(until) {}
    }

    fn count_turn(&self) {
        self.turns.set(self.turns.get() + 1);
        let now = self.now();
        let (at, turns) = self.turns_at_once.get();
        let turns = if at == now { turns + 1 } else { 1 };
        assert!(
            turns < TURNS_AT_ONCE_MAX,
            "livelock: {turns} turns of shards at {} ns",
            now.0
        );
        self.turns_at_once.set((now, turns));
    }

    fn next_plan_at(&self) -> Option<Nanos> {
        self.plans.borrow().peek().map(|Reverse((at, _))| *at)
    }

    fn carry_out_plan(self: &Rc<Self>) {
        let plan = self.plans.borrow_mut().pop();
        if let Some(Reverse((_, number))) = plan {
            let action = self.actions.borrow_mut().remove(&number);
            action.expect("every plan has one")(self);
        }
    }

    /// Looks for a shard that has something to do now.
    fn look(&self) -> Next {
        let net = self.net.state();
        let shards = self.shards.borrow();
        let mut due = Vec::new();
        let mut timer: Option<Nanos> = None;
        let mut stopped = self.stopped.borrow_mut();
        stopped.retain(|_, until| *until > net.now());
        for (id, shard) in shards.iter() {
            let stopped = stopped.get(id).map(|until| Until::At(*until));
            let until = shard.try_borrow().map_or(Until::Forever, |it| it.due());
            match stopped.unwrap_or(until) {
                _ if stopped.is_none() && net.is_ready(*id) => due.push(shard),
                Until::Now => due.push(shard),
                Until::At(at) if at <= net.now() => due.push(shard),
                Until::At(at) => timer = Some(timer.map_or(at, |timer| timer.min(at))),
                Until::Forever => {}
            }
        }
        match due.len() {
            0 => Next::Later {
                event: net.next_event(),
                timer,
            },
            1 => Next::Turn(Rc::clone(due[0])),
            several => {
                let index = self.choices.borrow_mut().index(several);
                Next::Turn(Rc::clone(due[index]))
            }
        }
    }
}

/// What can happen next.
enum Next {
    /// A turn of this shard.
    Turn(Rc<RefCell<Shard>>),
    /// Nothing now: the times of the first event of the network and of the first timer of a shard.
    Later {
        event: Option<Nanos>,
        timer: Option<Nanos>,
    },
}

/// The part of a run's choices for the RDMA network. Hosts have the numbers before it.
const RDMA: u64 = 100;
/// 128 KiB: the channel of a file keeps a buffer of zeroes.
const ZEROES_BYTES: usize = 128 << 10;
/// 1 MiB: 48 requests of 4 KiB at once, each copied twice, the buffers for what some 20 connections
/// receive, and half as much again.
const BUFFER_BYTES_MAX: usize = 1 << 20;
/// Enough for the few requests of a world. Memory is mapped when it is needed.
const ARENA_BYTES: usize = 64 << 20;
/// More turns than this at one time are a loop that never ends.
const TURNS_AT_ONCE_MAX: u64 = 20_000;
