//! A shard's channel into an array. A request within one chunk goes to its member with the caller's
//! own token. A request that touches several members is a join: its pieces are submitted with
//! tokens of this task, and the caller gets one completion after the last piece. A piece that its
//! member answers with `Busy` is parked and submitted again later.

use std::collections::VecDeque;
use std::time::Duration;

use fabrix_rt::{Buf, Completion, Loan, Shard, TaskId, Token};

use super::layout::{Layout, Piece};
use crate::slots::Slots;
use crate::task::{ChannelTask, TaskHandle, complete, token};
use crate::{Channel, Geometry, Operation, Payload, Request, Status, Submit, copy_to_buf};

pub(super) fn open(
    shard: &mut Shard,
    members: Vec<Box<dyn Channel>>,
    layout: Layout,
    geometry: Geometry,
) -> Box<dyn Channel> {
    let make = |id| JoinTask {
        id,
        members,
        layout,
        geometry,
        joins: Slots::new(JOINS_MAX),
        pieces: Slots::new(PIECES_MAX),
        parked: VecDeque::with_capacity(usize::from(PIECES_MAX)),
        retrying: false,
    };
    Box::new(TaskHandle::new(shard, make))
}

struct JoinTask {
    id: TaskId,
    members: Vec<Box<dyn Channel>>,
    layout: Layout,
    geometry: Geometry,
    joins: Slots<Join>,
    pieces: Slots<PendingPiece>,
    /// Pieces that their member has answered with `Busy`.
    parked: VecDeque<u32>,
    /// Whether the retry timer is set.
    retrying: bool,
}

/// A request in several pieces.
struct Join {
    caller: Token,
    operation: Operation,
    /// Destination of a read or source of a write.
    buf: Option<Buf>,
    callers_buf: bool,
    status: Status,
    /// Pieces in progress, plus one while `split` still submits pieces.
    left: usize,
}

struct PendingPiece {
    join: u32,
    piece: Piece,
}

impl JoinTask {
    /// Forwards a request to the only member that it touches.
    fn forward<'a>(&mut self, shard: &mut Shard, mut request: Request<'a>) -> Submit<'a> {
        let lba = request.lba;
        let Some(piece) = self.layout.pieces(lba, request.blocks).next() else {
            return request.done(Status::Ok);
        };
        request.lba = piece.lba;
        match self.members[piece.member].submit(shard, request) {
            Submit::Busy(request) => Submit::Busy(Request { lba, ..request }),
            answer => answer,
        }
    }

    /// Creates a join of at most `count` pieces and submits them to the members.
    fn split<'a>(&mut self, shard: &mut Shard, request: Request<'a>, count: usize) -> Submit<'a> {
        if self.joins.is_full() || self.pieces.free() < count {
            return Submit::Busy(request);
        }
        let (lba, blocks) = (request.lba, request.blocks);
        let mut join = Join {
            caller: request.token,
            operation: request.operation,
            buf: None,
            callers_buf: false,
            status: Status::Ok,
            left: 1,
        };
        let mut source = None;
        match request.payload {
            // `refusal` has rejected registered memory: it cannot be cut.
            Payload::None | Payload::Registered(_) => {}
            Payload::Borrowed(bytes) => source = Some(bytes),
            Payload::Owned(buf) => {
                join.callers_buf = true;
                join.buf = Some(buf);
            }
            Payload::Lend => match shard.take_buf(self.bytes(blocks)) {
                Some(buf) => join.buf = Some(buf),
                None if self.joins.is_empty() => return request.done(Status::NotReady),
                None => return Submit::Busy(request),
            },
        }
        let operation = join.operation;
        let join = self.joins.insert(join).expect("the caller saw a free slot");
        let members = 0..self.members.len();
        match operation {
            Operation::Read | Operation::Write { .. } => {
                for piece in self.layout.pieces(lba, blocks) {
                    self.begin(shard, join, piece, source);
                }
            }
            Operation::Flush => {
                for member in members {
                    self.begin(shard, join, Piece::of_flush(member), None);
                }
            }
            Operation::WriteZeroes { .. }
            | Operation::Deallocate
            | Operation::CompareAndWrite { .. } => {
                for member in members {
                    if let Some(piece) = self.layout.extent(member, lba, blocks) {
                        self.begin(shard, join, piece, None);
                    }
                }
            }
        }
        match self.count_down(join, Status::Ok) {
            Some(ended) => Submit::Done(ended.status, ended.loan()),
            None => Submit::Pending,
        }
    }

    /// Adds a piece to a join that is still being split, and submits it to its member.
    fn begin(&mut self, shard: &mut Shard, join: u32, piece: Piece, source: Option<&[u8]>) {
        let slot = self
            .pieces
            .insert(PendingPiece { join, piece })
            .expect("split saw enough free slots");
        self.join(join).left += 1;
        match self.offer(shard, slot, source) {
            // The join cannot end here, because `split` counts as one of its pieces.
            Offer::Done(status, loan) => drop(self.piece_ended(slot, status, &loan)),
            Offer::Pending => {}
            Offer::Busy if self.keep_source(shard, join, source) => self.parked.push_back(slot),
            Offer::Busy => drop(self.piece_ended(slot, Status::NotReady, &Loan::None)),
        }
        self.retry_later(shard);
    }

    fn offer(&mut self, shard: &mut Shard, slot: u32, source: Option<&[u8]>) -> Offer {
        let PendingPiece { join, piece } = *self
            .pieces
            .get_mut(slot)
            .expect("an offered piece is in the table");
        let block_bytes = self.geometry.block_bytes as usize;
        let join = self
            .joins
            .get_mut(join)
            .expect("a join stays until its last piece has ended");
        let payload = match join.operation {
            Operation::Read => Payload::Lend,
            Operation::Write { .. } => {
                let source = source
                    .or_else(|| join.buf.as_ref().map(Buf::bytes))
                    .unwrap_or_default();
                let start = piece.start as usize * block_bytes;
                Payload::Borrowed(&source[start..start + piece.blocks as usize * block_bytes])
            }
            _ => Payload::None,
        };
        let request = Request {
            operation: join.operation,
            lba: piece.lba,
            blocks: piece.blocks,
            payload,
            token: token(self.id, slot),
        };
        match self.members[piece.member].submit(shard, request) {
            Submit::Done(status, loan) => Offer::Done(status, loan),
            Submit::Pending => Offer::Pending,
            Submit::Busy(_) => Offer::Busy,
        }
    }

    /// Copies the source of a write before a piece is parked, because the source is gone after
    /// `submit`. False: no buffer is free.
    fn keep_source(&mut self, shard: &mut Shard, join: u32, source: Option<&[u8]>) -> bool {
        let join = self.join(join);
        if let (None, Some(source)) = (&join.buf, source) {
            join.buf = copy_to_buf(shard, source);
            return join.buf.is_some();
        }
        true
    }

    /// Records the result of a piece and copies a read's data. Returns the join after its last
    /// piece.
    fn piece_ended(&mut self, slot: u32, status: Status, loan: &Loan) -> Option<Join> {
        let PendingPiece { join: slot, piece } = self.pieces.take(slot)?;
        let block_bytes = self.geometry.block_bytes as usize;
        let join = self.join(slot);
        let mut status = status;
        if join.operation == Operation::Read && status.is_ok() {
            let start = piece.start as usize * block_bytes;
            let range = start..start + piece.blocks as usize * block_bytes;
            let target = join.buf.as_mut().map(|buf| &mut buf.bytes_mut()[range]);
            status = target.map_or(Status::Internal, |target| copy_from(loan, target));
        }
        self.count_down(slot, status)
    }

    fn count_down(&mut self, slot: u32, status: Status) -> Option<Join> {
        let join = self.join(slot);
        join.status = join.status.and(status);
        join.left -= 1;
        if join.left == 0 {
            self.joins.take(slot)
        } else {
            None
        }
    }

    fn join(&mut self, slot: u32) -> &mut Join {
        self.joins
            .get_mut(slot)
            .expect("a join stays until its last piece has ended")
    }

    /// Submits every parked piece again.
    fn retry(&mut self, shard: &mut Shard) {
        for _ in 0..self.parked.len() {
            let Some(slot) = self.parked.pop_front() else {
                break;
            };
            match self.offer(shard, slot, None) {
                Offer::Done(status, loan) => self.complete_piece(shard, slot, status, &loan),
                Offer::Pending => {}
                Offer::Busy => self.parked.push_back(slot),
            }
        }
        self.retry_later(shard);
    }

    /// Sets the retry timer. A member's next completion may belong to a forwarded request, which
    /// this task does not see, so only a timer guarantees the retry.
    fn retry_later(&mut self, shard: &mut Shard) {
        if !self.parked.is_empty() && !self.retrying {
            self.retrying = true;
            shard.set_timer(token(self.id, 0), shard.now() + RETRY);
        }
    }

    fn complete_piece(&mut self, shard: &mut Shard, slot: u32, status: Status, loan: &Loan) {
        if let Some(ended) = self.piece_ended(slot, status, loan) {
            complete(shard, ended.caller, ended.status, ended.loan());
        }
    }

    fn bytes(&self, blocks: u32) -> usize {
        blocks as usize * self.geometry.block_bytes as usize
    }
}

enum Offer {
    Done(Status, Loan),
    Pending,
    Busy,
}

impl Join {
    /// The loan for the caller: always its own buffer, and our buffer only with the data of a
    /// successful read.
    fn loan(self) -> Loan {
        let was_read = self.operation == Operation::Read && self.status.is_ok();
        match self.buf {
            Some(buf) if self.callers_buf || was_read => Loan::Buf(buf),
            _ => Loan::None,
        }
    }
}

/// Copies the data of a member's read. A member that answers `Ok` with too few bytes is faulty.
fn copy_from(loan: &Loan, target: &mut [u8]) -> Status {
    match loan {
        Loan::Lent(lent) if lent.len() >= target.len() => lent.copy_to(target),
        Loan::Buf(buf) if buf.len() >= target.len() => {
            target.copy_from_slice(&buf.bytes()[..target.len()]);
        }
        _ => return Status::Internal,
    }
    Status::Ok
}

impl ChannelTask for JoinTask {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if let Some(status) = request.refusal(&self.geometry) {
            return request.done(status);
        }
        let (lba, blocks) = (request.lba, request.blocks);
        match request.operation {
            Operation::CompareAndWrite { .. } => request.done(Status::Unsupported),
            Operation::Flush => self.split(shard, request, self.members.len()),
            _ if blocks == 0 => request.done(Status::Ok),
            _ if self.layout.in_one_chunk(lba, blocks) => self.forward(shard, request),
            Operation::Read | Operation::Write { .. } => {
                self.split(shard, request, self.layout.count(lba, blocks))
            }
            Operation::WriteZeroes { .. } | Operation::Deallocate => {
                self.split(shard, request, self.members.len())
            }
        }
    }

    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let status = Status::from_result(completion.result);
        self.complete_piece(shard, slot, status, &completion.loan);
        self.retry(shard);
    }

    fn expired(&mut self, shard: &mut Shard, _slot: u32) {
        self.retrying = false;
        self.retry(shard);
    }

    fn is_idle(&self) -> bool {
        self.joins.is_empty()
    }
}

/// Largest number of joins in progress per channel. Further requests get `Busy`.
const JOINS_MAX: u16 = 256;

/// Largest number of pieces in progress. The longest transfer in the smallest chunks has 257.
const PIECES_MAX: u16 = 2048;

/// Longest time until a parked piece is submitted again.
const RETRY: Duration = Duration::from_micros(100);
