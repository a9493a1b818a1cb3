//! A shard's channel into a file. A fixed table holds the requests in progress. A request issues
//! kernel operations until all its bytes are done or one operation fails. `channel/ending.rs`
//! handles the results.

mod ending;
#[cfg(test)]
mod tests;

use std::fs;
use std::sync::Arc;

use fabrix_rt::{Allocate, Buf, Completion, File, Loan, Op, Registered, Shard, TaskId, Token};

use super::State;
use super::outcome::{Kind, Outcome, judge};
use crate::slots::Slots;
use crate::task::{ChannelTask, TaskHandle, token};
use crate::{Channel, Geometry, Operation, Payload, Request, Status, Submit, copy_to_buf};

pub(super) fn open(
    shard: &mut Shard,
    (file, lock): (fs::File, Arc<fs::File>),
    geometry: Geometry,
    state: Arc<State>,
) -> Box<dyn Channel> {
    let make = |id| FileTask {
        id,
        file: File::from(file),
        geometry,
        state,
        requests: Slots::new(REQUESTS_MAX),
        lock: Some(lock),
        zeroes: None,
    };
    Box::new(TaskHandle::new(shard, make))
}

/// The channel's task on the shard: the requests in progress and the handling of their results.
pub(super) struct FileTask {
    id: TaskId,
    file: File,
    geometry: Geometry,
    state: Arc<State>,
    requests: Slots<FileRequest>,
    /// The open file that holds the disk's lock. The lock is kept until the last request has ended:
    /// a process that opened the file earlier could have its writes overwritten by ours.
    lock: Option<Arc<fs::File>>,
    /// Buffer of zeroes for file systems that cannot zero a range themselves. Allocated at first
    /// use, then kept.
    zeroes: Option<Buf>,
}

/// One request in progress.
struct FileRequest {
    caller: Token,
    step: Step,
    /// Byte offset of the request in the file.
    offset: u64,
    bytes: u64,
    done: u64,
    durable: bool,
    /// Whether the buffer belongs to the caller and therefore goes back with every completion.
    callers_buf: bool,
    /// Number of consecutive EAGAIN or EINTR results since the last progress.
    retries: u16,
}

/// The request's current kernel operation.
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

    /// Interprets the kernel's result. A failed or partial transfer of registered memory becomes
    /// `Unsupported`, and the caller repeats the request with a buffer.
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
    fn read<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        let mut file_request = self.file_request(&request, Step::Read, false);
        let buf = match request.payload {
            Payload::Owned(buf) => {
                file_request.callers_buf = true;
                buf
            }
            Payload::Registered(memory) => {
                file_request.step = Step::ReadRegistered(memory);
                return self.begin(shard, file_request, None);
            }
            _ => match shard.take_buf(length(file_request.bytes)) {
                Some(buf) => buf,
                None => return self.busy_or_not_ready(request),
            },
        };
        self.begin(shard, file_request, Some(buf))
    }

    fn write<'a>(&mut self, shard: &mut Shard, request: Request<'a>, durable: bool) -> Submit<'a> {
        let mut file_request = self.file_request(&request, Step::Write, durable);
        let buf = match request.payload {
            Payload::Owned(buf) => {
                file_request.callers_buf = true;
                buf
            }
            Payload::Borrowed(source) => match copy_to_buf(shard, source) {
                Some(buf) => buf,
                None => return self.busy_or_not_ready(request),
            },
            Payload::Registered(memory) => {
                file_request.step = Step::WriteRegistered(memory);
                return self.begin(shard, file_request, None);
            }
            Payload::None | Payload::Lend => return request.done(Status::Internal),
        };
        self.begin(shard, file_request, Some(buf))
    }

    fn zero<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        let durable = request.operation.promises_durability();
        let how = match request.operation.deallocates() {
            true => Allocate::PunchHole,
            false => Allocate::ZeroRange,
        };
        if self.state.can(how) {
            let file_request = self.file_request(&request, Step::Allocate(how), durable);
            return self.begin(shard, file_request, None);
        }
        match self.zeroes(shard) {
            None => self.busy_or_not_ready(request),
            zeroes => {
                let file_request = self.file_request(&request, Step::WriteZeroes, durable);
                self.begin(shard, file_request, zeroes)
            }
        }
    }

    /// No buffer is free. Answers `Busy` while a completion of this channel is still to come, and
    /// `NotReady` otherwise.
    fn busy_or_not_ready<'a>(&self, request: Request<'a>) -> Submit<'a> {
        if self.requests.is_empty() {
            request.done(Status::NotReady)
        } else {
            Submit::Busy(request)
        }
    }

    fn file_request(&self, request: &Request<'_>, step: Step, durable: bool) -> FileRequest {
        let (offset, bytes) = match request.operation {
            Operation::Flush => (0, 0),
            _ => (
                self.geometry.offset(request.lba),
                request.bytes(&self.geometry),
            ),
        };
        FileRequest {
            caller: request.token,
            step,
            offset,
            bytes,
            done: 0,
            durable,
            callers_buf: false,
            retries: 0,
        }
    }

    fn begin<'a>(
        &mut self,
        shard: &mut Shard,
        file_request: FileRequest,
        buf: Option<Buf>,
    ) -> Submit<'a> {
        let slot = self
            .requests
            .insert(file_request)
            .expect("submit saw a free slot");
        self.advance(shard, slot, buf);
        Submit::Pending
    }

    /// Starts the request's next kernel operation.
    fn advance(&mut self, shard: &mut Shard, slot: u32, buf: Option<Buf>) {
        let Some(file_request) = self.requests.get_mut(slot) else {
            return;
        };
        let file = self.file.clone();
        let (done, left) = (file_request.done, file_request.bytes - file_request.done);
        let offset = file_request.offset + done;
        let (start, bytes, durable) = (length(done), length(left), file_request.durable);
        let op = match (file_request.step, buf) {
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
            (step @ (Step::Write | Step::WriteZeroes), Some(buf)) => {
                let (start, bytes) = match step {
                    Step::WriteZeroes => (0, bytes.min(buf.len())),
                    _ => (start, bytes),
                };
                Op::Write {
                    file,
                    buf,
                    start,
                    bytes,
                    offset,
                    durable,
                }
            }
            (Step::Read | Step::Write | Step::WriteZeroes, None) => {
                return self.finish(shard, slot, None, Status::Internal);
            }
        };
        shard.start(token(self.id, slot), op);
    }

    fn zeroes(&mut self, shard: &mut Shard) -> Option<Buf> {
        if self.zeroes.is_none() {
            let mut buf = shard.take_buf(ZEROES_BYTES)?;
            buf.bytes_mut().fill(0);
            self.zeroes = Some(buf);
        }
        self.zeroes.clone()
    }
}

impl ChannelTask for FileTask {
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
        if self.requests.is_full() {
            return Submit::Busy(request);
        }
        match request.operation {
            Operation::Read => self.read(shard, request),
            Operation::Write { durable } => self.write(shard, request, durable),
            Operation::Flush => {
                let file_request = self.file_request(&request, Step::Sync, true);
                self.begin(shard, file_request, None)
            }
            Operation::Deallocate if self.geometry.deallocate == crate::Deallocate::No => {
                request.done(Status::Unsupported)
            }
            Operation::WriteZeroes { .. } | Operation::Deallocate => self.zero(shard, request),
            Operation::CompareAndWrite { .. } => request.done(Status::Unsupported),
        }
    }

    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let buf = match completion.loan {
            Loan::Buf(buf) => Some(buf),
            _ => None,
        };
        self.ended(shard, slot, completion.result, buf);
    }

    fn channel_dropped(&mut self) {
        if self.requests.is_empty() {
            self.lock = None;
        }
    }

    fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }
}

/// A length in memory. Payloads are bounded by the largest transfer. Longer ranges have no payload
/// and ignore the length.
fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Largest number of requests in progress per channel. Further requests get `Busy`.
const REQUESTS_MAX: u16 = 1024;

/// Length of one write of zeroes, in bytes. Longer ranges take several writes.
const ZEROES_BYTES: usize = 128 << 10;
