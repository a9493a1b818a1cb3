//! Probe: connects once, learns what the target has, and disconnects.
//!
//! Runs a shard of the calling thread. Programs call it before they know a disk's size.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fabrix_rt::{ShardConfig, SpinPolicy, TaskId};

use crate::link::Link;
use crate::session::{Outcome, Protocol, Session};
use crate::{ConnectError, ConnectErrorKind, Options};

/// Connects, learns what the target has, disconnects.
///
/// # Errors
/// The reason of the failure, within `bringup_timeout` whatever the target does.
pub(crate) fn probe<P: Protocol<L>, L: Link>(
    options: &Options,
    make: impl FnOnce(TaskId) -> Session<P, L>,
) -> Result<P::Found, ConnectError> {
    let config = ShardConfig {
        engine: options.engine,
        arena_bytes: ARENA_BYTES,
        spin: SpinPolicy::Never,
        ..ShardConfig::default()
    };
    let control = &*options.control;
    let mut shard = control.shard(config).map_err(|error| {
        ConnectError::new(ConnectErrorKind::Local, format!("cannot start: {error}"))
    })?;
    let task = shard.reserve();
    let session = Rc::new(RefCell::new(make(task)));
    shard.install(task, Rc::clone(&session) as Rc<RefCell<_>>);
    session.borrow_mut().connect(&mut shard);
    let outcome = loop {
        match std::mem::take(&mut session.borrow_mut().outcome) {
            Outcome::Waiting => {}
            Outcome::Ready(found) => break Ok(found),
            Outcome::Failed(error) => break Err(error),
        }
        control.turn(&mut shard, TURN);
    };
    session.borrow_mut().close(&mut shard);
    for _ in 0..CLOSING_TURNS {
        if shard.task(task).is_none() {
            break;
        }
        control.turn(&mut shard, TURN);
    }
    outcome
}

/// 100 ms: the outcome is checked after each turn.
const TURN: Duration = Duration::from_millis(100);
/// 8 MiB: enough for a few small commands.
const ARENA_BYTES: usize = 8 << 20;
/// Turns in which the session may close. A socket closes in one or two.
const CLOSING_TURNS: usize = 50;
