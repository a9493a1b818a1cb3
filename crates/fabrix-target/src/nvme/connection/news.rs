//! Orders between connections, and orders of the shard's config task.
//!
//! A part of `connection`. An order for which a mailbox has no room is sent again soon, and the
//! task stays until then.

use std::time::Duration;

use fabrix_rt::Shard;

use super::{Connection, Nvme, Role};
use crate::lifecycle::{PROTOCOL_TIMER, Stage};
use crate::nvme::context::Queue;
use crate::registry::{ConnectionAddress, ConnectionOrder};
use crate::shared::Done;

impl<Q: Queue> Connection<Q, Nvme> {
    /// Sends an order to other connections, later where a mailbox is full.
    pub(super) fn send_order(
        &mut self,
        shard: &mut Shard,
        addresses: impl IntoIterator<Item = ConnectionAddress>,
        order: &ConnectionOrder,
    ) {
        let orders = addresses
            .into_iter()
            .map(|address| (address, order.clone()));
        self.protocol.unsent.extend(orders);
        self.send_again(shard);
    }

    /// Sends the orders again for which mailboxes had no room.
    pub(super) fn send_again(&mut self, shard: &mut Shard) {
        let unsent = &mut self.protocol.unsent;
        unsent.retain(|(address, order)| address.send(order.clone()).is_err());
        if !unsent.is_empty() {
            let at = shard.now() + SEND_AFTER;
            self.lifecycle.set_timer(shard, PROTOCOL_TIMER, at);
        }
    }

    /// Gives an I/O queue the catalog that its shard serves now. The queue ends at once, and its
    /// controller with it, if its host may not connect any more or knows another disk under a
    /// namespace id.
    pub(super) fn serve(&mut self, shard: &mut Shard) {
        if let Role::Io { queue, .. } = &mut self.protocol.role
            && let Err(why) = queue.refresh(&self.local.served())
        {
            self.lifecycle.ends_because(why);
            self.end(shard);
        }
    }

    /// Gives an admin queue the catalog that is announced now. The queue reports the changes to its
    /// host, or ends if it cannot continue.
    pub(super) fn announce(&mut self, shard: &mut Shard) {
        if self.lifecycle.stage != Stage::Open {
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

    /// Lets a queue keep `done` while a disk has a command of an ANA group that is refused.
    pub(super) fn await_refused(&mut self, done: Done) {
        match &mut self.protocol.role {
            Role::Io { queue, .. } => queue.await_refused(done),
            Role::Admin(admin) => admin.await_persisted(done),
            _ => {}
        }
    }

    /// All I/O queues of a controller that was reset or shut down have ended.
    pub(super) fn quiesced(&mut self, shard: &mut Shard) {
        if let Role::Admin(admin) = &mut self.protocol.role {
            admin.quiesced();
            shard.flush_later(self.lifecycle.task);
        }
    }

    /// Reports an event of a disk to the host.
    pub(super) fn noticed(&mut self, shard: &mut Shard) {
        if self.lifecycle.stage != Stage::Open {
            return;
        }
        if let (Role::Admin(admin), mut context) = self.at_work(shard) {
            admin.hear(&mut context);
        }
        shard.flush_later(self.lifecycle.task);
    }
}

/// Delay before an order is sent again for which a mailbox had no room.
const SEND_AFTER: Duration = Duration::from_millis(10);
