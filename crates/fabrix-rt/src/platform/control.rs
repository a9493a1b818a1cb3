//! A control thread of this machine.

use std::io;
use std::time::Duration;

use crate::control::Control;
use crate::{Nanos, Shard, ShardConfig, StartError, Wait, random};

/// The calling thread, which blocks while it waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct ControlThread;

impl Control for ControlThread {
    fn now(&self) -> Nanos {
        Nanos::now()
    }

    fn wait(&self, until: Nanos, attempt: &mut dyn FnMut(Duration) -> bool) -> bool {
        loop {
            let left = until - Nanos::now();
            if attempt(left) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
        }
    }

    fn shard(&self, config: ShardConfig) -> Result<Shard, StartError> {
        Shard::new(config)
    }

    fn turn(&self, shard: &mut Shard, at_most: Duration) {
        shard.turn(Wait::AtMost(at_most));
    }

    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        random::fill(bytes)
    }
}
