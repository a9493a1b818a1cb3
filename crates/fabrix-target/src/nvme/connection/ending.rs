//! The end of an NVMe connection: by a Disconnect, a drain, its keep-alive, a violation, or its
//! socket.
//!
//! A part of `connection`. The parts of a connection leave in this order: the termination request,
//! the socket, the queue, the task. The queue leaves when its commands have ended at their disks or
//! were abandoned there. The task leaves when the kernel and the disks have given back everything.
//! An admin queue takes its controller with it, and so the I/O queues. So a disk that does not
//! answer delays neither a reset nor a host that connects again.

use fabrix_rt::Shard;

use super::{Connection, Nvme, Role};
use crate::Notice;
use crate::lifecycle::Stage;
use crate::nvme::context::Queue;
use crate::registry::ConnectionOrder;

impl<Q: Queue> Connection<Q, Nvme> {
    /// The keep-alive of the host has expired: all queues of its controller end.
    pub(super) fn expire(&mut self, shard: &mut Shard) {
        self.lifecycle.ends_because("its keep-alive expired");
        self.end(shard);
    }

    /// The host has ended the connection, and may have said why.
    pub(super) fn terminated(&mut self, shard: &mut Shard) {
        let why = self.stream.termination();
        let what = why.map_or_else(String::new, |why| format!("the host ended it: {why}"));
        self.lifecycle.ends_because(what.clone());
        self.notice_violation(what);
        self.end(shard);
    }

    /// Tells the operator of a violation. The end of a controller is told with its reason instead.
    pub(super) fn notice_violation(&self, what: String) {
        let peer = self.accepted.peer;
        match &self.protocol.role {
            Role::Unknown { .. } => self.notice(&Notice::Violation { peer, what }),
            Role::Io { .. } => self.notice_queue_lost(),
            Role::Admin(_) => {}
        }
    }

    /// Tells the operator that an I/O queue has ended alone, without its controller.
    pub(super) fn notice_queue_lost(&self) {
        let shared = &self.local.shared;
        if let Role::Io {
            controller, qid, ..
        } = &self.protocol.role
            && self.lifecycle.stage < Stage::Ending
        {
            shared.notice(&Notice::QueueLost {
                host: shared.registry.host(*controller),
                controller: *controller,
                qid: *qid,
                peer: self.accepted.peer,
                why: self.lifecycle.end().why,
            });
        }
    }

    /// Ends the controller of an admin queue, and its I/O queues.
    pub(super) fn retire(&mut self, shard: &mut Shard) {
        if let Role::Admin(admin) = &mut self.protocol.role
            && admin.retire()
        {
            let (host, controller) = (admin.host().to_string(), admin.id());
            let queues = self.local.shared.registry.dismiss(controller);
            self.send_order(shard, queues, &ConnectionOrder::Close(CONTROLLER_GONE));
            self.local.shared.notice(&Notice::Disconnected {
                host,
                controller,
                peer: self.accepted.peer,
                end: self.lifecycle.end(),
            });
        }
    }

    /// Takes the connection out of the state of its disks and out of the registry, once. Afterwards
    /// another connection may have the queue id.
    pub(super) fn leave_role(&mut self, shard: &mut Shard) {
        match std::mem::replace(&mut self.protocol.role, Role::UNKNOWN) {
            Role::Admin(mut admin) => admin.leave(),
            Role::Io {
                controller,
                qid,
                mut queue,
                ..
            } => {
                queue.leave();
                let registry = &self.local.shared.registry;
                let address = self.local.place(self.lifecycle.task);
                let admin = registry.leave(controller, qid, &address);
                self.send_order(shard, admin, &ConnectionOrder::Quiesced);
            }
            Role::Unknown { .. } => {}
        }
    }
}

/// Why I/O queues end with their controller.
pub(super) const CONTROLLER_GONE: &str = "its controller has ended";
