//! What every connection of a target lives through, whatever is spoken on it: its phases, and the
//! timers beside its stream. What is said in which phase is the protocol's.

use std::time::Duration;

use fabrix_rt::{Nanos, Shard, TaskId, TimerId, Token};
use fabrix_transport::{Connection, Ended, StreamSlots};

use crate::End;
use crate::disk::PENDING_CHANGE_AGAIN;
use crate::local::Local;

/// A connection's own slots of its task.
pub(crate) const STREAM: StreamSlots = StreamSlots {
    receive: 0,
    send: 1,
};
const DEADLINE: u32 = 2;
/// Its timer: try again what a disk had no room for.
pub(crate) const RETRY: u32 = 3;
/// Its timer: look at what takes more than one turn.
pub(crate) const PENDING_CHANGES: u32 = 4;
/// Slots from here on are its protocol's.
pub(crate) const OWN_SLOTS: u32 = 5;

/// Events taken at once: then other connections have their turn.
pub(crate) const EVENTS_AT_ONCE: usize = 128;
/// How soon a request is tried again that a disk had no room for, when no ending of our own will
/// wake us.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// Why connections end that a drain closes.
pub(crate) const SHUTTING_DOWN: &str = "the target is shutting down";

/// Where a connection is, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Open,
    /// Answers what it has begun, and refuses what comes.
    Draining,
    /// Says goodbye; what still comes is dropped.
    Parting,
    /// Has said it to the last byte, and closed its half: the peer sees the end at once, and is to
    /// close the other.
    Parted,
    /// Closed; waits for the kernel and the disks to be done.
    Ending,
    /// Nothing is left of it.
    Gone,
}

/// The lifecycle of one connection.
pub(crate) struct Lifecycle {
    pub(crate) task: TaskId,
    pub(crate) phase: Stage,
    /// How long the peer has for its part at the end.
    parting: Duration,
    /// How long the disks have for theirs, when it has ended.
    quiet: Duration,
    deadline: Option<TimerId>,
    retrying: bool,
    errands_awaited: bool,
    goes_on: bool,
    /// How the connection ends, once that is decided.
    end: Option<End>,
}

impl Lifecycle {
    /// A connection that was accepted.
    pub(crate) fn new(task: TaskId, local: &Local) -> Self {
        Self {
            task,
            phase: Stage::Open,
            parting: local.shared.deadlines.parting,
            quiet: local.shared.deadlines.quiet,
            deadline: None,
            retrying: false,
            errands_awaited: false,
            goes_on: false,
            end: None,
        }
    }

    /// Remembers why the connection ends, which its peer did not ask for. The first reason stays:
    /// the others follow from it.
    pub(crate) fn ends_because(&mut self, why: impl Into<String>) {
        let (why, is_orderly) = (why.into(), false);
        self.end.get_or_insert(End { why, is_orderly });
    }

    /// The same for an end that was asked for.
    pub(crate) fn ends_well(&mut self, why: impl Into<String>) {
        let (why, is_orderly) = (why.into(), true);
        self.end.get_or_insert(End { why, is_orderly });
    }

    /// Remembers that the stream has ended, and how.
    pub(crate) fn ends_with_stream(&mut self, ended: &Ended) {
        self.ends_because(match ended {
            Ended::Closed => return self.ends_well("it closed the connection"),
            Ended::Socket(result) => {
                let error = std::io::Error::from_raw_os_error(-result);
                format!("its connection failed: {error}")
            }
            Ended::Violation(violation) => format!("it broke the protocol: {violation}"),
        });
    }

    /// How the connection ends, for the operator.
    pub(crate) fn end(&self) -> End {
        self.end.clone().unwrap_or_else(|| End {
            why: "its connection ended".to_owned(),
            is_orderly: false,
        })
    }

    /// Lets the goodbye out and drops what still comes.
    pub(crate) fn part(&mut self, shard: &mut Shard, stream: &mut impl Connection) {
        self.phase = Stage::Parting;
        stream.discard();
        self.await_parting(shard);
        shard.flush_later(self.task);
    }

    /// From now on the peer has to do its part in time.
    pub(crate) fn await_parting(&mut self, shard: &mut Shard) {
        self.set_deadline(shard, shard.now() + self.parting);
    }

    /// From now on disks have to end what the connection began, in time.
    pub(crate) fn await_disks(&mut self, shard: &mut Shard) {
        self.set_deadline(shard, shard.now() + self.quiet);
    }

    /// The connection's task goes.
    pub(crate) fn go(&mut self, shard: &mut Shard, local: &Local) {
        self.phase = Stage::Gone;
        self.clear_deadline(shard);
        local.left(self.task);
        shard.remove(self.task);
    }

    /// Sets the one deadline that a connection has at a time.
    pub(crate) fn set_deadline(&mut self, shard: &mut Shard, at: Nanos) {
        let timer = self.set_timer(shard, DEADLINE, at);
        if let Some(earlier) = self.deadline.replace(timer) {
            shard.cancel_timer(earlier);
        }
    }

    /// It has none any more.
    pub(crate) fn clear_deadline(&mut self, shard: &mut Shard) {
        if let Some(timer) = self.deadline.take() {
            shard.cancel_timer(timer);
        }
    }

    /// Makes sure that what a busy disk refused is tried again.
    pub(crate) fn retry_soon(&mut self, shard: &mut Shard) {
        if !std::mem::replace(&mut self.retrying, true) {
            let at = shard.now() + RETRY_AFTER;
            self.set_timer(shard, RETRY, at);
        }
    }

    /// Makes sure that what takes more than one turn is looked at again.
    pub(crate) fn look_again_soon(&mut self, shard: &mut Shard) {
        if !std::mem::replace(&mut self.errands_awaited, true) {
            let at = shard.now() + PENDING_CHANGE_AGAIN;
            self.set_timer(shard, PENDING_CHANGES, at);
        }
    }

    /// Makes sure that what pauses goes on in the next turn of the loop: everybody else has theirs
    /// before.
    pub(crate) fn go_on_next_turn(&mut self, shard: &mut Shard) {
        self.goes_on = true;
        shard.flush_later(self.task);
    }

    /// Whether this is the turn in which what pauses goes on.
    pub(crate) fn goes_on(&mut self) -> bool {
        std::mem::take(&mut self.goes_on)
    }

    /// A timer of this slot.
    pub(crate) fn set_timer(&self, shard: &mut Shard, slot: u32, at: Nanos) -> TimerId {
        let token = Token {
            task: self.task,
            slot,
        };
        shard.set_timer(token, at)
    }

    /// The timer of a slot has passed: it is set no longer.
    pub(crate) fn passed(&mut self, slot: u32) {
        match slot {
            DEADLINE => self.deadline = None,
            RETRY => self.retrying = false,
            PENDING_CHANGES => self.errands_awaited = false,
            _ => {}
        }
    }
}
