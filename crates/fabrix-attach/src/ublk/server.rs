//! What the kernel asks of the device, and what it is answered.
//!
//! For each tag one command lies with the driver; when it ends there is a request, whose
//! description is read from shared pages. Answers leave together at the end of the turn, each with
//! the tag's next command. What lies between, the disk and the data, is `disk`.

mod disk;

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use fabrix_block::Device;
use fabrix_proto::ublk::queue::{Came, Command, Queue};
use fabrix_proto::ublk::spec::{self, Descriptor};
use fabrix_rt::{Buf, Completion, File, Gather, Op, Shard, Task, TaskId, Token, errno};
use sys_devices::page_bytes;
use sys_devices::ublk::DevicePages;

use super::request::{Call, plan};
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
    /// Whether the driver lends the pages of requests to the shard's ring.
    pub(super) lends: bool,
    /// How many requests were answered whose data nobody has copied.
    pub(super) uncopied: Arc<AtomicU64>,
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
    lends: bool,
    uncopied: Arc<AtomicU64>,
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
        if begin.lends {
            // Where no table is to be had, every request comes without its pages lent, and is
            // copied.
            let _no_table = shard.make_table(begin.depth);
        }
        let task = shard.reserve();
        let mut server = Self {
            task,
            open: Some(Open {
                file: File::from(begin.device),
                pages,
            }),
            queue: Queue::new(begin.depth, begin.lends),
            lane,
            transfer_bytes: begin.transfer_bytes,
            lends: begin.lends,
            uncopied: begin.uncopied,
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
            number: command.place,
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
            Ok(Some(mut call)) => {
                let moves = call.bytes > 0;
                call.lent =
                    self.lends && moves && descriptor.is_lent() && self.lane.takes_registered();
                self.begin(shard, tag, call);
            }
            Ok(None) => self.answer(shard, tag, 0),
            Err(errno) => self.answer(shard, tag, -errno),
        }
    }

    fn answer(&mut self, shard: &mut Shard, tag: u16, result: i32) {
        let next = self.queue.answer(tag, result);
        self.say(shard, tag, next);
    }

    /// Everything in progress is answered now, with an error, and so is all that comes. Only what
    /// the disk has pages of is answered when it has let go of them: the kernel waits for that in
    /// any case, and until then the tag's place must not be the next request's.
    fn fail(&mut self, shard: &mut Shard) {
        self.failing = true;
        for tag in 0..self.queue.depth() {
            let work = &mut self.work[usize::from(tag)];
            if matches!(work, Work::Stalled(..)) {
                *work = Work::Nothing;
                self.stalled -= 1;
            }
            let has_pages = matches!(work, Work::AtDisk(call) if call.lent);
            if self.queue.is_asked(tag) && !has_pages {
                self.answer(shard, tag, -errno::EIO);
            }
        }
    }

    /// When the driver wants nothing more, the device is closed; when the disk owes nothing either,
    /// it is over.
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
