//! What a session works with during one call: its shard, its connection, and the disks of the shard.

use fabrix_proto::Slot;
use fabrix_proto::iscsi::target::{Answer as Response, Target};
use fabrix_rt::{Buf, Shard, TaskId};
use fabrix_transport::{Held, Stream};

use super::job::Source;
use crate::local::Local;

/// Slots of the connection's task from here on are disk requests of the command slot that is added.
pub(super) const DISK_SLOTS: u32 = 16;

/// What a session works with during one call.
pub(super) struct Desk<'a> {
    pub(super) shard: &'a mut Shard,
    pub(super) stream: &'a mut Stream<Target>,
    pub(super) local: &'a Local,
    pub(super) task: TaskId,
}

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

    /// Makes room for a write's data and asks the initiator for what does not come by itself.
    pub(super) fn fetch(&mut self, slot: Slot, bytes: u32) -> bool {
        let Some(buf) = self.shard.take_buf(bytes as usize) else {
            return false;
        };
        self.stream.hold(slot, Held::Awaited(buf, bytes as usize));
        let (machine, mut out) = self.stream.speak();
        machine.fetch(slot, &mut out);
        true
    }

    /// The data that a slot has fetched.
    pub(super) fn fetched(&mut self, slot: Slot) -> Source {
        match self.stream.release(slot) {
            Held::Buf(buf, _) => Source::Kept(buf),
            Held::Stayed(_) => Source::InPlace,
            Held::Nothing | Held::Awaited(..) | Held::Lent(_) => Source::None,
        }
    }

    /// Whether what is sent must not change on the way: digests are computed over it.
    pub(super) fn copies_reads(&self) -> bool {
        let session = self.stream.machine().session();
        session.is_some_and(|session| session.parameters.digests.data)
    }
}

/// A copy in a buffer of the shard's.
pub(super) fn copy(shard: &mut Shard, bytes: &[u8]) -> Option<Buf> {
    let mut buf = shard.take_buf(bytes.len().max(1))?;
    buf.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    Some(buf)
}
