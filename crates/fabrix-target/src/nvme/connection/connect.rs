//! The Connect command, which gives a connection its role.
//!
//! A part of `connection`. `proto` parses the command, the snapshot has the access rules, and the
//! registry has the controllers.
//!
//! Source: NVM Express Base Specification 2.x, "Connect Command and Response".

use fabrix_proto::nvme::fabrics::{Connect, ConnectRefusal, FabricsCommand};
use fabrix_proto::nvme::queue::Transfer;
use fabrix_proto::nvme::reservation;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::nvme::subsystem::{Authorized, Refused};
use fabrix_proto::{Claim, Nanos, Settled, Slot};
use fabrix_rt::Shard;

use super::{Connection, Nvme, Role};
use crate::catalog::{Snapshot, States};
use crate::catch_up;
use crate::disk::{Member, Role as MemberRole};
use crate::lifecycle::Stage;
use crate::nvme::DISCOVERY_PORT;
use crate::nvme::admin::{Admin, controller_limits, io_limits};
use crate::nvme::context::Queue;
use crate::nvme::io::{IoQueue, Owner};
use crate::registry::{ConnectionAddress, HostName, JoinError};
use crate::{Gateways, Notice};

impl<Q: Queue> Connection<Q, Nvme> {
    /// Handles a command of an unauthenticated peer: only Connect is allowed.
    pub(super) fn unauthenticated_command(
        &mut self,
        shard: &mut Shard,
        claim: Claim,
        transfer: Transfer,
    ) -> Settled {
        let entry = *self.stream.entry();
        let (role, mut context) = self.at_work(shard);
        let is_connect = matches!(FabricsCommand::parse(&entry), Ok(FabricsCommand::Connect));
        let connecting = match role {
            Role::Unknown {
                connecting,
                waiting: None,
            } if is_connect && connecting.is_none() => connecting,
            _ => return context.answer(claim, Status::COMMAND_SEQUENCE_ERROR),
        };
        match transfer {
            Transfer::Inline { .. } => {
                let data = self.stream.in_place().to_vec();
                self.connect(shard, claim, entry, data)
            }
            Transfer::Fetch { bytes }
                if bytes <= CONNECT_BYTES_MOST && context.fetch_data(claim.slot(), bytes) =>
            {
                claim.keep(connecting, (entry, bytes))
            }
            _ => context.answer(claim, Status::DATA_SGL_LENGTH_INVALID),
        }
    }

    /// All data of a Connect that was fetched has arrived.
    pub(super) fn connect_fetched(&mut self, shard: &mut Shard, slot: Slot, intact: bool) {
        let (role, mut context) = self.at_work(shard);
        let data = context.stream.take_incoming(slot);
        let connecting = match role {
            Role::Unknown { connecting, .. } => connecting.take(),
            Role::Admin(_) | Role::Io { .. } => None,
        };
        let Some((claim, (entry, bytes))) = connecting else {
            return debug_assert!(false, "only Connect fetches data here");
        };
        if !intact {
            context.answer(claim, Status::TRANSIENT_TRANSPORT_ERROR);
            return;
        }
        let data = context.bytes(Some(&data))[..bytes as usize].to_vec();
        self.connect(shard, claim, entry, data);
    }

    /// Executes Connect, when all shards know which older connections of the host have ended. A
    /// command that the host has lost with them may still be at a disk, and must not be carried out
    /// after those that the host sends to its new controller.
    fn connect(
        &mut self,
        shard: &mut Shard,
        claim: Claim,
        entry: SubmissionEntry,
        data: Vec<u8>,
    ) -> Settled {
        let older = self.older(&entry, &data);
        let me = self.local.place(self.lifecycle.task);
        match &mut self.protocol.role {
            Role::Unknown { waiting, .. } if !older.is_empty() => {
                if catch_up::send(me, &older) {
                    return claim.keep(waiting, (entry, data));
                }
                let refusal = ConnectRefusal::status(
                    Status::CONNECT_CONTROLLER_BUSY,
                    "a shard has more to do than it can note",
                );
                self.refused(None, refusal.to_string());
                let (_, mut context) = self.at_work(shard);
                context.complete(claim, refusal.completion(), 0)
            }
            _ => self.join(shard, claim, &entry, &data),
        }
    }

    /// The connections of older controllers of the host, if a Connect asks for a new controller.
    fn older(&self, entry: &SubmissionEntry, data: &[u8]) -> Vec<ConnectionAddress> {
        let shared = &self.local.shared;
        let connect = Connect::parse(entry, data, shared.catalog.limits.max_queue_entries);
        match connect {
            Ok(connect) if connect.is_admin() => {
                let host = host_name(&connect);
                shared
                    .registry
                    .connections_of(&host, connect.subsystem.as_str())
            }
            _ => Vec::new(),
        }
    }

    /// The round through the older connections has ended.
    pub(super) fn caught_up(&mut self, shard: &mut Shard) {
        let Role::Unknown { waiting, .. } = &mut self.protocol.role else {
            return;
        };
        let Some((claim, (entry, data))) = waiting.take() else {
            return;
        };
        match self.lifecycle.stage {
            Stage::Open => drop(self.join(shard, claim, &entry, &data)),
            Stage::Draining => {
                let (_, mut context) = self.at_work(shard);
                context.answer(claim, Status::ABORTED_SQ_DELETION);
            }
            // A connection that ends gets no controller: nobody would remove it.
            _ => return,
        }
        shard.flush_later(self.lifecycle.task);
    }

    /// Gives the connection the role for which its Connect asks.
    fn join(
        &mut self,
        shard: &mut Shard,
        claim: Claim,
        entry: &SubmissionEntry,
        data: &[u8],
    ) -> Settled {
        let mut host = None;
        let completion = match self.introduce(shard, entry, data, &mut host) {
            Ok(controller) => {
                self.watch(shard);
                Connect::accepted(controller)
            }
            Err(refusal) => {
                self.refused(host, refusal.to_string());
                refusal.completion()
            }
        };
        let (_, mut context) = self.at_work(shard);
        context.complete(claim, completion, 0)
    }

    /// No Connect has arrived in time.
    pub(super) fn silent(&mut self, shard: &mut Shard) {
        self.refused(None, "it did not say who it is in time".to_owned());
        self.end(shard);
    }

    fn refused(&self, who: Option<String>, why: String) {
        let peer = self.accepted.peer;
        let refused = Notice::Refused { peer, who, why };
        self.notice(&refused);
    }

    /// Makes the connection the queue that Connect requests. Returns the id of the controller.
    /// `host` gets the host's name as soon as it is known.
    ///
    /// # Errors
    /// The answer to the host: it may not see the subsystem, or there is no such queue, or no room
    /// for another one.
    fn introduce(
        &mut self,
        shard: &Shard,
        entry: &SubmissionEntry,
        data: &[u8],
        host: &mut Option<String>,
    ) -> Result<u16, ConnectRefusal> {
        let most_entries = self.local.shared.catalog.limits.max_queue_entries;
        let connect = Connect::parse(entry, data, most_entries)?;
        *host = Some(connect.host.to_string());
        let catalog = if connect.is_admin() {
            self.local.announced()
        } else {
            self.local.served()
        };
        let view = self.view(&connect, &catalog)?;
        let states = catalog.states(&view);
        let controller = if connect.is_admin() {
            let gateways = &catalog.desired.gateways;
            self.become_admin(shard, &connect, view, (states, gateways))?
        } else {
            self.become_io(&connect, view, states)?
        };
        self.accepted.unauthenticated_peer = None;
        if connect.is_admin() {
            self.accepted.load = None;
        }
        let flow_control = !connect.disable_sq_flow_control;
        self.stream
            .set_queue(connect.is_admin(), connect.queue_entries, flow_control);
        Ok(controller)
    }

    /// The host's view of the subsystem that it names, through the port of this connection.
    fn view(&self, connect: &Connect, catalog: &Snapshot) -> Result<Authorized, Refused> {
        let inventory = &catalog.inventory;
        let view = inventory.authorize(&connect.subsystem, &connect.host)?;
        let view = view.through(self.accepted.listener.ana_listener());
        let Some(address) = self.accepted.address else {
            return Ok(view);
        };
        if address.port() == DISCOVERY_PORT && !view.is_discovery() {
            return Err(Refused::UnknownSubsystem);
        }
        Ok(view.reached_at(address))
    }

    /// Makes the connection the admin queue of a new controller.
    fn become_admin(
        &mut self,
        shard: &Shard,
        connect: &Connect,
        view: Authorized,
        (states, gateways): (States, &Gateways),
    ) -> Result<u16, ConnectRefusal> {
        let shared = &self.local.shared;
        let most = &shared.catalog.limits;
        let most_queues = if view.is_discovery() {
            0
        } else {
            most.max_io_queues
        };
        let member = self.member(connect, MemberRole::Controller);
        let named = (host_name(connect), connect.subsystem.as_str());
        let place = member.place.clone();
        let ids = (&gateways.controller_ids, most_queues);
        let (controller, traffic) =
            shared
                .registry
                .admit(named, ids, place)
                .ok_or(ConnectRefusal::status(
                    Status::CONNECT_CONTROLLER_BUSY,
                    "there are as many controllers as allowed",
                ))?;
        let disk_views = (member, states);
        let now = Nanos(shard.now().0);
        let nvme = &self.protocol;
        let limits = controller_limits(
            (most, shared.deadlines.quiet + gateways.repeats),
            nvme.transport,
            nvme.in_capsule_bytes,
        );
        let admin = Admin::new(
            (controller, traffic),
            connect,
            view,
            limits,
            disk_views,
            now,
        );
        self.protocol.role = Role::Admin(Box::new(admin));
        shared.notice(&Notice::Connected {
            host: connect.host.to_string(),
            controller,
            peer: self.accepted.peer,
        });
        Ok(controller)
    }

    /// Makes the connection an I/O queue of a controller.
    fn become_io(
        &mut self,
        connect: &Connect,
        view: Authorized,
        states: States,
    ) -> Result<u16, ConnectRefusal> {
        let shared = &self.local.shared;
        let most = &shared.catalog.limits;
        let (controller, qid) = (connect.controller_id, connect.queue_id);
        let (host, subsystem) = (host_name(connect), connect.subsystem.as_str());
        let me = self.member(connect, MemberRole::Queue);
        let place = me.place.clone();
        let traffic = shared
            .registry
            .join(controller, &host, subsystem, qid, place)
            .map_err(join_refusal)?;
        let owner = Owner {
            name: (controller, qid),
            me,
        };
        let slots = usize::from(most.max_queue_entries);
        let queue = IoQueue::new(view, io_limits(most), owner, states, slots);
        self.protocol.role = Role::Io {
            queue: Box::new(queue),
            controller,
            qid,
            traffic,
        };
        Ok(controller)
    }

    /// This connection as a member of disks' state.
    fn member(&self, connect: &Connect, role: MemberRole) -> Member {
        Member {
            place: self.local.place(self.lifecycle.task),
            nexus: reservation::nexus(connect.host_id),
            role,
        }
    }
}

fn host_name(connect: &Connect) -> HostName {
    HostName {
        nqn: connect.host.as_str().to_owned(),
        id: connect.host_id,
    }
}

fn join_refusal(error: JoinError) -> ConnectRefusal {
    match error {
        JoinError::UnknownController => {
            ConnectRefusal::controller_id("the host has no such controller")
        }
        JoinError::NotReady => ConnectRefusal::status(
            Status::COMMAND_SEQUENCE_ERROR,
            "the controller is not enabled",
        ),
        JoinError::QueueId => {
            ConnectRefusal::queue_id("the queue id is in use, or was not granted")
        }
    }
}

/// 1,024 bytes: the length of Connect's data. An unauthenticated peer may send no more.
const CONNECT_BYTES_MOST: u32 = 1024;
