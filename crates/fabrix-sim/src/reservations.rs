//! Worlds of reservations: hosts over NVMe/TCP and iSCSI on one disk, which register, reserve,
//! preempt, and read and write all the time.
//!
//! The promise that these worlds check: an access passes only when no reservation forbids it, and
//! conflicts only when one does; when a preemption with abort has answered, no write of a preempted
//! host lands later; reservations that are to persist outlive the target, and others do not.

mod draw;
mod model;
mod rules;
mod shared;
mod user;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use self::draw::Wish;
use self::shared::Shared;
use self::user::User;
use crate::backlog::Backlog;
use crate::disk::{DiskHabits, SimDisk};
use crate::faults;
use crate::net::Habits;
use crate::peer::{IscsiPeer, NvmePeer, Peer};
use crate::report::Report;
use crate::run::Run;
use crate::server::Server;
use crate::store::SimStore;
use crate::world::World;

/// Runs the world.
pub(crate) fn run(run: &Run) -> Report {
    let mut choices = run.choices(0);
    let world = World::new(run, Habits::draw(&mut choices));
    let habits = DiskHabits::draw(BLOCKS, &mut choices);
    let at_disk = habits.longest;
    let disk = Rc::new(SimDisk::new(habits, run.choices(4)));
    let shards = usize::try_from(choices.between(1, 3)).expect("few");
    let stores = !choices.once_in(3);
    let time = Duration::from_micros(choices.one_of(&[1, 1_000, 100_000]));
    let store = SimStore::new(time, choices.once_in(4), run.choices(5));
    let store = stores.then_some(store);
    let server = Server::with_store(&world, disk, shards, store);
    let server = Rc::new(RefCell::new(server));
    let shared = Shared::new(BLOCKS);
    let model = Rc::clone(&shared.model);
    server
        .borrow_mut()
        .when_killed(move || model.borrow_mut().killed());
    let wish = Wish {
        requests: run.requests(choices.between(10, 80)),
        depth: usize::try_from(choices.between(2, 6)).expect("few"),
        blocks: choices.between(2, BLOCKS),
        pause: Duration::from_micros(choices.one_of(&[100, 10_000, 200_000])),
        hosts: usize::try_from(choices.between(2, 4)).expect("few"),
        persists: stores,
    };
    let first = usize::from(choices.once_in(2));
    let hosts: Vec<_> = (0..wish.hosts)
        .map(|host| {
            let number = u8::try_from(host + 1).expect("few");
            let is_nvme = (host + first) % 2 == 0;
            let peer: Box<dyn Peer> = match is_nvme {
                true => Box::new(NvmePeer::new([number; 16])),
                false => Box::new(IscsiPeer::new(number)),
            };
            let (_, shard) = world.add_shard();
            let choices = run.choices(10 + host as u64);
            let user = User::start(
                &mut shard.borrow_mut(),
                (host, is_nvme, peer),
                shared.clone(),
                choices,
                wish,
            );
            (shard, user)
        })
        .collect();
    faults::plan(&world, &server, &mut choices);
    let backlog = Backlog {
        requests: wish.requests * wish.hosts as u64,
        pause: wish.pause,
        at_disk: at_disk + time,
        ..Backlog::default()
    };
    let began = world.now();
    let limit = world.calm_from().max(began) + backlog.most();
    while !hosts.iter().all(|(_, user)| user.borrow().has_ended()) && world.now() < limit {
        world.step(limit);
    }
    let mut report = Report {
        time: world.now() - began,
        ..Report::default()
    };
    for (shard, user) in &hosts {
        user.borrow().report(&mut report);
        User::leave(&mut shard.borrow_mut(), user);
    }
    report
        .faults
        .extend(server.borrow().check_image(&shared.checker));
    world.run_until(world.now() + AFTERWARDS);
    let mut left = world.left();
    left.extend(server.borrow().left());
    for (shard, _) in &hosts {
        let shard = shard.borrow();
        left.push(("operations of a host", shard.operations_in_flight()));
    }
    report.left(left);
    world.count_into(&mut report);
    for (shard, _) in hosts {
        let id = shard.borrow().id();
        drop(shard);
        world.kill(id);
    }
    server.borrow_mut().kill(&world);
    report
}

const BLOCKS: u64 = 16;
/// After this time nothing of a host that has left may be there: the keep-alive, the deadline of
/// disks and the longest request are over.
const AFTERWARDS: Duration = Duration::from_secs(60);
