//! The connections of hosts: NVMe's part of a connection.
//!
//! A connection has no role until its Connect command (`connect`). Then it is an admin queue or an
//! I/O queue, until it ends (`ending`). `news` has the messages between connections, `admin` and
//! `io` the commands. An unauthenticated peer has a deadline, a small buffer, and no disk.

mod connect;
mod ending;
mod news;

use std::sync::Arc;

use fabrix_proto::nvme::fabrics::FabricsCommand;
use fabrix_proto::nvme::queue::{ControllerEvent, Transfer};
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::nvme::subsystem::Transport;
use fabrix_proto::{Claim, Nanos, Settled, Slot};
use fabrix_rt::Shard;
use fabrix_transport::Ended;

use super::admin::{Admin, After};
use super::context::Queue;
use super::io::{IoQueue, Work};
use crate::command_table::CommandTable;
use crate::connection::{Connection, Protocol};
use crate::context::CommandContext;
use crate::disk::Stop;
use crate::lifecycle::Stage;
use crate::registry::{ConnectionAddress, ConnectionOrder, Traffic};
use ending::CONTROLLER_GONE;

/// The role of a connection.
enum Role {
    /// No role: only Connect is allowed.
    Unknown {
        /// The Connect whose data is being fetched, and the length of the data in bytes.
        connecting: Option<(Claim, (SubmissionEntry, u32))>,
        /// The Connect that waits for the older connections of its host, and its data.
        waiting: Option<(Claim, (SubmissionEntry, Vec<u8>))>,
    },
    Admin(Box<Admin>),
    Io {
        queue: Box<IoQueue>,
        controller: u16,
        qid: u16,
        traffic: Arc<Traffic>,
    },
}

impl Role {
    /// No role, and no Connect yet.
    const UNKNOWN: Self = Self::Unknown {
        connecting: None,
        waiting: None,
    };
}

/// NVMe's part of a connection.
pub(crate) struct Nvme {
    role: Role,
    /// What carries the queue.
    transport: Transport,
    /// Most data in bytes that the host may send within a command's capsule.
    in_capsule_bytes: u32,
    /// Orders for other connections whose mailboxes had no room.
    unsent: Vec<(ConnectionAddress, ConnectionOrder)>,
}

impl Nvme {
    /// A connection without a role.
    pub(crate) fn new(transport: Transport, in_capsule_bytes: u32) -> Self {
        Self {
            role: Role::UNKNOWN,
            transport,
            in_capsule_bytes,
            unsent: Vec::new(),
        }
    }
}

impl<Q: Queue> Connection<Q, Nvme> {
    /// Handles a command.
    fn command(
        &mut self,
        shard: &mut Shard,
        claim: Claim,
        transfer: Transfer,
        intact: bool,
    ) -> Settled {
        let draining = self.lifecycle.stage == Stage::Draining;
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
            Role::Unknown { .. } => self.unauthenticated_command(shard, claim, transfer),
        }
    }

    /// All data that a command fetched has arrived.
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

    /// Handles the Fabrics commands of an I/O queue. Only Disconnect is allowed.
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

    /// Carries out what an admin command means for the rest of its controller.
    fn after_admin(&mut self, shard: &mut Shard, after: After) {
        let Role::Admin(admin) = &mut self.protocol.role else {
            return;
        };
        let registry = &self.local.shared.registry;
        match after {
            After::Nothing if self.lifecycle.stage != Stage::Open => {}
            After::Nothing => {
                let random = || self.local.shared.random();
                let begun = registry.enable(admin.id(), admin.is_ready(), random);
                admin.begin_instance(begun);
            }
            After::Quiesce => match registry.quiesce(admin.id()) {
                Some(queues) => {
                    admin.queues_are_ending();
                    self.send_order(shard, queues, &ConnectionOrder::Close(CONTROLLER_GONE));
                }
                None => admin.quiesced(),
            },
            After::Expired => return self.expire(shard),
        }
        self.watch(shard);
    }

    /// Sets the deadline of the connection's role. A connection that ends has another deadline.
    fn watch(&mut self, shard: &mut Shard) {
        if self.lifecycle.stage != Stage::Open {
            return;
        }
        let at = match &self.protocol.role {
            Role::Admin(admin) => admin.deadline().map(|at| fabrix_rt::Nanos(at.0)),
            Role::Unknown { .. } | Role::Io { .. } => None,
        };
        match at {
            Some(at) => self.lifecycle.set_deadline(shard, at),
            None => self.lifecycle.clear_deadline(shard),
        }
    }

    /// The role, and the context of its commands.
    fn at_work<'a>(&'a mut self, shard: &'a mut Shard) -> (&'a mut Role, CommandContext<'a, Q>) {
        let (nvme, context) = self.work(shard);
        (&mut nvme.role, context)
    }
}

impl<Q: Queue> Protocol<Q> for Nvme {
    type Commands = IoQueue;

    fn begin(connection: &mut Connection<Q, Self>, shard: &mut Shard) {
        let at = shard.now() + connection.local.shared.deadlines.connect;
        connection.lifecycle.set_deadline(shard, at);
    }

    fn event(connection: &mut Connection<Q, Self>, shard: &mut Shard, event: ControllerEvent) {
        match event {
            ControllerEvent::Command {
                claim,
                transfer,
                intact,
            } => drop(connection.command(shard, claim, transfer, intact)),
            ControllerEvent::Fetched { slot, intact } => connection.fetched(shard, slot, intact),
            ControllerEvent::Released { slot } => drop(connection.stream.release(slot)),
            ControllerEvent::Terminated => connection.terminated(shard),
        }
    }

    fn order(connection: &mut Connection<Q, Self>, shard: &mut Shard, order: ConnectionOrder) {
        match order {
            ConnectionOrder::Quiesced => connection.quiesced(shard),
            ConnectionOrder::Served => connection.serve(shard),
            ConnectionOrder::Announced => connection.announce(shard),
            ConnectionOrder::AwaitRefused(done) => connection.await_refused(done),
            ConnectionOrder::Noticed => connection.noticed(shard),
            ConnectionOrder::CaughtUp => connection.caught_up(shard),
            ConnectionOrder::Drain | ConnectionOrder::Close(_) | ConnectionOrder::Reset(_) => {}
        }
    }

    /// The keep-alive has expired, or an unauthenticated peer has sent no Connect in time.
    fn overdue(connection: &mut Connection<Q, Self>, shard: &mut Shard) {
        match &mut connection.protocol.role {
            Role::Admin(admin) => match admin.expired(Nanos(shard.now().0)) {
                true => connection.expire(shard),
                false => connection.watch(shard),
            },
            Role::Unknown { .. } => connection.silent(shard),
            Role::Io { .. } => connection.end(shard),
        }
    }

    fn expired(connection: &mut Connection<Q, Self>, shard: &mut Shard) {
        connection.send_again(shard);
        connection.leave_when_quiet(shard);
    }

    fn violated(connection: &mut Connection<Q, Self>, shard: &mut Shard, what: String) {
        connection.notice_violation(what);
        connection.retire(shard);
    }

    fn lost(connection: &mut Connection<Q, Self>, ended: &Ended) {
        let lifecycle = &mut connection.lifecycle;
        match &connection.protocol.role {
            Role::Admin(admin) if matches!(ended, Ended::Closed) && !admin.is_ready() => {
                lifecycle.ends_well("it disconnected");
            }
            _ => lifecycle.ends_with_stream(ended),
        }
        if matches!(ended, Ended::Socket(_) | Ended::Rdma(_)) {
            connection.notice_queue_lost();
        }
    }

    /// An admin queue stays until its I/O queues have drained.
    fn drain(connection: &mut Connection<Q, Self>, shard: &mut Shard) {
        let (role, mut context) = connection.at_work(shard);
        let registry = &context.local.shared.registry;
        match role {
            Role::Io { queue, .. } => queue.drain(&mut context),
            Role::Admin(admin) if registry.quiesce(admin.id()).is_some() => {
                admin.queues_are_ending();
            }
            Role::Admin(_) | Role::Unknown { .. } => {}
        }
    }

    fn close(connection: &mut Connection<Q, Self>, shard: &mut Shard) {
        connection.retire(shard);
    }

    fn leave(connection: &mut Connection<Q, Self>, shard: &mut Shard) -> bool {
        connection.leave_role(shard);
        connection.protocol.unsent.is_empty()
    }

    fn gone(connection: &Connection<Q, Self>) {
        let address = connection.local.place(connection.lifecycle.task);
        connection.local.shared.registry.gone(&address);
    }

    fn commands(&mut self) -> Option<&mut IoQueue> {
        match &mut self.role {
            Role::Io { queue, .. } => Some(queue),
            Role::Admin(_) | Role::Unknown { .. } => None,
        }
    }

    fn table(&self) -> Option<&CommandTable<Work>> {
        match &self.role {
            Role::Io { queue, .. } => Some(&queue.commands),
            Role::Admin(_) | Role::Unknown { .. } => None,
        }
    }

    fn stop(&mut self, context: &mut CommandContext<'_, Q>, stop: Stop) {
        if let Role::Io { queue, .. } = &mut self.role {
            queue.stop(context, stop);
        }
    }

    fn run_pending_changes(&mut self, context: &mut CommandContext<'_, Q>) {
        match &mut self.role {
            Role::Io { queue, .. } => queue.run_pending_changes(context),
            Role::Admin(admin) => admin.run_pending_changes(context),
            Role::Unknown { .. } => {}
        }
    }

    fn has_pending_changes(&self) -> bool {
        match &self.role {
            Role::Io { queue, .. } => queue.has_pending_changes(),
            Role::Admin(admin) => admin.has_pending_changes(),
            Role::Unknown { .. } => false,
        }
    }

    fn has_ending_queues(&self) -> bool {
        matches!(&self.role, Role::Admin(admin) if admin.has_ending_queues())
    }

    fn is_busy(&self, queue: &Q) -> bool {
        match &self.role {
            Role::Io { .. } => queue.slots_in_use() > 0,
            Role::Admin(admin) => admin.is_busy(),
            Role::Unknown { .. } => false,
        }
    }
}
