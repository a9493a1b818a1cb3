//! What the commands of a connection work with during one call, whatever is spoken on it, and where
//! their data lies.
//!
//! Knows buffers, and the slots of a connection's task; does not know what a command means. How a
//! protocol answers and how it asks for data is in its own `context`.

use fabrix_block::Payload;
use fabrix_proto::Slot;
use fabrix_rt::{Buf, Lent, Shard, TaskId, Token};
use fabrix_transport::{Connection, Incoming};

use crate::local::Local;
use crate::requests::Requests;

/// What a connection's commands work with during one call.
pub(crate) struct CommandContext<'a, C> {
    pub(crate) shard: &'a mut Shard,
    pub(crate) stream: &'a mut C,
    pub(crate) local: &'a Local,
    pub(crate) task: TaskId,
    pub(crate) requests: &'a mut Requests,
}

impl<C: Connection> CommandContext<'_, C> {
    /// Where a disk tells that it has done its part for the command of a slot.
    pub(crate) fn token(&self, slot: Slot) -> Token {
        Token {
            task: self.task,
            slot: self.requests.number(slot),
        }
    }

    /// Makes room for `bytes` of a write's data; false: there is no memory for it.
    pub(crate) fn make_room(&mut self, slot: Slot, bytes: u32) -> bool {
        let Some(buf) = self.shard.take_buf(bytes as usize) else {
            return false;
        };
        self.stream
            .receive_into(slot, Incoming::Awaited(buf, bytes as usize));
        true
    }

    /// The data of a command where it lies: as much as was announced.
    pub(crate) fn bytes<'a>(&'a self, data: Option<&'a Incoming>) -> &'a [u8] {
        data.map_or(&[], |data| match data.buf() {
            Some(buf) => buf.bytes(),
            None => self.stream.in_place(),
        })
    }

    /// The data of a command in a buffer of its own. None: there is none, or no memory for it.
    pub(crate) fn keep(&mut self, data: Option<Incoming>) -> Option<Buf> {
        let kept = data?.into_buf();
        kept.or_else(|| copy(self.shard, self.stream.in_place()))
    }
}

/// The data of a command as a disk takes it.
#[inline(always)]
pub(crate) fn payload(stream: &impl Connection, data: Option<Incoming>) -> Payload<'_> {
    match data.map(Incoming::into_buf) {
        Some(Some(buf)) => Payload::Owned(buf),
        Some(None) => Payload::Borrowed(stream.in_place()),
        None => Payload::None,
    }
}

/// What one command may still ask of a disk that answers at once: then it pauses, and others have
/// their turn.
pub(crate) struct Budget {
    requests: u32,
    bytes: u64,
}

impl Budget {
    /// What it may in one turn.
    pub(crate) fn of_a_turn() -> Self {
        Self {
            requests: REQUESTS_PER_TURN,
            bytes: BYTES_PER_TURN,
        }
    }

    /// Takes a request of so many bytes off it; false: there is nothing left. The last may be
    /// longer than what is.
    pub(crate) fn spend(&mut self, bytes: u64) -> bool {
        if self.requests == 0 || self.bytes == 0 {
            return false;
        }
        self.requests -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
        true
    }
}

/// 4 MiB of what is verified.
const REQUESTS_PER_TURN: u32 = 32;
/// A RAM disk takes about a millisecond to zero so much, and does more of it in pieces of its own.
const BYTES_PER_TURN: u64 = 16 << 20;

/// A copy in a buffer of the shard's; None: there is no memory for it.
pub(crate) fn copy(shard: &mut Shard, bytes: &[u8]) -> Option<Buf> {
    let mut buf = shard.take_buf(bytes.len().max(1))?;
    buf.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    Some(buf)
}

/// A copy of what a disk lends, in a buffer of the shard's; None: there is no memory for it.
///
/// With data digests a read is sent from such a copy. The disk's pages may be written while they
/// are sent, and then they would not match the digest behind them.
pub(crate) fn copy_lent(shard: &mut Shard, lent: &Lent) -> Option<Buf> {
    let mut buf = shard.take_buf(lent.len().max(1))?;
    lent.copy_to(&mut buf.bytes_mut()[..lent.len()]);
    Some(buf)
}
