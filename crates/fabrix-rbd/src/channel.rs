//! A shard's channel into an image. librbd bounds nothing, so a fixed number of requests is in
//! progress, and the next one is told that the channel is busy.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use fabrix_block::task::{ChannelTask, TaskHandle, complete, token};
use fabrix_block::{Channel, Geometry, Operation, Payload, Request, Status, Submit, copy_to_buf};
use fabrix_rt::{Buf, Completion, Loan, Poller, Shard, TaskId, Token};
use sys_rbd::{Ended, Image, Requests, Work};

use crate::lock::Lock;
use crate::status::status;

/// Requests of one channel in progress.
const MOST_REQUESTS: u16 = 256;

/// The only slot of the task: a request has ended.
const ENDINGS: u32 = 0;

pub(crate) fn open(
    shard: &mut Shard,
    image: &Arc<Image>,
    lock: &Arc<Lock>,
    geometry: Geometry,
) -> io::Result<Box<dyn Channel>> {
    let requests = Requests::new(Arc::clone(image), MOST_REQUESTS)?;
    let endings = Rc::clone(requests.endings()) as Rc<dyn Poller>;
    let mut id = None;
    let handle = TaskHandle::new(shard, |task| {
        id = Some(task);
        RbdTask {
            lock: Arc::clone(lock),
            geometry,
            requests,
            callers: vec![None; MOST_REQUESTS.into()],
        }
    });
    let task: TaskId = id.expect("the task was made");
    shard.add_poller(token(task, ENDINGS), endings)?;
    Ok(Box::new(handle))
}

/// The requests of a channel.
struct RbdTask {
    lock: Arc<Lock>,
    geometry: Geometry,
    requests: Requests,
    /// Who waits for the request in each place.
    callers: Vec<Option<Caller>>,
}

#[derive(Clone, Copy)]
struct Caller {
    token: Token,
    operation: Operation,
    bytes: u64,
    /// The buffer goes back with the completion: it is the caller's, or has what was read.
    wants_buf: bool,
}

impl RbdTask {
    /// The buffer of a request with data. None: there is no memory for one.
    fn buf(&self, shard: &mut Shard, request: &mut Request<'_>) -> Option<Buf> {
        match std::mem::replace(&mut request.payload, Payload::None) {
            Payload::Owned(buf) => Some(buf),
            Payload::Borrowed(source) => {
                request.payload = Payload::Borrowed(source);
                copy_to_buf(shard, source)
            }
            payload => {
                request.payload = payload;
                let bytes = request.bytes(&self.geometry);
                shard.take_buf(usize::try_from(bytes).ok()?)
            }
        }
    }

    fn work(&self, request: &Request<'_>, data: Option<Buf>) -> Option<Work> {
        let offset = self.geometry.offset(request.lba);
        let length = request.bytes(&self.geometry);
        let bytes = usize::try_from(length).ok()?;
        Some(match request.operation {
            Operation::Read => Work::Read {
                offset,
                bytes,
                data: data?,
            },
            Operation::Write { .. } => Work::Write {
                offset,
                bytes,
                data: data?,
            },
            Operation::WriteZeroes { deallocate, .. } => Work::WriteZeroes {
                offset,
                bytes,
                keeps_space: !deallocate,
            },
            Operation::Deallocate => Work::Discard {
                offset,
                bytes: length,
            },
            Operation::Flush => Work::Flush,
            Operation::CompareAndWrite { .. } => return None,
        })
    }

    fn start<'a>(&mut self, shard: &mut Shard, mut request: Request<'a>) -> Submit<'a> {
        let moves_data = matches!(request.operation, Operation::Read | Operation::Write { .. });
        let is_read = request.operation == Operation::Read;
        let wants_buf = is_read || matches!(request.payload, Payload::Owned(_));
        let data = match moves_data {
            true => match self.buf(shard, &mut request) {
                Some(buf) => Some(buf),
                None if self.requests.is_idle() => return request.done(Status::NotReady),
                None => return Submit::Busy(request),
            },
            false => None,
        };
        let caller = Caller {
            token: request.token,
            operation: request.operation,
            bytes: request.bytes(&self.geometry),
            wants_buf,
        };
        let Some(work) = self.work(&request, data) else {
            return request.done(Status::Unsupported);
        };
        match self.requests.start(work) {
            Ok(place) => {
                self.callers[usize::from(place)] = Some(caller);
                Submit::Pending
            }
            Err((result, data)) => {
                self.lock.note(result);
                let status = status(caller.operation, caller.bytes, result);
                Submit::Done(status, loan(caller, data))
            }
        }
    }

    fn ended(&mut self, shard: &mut Shard, ended: Ended) {
        let Some(caller) = self.callers[usize::from(ended.place)].take() else {
            return;
        };
        self.lock.note(ended.result);
        let status = status(caller.operation, caller.bytes, ended.result);
        complete(shard, caller.token, status, loan(caller, ended.data));
    }
}

fn loan(caller: Caller, data: Option<Buf>) -> Loan {
    match data.filter(|_| caller.wants_buf) {
        Some(buf) => Loan::Buf(buf),
        None => Loan::None,
    }
}

impl ChannelTask for RbdTask {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if let Some(status) = request.refusal(&self.geometry) {
            return request.done(status);
        }
        if request.blocks == 0 && request.operation != Operation::Flush {
            return request.done(Status::Ok);
        }
        match self.requests.is_full() {
            true => Submit::Busy(request),
            false => self.start(shard, request),
        }
    }

    fn completed(&mut self, shard: &mut Shard, _slot: u32, _completion: Completion) {
        while let Some(ended) = self.requests.next_ended() {
            self.ended(shard, ended);
        }
    }

    fn is_idle(&self) -> bool {
        self.requests.is_idle()
    }
}
