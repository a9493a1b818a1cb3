//! Faults of the network and of the target, planned from the choices of a world. None of them
//! excuses a lost write: hosts wait and go on.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::choices::Choices;
use crate::net::EndId;
use crate::server::Server;
use crate::world::World;

/// Plans some faults.
pub(crate) fn plan(world: &Rc<World>, server: &Rc<RefCell<Server>>, choices: &mut Choices) {
    let span = choices.one_of(&[100_000, 1_000_000, 20_000_000]);
    for _ in 0..choices.below(9) {
        let at = world.now() + Duration::from_micros(choices.below(span));
        let word = choices.word();
        match choices.below(4) {
            0 => plan_at_an_end(world, at, word, |world, end| world.net().reset(end)),
            1 => plan_at_an_end(world, at, word, |world, end| world.net().cut(end)),
            2 => {
                let longest = choices.one_of(&[300, 3_000, 7_000, 12_000]);
                let time = Duration::from_millis(choices.below(longest));
                plan_at_an_end(world, at, word, move |world, end| {
                    world.net().stall(end, world.now() + time);
                });
            }
            _ => plan_a_kill(world, server, at, Duration::from_millis(word % 3_000)),
        }
    }
}

/// Plans something that happens at an end of one of the connections that are there then.
fn plan_at_an_end(
    world: &Rc<World>,
    at: fabrix_rt::Nanos,
    word: u64,
    act: impl FnOnce(&World, EndId) + 'static,
) {
    world.plan(at, move |world| {
        let ends = world.net().connected();
        if !ends.is_empty() {
            let index = usize::try_from(word % ends.len() as u64).expect("an index");
            act(world, ends[index]);
        }
    });
}

/// Plans that the target is killed, and starts again after a time.
fn plan_a_kill(
    world: &Rc<World>,
    server: &Rc<RefCell<Server>>,
    at: fabrix_rt::Nanos,
    down: Duration,
) {
    let server = Rc::clone(server);
    world.plan(at, move |world| {
        if server.borrow_mut().kill(world) {
            let at = world.now() + down;
            world.plan(at, move |world| server.borrow_mut().restart(world));
        }
    });
}
