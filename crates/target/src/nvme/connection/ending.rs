//! How a connection ends: by a Disconnect, by a drain, by its keep-alive, by a violation, or because its socket does.
//!
//! A part of `connection`. It leaves in this order: a goodbye, the socket, and when the kernel and the disks have given
//! back what is theirs, the task. An admin queue takes its controller with it, and with that the controller's I/O queues.

use fabrix_rt::Shard;
use fabrix_transport::Ended;

use super::{Connection, Role};
use crate::Notice;
use crate::life::Phase;
use crate::local::Told;
use crate::nvme::io::Desk;

impl Connection {
    /// The host was silent for too long: all queues of its controller end.
    pub(super) fn expire(&mut self, shard: &mut Shard) {
        self.retire(shard, "its keep-alive expired");
        self.end(shard);
    }

    /// Nothing more comes from the stream.
    pub(super) fn ended(&mut self, shard: &mut Shard, ended: Ended) {
        match ended {
            Ended::Closed | Ended::Socket(_) => self.end(shard),
            Ended::Violation(violation) => {
                self.local.shared.notice(&Notice::Violation {
                    peer: self.peer,
                    what: violation.to_string(),
                });
                self.part(shard);
            }
        }
    }

    /// Lets the goodbye out and drops what still comes.
    fn part(&mut self, shard: &mut Shard) {
        self.life.phase = Phase::Parting;
        self.stream.discard();
        self.retire(shard, "it broke the protocol");
        self.await_parting(shard);
        shard.flush_later(self.life.task);
    }

    /// From now on the peer has to do its part in time.
    pub(super) fn await_parting(&mut self, shard: &mut Shard) {
        let at = shard.now() + self.local.shared.deadlines.parting;
        self.life.set_deadline(shard, at);
    }

    /// Finishes what has begun, then closes. An admin queue stays until its I/O queues have done the same.
    pub(super) fn drain(&mut self, shard: &mut Shard) {
        if self.life.phase != Phase::Open {
            return;
        }
        self.life.phase = Phase::Draining;
        let mut desk = Desk {
            shard,
            stream: &mut self.stream,
            local: &self.local,
            task: self.life.task,
        };
        match &mut self.role {
            Role::Io { queue, .. } => queue.drain(&mut desk),
            Role::Admin(admin) if self.local.shared.registry.quiesce(admin.id()).is_some() => {
                admin.queues_are_ending();
            }
            Role::Admin(_) | Role::Unknown { .. } => {}
        }
        self.await_parting(shard);
        shard.flush_later(self.life.task);
    }

    /// Whether a draining connection has commands that it began and has not answered.
    pub(super) fn is_busy(&self) -> bool {
        match &self.role {
            Role::Io { .. } => self.stream.machine().slots_in_use() > 0,
            Role::Admin(admin) => admin.is_busy(),
            Role::Unknown { .. } => false,
        }
    }

    /// Whether what a draining connection waits for is not its host's part.
    pub(super) fn waits_for_others(&self) -> bool {
        match &self.role {
            Role::Io { queue, .. } => {
                queue.at_disk() > 0 || queue.is_stalled() || queue.has_errands()
            }
            Role::Admin(admin) => admin.has_ending_queues() || admin.has_errands(),
            Role::Unknown { .. } => false,
        }
    }

    /// Closes; the task goes when the kernel and the disks have given back what is theirs.
    pub(super) fn end(&mut self, shard: &mut Shard) {
        if self.life.phase < Phase::Ending {
            self.life.phase = Phase::Ending;
            self.stream.close();
            if let Role::Io { queue, .. } = &mut self.role {
                queue.give_up();
            }
            self.retire(shard, "the connection ended");
        }
        self.leave_when_quiet(shard);
    }

    /// The controller of an admin connection goes with it.
    pub(super) fn retire(&mut self, shard: &mut Shard, why: &str) {
        if let Role::Admin(admin) = &mut self.role
            && admin.retire()
        {
            let (host, controller, why) = (admin.host().to_string(), admin.id(), why.to_owned());
            let queues = self.local.shared.registry.dismiss(controller);
            self.tell(shard, queues, Told::Close);
            self.local.shared.notice(&Notice::Disconnected {
                host,
                controller,
                why,
            });
        }
    }
    fn at_disk(&self) -> usize {
        match &self.role {
            Role::Io { queue, .. } => queue.at_disk(),
            Role::Unknown { .. } | Role::Admin(_) => 0,
        }
    }

    pub(super) fn leave_when_quiet(&mut self, shard: &mut Shard) {
        if self.life.phase != Phase::Ending || !self.stream.is_quiet() || self.at_disk() > 0 {
            return;
        }
        if let Role::Admin(admin) = &mut self.role {
            admin.leave();
        }
        if let Role::Io {
            controller,
            qid,
            ref mut queue,
        } = self.role
        {
            queue.leave();
            // Once: after this the queue id may be another connection's.
            self.role = Role::Unknown { connecting: None };
            let admin = self
                .local
                .shared
                .registry
                .leave(controller, qid, self.life.task);
            self.tell(shard, admin, Told::Quiesced);
        }
        if !self.untold.is_empty() {
            return;
        }
        self.life.phase = Phase::Gone;
        self.life.clear_deadline(shard);
        self.local.left(self.life.task);
        shard.remove(self.life.task);
    }
}
