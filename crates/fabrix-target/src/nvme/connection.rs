//! One connection of a host, from accept to the last byte.
//!
//! Knows the lifecycle of a connection: unknown until its Connect command (`connect`), then an
//! admin or an I/O queue, then ending (`ending`); `news` is what connections tell each other
//! meanwhile. What commands mean is in `admin` and `io`. An unknown peer has a deadline, a small
//! buffer, and no disk.

mod connect;
mod ending;
mod news;

use std::any::Any;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use fabrix_proto::nvme::fabrics::FabricsCommand;
use fabrix_proto::nvme::queue::{ControllerEvent, Transfer};
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::{Claim, Nanos, Settled, Slot};
use fabrix_rt::{Completion, Shard, Task, TaskId};

use super::admin::{Admin, After};
use super::context::Queue;
use super::io::IoQueue;
use crate::command_table::Waiting;
use crate::context::CommandContext;
use crate::disk::Stop;
use crate::lifecycle::{EVENTS_AT_ONCE, Lifecycle, PENDING_CHANGES, RETRY, SHUTTING_DOWN, Stage};
use crate::local::Local;
use crate::registry::{ConnectionAddress, ConnectionOrder, Traffic};
use crate::requests::{DISK_SLOTS, Requests};
use crate::unauthenticated_peers::UnauthenticatedPeer;
use ending::CONTROLLER_GONE;
use news::TELL;

/// What a connection is.
enum Role {
    /// Nobody yet: only Connect may come.
    Unknown {
        /// The Connect whose data is being fetched, and the length of the data in bytes.
        connecting: Option<(Claim, (SubmissionEntry, u32))>,
    },
    Admin(Box<Admin>),
    Io {
        queue: Box<IoQueue>,
        controller: u16,
        qid: u16,
        traffic: Arc<Traffic>,
    },
}

/// What a transport knows of a connection that was accepted.
pub(crate) struct Ends {
    /// Address of the host.
    pub(crate) peer: SocketAddr,
    /// Address of ours to which the host has connected, if the system tells it.
    pub(crate) address: Option<SocketAddr>,
    /// Most data in bytes that the host is told to send within a command's capsule.
    pub(crate) in_capsule_bytes: u32,
}

/// The task of one connection.
pub(crate) struct Connection<Q> {
    lifecycle: Lifecycle,
    stream: Q,
    local: Rc<Local>,
    role: Role,
    requests: Requests,
    ends: Ends,
    /// There until it has said who it is.
    unauthenticated_peer: Option<UnauthenticatedPeer>,
    /// Events may be waiting in the stream that were not taken yet.
    has_more: bool,
    /// What others are to be told, as soon as their mailboxes have room.
    untold: Vec<(ConnectionAddress, ConnectionOrder)>,
}

impl<Q: Queue> Connection<Q> {
    /// Begins the lifecycle of an accepted connection, as `task`.
    pub(crate) fn begin(
        shard: &mut Shard,
        task: TaskId,
        stream: Q,
        ends: Ends,
        unauthenticated_peer: UnauthenticatedPeer,
        local: &Rc<Local>,
    ) {
        let at = shard.now() + local.shared.deadlines.connect;
        let connection = Rc::new(RefCell::new(Self {
            lifecycle: Lifecycle::new(task, local),
            stream,
            local: Rc::clone(local),
            role: Role::Unknown { connecting: None },
            requests: Requests::default(),
            ends,
            unauthenticated_peer: Some(unauthenticated_peer),
            has_more: false,
            untold: Vec::new(),
        }));
        local.joined(task);
        shard.install(task, Rc::clone(&connection) as Rc<RefCell<dyn Task>>);
        let mut connection = connection.borrow_mut();
        connection.lifecycle.set_deadline(shard, at);
        connection.flush(shard);
    }

    /// Takes events until none is left, the peer does not read its answers, or others should have
    /// their turn.
    fn take_events(&mut self, shard: &mut Shard) {
        self.has_more = false;
        for _ in 0..EVENTS_AT_ONCE {
            if self.lifecycle.phase >= Stage::Parting {
                return;
            }
            if self.stream.backlogged() {
                break;
            }
            match self.stream.next() {
                Ok(Some(event)) => self.event(shard, event),
                Ok(None) => return,
                Err(ended) => return self.ended(shard, &ended),
            }
        }
        self.has_more = true;
    }

    fn event(&mut self, shard: &mut Shard, event: ControllerEvent) {
        match event {
            ControllerEvent::Command {
                claim,
                transfer,
                intact,
            } => {
                self.command(shard, claim, transfer, intact);
            }
            ControllerEvent::Fetched { slot, intact } => self.fetched(shard, slot, intact),
            ControllerEvent::Released { slot } => drop(self.stream.release(slot)),
            ControllerEvent::Terminated => self.goodbye(shard),
        }
    }

    /// A command has come.
    fn command(
        &mut self,
        shard: &mut Shard,
        claim: Claim,
        transfer: Transfer,
        intact: bool,
    ) -> Settled {
        let draining = self.lifecycle.phase == Stage::Draining;
        let is_fabrics = self.stream.entry().is_fabrics();
        let (role, mut context) = self.at_work(shard);
        match role {
            _ if draining => context.answer(claim, Status::ABORTED_SQ_DELETION),
            Role::Io { queue, traffic, .. } if !is_fabrics => {
                traffic.note();
                queue.command(&mut context, claim, transfer, intact)
            }
            Role::Io { .. } => self.io_fabrics(shard, claim),
            Role::Admin(_) | Role::Unknown { .. } if !intact => {
                context.answer(claim, Status::TRANSIENT_TRANSPORT_ERROR)
            }
            Role::Admin(admin) => {
                let entry = *context.stream.entry();
                let (settled, after) = admin.command(&mut context, claim, &entry, transfer);
                self.after_admin(shard, after);
                settled
            }
            Role::Unknown { .. } => self.stranger_asks(shard, claim, transfer),
        }
    }

    /// The data that a slot asked for is here.
    fn fetched(&mut self, shard: &mut Shard, slot: Slot, intact: bool) {
        let (role, mut context) = self.at_work(shard);
        match role {
            Role::Io { queue, .. } => queue.fetched(&mut context, slot, intact),
            Role::Admin(admin) => {
                let after = admin.fetched(&mut context, slot, intact);
                self.after_admin(shard, after);
            }
            Role::Unknown { .. } => self.connect_fetched(shard, slot, intact),
        }
    }

    /// Fabrics commands of an I/O queue: it may leave, and no more.
    fn io_fabrics(&mut self, shard: &mut Shard, claim: Claim) -> Settled {
        let (_, mut context) = self.at_work(shard);
        match FabricsCommand::parse(context.stream.entry()) {
            Ok(FabricsCommand::Disconnect) => {
                let answered = context.answer(claim, Status::SUCCESS);
                self.drain(shard, "it disconnected the queue");
                answered
            }
            Ok(_) => context.answer(claim, Status::COMMAND_SEQUENCE_ERROR),
            Err(status) => context.answer(claim, status),
        }
    }

    /// What an admin command means for the rest of its controller.
    fn after_admin(&mut self, shard: &mut Shard, after: After) {
        let Role::Admin(admin) = &mut self.role else {
            return;
        };
        let registry = &self.local.shared.registry;
        match after {
            After::Nothing if self.lifecycle.phase != Stage::Open => {}
            After::Nothing => registry.enable(admin.id(), admin.is_ready()),
            After::Quiesce => match registry.quiesce(admin.id()) {
                Some(queues) => {
                    admin.queues_are_ending();
                    self.tell(shard, queues, ConnectionOrder::Close(CONTROLLER_GONE));
                }
                None => admin.quiesced(),
            },
            After::Expired => return self.expire(shard),
        }
        self.watch(shard);
    }

    /// Sets the deadline that the connection's role asks for; one that is ending has another.
    fn watch(&mut self, shard: &mut Shard) {
        if self.lifecycle.phase != Stage::Open {
            return;
        }
        let at = match &self.role {
            Role::Admin(admin) => admin.deadline().map(|at| fabrix_rt::Nanos(at.0)),
            Role::Unknown { .. } | Role::Io { .. } => None,
        };
        match at {
            Some(at) => self.lifecycle.set_deadline(shard, at),
            None => self.lifecycle.clear_deadline(shard),
        }
    }

    /// The deadline of a connection that is not ending has passed: the keep-alive's, or a
    /// unauthenticated_peer's.
    fn overdue(&mut self, shard: &mut Shard) {
        match &mut self.role {
            Role::Admin(admin) => match admin.expired(Nanos(shard.now().0)) {
                true => self.expire(shard),
                false => self.watch(shard),
            },
            Role::Unknown { .. } => self.silent(shard),
            Role::Io { .. } => self.end(shard),
        }
    }

    fn disk_answered(&mut self, shard: &mut Shard, number: u32, completion: Completion) {
        let Some(slot) = self.requests.ended(number) else {
            return;
        };
        if let (Role::Io { queue, .. }, mut context) = self.at_work(shard) {
            queue.disk_answered(&mut context, slot, completion);
        }
        if self.lifecycle.phase == Stage::Draining {
            // The host's part, to read the answer, begins only now.
            self.lifecycle.await_parting(shard);
        }
    }

    /// Tries again what a busy disk refused, unless nobody waits for it any more.
    fn retry(&mut self, shard: &mut Shard) {
        if self.lifecycle.phase >= Stage::Ending {
            return;
        }
        if let (Role::Io { queue, .. }, mut context) = self.at_work(shard) {
            queue.retry(&mut context);
        }
        shard.flush_later(self.lifecycle.task);
    }

    /// Goes on with what pauses, unless nobody waits for it any more.
    fn go_on(&mut self, shard: &mut Shard) {
        if self.lifecycle.phase >= Stage::Ending {
            return;
        }
        if let (Role::Io { queue, .. }, mut context) = self.at_work(shard) {
            queue.go_on(&mut context);
        }
    }

    /// Looks at what takes more than one turn, unless nobody waits for it any more.
    fn run_pending_changes(&mut self, shard: &mut Shard) {
        if self.lifecycle.phase >= Stage::Parting {
            return;
        }
        let (role, mut context) = self.at_work(shard);
        match role {
            Role::Io { queue, .. } => queue.run_pending_changes(&mut context),
            Role::Admin(admin) => admin.run_pending_changes(&mut context),
            Role::Unknown { .. } => {}
        }
        shard.flush_later(self.lifecycle.task);
    }

    /// Makes sure that it looks again at what no ending of its own will wake it for.
    fn look_again(&mut self, shard: &mut Shard) {
        let (is_paused, is_stalled, has_pending_changes) = match &self.role {
            Role::Io { queue, .. } => (
                queue.commands.is_paused(),
                queue.commands.is_stalled(),
                queue.has_pending_changes(),
            ),
            Role::Admin(admin) => (false, false, admin.has_pending_changes()),
            Role::Unknown { .. } => (false, false, false),
        };
        if is_paused {
            self.lifecycle.go_on_next_turn(shard);
        }
        if is_stalled {
            self.lifecycle.retry_soon(shard);
        }
        if has_pending_changes {
            self.lifecycle.look_again_soon(shard);
        }
    }

    /// What the connection is, and what it works with.
    fn at_work<'a>(&'a mut self, shard: &'a mut Shard) -> (&'a mut Role, CommandContext<'a, Q>) {
        let context = CommandContext {
            shard,
            stream: &mut self.stream,
            local: &self.local,
            task: self.lifecycle.task,
            requests: &mut self.requests,
        };
        (&mut self.role, context)
    }
}

impl<Q: Queue> Task for Connection<Q> {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let outcome = match slot {
            slot if slot < DISK_SLOTS => self.stream.completed(slot, completion),
            slot => {
                self.disk_answered(shard, slot, completion);
                Ok(())
            }
        };
        match outcome {
            Ok(()) if self.has_more => {}
            Ok(()) => self.take_events(shard),
            Err(ended) => self.lost(shard, &ended),
        }
        if self.lifecycle.phase >= Stage::Ending {
            self.leave_when_quiet(shard);
        } else {
            shard.flush_later(self.lifecycle.task);
        }
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        self.lifecycle.passed(slot);
        match slot {
            RETRY => self.retry(shard),
            PENDING_CHANGES => self.run_pending_changes(shard),
            TELL => {
                self.tell_again(shard);
                self.leave_when_quiet(shard);
            }
            _ => match self.lifecycle.phase {
                Stage::Open => self.overdue(shard),
                Stage::Draining if self.waits_for_others() => self.lifecycle.await_parting(shard),
                Stage::Ending => self.abandon(shard),
                _ => self.end(shard),
            },
        }
    }

    fn flush(&mut self, shard: &mut Shard) {
        if self.has_more {
            self.take_events(shard);
        }
        if self.lifecycle.goes_on() {
            self.go_on(shard);
        }
        if self.lifecycle.phase >= Stage::Ending {
            return;
        }
        if let Err(ended) = self.stream.flush(shard) {
            return self.lost(shard, &ended);
        }
        if self.has_more && !self.stream.backlogged() {
            shard.flush_later(self.lifecycle.task);
        }
        self.look_again(shard);
        if self.lifecycle.phase == Stage::Draining && !self.is_busy() && self.stream.is_drained() {
            self.end(shard);
        }
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        let message = match message.downcast::<Stop>() {
            Ok(stop) => return self.stop(shard, *stop),
            Err(other) => other,
        };
        match message.downcast_ref() {
            Some(ConnectionOrder::Drain) => self.drain(shard, SHUTTING_DOWN),
            Some(ConnectionOrder::Close(why)) => {
                self.lifecycle.ends_because(*why);
                self.end(shard);
            }
            Some(ConnectionOrder::Quiesced) => self.quiesced(shard),
            Some(ConnectionOrder::Served) => self.serve(shard),
            Some(ConnectionOrder::Announced) => self.announce(shard),
            Some(ConnectionOrder::Noticed) => self.noticed(shard),
            None => debug_assert!(false, "connections are told these things only"),
        }
    }
}
