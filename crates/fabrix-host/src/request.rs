//! A request of a disk's user, from `submit` to its ending: what every kind of remote disk keeps of
//! it.
//!
//! Knows the buffer that travels with it and who gets it back; does not know any protocol.

use std::mem;

use fabrix_block::{Geometry, Operation, Payload, Request as BlockRequest, Status as DiskStatus};
use fabrix_rt::{Buf, Completion, Loan, Nanos, Shard, Token};

/// A request of a disk's user on its way through a connection, or waiting for one.
pub(crate) struct Request {
    pub(crate) operation: Operation,
    /// The first block that is not done yet.
    pub(crate) lba: u64,
    /// How many are left; one command may cover fewer.
    pub(crate) blocks: u32,
    pub(crate) token: Token,
    /// What its command moves: a write's source, a read's destination, a range; in the slot
    /// meanwhile.
    pub(crate) data: Option<Buf>,
    /// The data goes back to the caller with the ending.
    pub(crate) returns_data: bool,
    /// The data has no holder but us: it goes back as it came, with no holder but the caller.
    pub(crate) is_sole: bool,
    /// A buffer that came with an operation that moves none.
    kept: Option<Buf>,
    /// How often it was sent again because the transport spoiled it, or the target had something
    /// else to say first.
    pub(crate) retries: u8,
    /// When it first lost its connection; [`Nanos::MAX`]: it never did.
    pub(crate) lost_at: Nanos,
}

/// The data of a request, taken out of the user's.
pub(crate) struct Data {
    /// As [`Request::data`].
    pub(crate) moved: Option<Buf>,
    kept: Option<Buf>,
    is_returned: bool,
    is_sole: bool,
}

impl Data {
    /// The data in a buffer. None, and nothing taken: there is no memory for one.
    #[inline(always)]
    pub(crate) fn take(
        shard: &mut Shard,
        request: &mut BlockRequest<'_>,
        geometry: &Geometry,
    ) -> Option<Self> {
        let moves = moves_payload(request.operation);
        let is_borrowed = matches!(request.payload, Payload::Borrowed(_));
        let (moved, kept) = match &request.payload {
            Payload::Borrowed(source) if moves => {
                let mut buf = shard.take_buf(source.len())?;
                buf.bytes_mut().copy_from_slice(source);
                (Some(buf), None)
            }
            Payload::Lend => {
                let bytes = usize::try_from(request.bytes(geometry)).ok()?;
                (Some(shard.take_buf(bytes)?), None)
            }
            _ => match (mem::replace(&mut request.payload, Payload::None), moves) {
                (Payload::Owned(buf), true) => (Some(buf), None),
                (Payload::Owned(buf), false) => (None, Some(buf)),
                // Registered memory was refused before.
                _ => (None, None),
            },
        };
        Some(Self {
            is_returned: moved.is_some() && !is_borrowed,
            is_sole: moved.as_ref().is_none_or(Buf::is_unique),
            moved,
            kept,
        })
    }
}

impl Request {
    /// A request of ours, and its data.
    #[inline(always)]
    pub(crate) fn new(request: &BlockRequest<'_>, data: Data) -> Self {
        Self {
            operation: request.operation,
            lba: request.lba,
            blocks: request.blocks,
            token: request.token,
            data: data.moved,
            returns_data: data.is_returned,
            is_sole: data.is_sole,
            kept: data.kept,
            retries: 0,
            lost_at: Nanos::MAX,
        }
    }

    /// Whether it has ended and must still wait, because its data is being sent and would come back
    /// with two holders.
    ///
    /// An honest target answers a write when it has all of its data, but what waits behind that
    /// data in the same send keeps the whole send alive.
    pub(crate) fn is_being_sent(&self) -> bool {
        let is_shared = self.data.as_ref().is_some_and(|data| !data.is_unique());
        self.is_sole && self.returns_data && is_shared
    }

    /// Who is told of its ending, and what: its buffer goes back with that.
    #[inline(always)]
    pub(crate) fn ending(&mut self, status: DiskStatus) -> (Token, Completion) {
        let buf = if self.returns_data {
            self.data.take()
        } else {
            self.kept.take()
        };
        let result = status.to_result();
        let loan = buf.map_or(Loan::None, Loan::Buf);
        (self.token, Completion { result, loan })
    }
}

/// Whether an operation's payload travels with its command.
pub(crate) fn moves_payload(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Read | Operation::Write { .. } | Operation::CompareAndWrite { .. }
    )
}

/// Tells the user of the disk.
pub(crate) fn finish(shard: &mut Shard, mut request: Request, status: DiskStatus) {
    let (token, completion) = request.ending(status);
    shard.complete(token, completion);
}
