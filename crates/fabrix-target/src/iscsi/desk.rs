//! How tasks of an initiator are answered, and how their data is asked for.

use fabrix_proto::Slot;
use fabrix_proto::iscsi::target::{Answer as Response, Target};
use fabrix_rt::Lent;
use fabrix_transport::{Outgoing, Stream};

use crate::desk::copy_lent;

/// What a session works with during one call.
pub(super) type Desk<'a> = crate::desk::Desk<'a, Stream<Target>>;

impl Desk<'_> {
    /// Answers a slot; false: its data is still arriving, and the slot is used until `Released`.
    pub(super) fn respond(&mut self, slot: Slot, response: &Response) -> bool {
        let (machine, mut out) = self.stream.speak();
        let free = machine.answer(slot, response, &mut out);
        if free {
            let _sent_or_unwanted = self.stream.release(slot);
        }
        free
    }

    /// Makes room for a write's data and asks the initiator for what does not come by itself;
    /// false: there is no memory for it.
    pub(super) fn fetch(&mut self, slot: Slot, bytes: u32) -> bool {
        let has_room = self.make_room(slot, bytes);
        if has_room {
            let (machine, mut out) = self.stream.speak();
            machine.fetch(slot, &mut out);
        }
        has_room
    }

    /// What a disk lends, as it is sent: with data digests a copy. None: there is no memory for it.
    pub(super) fn sendable(&mut self, lent: Lent) -> Option<Outgoing> {
        let session = self.stream.machine().session();
        if !session.is_some_and(|session| session.parameters.digests.data) {
            return Some(Outgoing::Lent(lent));
        }
        copy_lent(self.shard, &lent).map(|buf| Outgoing::Buf(buf, 0))
    }
}
