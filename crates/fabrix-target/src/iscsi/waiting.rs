//! Commands of a session that wait for a disk, and the end of those that a disk does not end in
//! time.
//!
//! A part of `session`. `command_table` has what both protocols share.

use std::sync::Arc;

use fabrix_proto::{Claim, Settled, Slot};

use super::context::SessionCarrier;
use super::session::{AbortAnswer, Session, Work};
use super::units::UnitName;
use crate::command_table::{CommandTable, Waiting};
use crate::context::CommandContext;
use crate::disk::{DiskId, DiskState};
use crate::local::Local;
use crate::requests::Requests;

impl<C: SessionCarrier> Waiting<C> for Session {
    type Work = Work;

    fn table(&mut self) -> &mut CommandTable<Work> {
        &mut self.commands
    }

    fn stalled_at(&self, slot: Slot) -> Option<DiskId> {
        match self.commands.get(slot)? {
            Work::Stalled(job) => Some(job.disk().disk),
            _ => None,
        }
    }

    fn resume(&mut self, context: &mut CommandContext<'_, C>, claim: Claim, work: Work) -> Settled {
        match work {
            Work::Stalled(job) | Work::Paused(job) => self.run(context, claim, job, None),
            aborted => self.commands.keep(claim, aborted),
        }
    }
}

impl Session {
    /// The connection has ended: commands get no more requests.
    pub(super) fn close(&mut self) {
        let disks = self.commands.iter().filter_map(|(_, work)| work.at_disk());
        let disks: Vec<_> = disks.filter_map(|disk| self.state(disk)).collect();
        self.commands.close(&disks);
    }

    /// The state that connections share about a disk, if the session still sees the disk.
    fn state(&self, disk: UnitName) -> Option<Arc<DiskState>> {
        let at = self.units.find(disk)?;
        Some(Arc::clone(&self.units.list[at].state))
    }

    /// Ends the command of a slot before its disk has ended its request, if the disk has one. Gives
    /// the claim, and the answer that was to follow.
    pub(super) fn abandon_request(
        &mut self,
        local: &Local,
        requests: &mut Requests,
        slot: Slot,
    ) -> Option<(Claim, Option<AbortAnswer>)> {
        let disk = self.commands.get(slot)?.at_disk()?;
        let state = self.state(disk);
        let abandoned = self.commands.abandon(local, requests, slot, state.as_ref());
        abandoned.map(|(claim, work)| match work {
            Work::Aborted(_, answer) => (claim, answer),
            _ => (claim, None),
        })
    }

    /// Ends all commands that disks have not ended in time, after the end of the connection.
    pub(super) fn abandon_all(&mut self, local: &Local, requests: &mut Requests) {
        for slot in self.commands.slots() {
            self.abandon_request(local, requests, slot);
        }
    }
}
