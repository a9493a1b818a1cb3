//! The control thread of a world: while it waits, the world goes on. A thread has one world, where
//! its control thread finds it.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use fabrix_rt::driver::Until;
use fabrix_rt::{Control, Nanos, Shard, ShardConfig, StartError, Wait};

use super::World;

thread_local! {
    /// The world of this thread.
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// A control thread of the world of this thread.
pub(super) struct SimControl;

/// Makes a world the one of this thread. What is left of the one before does not find it.
pub(super) fn enter(world: &Rc<World>) {
    leave();
    WORLD.set(Some(Rc::clone(world)));
}

/// Ends the world of this thread.
pub(crate) fn leave() {
    let world = WORLD.take();
    drop(world);
}

/// The world of this thread.
pub(crate) fn current() -> Option<Rc<World>> {
    WORLD.with_borrow(Option::clone)
}

fn world() -> Rc<World> {
    current().expect("a world on this thread")
}

impl Control for SimControl {
    fn now(&self) -> Nanos {
        world().now()
    }

    fn wait(&self, until: Nanos, attempt: &mut dyn FnMut(Duration) -> bool) -> bool {
        let world = world();
        loop {
            if attempt(Duration::ZERO) {
                return true;
            }
            if world.now() >= until {
                return false;
            }
            world.step(until);
        }
    }

    fn shard(&self, config: ShardConfig) -> Result<Shard, StartError> {
        world().make_shard(config).map(|(_, shard)| shard)
    }

    fn turn(&self, shard: &mut Shard, at_most: Duration) {
        let world = world();
        let until = world.now() + at_most;
        while !world.net.is_ready(shard.id()) && !is_due(shard, world.now()) {
            let timer = match shard.due() {
                Until::At(at) => at,
                Until::Now | Until::Forever => Nanos::MAX,
            };
            if !world.step(until.min(timer)) {
                break;
            }
        }
        shard.turn(Wait::Never);
    }

    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        let world = world();
        let mut random = world.random.borrow_mut();
        for byte in bytes {
            [*byte, ..] = random.word().to_le_bytes();
        }
        Ok(())
    }
}

fn is_due(shard: &Shard, now: Nanos) -> bool {
    match shard.due() {
        Until::Now => true,
        Until::At(at) => at <= now,
        Until::Forever => false,
    }
}
