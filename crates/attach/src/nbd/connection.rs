//! One client: its requests become requests of the disk, and their endings its answers.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fabrix_block::{Payload, Request, Status, Submit};
use fabrix_proto::Slot;
use fabrix_proto::nbd::server::{Command, Event, Server};
use fabrix_proto::nbd::spec::Error;
use fabrix_rt::{Buf, Completion, Loan, Shard, Socket, Task, TaskId, TimerId, Token};
use fabrix_transport::{Ended, Held, Stream, StreamSlots};

use super::{Common, News};
use crate::Told;
use crate::job::{Ask, Job};

const STREAM: StreamSlots = StreamSlots {
    receive: 0,
    send: 1,
};
const DEADLINE: u32 = 2;
const RETRY: u32 = 3;
/// The disk's endings: this and the slot's number.
const DISK_SLOTS: u32 = 16;

/// Requests in progress on one connection.
const SLOTS: u16 = 128;
/// How long a client may take to say what it wants.
const NEGOTIATION: Duration = Duration::from_secs(10);
/// How soon a busy disk is asked again, when no ending of our own will wake us.
const RETRY_AFTER: Duration = Duration::from_millis(1);
/// Writes that are not longer are handed to the disk where they were received.
const INLINE_BYTES_MAX: u32 = 8 << 10;
/// Events taken at once: then others have their turn.
const EVENTS_AT_ONCE: usize = 128;
/// Pieces of one request that a disk answers at once before others have their turn.
const PIECES_AT_ONCE: usize = 32;

/// What is in a slot.
#[derive(Default)]
enum Work {
    #[default]
    Nothing,
    /// Its data is on the way.
    Receiving(Job),
    /// The disk has it.
    AtDisk(Job),
    /// The disk was busy; a write's data is kept.
    Stalled(Job, Option<Buf>),
}

/// Where a write's data lies.
enum Source {
    None,
    /// In the receive buffer; a buffer to keep it in, if it must be kept and one is there.
    InPlace(Option<Buf>),
    Kept(Buf),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    /// The client has said goodbye: what is in progress is answered.
    Leaving,
    /// Closed; waits for the kernel and the disk.
    Ending,
    Gone,
}

pub(super) struct Connection {
    task: TaskId,
    stream: Stream<Server>,
    common: Rc<Common>,
    work: Vec<Work>,
    at_disk: usize,
    stalled: usize,
    phase: Phase,
    deadline: Option<TimerId>,
    retrying: bool,
    has_more: bool,
}

impl Connection {
    /// Greets a client that says what it wants.
    pub(super) fn adopt(shard: &mut Shard, socket: Socket, common: &Rc<Common>) {
        let task = shard.reserve();
        let machine = Server::new(common.export.borrow().clone(), SLOTS);
        let mut stream = Stream::new(machine, socket, task, STREAM, usize::from(SLOTS));
        let (machine, mut out) = stream.speak();
        machine.greet(&mut out);
        let token = Token {
            task,
            slot: DEADLINE,
        };
        let at = shard.now() + NEGOTIATION;
        let deadline = Some(shard.set_timer(token, at));
        Self::begin(shard, task, stream, deadline, common);
    }

    /// Takes a client that begins with its first request: the kernel.
    pub(super) fn adopt_begun(shard: &mut Shard, socket: Socket, common: &Rc<Common>) {
        let task = shard.reserve();
        let machine = Server::begun(common.export.borrow().clone(), SLOTS);
        let stream = Stream::new(machine, socket, task, STREAM, usize::from(SLOTS));
        Self::begin(shard, task, stream, None, common);
    }

    fn begin(
        shard: &mut Shard,
        task: TaskId,
        mut stream: Stream<Server>,
        deadline: Option<TimerId>,
        common: &Rc<Common>,
    ) {
        stream.limit_backlog();
        let mut connection = Self {
            task,
            stream,
            common: Rc::clone(common),
            work: (0..SLOTS).map(|_| Work::Nothing).collect(),
            at_disk: 0,
            stalled: 0,
            phase: Phase::Open,
            deadline,
            retrying: false,
            has_more: false,
        };
        connection.common.joined(task);
        connection.take_events(shard);
        shard.flush_later(task);
        shard.install(task, Rc::new(RefCell::new(connection)));
    }

    fn take_events(&mut self, shard: &mut Shard) {
        self.has_more = false;
        for _ in 0..EVENTS_AT_ONCE {
            if self.phase != Phase::Open {
                return;
            }
            if self.stream.backlogged() || self.stream.machine().is_full() {
                break;
            }
            match self.stream.next() {
                Ok(Some(event)) => self.event(shard, event),
                Ok(None) => return,
                Err(ended) => return self.ended(shard, &ended),
            }
        }
        self.has_more = true;
    }

    fn event(&mut self, shard: &mut Shard, event: Event) {
        match event {
            Event::Ready => {
                if let Some(timer) = self.deadline.take() {
                    shard.cancel_timer(timer);
                }
            }
            Event::Command {
                slot,
                command,
                offset,
                bytes,
            } => self.command(shard, slot, command, offset, bytes),
            Event::Data { slot } => self.data(shard, slot),
            Event::Goodbye => {
                self.phase = Phase::Leaving;
                shard.flush_later(self.task);
            }
        }
    }

    fn command(
        &mut self,
        shard: &mut Shard,
        slot: Slot,
        command: Command,
        offset: u64,
        bytes: u32,
    ) {
        if bytes == 0 && command != Command::Flush {
            let (machine, mut out) = self.stream.speak();
            return machine.succeed_empty(slot, &mut out);
        }
        let ask = match command {
            Command::Read => Ask::Read,
            Command::Write { durable } => Ask::Write { durable },
            Command::Flush => Ask::Flush,
            Command::Trim { durable } => Ask::Trim { durable },
            Command::WriteZeroes { may_trim, durable } => Ask::Zeroes {
                deallocate: may_trim,
                durable,
            },
        };
        let block = u64::from(self.common.lane.geometry().block_bytes);
        let job = Job::new(ask, offset / block, u64::from(bytes) / block);
        if !job.writes() {
            return self.run(shard, slot, job, Source::None);
        }
        if bytes > INLINE_BYTES_MAX
            && let Some(buf) = shard.take_buf(bytes as usize)
        {
            self.stream.hold(slot, Held::Awaited(buf, bytes as usize));
        }
        self.set(slot, Work::Receiving(job));
    }

    fn data(&mut self, shard: &mut Shard, slot: Slot) {
        let source = match self.stream.release(slot) {
            Held::Buf(buf, _) => Source::Kept(buf),
            Held::Stayed(buf) => Source::InPlace(Some(buf)),
            _ => Source::InPlace(None),
        };
        if let Work::Receiving(job) = self.take(slot) {
            self.run(shard, slot, job, source);
        }
    }

    /// Goes on with a job until the disk takes its time, or it has ended.
    fn run(&mut self, shard: &mut Shard, slot: Slot, mut job: Job, source: Source) {
        if !job.fits(&self.common.lane.geometry()) {
            return self.finish(slot, job, Status::OutOfRange, Loan::None);
        }
        let mut source = source;
        for _ in 0..PIECES_AT_ONCE {
            let (operation, lba, blocks) = job.next();
            let (payload, spare) = match std::mem::replace(&mut source, Source::None) {
                _ if job.reads() => (Payload::Lend, None),
                Source::None => (Payload::None, None),
                Source::InPlace(spare) => (Payload::Borrowed(self.stream.in_place()), spare),
                Source::Kept(buf) => (Payload::Owned(buf), None),
            };
            let request = Request {
                operation,
                lba,
                blocks,
                payload,
                token: Token {
                    task: self.task,
                    slot: DISK_SLOTS + u32::from(slot.0),
                },
            };
            let (status, loan) = match self.common.lane.submit(shard, request) {
                Submit::Done(status, loan) => (status, loan),
                Submit::Pending => {
                    self.at_disk += 1;
                    return self.set(slot, Work::AtDisk(job));
                }
                Submit::Busy(request) => {
                    let kept = keep(shard, request.payload, spare);
                    return match kept {
                        Ok(kept) => self.stall(slot, job, kept),
                        Err(status) => self.finish(slot, job, status, Loan::None),
                    };
                }
            };
            if let Some(status) = job.ended(status) {
                return self.finish(slot, job, status, loan);
            }
        }
        self.stall(slot, job, None);
    }

    fn stall(&mut self, slot: Slot, job: Job, kept: Option<Buf>) {
        self.stalled += 1;
        self.set(slot, Work::Stalled(job, kept));
    }

    fn finish(&mut self, slot: Slot, job: Job, status: Status, loan: Loan) {
        let error = error(status);
        let held = match loan {
            Loan::Lent(lent) => Held::Lent(lent),
            Loan::Buf(buf) => Held::Buf(buf, 0),
            _ => Held::Nothing,
        };
        let has_data = !matches!(held, Held::Nothing);
        if job.reads() && has_data {
            self.stream.hold(slot, held);
        }
        let (machine, mut out) = self.stream.speak();
        match error {
            None if job.reads() && has_data => machine.succeed(slot, 0, &mut out),
            None if job.reads() => machine.fail(slot, Error::Io, &mut out),
            None => machine.succeed_empty(slot, &mut out),
            Some(error) => machine.fail(slot, error, &mut out),
        }
        self.stream.release(slot);
    }

    fn disk_answered(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let slot = Slot(u16::try_from(slot - DISK_SLOTS).expect("the slot came from a slot"));
        let Work::AtDisk(mut job) = self.take(slot) else {
            return debug_assert!(false, "an ending for a slot that asked for none");
        };
        self.at_disk -= 1;
        match job.ended(Status::from_result(completion.result)) {
            Some(status) => self.finish(slot, job, status, completion.loan),
            None => self.run(shard, slot, job, Source::None),
        }
    }

    /// Asks the disk again for all that it was too busy for.
    fn retry(&mut self, shard: &mut Shard) {
        for index in 0..SLOTS {
            if self.stalled == 0 {
                return;
            }
            let slot = Slot(index);
            match self.take(slot) {
                Work::Stalled(job, kept) => {
                    self.stalled -= 1;
                    let before = self.stalled;
                    self.run(shard, slot, job, kept.map_or(Source::None, Source::Kept));
                    if self.stalled > before {
                        return; // it is still busy
                    }
                }
                other => self.set(slot, other),
            }
        }
    }

    fn arrange_retry(&mut self, shard: &mut Shard) {
        if self.stalled > 0 && !self.retrying {
            self.retrying = true;
            let token = Token {
                task: self.task,
                slot: RETRY,
            };
            let at = shard.now() + RETRY_AFTER;
            shard.set_timer(token, at);
        }
    }

    fn ended(&mut self, shard: &mut Shard, ended: &Ended) {
        if let Ended::Violation(violation) = ended {
            (self.common.tell)(Told::Violation(violation.sentence().to_owned()));
        }
        self.end(shard);
    }

    fn end(&mut self, shard: &mut Shard) {
        if self.phase < Phase::Ending {
            self.phase = Phase::Ending;
            self.stream.close();
            self.stalled = 0;
            for work in &mut self.work {
                if !matches!(work, Work::AtDisk(_)) {
                    *work = Work::Nothing;
                }
            }
        }
        self.leave_when_quiet(shard);
    }

    fn leave_when_quiet(&mut self, shard: &mut Shard) {
        if self.phase != Phase::Ending || !self.stream.is_quiet() || self.at_disk > 0 {
            return;
        }
        self.phase = Phase::Gone;
        if let Some(timer) = self.deadline.take() {
            shard.cancel_timer(timer);
        }
        self.common.left(self.task);
        shard.remove(self.task);
    }

    fn set(&mut self, slot: Slot, work: Work) {
        self.work[usize::from(slot.0)] = work;
    }

    fn take(&mut self, slot: Slot) -> Work {
        std::mem::take(&mut self.work[usize::from(slot.0)])
    }
}

impl Task for Connection {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let outcome = match slot {
            slot if slot == STREAM.receive => self.stream.received(completion),
            slot if slot == STREAM.send => self.stream.sent(completion),
            slot => {
                self.disk_answered(shard, slot, completion);
                Ok(())
            }
        };
        match outcome {
            // A client that closes without a word has heard all that it wants.
            Err(_) => self.end(shard),
            Ok(()) if self.has_more => {}
            Ok(()) => self.take_events(shard),
        }
        if self.phase >= Phase::Ending {
            self.leave_when_quiet(shard);
        } else {
            shard.flush_later(self.task);
        }
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        if slot == RETRY {
            self.retrying = false;
            if self.phase < Phase::Ending {
                self.retry(shard);
                shard.flush_later(self.task);
            }
        } else {
            self.deadline = None;
            self.end(shard);
        }
    }

    fn flush(&mut self, shard: &mut Shard) {
        if self.has_more {
            self.take_events(shard);
        }
        if self.phase >= Phase::Ending {
            return;
        }
        if self.stream.flush(shard).is_err() {
            return self.end(shard);
        }
        let may_go_on = !self.stream.backlogged() && !self.stream.machine().is_full();
        if self.has_more && may_go_on {
            shard.flush_later(self.task);
        }
        self.arrange_retry(shard);
        let idle = self.stream.machine().in_progress() == 0;
        if self.phase == Phase::Leaving && idle && self.stream.is_drained() {
            self.end(shard);
        }
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        match message.downcast::<News>().map(|news| *news) {
            Ok(News::Leave) => self.end(shard),
            Ok(News::Resized(bytes)) => self.stream.speak().0.resized(bytes),
            Err(_) => debug_assert!(false, "a client is told news only"),
        }
    }
}

/// Keeps a write's data while its disk is busy.
fn keep(
    shard: &mut Shard,
    payload: Payload<'_>,
    spare: Option<Buf>,
) -> Result<Option<Buf>, Status> {
    match payload {
        Payload::Borrowed(bytes) => {
            let buf = spare.or_else(|| shard.take_buf(bytes.len()));
            let mut buf = buf.ok_or(Status::NotReady)?;
            buf.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
            Ok(Some(buf))
        }
        Payload::Owned(buf) => Ok(Some(buf)),
        Payload::None | Payload::Lend => Ok(None),
    }
}

/// What a client is told of a status; None: it was carried out.
fn error(status: Status) -> Option<Error> {
    Some(match status {
        Status::Ok => return None,
        Status::OutOfRange => Error::Invalid,
        Status::Unsupported => Error::NotSupported,
        Status::ReadOnly => Error::NotPermitted,
        Status::NoSpace => Error::NoSpace,
        Status::NotReady
        | Status::MediaRead
        | Status::MediaWrite
        | Status::CompareFailed
        | Status::Aborted
        | Status::Degraded
        | Status::Internal => Error::Io,
    })
}
