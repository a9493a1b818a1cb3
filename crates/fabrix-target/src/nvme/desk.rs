//! How commands of a host are answered, and how their data is asked for.

use fabrix_proto::Slot;
use fabrix_proto::nvme::spec::{CompletionEntry, Status};
use fabrix_proto::nvme::tcp::target::Target;
use fabrix_rt::{Buf, Lent};
use fabrix_transport::Outgoing;

use crate::desk::copy_lent;

/// What a queue works with during one call.
pub(crate) type Desk<'a> = crate::desk::Desk<'a, Target>;

impl Desk<'_> {
    /// Answers a slot without data.
    pub(crate) fn answer(&mut self, slot: Slot, status: Status) {
        self.note_answer();
        self.complete(slot, CompletionEntry::new(status, 0), 0);
    }

    /// Answers a slot with `bytes` of a buffer from its start.
    pub(crate) fn answer_with(&mut self, slot: Slot, buf: Buf, bytes: u32) {
        self.note_answer();
        self.stream.send_from(slot, Outgoing::Buf(buf, 0));
        self.complete(slot, CompletionEntry::new(Status::SUCCESS, 0), bytes);
    }

    /// Answers a slot with `bytes` of what a disk lends.
    #[inline(always)]
    pub(crate) fn answer_lent(&mut self, slot: Slot, lent: Lent, bytes: u32) {
        if self.stream.machine().digests().data {
            return self.answer_copied(slot, &lent, bytes);
        }
        self.note_answer();
        let (machine, mut out) = self.stream.speak_of(Some(lent));
        if machine.answer(
            slot,
            CompletionEntry::new(Status::SUCCESS, 0),
            bytes,
            &mut out,
        ) {
            drop(out);
            self.stream.release(slot);
        }
    }

    /// The same with data digests.
    #[inline(never)]
    fn answer_copied(&mut self, slot: Slot, lent: &Lent, bytes: u32) {
        match copy_lent(self.shard, lent) {
            Some(buf) => self.answer_with(slot, buf, bytes),
            None => self.answer(slot, Status::NAMESPACE_NOT_READY),
        }
    }

    /// Answers a slot with a whole completion entry and `bytes` of what its slot holds.
    pub(crate) fn complete(&mut self, slot: Slot, entry: CompletionEntry, bytes: u32) {
        let (machine, mut out) = self.stream.speak();
        if machine.answer(slot, entry, bytes, &mut out) {
            drop(out);
            self.stream.release(slot);
        }
    }

    /// The timing page shows when commands were answered, of I/O queues only.
    fn note_answer(&self) {
        let counters = self.local.counters();
        if counters.are_timed(self.shard.now()) && !self.stream.machine().is_admin() {
            counters.answered();
        }
    }

    /// What answers the host's event requests from now on is not sent.
    pub(crate) fn forget_event_requests(&mut self) {
        self.stream.speak().0.forget_event_requests();
    }

    /// Makes room for a write's data and asks the host for it; false: there is no memory for it.
    pub(crate) fn fetch(&mut self, slot: Slot, bytes: u32) -> bool {
        let has_room = self.make_room(slot, bytes);
        if has_room {
            let (machine, mut out) = self.stream.speak();
            machine.fetch(slot, &mut out);
        }
        has_room
    }
}
