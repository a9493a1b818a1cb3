//! What a disk does for a command: one request, or several one after the other.
//!
//! A [`Job`] says which request comes next and what its ending means; the session hands requests over and waits. What
//! must be one step among all writes (COMPARE AND WRITE, ORWRITE) goes through the gate that all protocols share.

use fabrix_block::{Operation, Payload, Request, Status as DiskStatus, Submit};
use fabrix_proto::Slot;
use fabrix_proto::scsi::cdb::{ByteCheck, Extent};
use fabrix_proto::scsi::unit::{DiskOperation, Failure};
use fabrix_rt::{Buf, Loan, Token};
use fabrix_transport::Held;

use super::session::{DISK_SLOTS, Desk, Session, Work, copy};
use super::status::failure;
use super::units::{Unit, UnitName};

/// Where a command's data lies.
pub(super) enum Source {
    /// In the receive buffer, for this moment.
    InPlace,
    /// In a buffer of its own.
    Kept(Buf),
    /// Nowhere: there is none, or the job has it.
    None,
}

impl Source {
    pub(super) fn bytes<'a>(&'a self, desk: &'a Desk<'_>) -> &'a [u8] {
        match self {
            Self::InPlace => desk.stream.in_place(),
            Self::Kept(buf) => buf.bytes(),
            Self::None => &[],
        }
    }
}

/// A command at work.
pub(super) struct Job {
    /// Where its logical unit stood in the session's list when it began: good enough to choose a format of sense.
    pub(super) at: usize,
    pub(super) name: UnitName,
    block_bytes: u32,
    max_transfer_bytes: u32,
    pub(super) operation: DiskOperation,
    /// How much data the command moves, for the residual.
    moved: u32,
    /// Its data, where it is kept.
    data: Option<Buf>,
    /// What is written instead of the data: a pattern, or the outcome of ORWRITE.
    made: Option<Buf>,
    step: u8,
    /// How often ORWRITE found that the blocks had changed.
    tries: u16,
    /// Blocks, or extents, that are done.
    done: u32,
    /// Blocks of the request that is in progress.
    piece: u32,
}

/// How a job ends.
pub(super) enum End {
    Good,
    /// With a read's data.
    Data(Loan),
    Failed(Failure),
}

/// What a request of a job moves.
enum Moves {
    Nothing,
    /// The command's data.
    Data,
    /// What was made of it.
    Made,
    /// What is read, for the job itself.
    Read,
    /// What is read, for the initiator.
    ReadToSend,
}

type Ask = (Operation, Extent, Moves);

/// How the disk took a request.
enum Taken {
    Done(DiskStatus, Loan),
    Pending,
    Busy,
    Failed(Failure),
}

impl Job {
    pub(super) fn new(unit: &Unit, at: usize, operation: DiskOperation, moved: u32) -> Self {
        Self {
            at,
            name: unit.name(),
            block_bytes: unit.disk.block_bytes,
            max_transfer_bytes: unit.disk.max_transfer_bytes,
            operation,
            moved,
            data: None,
            made: None,
            step: 0,
            tries: 0,
            done: 0,
            piece: 0,
        }
    }

    /// The initiator has only so much data: as many whole blocks are written. False when that is none.
    pub(super) fn limit_to(&mut self, bytes: u32) -> bool {
        let blocks = bytes / self.block_bytes;
        match &mut self.operation {
            DiskOperation::Write { extent, .. }
            | DiskOperation::WriteAndVerify { extent, .. }
            | DiskOperation::OrWrite { extent, .. }
            | DiskOperation::Verify {
                extent,
                check: ByteCheck::Data,
            } => {
                extent.blocks = extent.blocks.min(blocks);
                extent.blocks > 0
            }
            _ => blocks > 0,
        }
    }

    /// The data that the job has kept.
    fn kept(&self) -> &[u8] {
        self.data.as_ref().map_or(&[], Buf::bytes)
    }

    fn bytes(&self, blocks: u32) -> usize {
        blocks as usize * self.block_bytes as usize
    }

    /// Prepares what is used more than once. False: there is no memory for it.
    fn prepare(&mut self, desk: &mut Desk<'_>, data: Source) -> bool {
        match data {
            Source::None => return true,
            Source::Kept(buf) => self.data = Some(buf),
            Source::InPlace if matches!(self.operation, DiskOperation::Write { .. }) => {
                return true;
            }
            Source::InPlace => {
                self.data = copy(desk.shard, desk.stream.in_place());
                if self.data.is_none() {
                    return false;
                }
            }
        }
        if let DiskOperation::WriteSame { extent, .. } = self.operation {
            return self.make_pattern(desk, extent);
        }
        true
    }

    /// One block again and again, as far as it is written at once; or nothing, for zeroes.
    fn make_pattern(&mut self, desk: &mut Desk<'_>, extent: Extent) -> bool {
        let block = self.block_bytes as usize;
        if self.kept()[..block].iter().all(|byte| *byte == 0) {
            return true;
        }
        let blocks = (PATTERN_BYTES.min(self.max_transfer_bytes) / self.block_bytes).max(1);
        let bytes = self.bytes(blocks.min(extent.blocks));
        let Some(mut made) = desk.shard.take_buf(bytes) else {
            return false;
        };
        for piece in made.bytes_mut()[..bytes].chunks_exact_mut(block) {
            piece.copy_from_slice(&self.kept()[..block]);
        }
        self.made = Some(made);
        true
    }

    /// The next request.
    fn next(&mut self) -> Ask {
        let whole = |operation, extent, moves| (operation, extent, moves);
        let durable = |fua: bool| Operation::Write { durable: fua };
        match &self.operation {
            DiskOperation::Read { fua: true, .. } if self.step == 0 => FLUSH,
            DiskOperation::Flush => FLUSH,
            DiskOperation::Read { extent, .. } => {
                whole(Operation::Read, *extent, Moves::ReadToSend)
            }
            DiskOperation::Write { extent, fua, .. } => whole(durable(*fua), *extent, Moves::Data),
            DiskOperation::WriteAndVerify { extent, .. } if self.step == 0 => {
                whole(durable(true), *extent, Moves::Data)
            }
            DiskOperation::WriteAndVerify { extent, .. } => {
                whole(Operation::Read, *extent, Moves::Read)
            }
            DiskOperation::OrWrite { extent, .. } if self.step == 0 => {
                whole(Operation::Read, *extent, Moves::Read)
            }
            DiskOperation::OrWrite { extent, fua } => {
                let durable = *fua;
                whole(Operation::CompareAndWrite { durable }, *extent, Moves::Made)
            }
            DiskOperation::CompareAndWrite { extent, fua } if self.step == 0 => {
                let durable = *fua;
                whole(Operation::CompareAndWrite { durable }, *extent, Moves::Data)
            }
            DiskOperation::CompareAndWrite { extent, .. } => {
                whole(Operation::Read, *extent, Moves::Read)
            }
            DiskOperation::Verify { extent, .. } => {
                let extent = self.piece_of(*extent, VERIFY_BYTES);
                self.piece = extent.blocks;
                whole(Operation::Read, extent, Moves::Read)
            }
            DiskOperation::WriteSame { extent, fua, .. } if self.made.is_some() => {
                let durable = durable(*fua);
                let extent = self.piece_of(*extent, PATTERN_BYTES);
                self.piece = extent.blocks;
                whole(durable, extent, Moves::Made)
            }
            DiskOperation::WriteSame {
                extent,
                deallocate,
                fua,
            }
            | DiskOperation::WriteZeroes {
                extent,
                deallocate,
                fua,
            } => {
                let zero = Operation::WriteZeroes {
                    deallocate: *deallocate,
                    durable: *fua,
                };
                whole(zero, *extent, Moves::Nothing)
            }
            DiskOperation::Deallocate(extents) => {
                let extent = extents[self.done as usize];
                whole(Operation::Deallocate, extent, Moves::Nothing)
            }
        }
    }

    fn piece_of(&self, extent: Extent, most_bytes: u32) -> Extent {
        let most = (most_bytes.min(self.max_transfer_bytes) / self.block_bytes).max(1);
        Extent {
            lba: extent.lba + u64::from(self.done),
            blocks: (extent.blocks - self.done).min(most),
        }
    }

    /// A request has ended; none: there is another one to come.
    pub(super) fn ended(
        &mut self,
        desk: &mut Desk<'_>,
        status: DiskStatus,
        loan: Loan,
    ) -> Option<End> {
        if let Some(failure) = failure(status) {
            return self.ended_badly(status, failure);
        }
        match &self.operation {
            DiskOperation::Read { fua: true, .. } if self.step == 0 => self.step = 1,
            DiskOperation::Read { .. } => return Some(End::Data(loan)),
            DiskOperation::WriteAndVerify { .. } if self.step == 0 => self.step = 1,
            DiskOperation::WriteAndVerify { compare: false, .. } => return Some(End::Good),
            DiskOperation::WriteAndVerify { extent, .. } => {
                let bytes = self.bytes(extent.blocks);
                return Some(compared(&loan, &self.kept()[..bytes], 0).unwrap_or(End::Good));
            }
            DiskOperation::OrWrite { extent, .. } if self.step == 0 => {
                return self.or(desk, *extent, &loan);
            }
            DiskOperation::CompareAndWrite { extent, .. } if self.step == 1 => {
                // Who wrote meanwhile may have made them equal; the blocks did differ.
                let bytes = self.bytes(extent.blocks);
                let end = compared(&loan, &self.kept()[..bytes], 0);
                return Some(end.unwrap_or(End::Failed(Failure::Miscompare(0))));
            }
            DiskOperation::Verify { extent, check } => {
                let all = extent.blocks;
                return self.verified(*check, all, &loan);
            }
            DiskOperation::WriteSame { extent, .. } if self.made.is_some() => {
                self.done += self.piece;
                if self.done == extent.blocks {
                    return Some(End::Good);
                }
            }
            DiskOperation::Deallocate(extents) => {
                self.done += 1;
                if self.done as usize == extents.len() {
                    return Some(End::Good);
                }
            }
            _ => return Some(End::Good),
        }
        None
    }

    fn ended_badly(&mut self, status: DiskStatus, failure: Failure) -> Option<End> {
        match &self.operation {
            DiskOperation::CompareAndWrite { .. } if status == DiskStatus::CompareFailed => {
                // Where they differ is for us to find.
                self.step = 1;
                None
            }
            DiskOperation::OrWrite { .. } if status == DiskStatus::CompareFailed => {
                (self.step, self.tries) = (0, self.tries + 1);
                (self.tries > OR_TRIES).then_some(End::Failed(Failure::Busy))
            }
            // A hint may be ignored, and one that the disk cannot take is.
            DiskOperation::Deallocate(extents) if status == DiskStatus::Unsupported => {
                self.done += 1;
                (self.done as usize == extents.len()).then_some(End::Good)
            }
            _ => Some(End::Failed(failure)),
        }
    }

    /// ORWRITE has read its blocks: what they are to be is written if they are still the same.
    fn or(&mut self, desk: &mut Desk<'_>, extent: Extent, loan: &Loan) -> Option<End> {
        let bytes = self.bytes(extent.blocks);
        let Some(mut made) = desk.shard.take_buf(bytes * 2) else {
            return Some(End::Failed(Failure::Busy));
        };
        let (old, new) = made.bytes_mut()[..bytes * 2].split_at_mut(bytes);
        match loan {
            Loan::Lent(lent) => lent.copy_to(old),
            Loan::Buf(buf) => old.copy_from_slice(&buf.bytes()[..bytes]),
            _ => return Some(End::Failed(Failure::Internal)),
        }
        for ((new, old), data) in new.iter_mut().zip(old).zip(self.kept()) {
            *new = *old | data;
        }
        (self.made, self.step) = (Some(made), 1);
        None
    }

    /// A piece was read: it is compared with what VERIFY wants, if it wants something.
    fn verified(&mut self, check: ByteCheck, all: u32, loan: &Loan) -> Option<End> {
        let from = self.bytes(self.done);
        let bytes = self.bytes(self.piece);
        let difference = match check {
            ByteCheck::Medium => None,
            ByteCheck::Data => compared(loan, &self.kept()[from..from + bytes], from),
            ByteCheck::OneBlock => {
                let expected = &self.kept()[..self.block_bytes as usize];
                let again = expected.repeat(self.piece as usize);
                match compared(loan, &again, 0) {
                    Some(End::Failed(Failure::Miscompare(at))) => {
                        let at = at % u64::from(self.block_bytes);
                        Some(End::Failed(Failure::Miscompare(at)))
                    }
                    other => other,
                }
            }
        };
        self.done += self.piece;
        difference.or_else(|| (self.done == all).then_some(End::Good))
    }
}

/// What comes of it if what was read is not what was expected, which begins so many bytes into the data.
fn compared(loan: &Loan, expected: &[u8], from: usize) -> Option<End> {
    let difference = match loan {
        Loan::Lent(lent) => lent.first_difference(expected),
        Loan::Buf(buf) => {
            let mut both = buf.bytes().iter().zip(expected);
            both.position(|(is, should)| is != should)
        }
        _ => return Some(End::Failed(Failure::Internal)),
    };
    let at = (from + difference?) as u64;
    Some(End::Failed(Failure::Miscompare(at)))
}

impl Session {
    /// Goes on with a job until its disk takes its time, or it has ended.
    pub(super) fn run(&mut self, desk: &mut Desk<'_>, slot: Slot, mut job: Job, data: Source) {
        let in_place = matches!(data, Source::InPlace);
        if !job.prepare(desk, data) {
            return self.finish(desk, slot, &job, End::Failed(Failure::Busy));
        }
        loop {
            let ask = job.next();
            let end = match submit(desk, slot, &mut job, ask, in_place) {
                Taken::Done(status, loan) => job.ended(desk, status, loan),
                Taken::Pending => {
                    self.at_disk += 1;
                    return self.set(slot, Work::AtDisk(job));
                }
                Taken::Busy => return self.stall(slot, job),
                Taken::Failed(failure) => Some(End::Failed(failure)),
            };
            if let Some(end) = end {
                return self.finish(desk, slot, &job, end);
            }
        }
    }

    /// Answers a command whose job has ended.
    pub(super) fn finish(&mut self, desk: &mut Desk<'_>, slot: Slot, job: &Job, end: End) {
        use fabrix_proto::iscsi::target::Answer as Response;
        match end {
            End::Good => self.respond(desk, slot, &Response::good(job.moved)),
            End::Data(Loan::Lent(lent)) => {
                self.answer_blocks(desk, slot, Held::Lent(lent), job.moved);
            }
            End::Data(Loan::Buf(buf)) => {
                self.answer_blocks(desk, slot, Held::Buf(buf, 0), job.moved);
            }
            End::Data(_) => self.fail(desk, slot, Some(job.at), Failure::Internal),
            End::Failed(failure) => {
                if matches!(failure, Failure::Read(_) | Failure::Write(_)) {
                    desk.local.counters().media_error();
                }
                self.fail(desk, slot, Some(job.at), failure);
            }
        }
    }
}

/// Hands a request to the disk of a job.
///
/// The command was checked when it came, and its disk may have changed since: it may be gone, its number may be another
/// disk's, and it may have become smaller. Every request passes here, so here that is seen.
fn submit(
    desk: &mut Desk<'_>,
    slot: Slot,
    job: &mut Job,
    (operation, extent, moves): Ask,
    in_place: bool,
) -> Taken {
    let channels = &desk.local.channels;
    let (nsid, added) = job.name;
    let same = |at: &usize| channels.added(*at) == added;
    let Some(index) = channels.index(nsid).filter(same) else {
        return Taken::Failed(Failure::Gone);
    };
    if operation != Operation::Flush && !channels.contains(index, extent.lba, extent.blocks) {
        return Taken::Failed(Failure::OutOfRange);
    }
    let bytes = job.bytes(extent.blocks);
    let payload = match moves {
        Moves::Nothing => Payload::None,
        Moves::Read => Payload::Lend,
        Moves::ReadToSend if desk.copies_reads() => match desk.shard.take_buf(bytes) {
            Some(buf) => Payload::Owned(buf),
            None => return Taken::Failed(Failure::Busy),
        },
        Moves::ReadToSend => Payload::Lend,
        Moves::Made => owned(job.made.as_ref()),
        Moves::Data if in_place && job.data.is_none() => {
            Payload::Borrowed(&desk.stream.in_place()[..bytes])
        }
        Moves::Data => owned(job.data.as_ref()),
    };
    let channel = match channels.get(desk.shard, index) {
        Ok(channel) => channel,
        Err(error) => {
            desk.local.shared.notice(&crate::Notice::Disk {
                nsid,
                why: error.to_string(),
            });
            return Taken::Failed(Failure::Busy);
        }
    };
    let token = Token {
        task: desk.task,
        slot: DISK_SLOTS + u32::from(slot.0),
    };
    let request = Request {
        operation,
        lba: extent.lba,
        blocks: extent.blocks,
        payload,
        token,
    };
    match channel.borrow_mut().submit(desk.shard, request) {
        Submit::Done(status, loan) => Taken::Done(status, loan),
        Submit::Pending => Taken::Pending,
        Submit::Busy(request) => {
            // The receive buffer does not wait; everything else the job has kept.
            if let Payload::Borrowed(bytes) = request.payload {
                job.data = copy(desk.shard, bytes);
                if job.data.is_none() {
                    return Taken::Failed(Failure::Busy);
                }
            }
            Taken::Busy
        }
    }
}

/// The job keeps its own hold on what is written.
fn owned<'a>(buf: Option<&Buf>) -> Payload<'a> {
    buf.map_or(Payload::None, |buf| Payload::Owned(buf.clone()))
}

const FLUSH: Ask = (
    Operation::Flush,
    Extent { lba: 0, blocks: 0 },
    Moves::Nothing,
);
/// VERIFY reads so much at a time.
const VERIFY_BYTES: u32 = 128 << 10;
/// WRITE SAME writes so much at a time.
const PATTERN_BYTES: u32 = 64 << 10;
/// ORWRITE begins again so often when others write the same blocks.
const OR_TRIES: u16 = 100;
