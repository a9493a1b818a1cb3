//! Commands of a session that wait for a disk. A part of `session`.

use std::sync::Arc;

use fabrix_block::Status as DiskStatus;
use fabrix_proto::{Claim, Settled, Slot};
use fabrix_rt::Completion;

use super::context::SessionCarrier;
use super::session::{Session, Work};
use crate::command_table::{CommandTable, Waiting};
use crate::context::CommandContext;
use crate::disk::{DiskId, DiskState};

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
    fn disk_answered(
        &mut self,
        context: &mut CommandContext<'_, C>,
        slot: Slot,
        completion: Completion,
    ) {
        match self.commands.take_from_disk(slot) {
            Some((claim, Work::AtDisk(mut job))) => {
                let status = DiskStatus::from_result(completion.result);
                match job.ended(context, status, completion.loan) {
                    Some(end) => self.finish(context, claim, &job, end),
                    None => self.run(context, claim, job, None),
                };
            }
            Some((claim, Work::Aborted(_, answer))) => {
                self.end_aborted(context, claim, answer);
            }
            _ => debug_assert!(false, "{slot:?} has no request at a disk"),
        }
        self.retry(context);
    }

    fn disk_of(&self, slot: Slot) -> Option<Option<Arc<DiskState>>> {
        let disk = self.commands.get(slot)?.at_disk()?;
        let at = self.units.find(disk);
        Some(at.map(|at| Arc::clone(&self.units.list[at].state)))
    }
}
