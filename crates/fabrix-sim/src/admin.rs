//! Worlds of administration: hosts use two disks while an administrator adds, removes and resizes
//! them, admits hosts and shuts them out, and opens and closes listeners.
//!
//! The promise that these worlds check: a change is made whole or not at all, and in little time
//! whatever hosts and disks do; what has been withdrawn is gone for the next command, and nobody
//! else notices; a host learns of another size soon, and no block shows what another disk holds.

mod access;
mod change;
mod site;
mod user;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use fabrix_block::Device;
use fabrix_host::PathEvent;
use fabrix_rt::{Nanos, Shard};

use self::access::{Access, Seat};
use self::site::{BLOCKS, DISKS, Site};
use self::user::{User, Wish};
use crate::backing::Backing;
use crate::backlog::Backlog;
use crate::checker::Checker;
use crate::choices::Choices;
use crate::disk::{DiskHabits, SimDisk};
use crate::faults;
use crate::hosts::{self, Protocol, Way};
use crate::net::Habits;
use crate::report::Report;
use crate::run::Run;
use crate::server::{self, Server};
use crate::world::World;

/// Runs the world.
pub(crate) fn run(run: &Run) -> Report {
    let mut choices = run.choices(0);
    let world = World::new(run, Habits::draw(&mut choices));
    let mut admin = Admin::new(run, &world, choices);
    admin.plan_faults();
    let began = world.now();
    admin.work();
    let mut report = Report {
        time: world.now() - began,
        ..Report::default()
    };
    admin.report(&mut report);
    world.count_into(&mut report);
    report
}

/// The administrator, and the world that it administers.
struct Admin {
    world: Rc<World>,
    choices: Choices,
    server: Rc<RefCell<Server>>,
    /// How often the target was killed.
    kills: Rc<Cell<u64>>,
    access: Rc<RefCell<Access>>,
    disks: Vec<Arc<SimDisk>>,
    checkers: Vec<Rc<RefCell<Checker>>>,
    /// The disks with their present sizes, as a target that starts exports them.
    devices: Rc<RefCell<Vec<Arc<dyn Device>>>>,
    seats: Vec<Host>,
    changes: u64,
    next_change: Nanos,
    /// A shard was late: the time at which it serves the last change.
    served_at: Option<Nanos>,
    has_faults: bool,
    backlog: Backlog,
    faults: Vec<String>,
}

/// A host with its user.
struct Host {
    shard: Rc<RefCell<Shard>>,
    user: Rc<RefCell<User>>,
    /// The host has heard of a change.
    heard: Arc<AtomicBool>,
    /// The time before which the host does not ask again.
    asks_at: Nanos,
    /// Since when the host could know of another size.
    stale_since: Option<Nanos>,
}

impl Admin {
    fn new(run: &Run, world: &Rc<World>, mut choices: Choices) -> Self {
        let habits = DiskHabits::draw(BLOCKS.1, &mut choices);
        let at_disk = habits.longest;
        let disk = |index: usize| {
            let choices = run.choices(20 + index as u64);
            SimDisk::named(&format!("disk{index}"), habits.clone(), choices)
        };
        let disks: Vec<_> = (0..DISKS).map(disk).collect();
        let devices = disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>);
        let devices = Rc::new(RefCell::new(devices.collect::<Vec<_>>()));
        let checker = |index: usize| Checker::with_values_from(BLOCKS.1, (index as u64) << 32);
        let checkers = (0..DISKS).map(checker);
        let checkers = checkers.map(|it| Rc::new(RefCell::new(it))).collect();
        let hosts = usize::try_from(choices.between(2, 4)).expect("few");
        let access = Rc::new(RefCell::new(Access::new(Site::open(hosts))));
        let shards = usize::try_from(choices.between(1, 3)).expect("few");
        let catalog = {
            let (access, devices) = (Rc::clone(&access), Rc::clone(&devices));
            move || access.borrow().site().catalog(&devices.borrow())
        };
        let mut server = Server::stopped(Rc::new(Arc::clone(&disks[0])), shards, catalog);
        let kills = Rc::new(Cell::new(0));
        let counted = Rc::clone(&kills);
        server.when_killed(move || counted.set(counted.get() + 1));
        server.restart(world);
        let wish = Wish {
            requests: run.requests(choices.between(10, 40)),
            depth: usize::try_from(choices.between(1, 4)).expect("few"),
            pause: Duration::from_micros(choices.one_of(&[1_000, 50_000, 500_000])),
        };
        let backlog = Backlog {
            requests: wish.requests * hosts as u64,
            pause: wish.pause,
            at_disk,
            ..Backlog::default()
        };
        let mut admin = Self {
            world: Rc::clone(world),
            server: Rc::new(RefCell::new(server)),
            kills,
            access,
            disks,
            checkers,
            devices,
            seats: Vec::new(),
            changes: choices.between(2, 10),
            next_change: world.now(),
            served_at: None,
            has_faults: false,
            backlog,
            faults: Vec::new(),
            choices,
        };
        for host in 0..hosts {
            let choices = run.choices(30 + host as u64);
            admin.add_host(host, choices, wish);
        }
        admin
    }

    fn plan_faults(&mut self) {
        if self.choices.once_in(2) {
            faults::plan(&self.world, &self.server, &mut self.choices);
            self.has_faults = true;
        }
        plan_pauses(&self.world, &self.server, &mut self.choices);
    }

    fn add_host(&mut self, host: usize, mut choices: Choices, wish: Wish) {
        let seat = Seat {
            host,
            protocol: choices.one_of(&[Protocol::Nvme, Protocol::Iscsi]),
            disk: choices.index(DISKS),
        };
        let heard = Arc::new(AtomicBool::new(false));
        let hears = Arc::clone(&heard);
        let watch = move |event| {
            if event == PathEvent::Changed {
                hears.store(true, Relaxed);
            }
        };
        let (id, shard) = self.world.add_shard();
        let mut options = hosts::options(&self.world, (id, host), watch, &mut choices);
        options.fast_io_fail = None;
        let disk = u16::try_from(seat.disk).expect("few");
        let way = Way::to_target(seat.protocol);
        let device = hosts::connect(way, host, disk, &options).expect("the network works yet");
        let user = User::start(
            &mut shard.borrow_mut(),
            (seat, device),
            &self.access,
            &self.checkers[seat.disk],
            choices,
            wish,
        );
        self.seats.push(Host {
            shard,
            user,
            heard,
            asks_at: Nanos(0),
            stale_since: None,
        });
    }

    /// Administers until everything is done, and every host knows the size of its disk.
    fn work(&mut self) {
        let mut limit = Nanos::MAX;
        while self.world.now() < limit {
            let now = self.world.now();
            if self.changes == 0 && limit == Nanos::MAX {
                limit = now.max(self.world.calm_from()) + self.backlog.most();
            }
            if self.served_at.is_some_and(|at| at <= now) {
                self.served_at = None;
                self.access.borrow_mut().change_ends(true);
            }
            if now >= self.next_change && self.changes > 0 && self.served_at.is_none() {
                self.change();
                continue;
            }
            if let Some(host) = self.next_to_ask() {
                self.ask(host);
                continue;
            }
            let is_settled = self.look_for_stale();
            let have_ended = self.seats.iter().all(|it| it.user.borrow().has_ended());
            if self.changes == 0 && self.served_at.is_none() && is_settled && have_ended {
                return;
            }
            let next = match (self.served_at, self.changes) {
                (Some(at), _) => at,
                (None, 0) => now + LOOK,
                (None, _) => self.next_change,
            };
            self.world.step(next.min(now + LOOK));
        }
        let missing = self.seats.iter();
        let missing = missing.filter(|it| !it.user.borrow().has_ended()).count();
        self.faults
            .push(format!("{missing} hosts have not come to an end"));
    }

    /// A host that has heard of a change.
    fn next_to_ask(&self) -> Option<usize> {
        let now = self.world.now();
        let asks = |host: &Host| host.heard.load(Relaxed) && host.asks_at <= now;
        self.seats.iter().position(asks)
    }

    /// Lets a host ask for the size of its disk.
    fn ask(&mut self, index: usize) {
        let host = &mut self.seats[index];
        host.heard.store(false, Relaxed);
        let device = Arc::clone(host.user.borrow().device());
        match device.resize(None) {
            Ok(fresh) if fresh.geometry().blocks != device.geometry().blocks => {
                let shard = &mut host.shard.borrow_mut();
                host.user.borrow_mut().adopt(shard, fresh);
            }
            Ok(_) => {}
            // It was shut out meanwhile, or the network fails: the host asks again.
            Err(_) => {
                host.heard.store(true, Relaxed);
                host.asks_at = self.world.now() + ASK_AGAIN;
            }
        }
    }

    /// Looks for hosts that should know of another size. True: there is none.
    fn look_for_stale(&mut self) -> bool {
        let (now, access) = (self.world.now(), self.access.borrow());
        let site = access.site();
        let is_up = self.server.borrow().target().is_some();
        let most = if self.has_faults { HEARD_LATE } else { HEARD };
        let mut is_settled = true;
        for host in &mut self.seats {
            let user = host.user.borrow();
            let seat = user.seat();
            let is_stale = user.device().geometry().blocks != site.blocks[seat.disk];
            let could_know = is_up
                && site.admits(seat.protocol, seat.host, seat.disk)
                && site.listens[seat.protocol as usize];
            is_settled &= !is_stale;
            match (is_stale && could_know, host.stale_since) {
                (false, _) => host.stale_since = None,
                (true, None) => host.stale_since = Some(now),
                (true, Some(since)) if now - since > most => {
                    self.faults.push(format!(
                        "{seat:?} has not heard of another size for {:?}",
                        now - since
                    ));
                    host.stale_since = Some(Nanos::MAX);
                }
                (true, Some(_)) => {}
            }
        }
        is_settled
    }

    /// Ends the world, and tells what came of it.
    fn report(mut self, report: &mut Report) {
        report.faults.append(&mut self.faults);
        for host in &self.seats {
            let user = host.user.borrow();
            let (ended, failed, faults) = user.outcome();
            report.ended += ended;
            report.failed += failed;
            report.faults.extend(faults.iter().cloned());
        }
        let shards: Vec<_> = self
            .seats
            .into_iter()
            .map(|host| {
                User::leave(&mut host.shard.borrow_mut(), host.user);
                host.shard
            })
            .collect();
        for (disk, checker) in self.disks.iter().zip(&self.checkers) {
            let faults = server::check_image(&disk.image(), checker);
            report.faults.extend(faults);
        }
        self.world.run_until(self.world.now() + AFTERWARDS);
        let mut left = self.world.left();
        left.extend(self.server.borrow().left());
        for shard in &shards {
            let shard = shard.borrow();
            left.push(("operations of a host", shard.operations_in_flight()));
        }
        report.left(left);
        for shard in shards {
            let id = shard.borrow().id();
            drop(shard);
            self.world.kill(id);
        }
        self.server.borrow_mut().kill(&self.world);
    }
}

/// Plans that shards of the target get no processor for a while, so that a change meets shards that
/// are late.
fn plan_pauses(world: &Rc<World>, server: &Rc<RefCell<Server>>, choices: &mut Choices) {
    for _ in 0..choices.below(6) {
        let at = world.now() + Duration::from_micros(choices.below(5_000_000));
        let (index, time) = (choices.index(3), choices.below(400_000));
        let server = Rc::clone(server);
        world.plan_fault(at, move |world| {
            let time = Duration::from_micros(time);
            let shard = *server.borrow().shards().get(index)?;
            world.stop_shard(shard, world.now() + time);
            Some(format!("a shard of the target stands still for {time:?}"))
        });
    }
}

/// How often the administrator looks after hosts.
const LOOK: Duration = Duration::from_millis(200);
/// The pause before a host asks for the size of its disk again.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// A host hears of another size within this time: the poll of an idle iSCSI session, and a probe.
const HEARD: Duration = Duration::from_secs(12);
/// The same when connections are lost.
const HEARD_LATE: Duration = Duration::from_secs(60);
/// After this time nothing of a host that has left may be there: the keep-alive, the deadline of
/// disks and the longest request are over.
const AFTERWARDS: Duration = Duration::from_secs(60);
