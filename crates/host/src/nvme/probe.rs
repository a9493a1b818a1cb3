//! Connecting once, now, and waiting for it: what a command line needs before it knows what a disk is.
//!
//! Runs a shard on the calling thread until the controller has been asked everything, and leaves nothing behind.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::nvme::bringup::Facts;
use fabrix_rt::{Shard, ShardConfig, SpinPolicy, Wait};

use super::session::{Outcome, Plan, Session};
use crate::{ConnectError, ConnectErrorKind};

/// Connects, learns what is there, disconnects.
///
/// # Errors
/// Why not, as a sentence. It comes within `bringup_timeout`, whatever the target does.
pub(crate) fn probe(plan: Plan) -> Result<Arc<Facts>, ConnectError> {
    let config = ShardConfig {
        engine: plan.options.engine,
        arena_bytes: ARENA_BYTES,
        spin: SpinPolicy::Never,
        ..ShardConfig::default()
    };
    let mut shard = Shard::new(config).map_err(|error| {
        ConnectError::new(ConnectErrorKind::Local, format!("cannot start: {error}"))
    })?;
    let task = shard.reserve();
    let session = Rc::new(RefCell::new(Session::new(&shard, task, plan)));
    shard.install(task, Rc::clone(&session) as Rc<RefCell<_>>);
    session.borrow_mut().rise(&mut shard);
    let outcome = loop {
        match std::mem::take(&mut session.borrow_mut().outcome) {
            Outcome::Waiting => {}
            Outcome::Ready(facts) => break Ok(facts),
            Outcome::Failed(error) => break Err(error),
        }
        shard.turn(Wait::AtMost(TURN));
    };
    session.borrow_mut().over(&mut shard);
    for _ in 0..CLOSING_TURNS {
        if shard.task(task).is_none() {
            break;
        }
        shard.turn(Wait::AtMost(TURN));
    }
    outcome
}

/// One turn waits no longer, so that what happens between turns is seen.
const TURN: Duration = Duration::from_millis(100);
/// Memory for a handful of small commands.
const ARENA_BYTES: usize = 8 << 20;
/// Turns that closing may take: a socket ends in one or two.
const CLOSING_TURNS: usize = 50;
