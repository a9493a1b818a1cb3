//! The stages of a connection's life, and the timers beside its stream, for both protocols.

use std::sync::Arc;
use std::time::Duration;

use fabrix_rt::{Nanos, Shard, TaskId, TimerId, Token};
use fabrix_transport::{Connection, Ended, StreamSlots};

use crate::End;
use crate::disk::PENDING_CHANGE_AGAIN;
use crate::local::Local;

/// Token numbers of the stream's operations.
pub(crate) const STREAM: StreamSlots = StreamSlots {
    receive: 0,
    send: 1,
};
/// Timer: the deadline of the connection's stage.
pub(crate) const DEADLINE: u32 = 2;
/// Timer: retries requests for which a disk had no room.
pub(crate) const RETRY: u32 = 3;
/// Timer: polls changes that take more than one turn.
pub(crate) const PENDING_CHANGES: u32 = 4;
/// Timer of the protocol.
pub(crate) const PROTOCOL_TIMER: u32 = 5;

/// Most events that a connection takes before it yields to other connections.
pub(crate) const EVENTS_AT_ONCE: usize = 128;
/// Delay of a retry at a full disk, when no completion of this connection triggers one earlier.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// Why a drain ends a connection.
pub(crate) const SHUTTING_DOWN: &str = "the target is shutting down";
/// Why a connection of a controller ends that another controller has reset.
pub(crate) const RESET_BY_ANOTHER: &str = "its host reset the controller over another one";

/// The stages of a connection's life, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Open,
    /// The connection answers the commands in progress, and refuses new ones.
    Draining,
    /// The connection sends its last PDU, and drops what arrives.
    Parting,
    /// The last PDU was sent, and our direction is closed. The peer has to close its own.
    Parted,
    /// The socket is closed. The kernel and the disks still have operations of the connection.
    Ending,
    /// The task was removed.
    Gone,
}

/// The lifecycle of one connection.
pub(crate) struct Lifecycle {
    pub(crate) task: TaskId,
    pub(crate) stage: Stage,
    /// Time in which the peer has to close the connection.
    parting: Duration,
    /// Time in which disks have to end the requests of a closed connection.
    quiet: Duration,
    deadline: Option<TimerId>,
    retrying: bool,
    polling: bool,
    goes_on: bool,
    /// Dropped with the task: other connections wait for its end.
    until_gone: Vec<Arc<()>>,
    /// Reason of the end, once the connection ends.
    end: Option<End>,
}

impl Lifecycle {
    /// A connection that was accepted.
    pub(crate) fn new(task: TaskId, local: &Local) -> Self {
        Self {
            task,
            stage: Stage::Open,
            parting: local.shared.deadlines.parting,
            quiet: local.shared.deadlines.quiet,
            deadline: None,
            retrying: false,
            polling: false,
            goes_on: false,
            until_gone: Vec::new(),
            end: None,
        }
    }

    /// Notes why the connection ends, against the wish of its peer. The first reason stays: later
    /// ones follow from it.
    pub(crate) fn ends_because(&mut self, why: impl Into<String>) {
        let (why, is_orderly) = (why.into(), false);
        self.end.get_or_insert(End { why, is_orderly });
    }

    /// Notes why the connection ends in order.
    pub(crate) fn ends_well(&mut self, why: impl Into<String>) {
        let (why, is_orderly) = (why.into(), true);
        self.end.get_or_insert(End { why, is_orderly });
    }

    /// Keeps `hold` as long as the task exists.
    pub(crate) fn hold_until_gone(&mut self, hold: &Arc<()>) {
        self.until_gone.push(Arc::clone(hold));
    }

    /// Notes the end of the stream as the reason.
    pub(crate) fn ends_with_stream(&mut self, ended: &Ended) {
        self.ends_because(match ended {
            Ended::Closed => return self.ends_well("it closed the connection"),
            Ended::Socket(result) => {
                let error = std::io::Error::from_raw_os_error(-result);
                format!("its connection failed: {error}")
            }
            Ended::Rdma(failure) => format!("its connection failed: {}", failure.why),
            Ended::Violation(violation) => format!("it broke the protocol: {violation}"),
        });
    }

    /// The reason of the end, for the operator.
    pub(crate) fn end(&self) -> End {
        self.end.clone().unwrap_or_else(|| End {
            why: "its connection ended".to_owned(),
            is_orderly: false,
        })
    }

    /// Sends what is ready, and drops what arrives from now on.
    pub(crate) fn part(&mut self, shard: &mut Shard, stream: &mut impl Connection) {
        self.stage = Stage::Parting;
        stream.discard();
        self.await_parting(shard);
        shard.flush_later(self.task);
    }

    /// Gives the peer its time to close the connection.
    pub(crate) fn await_parting(&mut self, shard: &mut Shard) {
        self.set_deadline(shard, shard.now() + self.parting);
    }

    /// Gives disks their time to end the connection's requests.
    pub(crate) fn await_disks(&mut self, shard: &mut Shard) {
        self.set_deadline(shard, shard.now() + self.quiet);
    }

    /// Removes the connection's task.
    pub(crate) fn go(&mut self, shard: &mut Shard, local: &Local) {
        self.stage = Stage::Gone;
        self.clear_deadline(shard);
        local.left(self.task);
        shard.remove(self.task);
    }

    /// Sets the deadline, in place of the earlier one.
    pub(crate) fn set_deadline(&mut self, shard: &mut Shard, at: Nanos) {
        let timer = self.set_timer(shard, DEADLINE, at);
        if let Some(earlier) = self.deadline.replace(timer) {
            shard.cancel_timer(earlier);
        }
    }

    /// Cancels the deadline.
    pub(crate) fn clear_deadline(&mut self, shard: &mut Shard) {
        if let Some(timer) = self.deadline.take() {
            shard.cancel_timer(timer);
        }
    }

    /// Sets the timer of retries, unless it runs.
    pub(crate) fn retry_soon(&mut self, shard: &mut Shard) {
        if !std::mem::replace(&mut self.retrying, true) {
            let at = shard.now() + RETRY_AFTER;
            self.set_timer(shard, RETRY, at);
        }
    }

    /// Sets the timer that polls changes, unless it runs.
    pub(crate) fn poll_changes_soon(&mut self, shard: &mut Shard) {
        if !std::mem::replace(&mut self.polling, true) {
            let at = shard.now() + PENDING_CHANGE_AGAIN;
            self.set_timer(shard, PENDING_CHANGES, at);
        }
    }

    /// Lets paused commands continue in the next turn, after the other connections have had theirs.
    pub(crate) fn go_on_next_turn(&mut self, shard: &mut Shard) {
        self.goes_on = true;
        shard.flush_later(self.task);
    }

    /// Whether paused commands continue in this turn.
    pub(crate) fn goes_on(&mut self) -> bool {
        std::mem::take(&mut self.goes_on)
    }

    /// Sets a timer with this token number.
    pub(crate) fn set_timer(&self, shard: &mut Shard, slot: u32, at: Nanos) -> TimerId {
        let token = Token {
            task: self.task,
            slot,
        };
        shard.set_timer(token, at)
    }

    /// The timer with this token number has expired.
    pub(crate) fn passed(&mut self, slot: u32) {
        match slot {
            DEADLINE => self.deadline = None,
            RETRY => self.retrying = false,
            PENDING_CHANGES => self.polling = false,
            _ => {}
        }
    }
}
