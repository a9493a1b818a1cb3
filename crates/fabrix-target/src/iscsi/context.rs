//! How tasks of an initiator are answered, and how their data is asked for.

use fabrix_proto::Slot;
use fabrix_proto::iscsi::framing::{Carrier, Endpoint};
use fabrix_proto::iscsi::target::{Answer as Response, Event, Target};
use fabrix_rt::Lent;
use fabrix_transport::{Connection, Outgoing};

use crate::context::{CommandContext, copy_lent};

/// A connection that carries the PDUs of a target: what a transport has to be for a session.
pub(crate) trait SessionCarrier:
    Connection<Event = Event> + Carrier<Endpoint = Target> + 'static
{
}

impl<C> SessionCarrier for C where
    C: Connection<Event = Event> + Carrier<Endpoint = Target> + 'static
{
}

impl<C: SessionCarrier> CommandContext<'_, C> {
    /// Answers a slot; false: its data is still arriving, and the slot is used until `Released`.
    pub(super) fn respond(&mut self, slot: Slot, response: &Response) -> bool {
        let (target, mut out) = self.stream.speak();
        let free = target.answer(slot, response, &mut out);
        drop(out);
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
            let (target, mut out) = self.stream.speak();
            target.fetch(slot, &mut out);
        }
        has_room
    }

    /// What a disk lends, as it is sent: with data digests a copy. None: there is no memory for it.
    pub(super) fn sendable(&mut self, lent: Lent) -> Option<Outgoing> {
        if !self.stream.endpoint().digests().data {
            return Some(Outgoing::Lent(lent));
        }
        copy_lent(self.shard, &lent).map(|buf| Outgoing::Buf(buf, 0))
    }
}
