//! Who connects, and which queue it becomes.
//!
//! A part of `connection`. What the command says is `proto`'s, which hosts may see what is the snapshot's, and which
//! controllers there are is the registry's.

use fabrix_proto::nvme::fabrics::{Connect, ConnectRefusal};
use fabrix_proto::nvme::reservation;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::nvme::subsystem::Refused;
use fabrix_proto::{Nanos, Slot};
use fabrix_rt::Shard;

use super::{Connection, Role};
use crate::Notice;
use crate::disk::{Member, Role as MemberRole};
use crate::nvme::DISCOVERY_PORT;
use crate::nvme::admin::{Admin, io_limits};
use crate::nvme::io::{Desk, IoQueue, Owner};
use crate::nvme::subsystems::discovery_address;
use crate::registry::{HostName, JoinError};

impl Connection {
    /// The host says who it is.
    pub(super) fn connect(&mut self, shard: &mut Shard, slot: Slot, entry: &SubmissionEntry, data: &[u8]) {
        match self.introduce(shard, entry, data) {
            Ok(controller) => {
                let mut desk = Desk {
                    shard,
                    stream: &mut self.stream,
                    local: &self.local,
                    task: self.life.task,
                };
                desk.complete(slot, Connect::accepted(controller), 0);
                self.watch(shard);
            }
            Err(refusal) => {
                let why = refusal.to_string();
                self.local.shared.notice(&Notice::Refused {
                    peer: self.peer,
                    why,
                });
                let mut desk = Desk {
                    shard,
                    stream: &mut self.stream,
                    local: &self.local,
                    task: self.life.task,
                };
                desk.complete(slot, refusal.completion(), 0);
            }
        }
    }

    fn introduce(
        &mut self,
        shard: &Shard,
        entry: &SubmissionEntry,
        data: &[u8],
    ) -> Result<u16, ConnectRefusal> {
        let shared = &self.local.shared;
        let connect = Connect::parse(entry, data, shared.subsystem.config.max_queue_entries)?;
        let inventory = if connect.is_admin() {
            self.local.announced()
        } else {
            self.local.served()
        };
        let view = inventory.authorize(&connect.subsystem, &connect.host)?;
        let address = self.stream.socket().local_addr();
        if address
            .as_ref()
            .is_ok_and(|address| address.port() == DISCOVERY_PORT)
            && !view.is_discovery()
        {
            return Err(Refused::UnknownSubsystem.into());
        }
        let view = match address {
            Ok(address) => view.reached_at(discovery_address(address.ip())),
            Err(_) => view,
        };
        let host = HostName {
            nqn: connect.host.as_str().to_owned(),
            id: connect.host_id,
        };
        let subsystem = connect.subsystem.as_str();
        let member = Member {
            place: self.local.place(self.life.task),
            nexus: reservation::nexus(connect.host_id),
            role: if connect.is_admin() {
                MemberRole::Controller
            } else {
                MemberRole::Queue
            },
        };
        let controller = if connect.is_admin() {
            let most_queues = if view.is_discovery() {
                0
            } else {
                shared.subsystem.config.max_io_queues
            };
            let place = member.place.clone();
            let admitted = shared.registry.admit(host, subsystem, most_queues, place);
            let controller = admitted.ok_or(ConnectRefusal::status(
                Status::CONNECT_CONTROLLER_BUSY,
                "there are as many controllers as allowed",
            ))?;
            let admin = Admin::new(
                controller,
                &connect,
                view,
                &shared.subsystem.config,
                (member, self.local.disks()),
                Nanos(shard.now().0),
            );
            self.role = Role::Admin(Box::new(admin));
            shared.notice(&Notice::Connected {
                host: connect.host.to_string(),
                controller,
                peer: self.peer,
            });
            controller
        } else {
            let place = member.place.clone();
            let (controller, qid) = (connect.controller_id, connect.queue_id);
            shared
                .registry
                .join(controller, &host, subsystem, qid, place)
                .map_err(join_refusal)?;
            let limits = io_limits(&shared.subsystem.config);
            let queue = IoQueue::new(
                view,
                limits,
                Owner {
                    name: (controller, qid),
                    host_id: connect.host_id,
                    me: member,
                },
                self.local.channels.states(),
                usize::from(shared.subsystem.config.max_queue_entries),
            );
            self.role = Role::Io {
                queue: Box::new(queue),
                controller,
                qid,
            };
            controller
        };
        let (machine, _) = self.stream.speak();
        self.stranger = None;
        machine.set_queue(connect.is_admin(), connect.queue_entries);
        machine.set_flow_control(!connect.disable_sq_flow_control);
        Ok(controller)
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

/// The data of Connect is 1024 bytes; more is not fetched for a stranger.
pub(super) const CONNECT_BYTES_MOST: u32 = 1024;
