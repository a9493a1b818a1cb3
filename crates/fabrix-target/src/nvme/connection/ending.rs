//! How a connection ends: by a Disconnect, by a drain, by its keep-alive, by a violation, or
//! because its socket does.
//!
//! A part of `connection`. It leaves in this order: a goodbye, the socket, the queue when its
//! commands have ended at their disks or were abandoned there, and when the kernel and the disks
//! have given back what is theirs, the task. An admin queue takes its controller with it, and with
//! that the I/O queues. So a disk that does not answer holds neither a reset nor a host that
//! connects again.

use fabrix_rt::Shard;
use fabrix_transport::Ended;

use super::{Connection, Role};
use crate::Notice;
use crate::lifecycle::Stage;
use crate::nvme::context::Queue;
use crate::registry::ConnectionOrder;

impl<Q: Queue> Connection<Q> {
    /// The host was silent for too long: all queues of its controller end.
    pub(super) fn expire(&mut self, shard: &mut Shard) {
        self.lifecycle.ends_because("its keep-alive expired");
        self.end(shard);
    }

    /// Nothing more comes from the stream.
    pub(super) fn ended(&mut self, shard: &mut Shard, ended: &Ended) {
        match ended {
            Ended::Closed | Ended::Socket(_) => self.lost(shard, ended),
            Ended::Violation(violation) => {
                self.lifecycle.ends_with_stream(ended);
                self.violated(violation.to_string());
                self.lifecycle.part(shard, &mut self.stream);
                self.retire(shard);
            }
        }
    }

    /// The stream has ended without a violation: the host has closed it, or its socket has failed.
    pub(super) fn lost(&mut self, shard: &mut Shard, ended: &Ended) {
        match &self.role {
            Role::Admin(admin) if matches!(ended, Ended::Closed) && !admin.is_ready() => {
                self.lifecycle.ends_well("it disconnected");
            }
            _ => self.lifecycle.ends_with_stream(ended),
        }
        if matches!(ended, Ended::Socket(_)) {
            self.queue_lost();
        }
        self.end(shard);
    }

    /// The host has ended it, and perhaps said why.
    pub(super) fn goodbye(&mut self, shard: &mut Shard) {
        let why = self.stream.termination();
        let what = why.map_or_else(String::new, |why| format!("the host ended it: {why}"));
        self.lifecycle.ends_because(what.clone());
        self.violated(what);
        self.end(shard);
    }

    /// Tells the operator of a violation, unless the end of a controller is told with it.
    fn violated(&self, what: String) {
        let peer = self.ends.peer;
        match &self.role {
            Role::Unknown { .. } => self.local.shared.notice(&Notice::Violation { peer, what }),
            Role::Io { .. } => self.queue_lost(),
            Role::Admin(_) => {}
        }
    }

    /// Tells the operator that an I/O queue has ended alone, without its controller.
    fn queue_lost(&self) {
        let shared = &self.local.shared;
        if let Role::Io {
            controller, qid, ..
        } = &self.role
            && self.lifecycle.phase < Stage::Ending
        {
            shared.notice(&Notice::QueueLost {
                host: shared.registry.host(*controller),
                controller: *controller,
                qid: *qid,
                peer: self.ends.peer,
                why: self.lifecycle.end().why,
            });
        }
    }

    /// Finishes what has begun, then closes. An admin queue stays until its I/O queues have done
    /// the same.
    pub(super) fn drain(&mut self, shard: &mut Shard, why: &'static str) {
        if self.lifecycle.phase != Stage::Open {
            return;
        }
        self.lifecycle.phase = Stage::Draining;
        self.lifecycle.ends_well(why);
        let (role, mut context) = self.at_work(shard);
        let registry = &context.local.shared.registry;
        match role {
            Role::Io { queue, .. } => queue.drain(&mut context),
            Role::Admin(admin) if registry.quiesce(admin.id()).is_some() => {
                admin.queues_are_ending();
            }
            Role::Admin(_) | Role::Unknown { .. } => {}
        }
        self.lifecycle.await_parting(shard);
        shard.flush_later(self.lifecycle.task);
    }

    /// Whether a draining connection has commands that it began and has not answered.
    pub(super) fn is_busy(&self) -> bool {
        match &self.role {
            Role::Io { .. } => self.stream.slots_in_use() > 0,
            Role::Admin(admin) => admin.is_busy(),
            Role::Unknown { .. } => false,
        }
    }

    /// Whether what a draining connection waits for is not its host's part.
    pub(super) fn waits_for_others(&self) -> bool {
        match &self.role {
            Role::Io { queue, .. } => queue.waits_for_others(),
            Role::Admin(admin) => admin.has_ending_queues() || admin.has_pending_changes(),
            Role::Unknown { .. } => false,
        }
    }

    /// Closes; the task goes when the kernel and the disks have given back what is theirs.
    pub(super) fn end(&mut self, shard: &mut Shard) {
        if self.lifecycle.phase < Stage::Ending {
            self.lifecycle.phase = Stage::Ending;
            self.stream.close();
            if let Role::Io { queue, .. } = &mut self.role {
                queue.close();
            }
            self.lifecycle.await_disks(shard);
            self.retire(shard);
        }
        self.leave_when_quiet(shard);
    }

    /// The controller of an admin connection goes with it.
    pub(super) fn retire(&mut self, shard: &mut Shard) {
        if let Role::Admin(admin) = &mut self.role
            && admin.retire()
        {
            let (host, controller) = (admin.host().to_string(), admin.id());
            let queues = self.local.shared.registry.dismiss(controller);
            self.tell(shard, queues, ConnectionOrder::Close(CONTROLLER_GONE));
            self.local.shared.notice(&Notice::Disconnected {
                host,
                controller,
                peer: self.ends.peer,
                end: self.lifecycle.end(),
            });
        }
    }

    /// Disks have had their time to end the commands of the queue: it does not wait for them any
    /// longer.
    pub(super) fn abandon(&mut self, shard: &mut Shard) {
        if let Role::Io { queue, .. } = &mut self.role {
            queue.abandon_all(&self.local, &mut self.requests);
        }
        self.leave_when_quiet(shard);
    }

    /// The last step of an end: gives back what disks and registry hold of the connection, and
    /// removes the task, unless the kernel, a disk or an untold neighbour still needs it.
    pub(super) fn leave_when_quiet(&mut self, shard: &mut Shard) {
        if self.lifecycle.phase != Stage::Ending || !self.stream.is_quiet() || self.at_disk() > 0 {
            return;
        }
        self.leave_role(shard);
        if !self.untold.is_empty() || self.requests.are_abandoned() {
            return;
        }
        self.lifecycle.go(shard, &self.local);
    }

    fn at_disk(&self) -> usize {
        match &self.role {
            Role::Io { queue, .. } => queue.commands.at_disk(),
            Role::Unknown { .. } | Role::Admin(_) => 0,
        }
    }

    /// Once: after this the queue id may be another connection's.
    fn leave_role(&mut self, shard: &mut Shard) {
        match std::mem::replace(&mut self.role, Role::Unknown { connecting: None }) {
            Role::Admin(mut admin) => admin.leave(),
            Role::Io {
                controller,
                qid,
                mut queue,
                ..
            } => {
                queue.leave();
                let registry = &self.local.shared.registry;
                let admin = registry.leave(controller, qid, self.lifecycle.task);
                self.tell(shard, admin, ConnectionOrder::Quiesced);
            }
            Role::Unknown { .. } => {}
        }
    }
}

/// Why I/O queues end with their controller.
pub(super) const CONTROLLER_GONE: &str = "its controller has ended";
