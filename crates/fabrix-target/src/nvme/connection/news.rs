//! What connections tell each other, and what the config task of their shard tells them.
//!
//! A part of `connection`. A mailbox may be full: what it had no room for is told again soon, and
//! the task stays for that long.

use std::time::Duration;

use fabrix_rt::Shard;

use super::{Connection, Role};
use crate::disk::Stop;
use crate::lifecycle::{OWN_SLOTS, Stage};
use crate::nvme::context::Queue;
use crate::registry::{ConnectionAddress, ConnectionOrder};

impl<Q: Queue> Connection<Q> {
    /// Tells other connections something; those whose mailbox is full are told soon.
    pub(super) fn tell(
        &mut self,
        shard: &mut Shard,
        places: impl IntoIterator<Item = ConnectionAddress>,
        told: ConnectionOrder,
    ) {
        self.untold
            .extend(places.into_iter().map(|place| (place, told)));
        self.tell_again(shard);
    }

    /// Tries once more to tell what mailboxes had no room for.
    pub(super) fn tell_again(&mut self, shard: &mut Shard) {
        self.untold
            .retain(|(place, told)| place.tell(*told).is_err());
        if !self.untold.is_empty() {
            let at = shard.now() + TELL_AFTER;
            self.lifecycle.set_timer(shard, TELL, at);
        }
    }

    /// An I/O queue sees what its shard serves now. One whose host may no more be here ends with
    /// its controller, and at once.
    pub(super) fn serve(&mut self, shard: &mut Shard) {
        if let Role::Io { queue, .. } = &mut self.role
            && queue.refresh(&self.local.served()).is_err()
        {
            self.end(shard);
        }
    }

    /// An admin queue sees what is announced now, and tells its host what has changed. One that
    /// cannot go on ends.
    pub(super) fn announce(&mut self, shard: &mut Shard) {
        if self.lifecycle.phase != Stage::Open {
            return;
        }
        let (Role::Admin(admin), mut context) = self.at_work(shard) else {
            return;
        };
        match admin.refresh(&mut context) {
            Ok(()) => shard.flush_later(self.lifecycle.task),
            Err(why) => {
                self.lifecycle.ends_because(why);
                self.end(shard);
            }
        }
    }

    /// The I/O queues of a controller that was reset or shut down are gone.
    pub(super) fn quiesced(&mut self, shard: &mut Shard) {
        if let Role::Admin(admin) = &mut self.role {
            admin.quiesced();
            shard.flush_later(self.lifecycle.task);
        }
    }

    /// Another connection wants commands of this one to end.
    pub(super) fn stop(&mut self, shard: &mut Shard, stop: Stop) {
        if let (Role::Io { queue, .. }, mut context) = self.at_work(shard) {
            queue.stop(&mut context, stop);
        }
        if self.lifecycle.phase < Stage::Ending {
            shard.flush_later(self.lifecycle.task);
        }
    }

    /// Something happened to a disk of which the host is to be told.
    pub(super) fn noticed(&mut self, shard: &mut Shard) {
        if self.lifecycle.phase != Stage::Open {
            return;
        }
        if let (Role::Admin(admin), mut context) = self.at_work(shard) {
            admin.hear(&mut context);
        }
        shard.flush_later(self.lifecycle.task);
    }
}

/// The connection's timer: tell others what their mailboxes had no room for.
pub(super) const TELL: u32 = OWN_SLOTS;
/// How soon a connection is told again something for which its shard's mailbox had no room.
const TELL_AFTER: Duration = Duration::from_millis(10);
