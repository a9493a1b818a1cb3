//! Worlds with two gateways: targets on two machines that know nothing of each other, and export
//! the same disk under the same names.
//!
//! Each host has a path to each gateway. The promise is that of worlds with one target, although no
//! barrier of one gateway holds back what the other one sends: a write that was repeated over one
//! gateway never comes late from the other one.
//!
//! The disk is shared storage, and the world assumes of it:
//!
//! - It executes what a process has submitted within CQT, also after the end of the process.
//! - It compares and writes itself, atomically for both gateways.
//!
//! The world assumes of the gateways that none of them stands still. A process that was stopped and
//! continued executes what its sockets still hold.

mod faults;

use std::cell::RefCell;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabrix_target::{Catalog, Deadlines, Listen};

use crate::backing::Backing;
use crate::backlog::Backlog;
use crate::checker::Checker;
use crate::choices::Choices;
use crate::disk::{DiskHabits, SimDisk};
use crate::disk_faults::DiskFaults;
use crate::gateways::{Gateways, Served};
use crate::hosts::Protocol;
use crate::net::Habits;
use crate::one_disk::BLOCKS;
use crate::report::Report;
use crate::run::Run;
use crate::server::{self, MACHINE, SECOND, Server};
use crate::several_gateways::{KEEP_ALIVE, Users};
use crate::trace::{self, Entry};
use crate::world::World;

/// Runs the world.
pub(crate) fn run(run: &Run) -> Report {
    let mut choices = run.choices(0);
    let world = World::new(run, Habits::draw(&mut choices));
    let repeats = Duration::from_secs(choices.one_of(&[0, 12, 12]));
    let habits = disk_habits(repeats, &mut choices);
    let faults = habits.faults.clone();
    let backlog = backlog(&habits, repeats);
    let disk = SimDisk::new(habits, run.choices(4));
    let pair = Rc::new(Pair::start(&world, &disk, repeats, &mut choices));
    let users = Users::start(run, &world, Protocol::Paths, &faults, backlog);
    faults::plan(&world, &pair, &mut choices);
    let mut gateways = Gateways::plan(&world, &mut choices);
    crate::faults::plan_killed_hosts(&world, &users.hosts, &mut choices);
    if choices.once_in(3) {
        faults::plan_power_losses(&world, &pair, &users.checker, &mut choices);
    }
    let mut report = users.run(&world, || {
        gateways.make_due(|machine| pair.served_at(machine));
    });
    report.faults.extend(gateways.faults());
    users.leave(&world, || pair.image(), &mut choices, &mut report);
    report.left(pair.left());
    pair.lose_power(&world, &users.checker);
    report.faults.extend(users.check(&pair.image()));
    report
}

/// Habits of a disk that executes each request within CQT. In some worlds writes hang so long.
fn disk_habits(repeats: Duration, choices: &mut Choices) -> DiskHabits {
    let habits = DiskHabits::draw(BLOCKS, choices);
    let hangs = choices.one_of(&[0, 0, 50, 300]);
    let longest_hang = cqt(repeats).saturating_sub(habits.longest);
    DiskHabits {
        is_shared: true,
        faults: DiskFaults {
            hangs,
            longest_hang,
            ..DiskFaults::default()
        },
        ..habits
    }
}

fn backlog(habits: &DiskHabits, repeats: Duration) -> Backlog {
    let faults = &habits.faults;
    let hangs = u32::try_from(faults.hangs).expect("a part of 1000");
    Backlog {
        at_disk: habits.longest + faults.longest_hang * hangs / 1000,
        unsettled: KEEP_ALIVE * 3 + cqt(repeats),
        ..Backlog::default()
    }
}

/// CQT of the gateways: the time in which the disk ends what a lost connection has left.
fn cqt(repeats: Duration) -> Duration {
    Deadlines::default().quiet + repeats
}

/// Two gateways and their disk.
struct Pair {
    gateways: [Rc<RefCell<Server>>; 2],
    /// The disk, as the machine of each gateway has it.
    disks: [Arc<SimDisk>; 2],
}

impl Pair {
    fn start(
        world: &Rc<World>,
        disk: &Arc<SimDisk>,
        repeats: Duration,
        choices: &mut Choices,
    ) -> Self {
        let disks = [0, 1].map(|_| disk.for_another_machine());
        let gateways = [0, 1].map(|index| {
            let shards = usize::try_from(choices.between(1, 3)).expect("few");
            let opens = Arc::clone(&disks[index]);
            let backing = Rc::new(Arc::clone(&opens));
            let exports = move || catalog(index, &opens, repeats);
            let mut server = Server::stopped(backing, shards, exports);
            server.restart(world);
            Rc::new(RefCell::new(server))
        });
        Self { gateways, disks }
    }

    /// What runs at a machine.
    fn served_at(&self, machine: IpAddr) -> Option<Served> {
        let index = MACHINES.iter().position(|it| *it == machine)?;
        let target = self.gateways[index].borrow().target()?;
        let disk = Arc::clone(&self.disks[index]);
        Some(Served { target, disk })
    }

    /// Shards of both gateways.
    fn shards(&self) -> Vec<usize> {
        let all = self.gateways.iter();
        all.flat_map(|it| it.borrow().shards().to_vec()).collect()
    }

    /// Both gateways and their disk lose their power. Result: the gateways that were running.
    fn lose_power(&self, world: &World, checker: &RefCell<Checker>) -> Vec<Rc<RefCell<Server>>> {
        trace::note(|| Entry::new("gateways", "lose their power, with the disk"));
        let mut killed: Vec<_> = self.gateways.iter().map(Rc::clone).collect();
        killed.retain(|gateway| gateway.borrow_mut().kill(world));
        self.disks[0].lose_power();
        checker.borrow_mut().power_lost();
        killed
    }

    /// What the disk holds.
    fn image(&self) -> Vec<u8> {
        self.disks[0].image()
    }

    /// What hosts that have left have left behind, with a name for each.
    fn left(&self) -> Vec<(&'static str, usize)> {
        let all = self.gateways.iter();
        all.flat_map(|it| it.borrow().left()).collect()
    }
}

/// What a gateway exports. The names and the disk are the same at the other one.
fn catalog(index: usize, disk: &Arc<SimDisk>, repeats: Duration) -> Catalog {
    let other = MACHINES[1 - index];
    let gateways = fabrix_target::Gateways {
        controller_ids: CONTROLLER_IDS[index].clone(),
        repeats,
        others: vec![Listen::nvme_tcp(server::nvme_at(other))],
        referrals: Vec::new(),
        shut_out: None,
    };
    Catalog {
        gateways,
        ..server::catalog(&Backing::open(disk), &MACHINES[index..=index])
    }
}

/// The machines of the gateways.
const MACHINES: [IpAddr; 2] = [MACHINE, SECOND];
/// Disjoint: a controller id names one gateway.
const CONTROLLER_IDS: [RangeInclusive<u16>; 2] = [1..=999, 1_000..=1_999];
