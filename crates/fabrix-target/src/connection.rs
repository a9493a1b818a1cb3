//! The task of one connection, from accept to its last byte: what both protocols share.
//!
//! [`Connection`] takes events from its stream, delivers completions of disks, sets timers, and
//! ends in order. A [`Protocol`] gives the events their meaning. The stages and timers are in
//! `lifecycle`.

use std::any::Any;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use fabrix_rt::{Completion, Shard, Task, TaskId};
use fabrix_transport::{self as transport, Ended};

use crate::catch_up::CatchUp;
use crate::command_table::{CommandTable, Waiting};
use crate::context::CommandContext;
use crate::disk::Stop;
use crate::lifecycle::{
    DEADLINE, EVENTS_AT_ONCE, Lifecycle, PENDING_CHANGES, RESET_BY_ANOTHER, RETRY, SHUTTING_DOWN,
    Stage,
};
use crate::load::Load;
use crate::local::Local;
use crate::registry::ConnectionOrder;
use crate::requests::{DISK_SLOTS, Requests};
use crate::unauthenticated_peers::UnauthenticatedPeer;
use crate::{Listen, Notice};

/// The ends of an accepted connection.
pub(crate) struct Accepted {
    /// Address of the host or initiator.
    pub(crate) peer: SocketAddr,
    /// The listener that accepted it.
    pub(crate) listener: Listen,
    /// Local address to which the peer has connected, if the system reports it.
    pub(crate) address: Option<SocketAddr>,
    /// Counts toward the limit of unauthenticated peers until the peer has authenticated.
    pub(crate) unauthenticated_peer: Option<UnauthenticatedPeer>,
    /// Counts toward the load of its shard, unless it carries no I/O.
    pub(crate) load: Option<Load>,
}

/// The task of one connection. `S` carries the bytes, `P` gives them their meaning.
pub(crate) struct Connection<S, P> {
    pub(crate) lifecycle: Lifecycle,
    pub(crate) stream: S,
    pub(crate) local: Rc<Local>,
    pub(crate) requests: Requests,
    pub(crate) accepted: Accepted,
    /// True while events may wait in the stream.
    has_more: bool,
    pub(crate) protocol: P,
}

/// A protocol's part of a connection.
pub(crate) trait Protocol<S: transport::Connection>: Sized + 'static {
    /// The queue or session that has the commands.
    type Commands: Waiting<S>;

    /// Sets the first deadline of an accepted connection.
    fn begin(connection: &mut Connection<S, Self>, shard: &mut Shard);

    /// Handles an event of the stream.
    fn event(connection: &mut Connection<S, Self>, shard: &mut Shard, event: S::Event);

    /// Handles an order that concerns the protocol alone.
    fn order(connection: &mut Connection<S, Self>, shard: &mut Shard, order: ConnectionOrder);

    /// The deadline of an open connection has passed.
    fn overdue(connection: &mut Connection<S, Self>, shard: &mut Shard);

    /// The protocol's own timer has expired.
    fn expired(connection: &mut Connection<S, Self>, shard: &mut Shard);

    /// The peer has broken the protocol. The connection ends after this.
    fn violated(connection: &mut Connection<S, Self>, shard: &mut Shard, what: String);

    /// The peer has closed the connection, or its socket has failed.
    fn lost(_connection: &mut Connection<S, Self>, _ended: &Ended) {}

    /// The connection drains: the peer learns of it if the standard has a message for that.
    fn drain(connection: &mut Connection<S, Self>, shard: &mut Shard);

    /// Commands may have ended: a connection that waits for the last one may leave.
    fn commands_ended(_connection: &mut Connection<S, Self>, _shard: &mut Shard) {}

    /// Everything of this turn was handed to the kernel.
    fn flushed(_connection: &mut Connection<S, Self>) {}

    /// The connection has ended. The protocol ends its part.
    fn close(_connection: &mut Connection<S, Self>, _shard: &mut Shard) {}

    /// Removes the connection from the state of disks and of other parts of the target. False: the
    /// task has to stay.
    fn leave(connection: &mut Connection<S, Self>, shard: &mut Shard) -> bool;

    /// The connection has no request at a disk any more. Its task is removed next.
    fn gone(_connection: &Connection<S, Self>) {}

    /// The queue or session, if the connection has one.
    fn commands(&mut self) -> Option<&mut Self::Commands>;

    /// Its commands.
    fn table(&self) -> Option<&CommandTable<<Self::Commands as Waiting<S>>::Work>>;

    /// Ends the commands that `stop` names.
    fn stop(&mut self, context: &mut CommandContext<'_, S>, stop: Stop);

    /// Polls the changes that take more than one turn.
    fn run_pending_changes(&mut self, context: &mut CommandContext<'_, S>);

    /// Whether changes are to be polled.
    fn has_pending_changes(&self) -> bool;

    /// Whether other connections of the peer have to end first.
    fn has_ending_queues(&self) -> bool {
        false
    }

    /// Whether a draining connection has work that is not answered.
    fn is_busy(&self, stream: &S) -> bool;
}

impl<S: transport::Connection + 'static, P: Protocol<S>> Connection<S, P> {
    /// Installs an accepted connection as `task`.
    pub(crate) fn begin(
        shard: &mut Shard,
        task: TaskId,
        stream: S,
        accepted: Accepted,
        protocol: P,
        local: &Rc<Local>,
    ) {
        let connection = Rc::new(RefCell::new(Self {
            lifecycle: Lifecycle::new(task, local),
            stream,
            local: Rc::clone(local),
            requests: Requests::default(),
            accepted,
            has_more: false,
            protocol,
        }));
        local.joined(task);
        shard.install(task, Rc::clone(&connection) as Rc<RefCell<dyn Task>>);
        let mut connection = connection.borrow_mut();
        P::begin(&mut connection, shard);
        connection.flush(shard);
    }

    /// The protocol's part, and the context of its commands.
    pub(crate) fn work<'a>(
        &'a mut self,
        shard: &'a mut Shard,
    ) -> (&'a mut P, CommandContext<'a, S>) {
        let context = CommandContext {
            shard,
            stream: &mut self.stream,
            local: &self.local,
            task: self.lifecycle.task,
            requests: &mut self.requests,
        };
        (&mut self.protocol, context)
    }

    /// Tells the operator of the connection's peer.
    pub(crate) fn notice(&self, notice: &Notice) {
        self.local.shared.notice(notice);
    }

    /// Takes events until none is left, the peer leaves its answers unread, or the connection has
    /// had its share of the turn.
    fn take_events(&mut self, shard: &mut Shard) {
        self.has_more = false;
        for _ in 0..EVENTS_AT_ONCE {
            if self.lifecycle.stage >= Stage::Parting {
                return;
            }
            if self.stream.backlogged() {
                break;
            }
            match self.stream.next() {
                Ok(Some(event)) => P::event(self, shard, event),
                Ok(None) => return,
                Err(Ended::Violation(violation)) => {
                    let what = violation.to_string();
                    self.lifecycle
                        .ends_with_stream(&Ended::Violation(violation));
                    P::violated(self, shard, what);
                    return self.lifecycle.part(shard, &mut self.stream);
                }
                Err(ended) => return self.lost(shard, &ended),
            }
        }
        self.has_more = true;
    }

    fn lost(&mut self, shard: &mut Shard, ended: &Ended) {
        P::lost(self, ended);
        self.lifecycle.ends_with_stream(ended);
        self.end(shard);
    }

    fn disk_answered(&mut self, shard: &mut Shard, number: u32, completion: Completion) {
        let Some(slot) = self.requests.ended(number) else {
            return;
        };
        let (protocol, mut context) = self.work(shard);
        if let Some(commands) = protocol.commands() {
            commands.disk_answered(&mut context, slot, completion);
        }
        if self.lifecycle.stage == Stage::Draining {
            // Only now can the peer read the answer: its time begins.
            self.lifecycle.await_parting(shard);
        }
        P::commands_ended(self, shard);
    }

    /// Resumes waiting commands, as long as they can be answered.
    fn resume(
        &mut self,
        shard: &mut Shard,
        resume: impl FnOnce(&mut P::Commands, &mut CommandContext<'_, S>),
    ) {
        if self.lifecycle.stage >= Stage::Parting {
            return;
        }
        let (protocol, mut context) = self.work(shard);
        if let Some(commands) = protocol.commands() {
            resume(commands, &mut context);
        }
    }

    /// Polls the changes that take more than one turn, as long as they can be answered.
    fn run_pending_changes(&mut self, shard: &mut Shard) {
        if self.lifecycle.stage >= Stage::Parting {
            return;
        }
        let (protocol, mut context) = self.work(shard);
        protocol.run_pending_changes(&mut context);
        P::commands_ended(self, shard);
        shard.flush_later(self.lifecycle.task);
    }

    /// Ends commands for another connection.
    fn stop(&mut self, shard: &mut Shard, stop: Stop) {
        let (protocol, mut context) = self.work(shard);
        protocol.stop(&mut context, stop);
        P::commands_ended(self, shard);
        if self.lifecycle.stage < Stage::Ending {
            shard.flush_later(self.lifecycle.task);
        }
    }

    /// Sets the timers for events that no completion of this connection announces.
    fn set_timers(&mut self, shard: &mut Shard) {
        if self.lifecycle.stage >= Stage::Parting {
            return;
        }
        if let Some(table) = self.protocol.table() {
            if table.is_paused() {
                self.lifecycle.go_on_next_turn(shard);
            }
            if table.is_stalled() {
                self.lifecycle.retry_soon(shard);
            }
        }
        if self.protocol.has_pending_changes() {
            self.lifecycle.poll_changes_soon(shard);
        }
    }

    /// Answers the commands in progress, refuses new ones, then closes.
    pub(crate) fn drain(&mut self, shard: &mut Shard, why: &'static str) {
        if self.lifecycle.stage != Stage::Open {
            return;
        }
        self.lifecycle.stage = Stage::Draining;
        self.lifecycle.ends_well(why);
        P::drain(self, shard);
        self.lifecycle.await_parting(shard);
        shard.flush_later(self.lifecycle.task);
    }

    /// Closes the connection. The task stays until the kernel and the disks have ended its
    /// operations.
    pub(crate) fn end(&mut self, shard: &mut Shard) {
        if self.lifecycle.stage < Stage::Ending {
            self.lifecycle.stage = Stage::Ending;
            self.stream.close();
            if let Some(commands) = self.protocol.commands() {
                commands.close();
            }
            P::close(self, shard);
            self.lifecycle.await_disks(shard);
        }
        self.leave_when_quiet(shard);
    }

    /// Last step of an end: removes the connection from the state of disks and of other parts, and
    /// removes the task unless the kernel, a disk or another connection still needs it.
    pub(crate) fn leave_when_quiet(&mut self, shard: &mut Shard) {
        let at_disk = self.protocol.table().map_or(0, CommandTable::at_disk);
        if self.lifecycle.stage != Stage::Ending || !self.stream.is_quiet() || at_disk > 0 {
            return;
        }
        if P::leave(self, shard) && !self.requests.are_abandoned() {
            P::gone(self);
            self.lifecycle.go(shard, &self.local);
        }
    }

    /// Whether a draining connection waits for something other than its peer.
    fn waits_for_others(&self) -> bool {
        let table = self.protocol.table();
        table.is_some_and(CommandTable::waits_for_others)
            || self.protocol.has_pending_changes()
            || self.protocol.has_ending_queues()
    }

    fn deadline_passed(&mut self, shard: &mut Shard) {
        match self.lifecycle.stage {
            Stage::Open => P::overdue(self, shard),
            Stage::Draining if self.waits_for_others() => self.lifecycle.await_parting(shard),
            Stage::Ending => {
                if let Some(commands) = self.protocol.commands() {
                    commands.abandon_all(&self.local, &mut self.requests);
                }
                self.leave_when_quiet(shard);
            }
            _ => self.end(shard),
        }
    }
}

impl<S: transport::Connection + 'static, P: Protocol<S>> Task for Connection<S, P> {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let outcome = if slot < DISK_SLOTS {
            self.stream.completed(slot, completion)
        } else {
            self.disk_answered(shard, slot, completion);
            Ok(())
        };
        match outcome {
            Ok(()) if self.has_more => {}
            Ok(()) => self.take_events(shard),
            Err(ended) => self.lost(shard, &ended),
        }
        if self.lifecycle.stage >= Stage::Ending {
            self.leave_when_quiet(shard);
        } else {
            shard.flush_later(self.lifecycle.task);
        }
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        self.lifecycle.passed(slot);
        match slot {
            DEADLINE => self.deadline_passed(shard),
            RETRY => {
                self.resume(shard, Waiting::retry);
                shard.flush_later(self.lifecycle.task);
            }
            PENDING_CHANGES => self.run_pending_changes(shard),
            _ => P::expired(self, shard),
        }
    }

    fn flush(&mut self, shard: &mut Shard) {
        if self.has_more {
            self.take_events(shard);
        }
        if self.lifecycle.goes_on() {
            self.resume(shard, Waiting::go_on);
        }
        if self.lifecycle.stage >= Stage::Ending {
            return;
        }
        if let Err(ended) = self.stream.flush(shard) {
            return self.lost(shard, &ended);
        }
        if self.has_more && !self.stream.backlogged() {
            shard.flush_later(self.lifecycle.task);
        }
        P::flushed(self);
        self.set_timers(shard);
        let is_draining = self.lifecycle.stage == Stage::Draining;
        if is_draining && !self.protocol.is_busy(&self.stream) && self.stream.is_drained() {
            self.end(shard);
        }
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        let message = match message.downcast::<Stop>() {
            Ok(stop) => return self.stop(shard, *stop),
            Err(other) => other,
        };
        if message.is::<CatchUp>() {
            return;
        }
        match message.downcast_ref() {
            Some(ConnectionOrder::Drain) => self.drain(shard, SHUTTING_DOWN),
            Some(ConnectionOrder::Close(why)) => {
                self.lifecycle.ends_because(*why);
                self.end(shard);
            }
            Some(ConnectionOrder::Reset(hold)) => {
                self.lifecycle.hold_until_gone(hold);
                self.lifecycle.ends_because(RESET_BY_ANOTHER);
                self.end(shard);
            }
            Some(order) => P::order(self, shard, order.clone()),
            None => debug_assert!(false, "a connection takes orders, stops and rounds only"),
        }
    }
}
