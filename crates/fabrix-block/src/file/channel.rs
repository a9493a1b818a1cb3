//! A shard's channel into a file: every request is a job in a fixed table, cut into as many
//! operations of the kernel as it takes until all its bytes are done or one fails. What follows
//! from the kernel's results is in `channel/ending.rs`.

mod ending;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::fs;
use std::sync::Arc;

use fabrix_rt::{
    Allocate, Buf, Completion, File, Loan, Op, Registered, Shard, Task, TaskId, Token,
};

use super::State;
use super::outcome::{Kind, Outcome, judge};
use crate::slots::Slots;
use crate::task::{Closing, Hold};
use crate::{Channel, Geometry, Operation, Payload, Request, Status, Submit};

pub(super) fn open(
    shard: &mut Shard,
    (file, lock): (fs::File, Arc<fs::File>),
    geometry: Geometry,
    state: Arc<State>,
) -> Box<dyn Channel> {
    Box::new(FileChannel {
        lock,
        hold: Hold::new(shard, |id| FileTask::new(id, file, geometry, state)),
    })
}

pub(super) struct FileChannel {
    pub(super) hold: Hold<FileTask>,
    /// The open file that has the disk's lock.
    lock: Arc<fs::File>,
}

/// The lock stays until the last request has ended: who opened the file before that could lose what
/// it writes.
impl Drop for FileChannel {
    fn drop(&mut self) {
        let mut task = self.hold.task();
        if !task.jobs.is_empty() {
            task.lock = Some(Arc::clone(&self.lock));
        }
    }
}

impl Channel for FileChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        self.hold.task().submit(shard, request)
    }
}

/// The channel's side of the shard: what is in progress, and what to do when it ends.
pub(super) struct FileTask {
    id: TaskId,
    file: File,
    geometry: Geometry,
    state: Arc<State>,
    jobs: Slots<Job>,
    /// The open file that has the disk's lock, once the channel is gone and requests are still in
    /// progress.
    lock: Option<Arc<fs::File>>,
    /// Zeroes to be written where the file system cannot make them; taken when first needed, then
    /// kept.
    zeroes: Option<Buf>,
    closing: bool,
}

/// One request in progress.
struct Job {
    caller: Token,
    step: Step,
    /// First byte in the file.
    offset: u64,
    bytes: u64,
    done: u64,
    durable: bool,
    /// Whether the buffer goes back to the caller with any ending, because the caller gave it.
    callers_buf: bool,
    /// How often the kernel has said "again" since the last progress.
    agains: u16,
}

/// What the operation in progress does for its job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Read,
    Write,
    ReadRegistered(Registered),
    WriteRegistered(Registered),
    Allocate(Allocate),
    WriteZeroes,
    Sync,
}

impl Step {
    fn kind(self) -> Kind {
        match self {
            Self::Read | Self::ReadRegistered(_) => Kind::Read,
            Self::Write | Self::WriteRegistered(_) | Self::WriteZeroes => Kind::Write,
            Self::Allocate(_) => Kind::Allocate,
            Self::Sync => Kind::Sync,
        }
    }

    /// What the kernel's answer means. What it could not do, or not all of, with registered memory
    /// is asked for again with a buffer, by whoever has asked.
    fn judge(self, result: i32, wanted: u64, block_bytes: u32) -> Outcome {
        let outcome = judge(self.kind(), result, wanted, block_bytes);
        let in_part = match outcome {
            Outcome::Progress(bytes) => bytes < wanted,
            outcome => outcome == Outcome::Failed(Status::Internal),
        };
        match self {
            Self::ReadRegistered(_) | Self::WriteRegistered(_) if in_part => {
                Outcome::Failed(Status::Unsupported)
            }
            _ => outcome,
        }
    }
}

impl FileTask {
    fn new(id: TaskId, file: fs::File, geometry: Geometry, state: Arc<State>) -> Self {
        let jobs = Slots::new(JOBS_MAX);
        Self {
            id,
            file: File::from(file),
            geometry,
            state,
            jobs,
            lock: None,
            zeroes: None,
            closing: false,
        }
    }

    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if let Some(status) = request.refusal_by_taker(&self.geometry) {
            return request.done(status);
        }
        if request.operation.promises_durability() && self.state.is_degraded() {
            return request.done(Status::Degraded);
        }
        if request.blocks == 0 && request.operation != Operation::Flush {
            return request.done(Status::Ok);
        }
        if self.jobs.is_full() {
            return Submit::Busy(request);
        }
        match request.operation {
            Operation::Read => self.read(shard, request),
            Operation::Write { durable } => self.write(shard, request, durable),
            Operation::Flush => self.begin_without_buf(shard, &request, Step::Sync, true),
            Operation::WriteZeroes {
                deallocate: false,
                durable,
            } => self.zero(shard, request, Allocate::ZeroRange, durable),
            Operation::WriteZeroes {
                deallocate: true,
                durable,
            } => self.zero(shard, request, Allocate::PunchHole, durable),
            Operation::Deallocate if self.geometry.deallocate == crate::Deallocate::No => {
                request.done(Status::Unsupported)
            }
            Operation::Deallocate => self.zero(shard, request, Allocate::PunchHole, false),
            Operation::CompareAndWrite { .. } => request.done(Status::Unsupported),
        }
    }

    fn read<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        let mut job = self.job(&request, Step::Read, false);
        let buf = match request.payload {
            Payload::Owned(buf) => {
                job.callers_buf = true;
                buf
            }
            Payload::Registered(memory) => {
                job.step = Step::ReadRegistered(memory);
                return self.begin(shard, job, None);
            }
            _ => match shard.take_buf(length(job.bytes)) {
                Some(buf) => buf,
                None => return self.later(request),
            },
        };
        self.begin(shard, job, Some(buf))
    }

    fn write<'a>(&mut self, shard: &mut Shard, request: Request<'a>, durable: bool) -> Submit<'a> {
        let mut job = self.job(&request, Step::Write, durable);
        let buf = match request.payload {
            Payload::Owned(buf) => {
                job.callers_buf = true;
                buf
            }
            Payload::Borrowed(source) => match shard.take_buf(source.len()) {
                Some(mut buf) => {
                    buf.bytes_mut()[..source.len()].copy_from_slice(source);
                    buf
                }
                None => return self.later(request),
            },
            Payload::Registered(memory) => {
                job.step = Step::WriteRegistered(memory);
                return self.begin(shard, job, None);
            }
            Payload::None | Payload::Lend => return request.done(Status::Internal),
        };
        self.begin(shard, job, Some(buf))
    }

    fn zero<'a>(
        &mut self,
        shard: &mut Shard,
        request: Request<'a>,
        how: Allocate,
        durable: bool,
    ) -> Submit<'a> {
        if self.state.can(how) {
            return self.begin_without_buf(shard, &request, Step::Allocate(how), durable);
        }
        match self.zeroes(shard) {
            None => self.later(request),
            Some(zeroes) => {
                let job = self.job(&request, Step::WriteZeroes, durable);
                self.begin(shard, job, Some(zeroes))
            }
        }
    }

    /// No buffer is to be had: `Busy`, if an ending of this channel will come to try again after.
    fn later<'a>(&self, request: Request<'a>) -> Submit<'a> {
        if self.jobs.is_empty() {
            request.done(Status::NotReady)
        } else {
            Submit::Busy(request)
        }
    }

    fn job(&self, request: &Request<'_>, step: Step, durable: bool) -> Job {
        let flush = request.operation == Operation::Flush;
        Job {
            caller: request.token,
            step,
            offset: if flush {
                0
            } else {
                self.geometry.offset(request.lba)
            },
            bytes: if flush {
                0
            } else {
                request.bytes(&self.geometry)
            },
            done: 0,
            durable,
            callers_buf: false,
            agains: 0,
        }
    }

    fn begin_without_buf<'a>(
        &mut self,
        shard: &mut Shard,
        request: &Request<'a>,
        step: Step,
        durable: bool,
    ) -> Submit<'a> {
        let job = self.job(request, step, durable);
        self.begin(shard, job, None)
    }

    fn begin<'a>(&mut self, shard: &mut Shard, job: Job, buf: Option<Buf>) -> Submit<'a> {
        let slot = self.jobs.insert(job).expect("submit has seen a free place");
        self.advance(shard, slot, buf);
        Submit::Pending
    }

    /// Starts the job's next operation.
    fn advance(&mut self, shard: &mut Shard, slot: u32, buf: Option<Buf>) {
        let Some(job) = self.jobs.get_mut(slot) else {
            return;
        };
        let file = self.file.clone();
        let (done, left, offset) = (job.done, job.bytes - job.done, job.offset + job.done);
        let (start, bytes, durable) = (length(done), length(left), job.durable);
        let op = match (job.step, buf) {
            (Step::Sync, _) => Op::Sync { file },
            (Step::ReadRegistered(memory), _) => Op::ReadRegistered {
                file,
                memory,
                offset,
            },
            (Step::WriteRegistered(memory), _) => Op::WriteRegistered {
                file,
                memory,
                offset,
                durable,
            },
            (Step::Allocate(how), _) => Op::Allocate {
                file,
                how,
                offset,
                bytes: left,
            },
            (Step::Read, Some(buf)) => Op::Read {
                file,
                buf,
                start,
                bytes,
                offset,
            },
            (Step::Write, Some(buf)) => Op::Write {
                file,
                buf,
                start,
                bytes,
                offset,
                durable,
            },
            (Step::WriteZeroes, Some(buf)) => {
                let bytes = bytes.min(buf.len());
                Op::Write {
                    file,
                    buf,
                    start: 0,
                    bytes,
                    offset,
                    durable,
                }
            }
            (Step::Read | Step::Write | Step::WriteZeroes, None) => {
                return self.finish(shard, slot, None, Status::Internal);
            }
        };
        shard.start(
            Token {
                task: self.id,
                slot,
            },
            op,
        );
    }

    fn zeroes(&mut self, shard: &mut Shard) -> Option<Buf> {
        if self.zeroes.is_none() {
            let mut buf = shard.take_buf(ZEROES_BYTES)?;
            buf.bytes_mut().fill(0);
            self.zeroes = Some(buf);
        }
        self.zeroes.clone()
    }

    fn leave_if_idle(&self, shard: &mut Shard) {
        if self.closing && self.jobs.is_empty() {
            shard.remove(self.id);
        }
    }
}

impl Task for FileTask {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let buf = match completion.loan {
            Loan::Buf(buf) => Some(buf),
            _ => None,
        };
        self.ended(shard, slot, completion.result, buf);
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        self.closing |= message.is::<Closing>();
        self.leave_if_idle(shard);
    }
}

/// A length in memory. Payloads are bounded by the largest transfer; longer ranges have none and
/// ignore it.
fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Requests in progress per channel; more are told to wait.
const JOBS_MAX: u16 = 1024;

/// Zeroes written at once where they must be written.
const ZEROES_BYTES: usize = 128 << 10;
