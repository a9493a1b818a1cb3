//! A request of a disk's user from `submit` to its completion, for every protocol.
//!
//! Knows the request's buffer and returns it to the caller. Does not know any protocol.

use std::mem;

use fabrix_block::{Geometry, Operation, Payload, Request as BlockRequest, Status as DiskStatus};
use fabrix_rt::{Buf, Completion, Loan, Nanos, Shard, Token};

use crate::multipath::link::Fate;

/// A request in progress, or waiting for a connection.
pub(crate) struct Request {
    pub(crate) operation: Operation,
    /// First block that no command has covered yet.
    pub(crate) lba: u64,
    /// Number of blocks left. One command may cover fewer.
    pub(crate) blocks: u32,
    pub(crate) token: Token,
    /// Data of the command: a write's source, a read's destination, or a range. The slot holds it
    /// while the command is in progress.
    pub(crate) data: Option<Buf>,
    /// True when the completion returns the data to the caller.
    pub(crate) returns_data: bool,
    /// True when the data came with one holder. It must return with one holder.
    pub(crate) is_sole: bool,
    /// Buffer that came with an operation without data.
    kept: Option<Buf>,
    /// Number of repetitions after a transport error or a unit attention.
    pub(crate) retries: u8,
    /// When the request first lost its connection. [`Nanos::MAX`]: never.
    pub(crate) lost_at: Nanos,
}

/// Data of a new request.
pub(crate) struct Data {
    /// As [`Request::data`].
    pub(crate) moved: Option<Buf>,
    kept: Option<Buf>,
    is_returned: bool,
    is_sole: bool,
}

impl Data {
    /// Takes the data of a request. None, with the request unchanged: the shard has no memory.
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
                // Registered memory is refused earlier.
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
    /// The request with its data.
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

    /// Whether an answered request must wait: its data is still being sent and would return with
    /// two holders.
    ///
    /// A target answers a write when it has all of the data. Later bytes in the same send call keep
    /// the buffer in use.
    pub(crate) fn is_being_sent(&self) -> bool {
        let is_shared = self.data.as_ref().is_some_and(|data| !data.is_unique());
        self.is_sole && self.returns_data && is_shared
    }

    /// Skips the blocks that a command has covered, `most` at most. False: no block is left.
    pub(crate) fn advance(&mut self, most: u32) -> bool {
        let is_left = self.blocks > most;
        if is_left {
            self.lba += u64::from(most);
            self.blocks -= most;
        }
        is_left
    }

    /// The token and the completion for the caller. The completion carries the buffer.
    #[inline(always)]
    pub(crate) fn completion(&mut self, status: DiskStatus) -> (Token, Completion) {
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

/// Whether the payload of an operation is sent or received with its command.
pub(crate) fn moves_payload(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Read | Operation::Write { .. } | Operation::CompareAndWrite { .. }
    )
}

/// Completes a request.
pub(crate) fn finish(shard: &mut Shard, mut request: Request, status: DiskStatus) {
    let (token, completion) = request.completion(status);
    shard.complete(token, completion);
}

/// Gives a request without an answer back to the pool of which its session is a path.
pub(crate) fn hand_back(shard: &mut Shard, mut request: Request, fate: Fate) {
    let (token, completion) = request.completion(DiskStatus::NotReady);
    let result = fate.to_result();
    shard.complete(
        token,
        Completion {
            result,
            ..completion
        },
    );
}
