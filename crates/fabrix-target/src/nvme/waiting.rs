//! Commands of an I/O queue that wait for a disk. A part of `io`.

use std::sync::Arc;

use fabrix_block::Status as DiskStatus;
use fabrix_proto::{Claim, Settled, Slot};
use fabrix_rt::Completion;
use fabrix_transport::Incoming;

use super::context::Queue;
use super::io::{IoQueue, Work};
use crate::command_table::{CommandTable, Waiting};
use crate::context::CommandContext;
use crate::disk::DiskId;
use crate::disk::DiskState;

impl<Q: Queue> Waiting<Q> for IoQueue {
    type Work = Work;

    fn table(&mut self) -> &mut CommandTable<Work> {
        &mut self.commands
    }

    fn stalled_at(&self, slot: Slot) -> Option<DiskId> {
        match self.commands.get(slot)? {
            Work::Stalled(command, _) | Work::Paused(command, _) | Work::Half { command, .. } => {
                Some(command.disk)
            }
            _ => None,
        }
    }

    fn resume(&mut self, context: &mut CommandContext<'_, Q>, claim: Claim, work: Work) -> Settled {
        if let Some(status) = self.refusal_of_resumed(&work) {
            return match work {
                Work::Half { mate, .. } => self.break_pair(context, claim, mate, status),
                _ => context.answer(claim, status),
            };
        }
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
    fn disk_answered(
        &mut self,
        context: &mut CommandContext<'_, Q>,
        slot: Slot,
        completion: Completion,
    ) {
        let counters = context.local.counters();
        if counters.are_timed(context.shard.now()) {
            counters.left_disk(context.shard.now());
        }
        let status = DiskStatus::from_result(completion.result);
        match self.commands.take_from_disk(slot) {
            Some((claim, Work::Aborted { first })) => self.aborted(context, claim, first),
            Some((claim, work)) => {
                self.finish(context, claim, work, status, completion.loan);
            }
            None => debug_assert!(false, "{slot:?} has no request at a disk"),
        }
        self.retry(context);
        self.tell_drained();
    }

    fn disk_of(&self, slot: Slot) -> Option<Option<Arc<DiskState>>> {
        self.commands.get(slot).filter(|work| work.is_at_disk())?;
        let disk = self.last_commands[usize::from(slot.0)].map(|command| command.disk);
        let mut states = self.disk_views.iter().map(|(_, view)| &view.state);
        Some(states.find(|state| Some(state.id()) == disk).cloned())
    }
}
