//! Commands of an I/O queue that wait for a disk, and the end of those that a disk does not end in
//! time.
//!
//! A part of `io`. `command_table` has what both protocols share.

use std::sync::Arc;

use fabrix_proto::{Claim, Settled, Slot};
use fabrix_transport::Incoming;

use super::context::Queue;
use super::io::{IoQueue, Work};
use crate::command_table::{CommandTable, Waiting};
use crate::context::CommandContext;
use crate::disk::DiskId;
use crate::disk::DiskState;
use crate::local::Local;
use crate::requests::Requests;

impl<Q: Queue> Waiting<Q> for IoQueue {
    type Work = Work;

    fn table(&mut self) -> &mut CommandTable<Work> {
        &mut self.commands
    }

    fn stalled_at(&self, slot: Slot) -> Option<DiskId> {
        match self.commands.get(slot)? {
            Work::Stalled(command, _) | Work::Half { command, .. } => Some(command.disk),
            _ => None,
        }
    }

    fn resume(&mut self, context: &mut CommandContext<'_, Q>, claim: Claim, work: Work) -> Settled {
        match work {
            Work::Stalled(command, data) => {
                let data = data.map(|buf| Incoming::Buf(buf, 0));
                self.execute(context, claim, command, data)
            }
            Work::Paused(command, None) => self.execute(context, claim, command, None),
            Work::Paused(command, Some(ranges)) => self.next_range(context, claim, command, ranges),
            half => {
                let slot = claim.slot();
                let kept = self.commands.keep(claim, half);
                self.try_pair(context, slot);
                kept
            }
        }
    }
}

impl IoQueue {
    /// The connection has ended: commands get no more requests.
    pub(crate) fn close(&mut self) {
        let slots = self.commands.slots();
        let disks: Vec<_> = slots.filter_map(|slot| self.disk_of(slot)?).collect();
        self.commands.close(&disks);
    }

    /// The disk that has a request of the command of a slot. The inner None: the queue does not see
    /// the disk any more.
    fn disk_of(&self, slot: Slot) -> Option<Option<Arc<DiskState>>> {
        self.commands.get(slot).filter(|work| work.is_at_disk())?;
        let disk = self.last_commands[usize::from(slot.0)].map(|command| command.disk);
        let mut states = self.disk_views.iter().map(|(_, view)| &view.state);
        Some(states.find(|state| Some(state.id()) == disk).cloned())
    }

    /// Ends the command of a slot before its disk has ended its request, if the disk has one. Gives
    /// the claim, and what the command waited for.
    pub(super) fn abandon_request(
        &mut self,
        local: &Local,
        requests: &mut Requests,
        slot: Slot,
    ) -> Option<(Claim, Work)> {
        let disk = self.disk_of(slot)?;
        self.commands.abandon(local, requests, slot, disk.as_ref())
    }

    /// Ends all commands that disks have not ended in time, after the end of the connection.
    pub(crate) fn abandon_all(&mut self, local: &Local, requests: &mut Requests) {
        for slot in self.commands.slots() {
            self.abandon_request(local, requests, slot);
        }
    }
}
