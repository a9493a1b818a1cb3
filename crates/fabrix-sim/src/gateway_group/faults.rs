//! What happens to a group of gateways, and to the networks to its hosts and to its cluster.

use std::rc::Rc;
use std::time::Duration;

use fabrix_rt::Nanos;

use super::group::Group;
use crate::choices::Choices;
use crate::faults::{Delays, cut, host_and_target, plan_at_an_end, plan_lost_paths, reset, stall};
use crate::world::World;

/// Plans some faults. `waits`: hosts wait for what has become of lost paths, so bytes may come
/// late.
pub(super) fn plan(world: &Rc<World>, group: &Rc<Group>, waits: bool, choices: &mut Choices) {
    if waits {
        plan_lost_paths(world, LATEST, &mut Delays::default(), choices);
    }
    let span = choices.one_of(&[100_000, 1_000_000, 10_000_000]);
    for _ in 0..choices.below(9) {
        let at = world.now() + Duration::from_micros(choices.below(span));
        plan_one(world, group, (at, waits), choices);
    }
}

fn plan_one(
    world: &Rc<World>,
    group: &Rc<Group>,
    (at, waits): (Nanos, bool),
    choices: &mut Choices,
) {
    let longest = choices.one_of(&[300, 3_000, 12_000]);
    let time = Duration::from_millis(choices.below(longest));
    let of_gateway = (group, choices.index(group.members.len()));
    world.is_disturbed_until(at + time);
    match choices.below(if waits { 10 } else { 8 }) {
        0 => plan_at_an_end(world, at, choices, reset),
        1 => plan_at_an_end(world, at, choices, |world, end| Some(cut(world, end))),
        2 | 3 => plan_a_kill(world, of_gateway, (at, time), choices.once_in(2)),
        4 => plan_a_stop(world, of_gateway, (at, time)),
        5 => plan_a_cut_from_the_cluster(world, of_gateway, (at, time)),
        6 => plan_a_move(world, of_gateway, at),
        7 => plan_a_leave(world, of_gateway, (at, time)),
        8 => plan_at_an_end(world, at, choices, move |world, end| {
            Some(stall(world, end, time))
        }),
        _ => plan_at_an_end(world, at, choices, move |world, end| {
            let (_host, gateway) = host_and_target(world.net(), end)?;
            world.net().isolate_path(gateway, world.now() + time);
            Some(format!("is isolated for {time:?}, with its path"))
        }),
    }
}

/// A gateway is killed, and starts again after a time.
fn plan_a_kill(
    world: &Rc<World>,
    (group, index): (&Rc<Group>, usize),
    (at, down): (Nanos, Duration),
    is_heard: bool,
) {
    let group = Rc::clone(group);
    world.plan_fault(at, move |world| {
        if !group.end(world, index, is_heard) {
            return None;
        }
        start_later(world, &group, index, down);
        let heard = if is_heard {
            ", as its neighbours see"
        } else {
            ""
        };
        Some(format!(
            "gateway {index} is killed{heard}, and starts again in {down:?}"
        ))
    });
}

fn start_later(world: &Rc<World>, group: &Rc<Group>, index: usize, down: Duration) {
    let group = Rc::clone(group);
    world.plan(world.now() + down, move |world| {
        group.end(world, index, true);
        group.start_process(world, index);
    });
}

/// The process of a gateway stands still for a time: its shards, and all that leads it.
fn plan_a_stop(
    world: &Rc<World>,
    (group, index): (&Rc<Group>, usize),
    (at, time): (Nanos, Duration),
) {
    let group = Rc::clone(group);
    world.plan_fault(at, move |world| {
        let process = group.process(index)?;
        let until = (world.now() + time).max(process.stopped_until.get());
        process.stopped_until.set(until);
        let server = group.members[index].server.borrow();
        let shards = server.shards().iter();
        shards.for_each(|shard| world.stop_shard(*shard, until));
        Some(format!("gateway {index} stands still for {time:?}"))
    });
}

/// A gateway does not reach the cluster for a time, and hosts reach it.
fn plan_a_cut_from_the_cluster(
    world: &Rc<World>,
    (group, index): (&Rc<Group>, usize),
    (at, time): (Nanos, Duration),
) {
    let group = Rc::clone(group);
    world.plan_fault(at, move |world| {
        group.cluster.cut_off(index, world.now() + time);
        Some(format!(
            "gateway {index} is cut off from the cluster for {time:?}"
        ))
    });
}

/// An operator moves the disk to a gateway.
fn plan_a_move(world: &Rc<World>, (group, index): (&Rc<Group>, usize), at: Nanos) {
    let group = Rc::clone(group);
    world.plan_fault(at, move |world| {
        group.want(world, index)?;
        Some(format!("the disk is to move to gateway {index}"))
    });
}

/// A gateway leaves the group, and starts again after a time. One that has not left by then is
/// killed.
fn plan_a_leave(
    world: &Rc<World>,
    (group, index): (&Rc<Group>, usize),
    (at, down): (Nanos, Duration),
) {
    let group = Rc::clone(group);
    world.plan_fault(at, move |world| {
        let driver = group.driver(index)?;
        driver.process.gateway.borrow_mut().leave();
        driver.at(world, world.now(), |driver, world| driver.wake(world));
        start_later(world, &group, index, down);
        Some(format!(
            "gateway {index} leaves, and starts again in {down:?}"
        ))
    });
}

/// 20 s, in milliseconds: longer than a gateway keeps a controller of which it hears nothing.
const LATEST: u64 = 20_000;
