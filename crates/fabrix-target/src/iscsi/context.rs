//! Answers to an initiator's SCSI tasks, and requests for their data.

use fabrix_proto::iscsi::framing::Carrier;
use fabrix_proto::iscsi::target::{Answer as Response, Event, Target};
use fabrix_proto::{Claim, Settled, Slot};
use fabrix_rt::Lent;
use fabrix_transport::{Connection, Outgoing};

use crate::context::{CommandContext, copy_lent};

/// A connection that carries the PDUs of a target. Sessions are generic over it.
pub(crate) trait SessionCarrier:
    Connection<Event = Event> + Carrier<Endpoint = Target> + 'static
{
}

impl<C> SessionCarrier for C where
    C: Connection<Event = Event> + Carrier<Endpoint = Target> + 'static
{
}

impl<C: SessionCarrier> CommandContext<'_, C> {
    /// Answers a command. False: its data is still arriving, and its slot is in use until
    /// `Released`.
    pub(super) fn respond(&mut self, claim: Claim, response: &Response) -> (Settled, bool) {
        let slot = claim.slot();
        let (target, mut out) = self.stream.speak();
        let (answered, is_free) = target.answer(claim, response, &mut out);
        drop(out);
        if is_free {
            let _sent_or_unwanted = self.stream.release(slot);
        }
        (answered, is_free)
    }

    /// Makes room for a write's data, and asks the initiator for the part that it does not send by
    /// itself. False: there is no memory for the data.
    pub(super) fn fetch(&mut self, slot: Slot, bytes: u32) -> bool {
        let has_room = self.make_room(slot, bytes);
        if has_room {
            let (target, mut out) = self.stream.speak();
            target.fetch(slot, &mut out);
        }
        has_room
    }

    /// Lent pages as they are sent: a copy, where the connection sends from buffers only. None:
    /// there is no memory for the copy.
    pub(super) fn sendable(&mut self, lent: Lent) -> Option<Outgoing> {
        if !self.stream.needs_buffers() {
            return Some(Outgoing::Lent(lent));
        }
        copy_lent(self.shard, &lent).map(|buf| Outgoing::Buf(buf, 0))
    }
}
