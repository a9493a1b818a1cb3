//! Worlds of a group of three gateways that export the disk of one cluster. The machine of
//! `fabrix-gateways` leads each of them, and decides by a state in the cluster which one serves.
//!
//! Each host has a path to each gateway. Gateways are killed, stand still, are cut off from the
//! cluster or from hosts, leave, and move the disk. The promise is that of worlds with one target,
//! also to hosts that do not wait for what has become of a lost path: what a gateway has sent that
//! was given up never changes the disk again. When the faults are over, exactly one gateway serves.
//!
//! Hosts that do not wait trust the network not to hold bytes back: a gateway that has the disk
//! again carries out what comes late over a connection that it still has. So in their worlds bytes
//! come at once or never.

mod driver;
mod faults;
mod group;

use std::time::Duration;

use fabrix_target::Deadlines;

use self::group::Group;
use crate::backlog::Backlog;
use crate::cluster::{Cluster, ClusterHabits};
use crate::disk_faults::DiskFaults;
use crate::hosts::Protocol;
use crate::net::Habits;
use crate::one_disk::BLOCKS;
use crate::report::Report;
use crate::run::Run;
use crate::several_gateways::{KEEP_ALIVE, Users};
use crate::world::World;

/// Runs the world.
pub(crate) fn run(run: &Run) -> Report {
    let mut choices = run.choices(0);
    let world = World::new(run, Habits::draw(&mut choices));
    let habits = ClusterHabits::draw(BLOCKS, &mut choices);
    let backlog = Backlog {
        at_disk: habits.longest + habits.lateness(),
        unsettled: KEEP_ALIVE * 3 + Deadlines::default().quiet,
        ..Backlog::default()
    };
    let cluster = Cluster::new(habits, run.choices(4));
    let group = Group::start(&world, &cluster, &mut choices);
    let waits = !choices.once_in(2);
    let protocol = match waits {
        true => Protocol::Group,
        false => Protocol::FastGroup,
    };
    let users = Users::start(run, &world, protocol, &DiskFaults::default(), backlog);
    faults::plan(&world, &group, waits, &mut choices);
    crate::faults::plan_killed_hosts(&world, &users.hosts, &mut choices);
    let mut report = users.run(&world, || ());
    world.run_until(world.calm_from().max(world.now()) + SETTLED);
    report.faults.extend(group.check_calm());
    users.leave(&world, || cluster.image(), &mut choices, &mut report);
    report.left(group.left());
    report.faults.extend(group.faults());
    group.end_all(&world);
    report
}

/// Some time after the last fault, one gateway serves. A gateway asks for its disk 30 s after it
/// has joined.
const SETTLED: Duration = Duration::from_secs(45);
