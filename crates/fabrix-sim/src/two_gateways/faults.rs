//! What happens to two gateways and to the network between them and their hosts.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fabrix_rt::Nanos;

use super::Pair;
use crate::checker::Checker;
use crate::choices::Choices;
use crate::faults::{
    Delays, cut, host_and_target, plan_a_kill, plan_at_an_end, plan_lost_paths, reset, stall,
};
use crate::world::World;

/// Plans some faults.
pub(super) fn plan(world: &Rc<World>, pair: &Rc<Pair>, choices: &mut Choices) {
    plan_lost_paths(world, LATEST, &mut Delays::default(), choices);
    let span = choices.one_of(&[100_000, 1_000_000, 5_000_000]);
    for _ in 0..choices.below(9) {
        let at = world.now() + Duration::from_micros(choices.below(span));
        plan_one(world, pair, at, choices);
    }
}

fn plan_one(world: &Rc<World>, pair: &Rc<Pair>, at: Nanos, choices: &mut Choices) {
    let longest = choices.one_of(&[300, 3_000, LATEST]);
    let time = Duration::from_millis(choices.below(longest));
    match choices.below(6) {
        0 => plan_at_an_end(world, at, choices, reset),
        1 => plan_at_an_end(world, at, choices, |world, end| Some(cut(world, end))),
        2 => {
            world.is_disturbed_until(at + time);
            plan_at_an_end(world, at, choices, move |world, end| {
                Some(stall(world, end, time))
            });
        }
        3 => plan_an_isolation(world, at, time, choices),
        4 => plan_a_pause_of_a_host(world, pair, at, time, choices),
        _ => {
            let gateway = &pair.gateways[choices.index(2)];
            let down = Duration::from_millis(choices.below(3_000));
            world.is_disturbed_until(at + down);
            plan_a_kill(world, gateway, at, down);
        }
    }
}

/// Plans that nothing travels between a gateway and a host for a time, in either direction. Then
/// all of it comes late.
fn plan_an_isolation(world: &Rc<World>, at: Nanos, time: Duration, choices: &mut Choices) {
    world.is_disturbed_until(at + time);
    plan_at_an_end(world, at, choices, move |world, end| {
        let (_host, gateway) = host_and_target(world.net(), end)?;
        world.net().isolate_path(gateway, world.now() + time);
        Some(format!("is isolated for {time:?}, with its path"))
    });
}

/// Plans that a shard of a host stands still for a time.
fn plan_a_pause_of_a_host(
    world: &Rc<World>,
    pair: &Rc<Pair>,
    at: Nanos,
    time: Duration,
    choices: &mut Choices,
) {
    let word = usize::try_from(choices.below(1 << 16)).expect("an index");
    let pair = Rc::clone(pair);
    world.is_disturbed_until(at + time);
    world.plan_fault(at, move |world| {
        let of_gateways = pair.shards();
        let mut shards = world.shard_ids();
        shards.retain(|shard| !of_gateways.contains(shard));
        let shard = *shards.get(word % shards.len().max(1))?;
        world.stop_shard(shard, world.now() + time);
        Some(format!("shard {shard} of a host stands still for {time:?}"))
    });
}

/// Plans that the gateways and their disk lose their power, once or twice.
pub(super) fn plan_power_losses(
    world: &Rc<World>,
    pair: &Rc<Pair>,
    checker: &Rc<RefCell<Checker>>,
    choices: &mut Choices,
) {
    for _ in 0..choices.between(1, 2) {
        let at = world.now() + Duration::from_micros(choices.below(5_000_000));
        let down = Duration::from_millis(choices.below(10_000));
        world.is_disturbed_until(at + down);
        let (pair, checker) = (Rc::clone(pair), Rc::clone(checker));
        world.plan_fault(at, move |world| {
            for gateway in pair.lose_power(world, &checker) {
                let restart = move |world: &Rc<World>| gateway.borrow_mut().restart(world);
                world.plan(world.now() + down, restart);
            }
            Some(format!("the gateways lose their power for {down:?}"))
        });
    }
}

/// 20 s, in milliseconds: longer than a gateway keeps a controller of which it hears nothing.
const LATEST: u64 = 20_000;
