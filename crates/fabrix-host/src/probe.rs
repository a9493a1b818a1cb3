//! Connecting once, now, and waiting for it: what a command line needs before it knows what a disk
//! is.
//!
//! Runs a shard on the calling thread until the target has been asked everything, and leaves
//! nothing behind.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fabrix_rt::{Engine, Shard, ShardConfig, SpinPolicy, Task, TaskId, Wait};

use crate::{ConnectError, ConnectErrorKind};

/// What became of a first connection, for those who wait for it.
#[derive(Default)]
pub(crate) enum Outcome<Found> {
    #[default]
    Waiting,
    Ready(Found),
    Failed(ConnectError),
}

impl<Found> Outcome<Found> {
    /// There is no connection; who waited for the first one hears why.
    pub(crate) fn fail(&mut self, error: ConnectError) {
        if matches!(self, Self::Waiting) {
            *self = Self::Failed(error);
        }
    }
}

/// A session that can be asked once.
pub(crate) trait Session: Task {
    /// What it learns.
    type Found;

    /// Begins to connect.
    fn rise(&mut self, shard: &mut Shard);

    /// What has become of it since it was asked last.
    fn outcome(&mut self) -> Outcome<Self::Found>;

    /// Nobody uses it any more.
    fn over(&mut self, shard: &mut Shard);
}

/// Connects, learns what is there, disconnects.
///
/// # Errors
/// Why not, as a sentence. It comes within the session's own time for bring-up, whatever the target
/// does.
pub(crate) fn probe<S: Session + 'static>(
    engine: Engine,
    make: impl FnOnce(TaskId) -> S,
) -> Result<S::Found, ConnectError> {
    let config = ShardConfig {
        engine,
        arena_bytes: ARENA_BYTES,
        spin: SpinPolicy::Never,
        ..ShardConfig::default()
    };
    let mut shard = Shard::new(config).map_err(|error| {
        ConnectError::new(ConnectErrorKind::Local, format!("cannot start: {error}"))
    })?;
    let task = shard.reserve();
    let session = Rc::new(RefCell::new(make(task)));
    shard.install(task, Rc::clone(&session) as Rc<RefCell<_>>);
    session.borrow_mut().rise(&mut shard);
    let outcome = loop {
        match session.borrow_mut().outcome() {
            Outcome::Waiting => {}
            Outcome::Ready(found) => break Ok(found),
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
