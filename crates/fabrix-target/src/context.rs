//! The context of commands during one call, for both protocols, and the location of their data.
//!
//! Each protocol's own `context` answers commands and fetches their data.

use fabrix_block::Payload;
use fabrix_proto::Slot;
use fabrix_rt::{Buf, Lent, Shard, TaskId, Token};
use fabrix_transport::{Connection, Incoming};

use crate::local::Local;
use crate::requests::Requests;

/// The shard, the stream and the disks for the commands of a connection, during one call.
pub(crate) struct CommandContext<'a, C> {
    pub(crate) shard: &'a mut Shard,
    pub(crate) stream: &'a mut C,
    pub(crate) local: &'a Local,
    pub(crate) task: TaskId,
    pub(crate) requests: &'a mut Requests,
}

impl<C: Connection> CommandContext<'_, C> {
    /// The token of the disk request of a slot's command.
    pub(crate) fn token(&self, slot: Slot) -> Token {
        Token {
            task: self.task,
            slot: self.requests.number(slot),
        }
    }

    /// Gives a slot a buffer for `bytes` of a write's data. False: there is no memory for it.
    pub(crate) fn make_room(&mut self, slot: Slot, bytes: u32) -> bool {
        let Some(buf) = self.shard.take_buf(bytes as usize) else {
            return false;
        };
        self.stream
            .receive_into(slot, Incoming::Awaited(buf, bytes as usize));
        true
    }

    /// The data of a command, where it lies: as much as was announced.
    pub(crate) fn bytes<'a>(&'a self, data: Option<&'a Incoming>) -> &'a [u8] {
        data.map_or(&[], |data| match data.buf() {
            Some(buf) => buf.bytes(),
            None => self.stream.in_place(),
        })
    }

    /// The data of a command in its own buffer. None: there is no data, or no memory for it.
    pub(crate) fn keep(&mut self, data: Option<Incoming>) -> Option<Buf> {
        let kept = data?.into_buf();
        kept.or_else(|| copy(self.shard, self.stream.in_place()))
    }
}

/// The data of a command as the payload of a request.
#[inline(always)]
pub(crate) fn payload(stream: &impl Connection, data: Option<Incoming>) -> Payload<'_> {
    match data.map(Incoming::into_buf) {
        Some(Some(buf)) => Payload::Owned(buf),
        Some(None) => Payload::Borrowed(stream.in_place()),
        None => Payload::None,
    }
}

/// The share of a turn that one command may still use. After that it yields to other connections.
pub(crate) struct Budget {
    requests: u32,
    bytes: u64,
}

impl Budget {
    /// The share of one turn.
    pub(crate) fn of_a_turn() -> Self {
        Self {
            requests: REQUESTS_PER_TURN,
            bytes: BYTES_PER_TURN,
        }
    }

    /// Takes a request of `bytes` bytes out of the share. Returns false if nothing is left. The
    /// last request may be longer than the rest.
    pub(crate) fn spend(&mut self, bytes: u64) -> bool {
        if self.requests == 0 || self.bytes == 0 {
            return false;
        }
        self.requests -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
        true
    }
}

/// 32 requests: 4 MiB of a Verify command.
const REQUESTS_PER_TURN: u32 = 32;
/// 16 MiB: a RAM disk takes about a millisecond to zero them.
const BYTES_PER_TURN: u64 = 16 << 20;

/// A copy in a buffer of the shard. None: there is no memory for it.
pub(crate) fn copy(shard: &mut Shard, bytes: &[u8]) -> Option<Buf> {
    let mut buf = shard.take_buf(bytes.len().max(1))?;
    buf.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    Some(buf)
}

/// A copy of lent pages in a buffer of the shard. None: there is no memory for it.
///
/// With data digests a read is sent from such a copy. The disk's pages may change while they are
/// sent, and would not match the digest then.
pub(crate) fn copy_lent(shard: &mut Shard, lent: &Lent) -> Option<Buf> {
    let mut buf = shard.take_buf(lent.len().max(1))?;
    lent.copy_to(&mut buf.bytes_mut()[..lent.len()]);
    Some(buf)
}
