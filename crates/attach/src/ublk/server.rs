//! What the kernel asks of the device, and how its requests reach the disk.
//!
//! For each tag one command lies with the driver; when it ends there is a request, whose description is read from
//! shared pages. A write's data is copied from the character device before the disk sees it, a read's data to it before
//! the answer: copies of memory by the kernel, nothing that waits. Answers leave together at the end of the turn, each
//! with the tag's next command.

use std::any::Any;
use std::cell::RefCell;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::SyncSender;

use fabrix_block::{Device, Operation, Payload, Request, Status, Submit};
use fabrix_proto::ublk::queue::{Came, Command, Queue};
use fabrix_proto::ublk::spec::{self, Descriptor};
use fabrix_rt::device::{DevicePages, page_bytes};
use fabrix_rt::{Buf, Completion, File, Gather, Loan, Op, Shard, Task, TaskId, Token, errno};

use super::request::{Call, plan};
use crate::job::{PIECES_AT_ONCE, RETRY_AFTER, errno_of};
use crate::lane::Lane;
use crate::{BeginError, Tell, Told};

/// Slots: the commands of the tags, the endings of the disk for them, and the timer.
const DISK_SLOTS: u32 = 1 << 16;
const RETRY: u32 = u32::MAX;

/// What is told to a server.
pub(super) enum Order {
    Resized(Arc<dyn Device>),
    Fail,
}

/// What a server is begun with.
pub(super) struct Begin {
    pub(super) disk: Arc<dyn Device>,
    /// The character device.
    pub(super) device: std::fs::File,
    pub(super) depth: u16,
    pub(super) transfer_bytes: u32,
    pub(super) tell: Tell,
    /// Hears that the character device was closed.
    pub(super) closed: SyncSender<()>,
    /// An errno, as soon as the driver has refused a command.
    pub(super) refused: Arc<AtomicI32>,
}

/// What is at work for a tag.
#[derive(Default)]
enum Work {
    #[default]
    Nothing,
    AtDisk(Call),
    /// The disk was busy; a write's data is kept.
    Stalled(Call, Option<Buf>),
}

/// The character device, as long as the driver wants anything of us.
struct Open {
    file: File,
    pages: DevicePages,
}

pub(super) struct Server {
    task: TaskId,
    open: Option<Open>,
    queue: Queue,
    lane: Lane,
    transfer_bytes: u32,
    tell: Tell,
    closed: SyncSender<()>,
    refused: Arc<AtomicI32>,
    work: Vec<Work>,
    at_disk: u16,
    stalled: usize,
    /// A read's data on its way to the kernel.
    copy: Gather,
    /// Everything fails from now on.
    failing: bool,
    retrying: bool,
}

impl Server {
    pub(super) fn open(shard: &mut Shard, begin: Begin) -> Result<TaskId, BeginError> {
        let (offset, bytes) = spec::descriptors(begin.depth, page_bytes());
        let pages = DevicePages::map(&begin.device, offset, bytes)
            .map_err(|error| BeginError(format!("the driver's requests: {error}")))?;
        let lane = Lane::open(shard, begin.disk).map_err(|error| BeginError(error.to_string()))?;
        let task = shard.reserve();
        let mut server = Self {
            task,
            open: Some(Open {
                file: File::from(begin.device),
                pages,
            }),
            queue: Queue::new(begin.depth),
            lane,
            transfer_bytes: begin.transfer_bytes,
            tell: begin.tell,
            closed: begin.closed,
            refused: begin.refused,
            work: (0..begin.depth).map(|_| Work::Nothing).collect(),
            at_disk: 0,
            stalled: 0,
            copy: Gather::new(0, 1),
            failing: false,
            retrying: false,
        };
        for tag in 0..begin.depth {
            let first = server.queue.begin(tag);
            server.say(shard, tag, first);
        }
        shard.install(task, Rc::new(RefCell::new(server)));
        Ok(task)
    }

    fn say(&self, shard: &mut Shard, tag: u16, command: Option<Command>) {
        let (Some(command), Some(open)) = (command, &self.open) else {
            return debug_assert!(false, "an answer without a request");
        };
        let op = Op::DeviceCommand {
            file: open.file.clone(),
            opcode: command.opcode,
            words: command.words,
        };
        shard.start(self.token(u32::from(tag)), op);
    }

    /// A tag's command has ended.
    fn came(&mut self, shard: &mut Shard, tag: u16, result: i32) {
        match self.queue.came(tag, result) {
            Came::Request => self.request(shard, tag),
            Came::Gone => self.close_or_leave(shard),
            Came::Refused(result) => {
                self.refused.store(-result, Ordering::Relaxed);
                self.close_or_leave(shard);
            }
        }
    }

    fn request(&mut self, shard: &mut Shard, tag: u16) {
        let Some(open) = &self.open else { return };
        let mut bytes = [0; spec::DESCRIPTOR_BYTES];
        open.pages
            .read(usize::from(tag) * spec::DESCRIPTOR_BYTES, &mut bytes);
        let descriptor = Descriptor::parse(bytes);
        if self.failing {
            return self.answer(shard, tag, -errno::EIO);
        }
        let planned = plan(&descriptor, &self.lane.geometry(), self.transfer_bytes);
        match planned {
            Ok(Some(call)) => match self.data(shard, tag, &call) {
                Ok(data) => self.run(shard, tag, call, data),
                Err(errno) => self.answer(shard, tag, -errno),
            },
            Ok(None) => self.answer(shard, tag, 0),
            Err(errno) => self.answer(shard, tag, -errno),
        }
    }

    /// A write's data, from the kernel.
    fn data(&self, shard: &mut Shard, tag: u16, call: &Call) -> Result<Option<Buf>, i32> {
        if !call.job.writes() {
            return Ok(None);
        }
        let open = self.open.as_ref().ok_or(errno::EIO)?;
        let mut buf = shard.take_buf(call.bytes as usize).ok_or(errno::ENOMEM)?;
        let read = open
            .file
            .file()
            .read_exact_at(buf.bytes_mut(), spec::data_position(tag));
        read.map_err(|_| errno::EIO)?;
        Ok(Some(buf))
    }

    /// Goes on with a call until the disk takes its time, or it has ended.
    fn run(&mut self, shard: &mut Shard, tag: u16, mut call: Call, mut data: Option<Buf>) {
        if !call.job.fits(&self.lane.geometry()) {
            return self.finish(shard, tag, &call, Status::OutOfRange, Loan::None);
        }
        for _ in 0..PIECES_AT_ONCE {
            let (operation, lba, blocks) = call.job.next();
            let payload = match data.take() {
                Some(buf) => Payload::Owned(buf),
                None if operation == Operation::Read => Payload::Lend,
                None => Payload::None,
            };
            let request = Request {
                operation,
                lba,
                blocks,
                payload,
                token: self.token(DISK_SLOTS + u32::from(tag)),
            };
            let (status, loan) = match self.lane.submit(shard, request) {
                Submit::Done(status, loan) => (status, loan),
                Submit::Pending => {
                    self.at_disk += 1;
                    self.work[usize::from(tag)] = Work::AtDisk(call);
                    return;
                }
                Submit::Busy(request) => {
                    let kept = match request.payload {
                        Payload::Owned(buf) => Some(buf),
                        _ => None,
                    };
                    return self.stall(shard, tag, call, kept);
                }
            };
            if let Some(status) = call.job.ended(status) {
                return self.finish(shard, tag, &call, status, loan);
            }
        }
        self.stall(shard, tag, call, None);
    }

    fn stall(&mut self, shard: &mut Shard, tag: u16, call: Call, kept: Option<Buf>) {
        self.stalled += 1;
        self.work[usize::from(tag)] = Work::Stalled(call, kept);
        if !self.retrying {
            self.retrying = true;
            let at = shard.now() + RETRY_AFTER;
            shard.set_timer(self.token(RETRY), at);
        }
    }

    /// Answers a call, with a read's data.
    fn finish(&mut self, shard: &mut Shard, tag: u16, call: &Call, status: Status, loan: Loan) {
        let result = match errno_of(status) {
            Some(errno) => -errno,
            None if call.job.reads() => self.give(tag, call.bytes, loan),
            None => call.bytes.cast_signed(),
        };
        self.answer(shard, tag, result);
    }

    /// Gives the kernel what was read. What it is told: all the bytes, or an error.
    fn give(&mut self, tag: u16, bytes: u32, loan: Loan) -> i32 {
        let Some(open) = &self.open else {
            return -errno::EIO;
        };
        let length = bytes as usize;
        match loan {
            Loan::Lent(lent) if lent.len() >= length => self.copy.push_lent(lent.slice(0, length)),
            Loan::Buf(buf) if buf.len() >= length => self.copy.push_buf(buf, 0, length),
            _ => return -errno::EIO,
        }
        let given = open.file.give_at(&mut self.copy, spec::data_position(tag));
        self.copy.clear();
        match given {
            Ok(given) if given == length => bytes.cast_signed(),
            _ => -errno::EIO,
        }
    }

    fn answer(&mut self, shard: &mut Shard, tag: u16, result: i32) {
        let next = self.queue.answer(tag, result);
        self.say(shard, tag, next);
    }

    fn disk_answered(&mut self, shard: &mut Shard, tag: u16, completion: Completion) {
        let work = std::mem::take(&mut self.work[usize::from(tag)]);
        let Work::AtDisk(mut call) = work else {
            return debug_assert!(false, "an ending for a tag that asked for none");
        };
        self.at_disk -= 1;
        // Answered before its time, the ending is for nobody.
        if !self.failing {
            match call.job.ended(Status::from_result(completion.result)) {
                Some(status) => self.finish(shard, tag, &call, status, completion.loan),
                None => self.run(shard, tag, call, None),
            }
        }
        self.close_or_leave(shard);
    }

    /// Asks the disk again for all that it was too busy for.
    fn retry(&mut self, shard: &mut Shard) {
        for tag in 0..self.queue.depth() {
            if self.stalled == 0 {
                break;
            }
            let work = &mut self.work[usize::from(tag)];
            if !matches!(work, Work::Stalled(..)) {
                continue;
            }
            if let Work::Stalled(call, kept) = std::mem::take(work) {
                self.stalled -= 1;
                let before = self.stalled;
                self.run(shard, tag, call, kept);
                if self.stalled > before {
                    break; // it is still busy
                }
            }
        }
    }

    /// Everything in progress is answered now, with an error, and so is all that comes.
    fn fail(&mut self, shard: &mut Shard) {
        self.failing = true;
        for tag in 0..self.queue.depth() {
            let work = &mut self.work[usize::from(tag)];
            if matches!(work, Work::Stalled(..)) {
                *work = Work::Nothing;
                self.stalled -= 1;
            }
            if self.queue.is_asked(tag) {
                self.answer(shard, tag, -errno::EIO);
            }
        }
    }

    /// When the driver wants nothing more, the device is closed; when the disk owes nothing either, it is over.
    fn close_or_leave(&mut self, shard: &mut Shard) {
        if !self.queue.is_over() {
            return;
        }
        if self.open.take().is_some() {
            let _nobody_waits = self.closed.try_send(());
        }
        if self.at_disk == 0 {
            (self.tell)(Told::Over);
            shard.remove(self.task);
        }
    }

    fn token(&self, slot: u32) -> Token {
        Token {
            task: self.task,
            slot,
        }
    }
}

impl Task for Server {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let of_the_disk = slot >= DISK_SLOTS;
        let Ok(tag) = u16::try_from(slot % DISK_SLOTS) else {
            return;
        };
        match of_the_disk {
            true => self.disk_answered(shard, tag, completion),
            false => self.came(shard, tag, completion.result),
        }
    }

    fn expired(&mut self, shard: &mut Shard, _slot: u32) {
        self.retrying = false;
        self.retry(shard);
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        let Ok(order) = message.downcast::<Order>() else {
            return debug_assert!(false, "a server is told orders only");
        };
        match *order {
            // A disk that cannot be opened again keeps its old size.
            Order::Resized(disk) => drop(self.lane.replace(shard, disk)),
            Order::Fail => self.fail(shard),
        }
    }
}
