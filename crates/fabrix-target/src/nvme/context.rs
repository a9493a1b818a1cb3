//! Answers to commands of a host, and requests for their data.

use fabrix_proto::nvme::queue::{ControllerEvent, ControllerQueue};
use fabrix_proto::nvme::spec::{CompletionEntry, Status};
use fabrix_proto::{Claim, Settled, Slot};
use fabrix_rt::{Buf, Lent};
use fabrix_transport::{Connection, Outgoing};

use crate::context::{CommandContext, copy_lent};

/// A connection that carries a queue. The commands of this folder are generic over it.
pub(crate) trait Queue:
    Connection<Event = ControllerEvent> + ControllerQueue<Lent = Lent> + 'static
{
}

impl<Q> Queue for Q where
    Q: Connection<Event = ControllerEvent> + ControllerQueue<Lent = Lent> + 'static
{
}

impl<Q: Queue> CommandContext<'_, Q> {
    /// Answers a command without data.
    pub(crate) fn answer(&mut self, claim: Claim, status: Status) -> Settled {
        self.note_answer();
        self.complete(claim, CompletionEntry::new(status, 0), 0)
    }

    /// Answers a command with `bytes` of a buffer from its start.
    pub(crate) fn answer_with(&mut self, claim: Claim, buf: Buf, bytes: u32) -> Settled {
        self.note_answer();
        self.stream.send_from(claim.slot(), Outgoing::Buf(buf, 0));
        self.complete(claim, CompletionEntry::new(Status::SUCCESS, 0), bytes)
    }

    /// Answers a command with `bytes` of what a disk lends.
    #[inline(always)]
    pub(crate) fn answer_lent(&mut self, claim: Claim, lent: Lent, bytes: u32) -> Settled {
        if self.stream.needs_buffers() {
            return self.answer_copied(claim, &lent, bytes);
        }
        self.note_answer();
        let entry = CompletionEntry::new(Status::SUCCESS, 0);
        self.stream.answer(claim, entry, bytes, Some(lent))
    }

    /// Answers with a copy of lent data, in a buffer of the shard.
    #[inline(never)]
    fn answer_copied(&mut self, claim: Claim, lent: &Lent, bytes: u32) -> Settled {
        match copy_lent(self.shard, lent) {
            Some(buf) => self.answer_with(claim, buf, bytes),
            None => self.answer(claim, Status::NAMESPACE_NOT_READY),
        }
    }

    /// Answers a command with a whole completion entry and `bytes` bytes of the data in its slot.
    pub(crate) fn complete(&mut self, claim: Claim, entry: CompletionEntry, bytes: u32) -> Settled {
        self.stream.answer(claim, entry, bytes, None)
    }

    /// The timing page shows when commands were answered, of I/O queues only.
    #[inline(always)]
    fn note_answer(&self) {
        let counters = self.local.counters();
        if counters.are_timed(self.shard.now()) && !self.stream.is_admin() {
            counters.answered();
        }
    }

    /// Makes room for a write's data, and asks the host for it. False: there is no memory for the
    /// data.
    pub(crate) fn fetch_data(&mut self, slot: Slot, bytes: u32) -> bool {
        let has_room = self.make_room(slot, bytes);
        if has_room {
            self.stream.fetch(slot);
        }
        has_room
    }
}
