//! Serves the driver's requests.
//!
//! Every tag has one command at the driver. The completion of the command means a request, whose
//! descriptor lies in shared pages. Answers are sent together at the end of the turn, and each also
//! fetches the tag's next request. `disk` submits requests and moves data.

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
use fabrix_rt::{Completion, File, Gather, Op, Shard, Task, TaskId, Token, errno};
use sys_devices::page_bytes;
use sys_devices::ublk::DevicePages;

use super::request::{Call, plan};
use crate::disk_channel::DiskChannel;
use crate::work::Work;
use crate::{BeginError, EventHandler, FrontEndEvent};

/// Slot numbers: commands by tag, completions of the disk, and the timer.
const DISK_SLOTS: u32 = 1 << 16;
const RETRY: u32 = u32::MAX;

/// An order to the server from another thread.
pub(super) enum Order {
    Resized(Arc<dyn Device>),
    Fail,
}

/// Parameters of a server.
pub(super) struct Begin {
    pub(super) disk: Arc<dyn Device>,
    /// The character device.
    pub(super) device: std::fs::File,
    pub(super) depth: u16,
    pub(super) transfer_bytes: u32,
    /// Whether the driver registers the pages of requests with the shard's ring.
    pub(super) lends: bool,
    /// Number of requests answered without copying data.
    pub(super) uncopied: Arc<AtomicU64>,
    pub(super) on_event: EventHandler,
    /// Receives a message when the character device is closed.
    pub(super) closed: SyncSender<()>,
    /// Errno of the first command that the driver has refused, or 0.
    pub(super) refused: Arc<AtomicI32>,
}

/// The character device, open as long as the driver has commands or requests.
struct Open {
    file: File,
    pages: DevicePages,
}

pub(super) struct Server {
    task: TaskId,
    open: Option<Open>,
    queue: Queue,
    channel: DiskChannel,
    transfer_bytes: u32,
    lends: bool,
    uncopied: Arc<AtomicU64>,
    on_event: EventHandler,
    closed: SyncSender<()>,
    refused: Arc<AtomicI32>,
    work: Work<Call>,
    /// Gather list for copying a read's data to the kernel.
    copy: Gather,
    /// Whether all requests fail from now on.
    failing: bool,
}

impl Server {
    pub(super) fn open(shard: &mut Shard, begin: Begin) -> Result<TaskId, BeginError> {
        let (offset, bytes) = spec::descriptors(begin.depth, page_bytes());
        let pages = DevicePages::map(&begin.device, offset, bytes)
            .map_err(|error| BeginError(format!("the driver's requests: {error}")))?;
        let channel = DiskChannel::open(shard, begin.disk)?;
        if begin.lends {
            // Without a buffer table all requests come unregistered and are copied.
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
            channel,
            transfer_bytes: begin.transfer_bytes,
            lends: begin.lends,
            uncopied: begin.uncopied,
            on_event: begin.on_event,
            closed: begin.closed,
            refused: begin.refused,
            work: Work::new(begin.depth, Token { task, slot: RETRY }),
            copy: Gather::new(0, 1),
            failing: false,
        };
        for tag in 0..begin.depth {
            let first = server.queue.begin(tag);
            server.submit_command(shard, tag, first);
        }
        shard.install(task, Rc::new(RefCell::new(server)));
        Ok(task)
    }

    fn submit_command(&self, shard: &mut Shard, tag: u16, command: Option<Command>) {
        let (Some(command), Some(open)) = (command, &self.open) else {
            return debug_assert!(false, "an answer without a request");
        };
        let op = Op::DeviceCommand {
            file: open.file.clone(),
            opcode: command.opcode,
            words: command.words,
            number: command.buffer_index,
        };
        shard.start(self.token(u32::from(tag)), op);
    }

    /// Handles the completion of a tag's command.
    fn command_ended(&mut self, shard: &mut Shard, tag: u16, result: i32) {
        match self.queue.came(tag, result) {
            Came::Request => self.request(shard, tag),
            Came::Gone => self.close_or_end(shard),
            Came::Refused(result) => {
                self.refused.store(-result, Ordering::Relaxed);
                self.close_or_end(shard);
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
        let planned = plan(&descriptor, &self.channel.geometry(), self.transfer_bytes);
        match planned {
            Ok(Some(mut call)) => {
                let moves = call.bytes > 0;
                call.lent =
                    self.lends && moves && descriptor.is_lent() && self.channel.takes_registered();
                self.begin(shard, tag, call);
            }
            Ok(None) => self.answer(shard, tag, 0),
            Err(errno) => self.answer(shard, tag, -errno),
        }
    }

    fn answer(&mut self, shard: &mut Shard, tag: u16, result: i32) {
        let next = self.queue.answer(tag, result);
        self.submit_command(shard, tag, next);
    }

    /// Answers all requests in progress and all later ones with an error. Requests whose pages the
    /// disk uses are answered after the disk has released them: the kernel waits for that anyway,
    /// and the tag must not get a new request before.
    fn fail(&mut self, shard: &mut Shard) {
        self.failing = true;
        for tag in 0..self.queue.depth() {
            self.work.give_up(tag);
            let has_pages = self.work.at_disk(tag).is_some_and(|call| call.lent);
            if self.queue.has_request(tag) && !has_pages {
                self.answer(shard, tag, -errno::EIO);
            }
        }
    }

    /// Closes the device when the driver has no more commands, and ends when the disk has no more
    /// requests either.
    fn close_or_end(&mut self, shard: &mut Shard) {
        if !self.queue.is_over() {
            return;
        }
        if self.open.take().is_some() {
            let _nobody_waits = self.closed.try_send(());
        }
        if !self.work.is_at_disk() {
            (self.on_event)(FrontEndEvent::Ended);
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
            false => self.command_ended(shard, tag, completion.result),
        }
    }

    fn expired(&mut self, shard: &mut Shard, _slot: u32) {
        self.work.timer_expired();
        self.retry(shard);
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        let Ok(order) = message.downcast::<Order>() else {
            return debug_assert!(false, "a server is told orders only");
        };
        match *order {
            // If the disk cannot be opened again, the old size stays.
            Order::Resized(disk) => drop(self.channel.replace(shard, disk)),
            Order::Fail => self.fail(shard),
        }
    }
}
