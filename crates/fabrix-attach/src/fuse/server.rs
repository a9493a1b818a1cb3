//! Serves the kernel's requests for the file. `disk` submits them to the disk, `answers` answers
//! them, and `exchanges` receives them over io_uring.
//!
//! One receive waits for a message. After its completion, the messages behind it are read without
//! waiting until none is left. Answers are sent together at the end of the turn, and a read's data
//! is sent from the disk's memory.

mod answers;
mod disk;
mod exchanges;
mod plan;

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use fabrix_block::Device;
use fabrix_proto::fuse::{self, Offer, Operation};
use fabrix_rt::{Buf, Completion, File, Gather, Loan, Op, Shard, Task, TaskId, Token, errno};
use sys_devices::page_bytes;

use crate::disk_channel::DiskChannel;
use crate::job::Job;
use crate::work::Work;
use crate::{BeginError, EventHandler, FrontEndEvent, Resize};
pub(super) use exchanges::OverUring;
use exchanges::{Exchanges, PAYLOAD_BYTES};
use plan::Reply;

const RECEIVE: u32 = 0;
const SEND: u32 = 1;
const RETRY: u32 = 2;
/// Sends the answer to FUSE_INIT, after which requests may come over io_uring.
const SEND_INIT_ANSWER: u32 = 3;
/// Completions of the disk: this number plus the slot number.
const DISK_SLOTS: u32 = 16;
/// Completions over io_uring: this number plus the entry number.
const EXCHANGE_SLOTS: u32 = 1 << 16;

/// Largest number of requests in progress that were read as messages. The kernel keeps further
/// ones.
const SLOTS: u16 = 256;
/// Largest number of background requests (writeback, parallel direct I/O) that the kernel sends at
/// once.
const BACKGROUND: u16 = 192;
/// Longest read and write in bytes: the capacity of one message.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Largest number of messages read per turn, so that other tasks can run.
const MESSAGES_AT_ONCE: usize = 64;

/// An order to the server from another thread.
pub(super) enum Order {
    Resized(Resize),
    Fail,
}

/// Follow-up of a handled message.
enum AfterMessage {
    /// The buffer is free again.
    Reuse(Buf),
    /// The buffer is still in use for the data of a write.
    Keep,
    /// The kernel has unmounted the file.
    Unmounted,
}

/// Origin of a request: where to send its answer.
#[derive(Clone, Copy)]
struct Requester {
    unique: u64,
    /// Entry number of a request over io_uring. None: the request was read as a message.
    entry: Option<u16>,
}

/// A request of the kernel.
struct Call {
    requester: Requester,
    job: Job,
    reply: Reply,
    /// Whether an answer was sent early. The completion is then ignored.
    answered: bool,
}

pub(super) struct Server {
    task: TaskId,
    file: File,
    channel: DiskChannel,
    owner: (u32, u32),
    on_event: EventHandler,
    /// Receive buffer. None while the kernel has it, or when no memory is free.
    message: Option<Buf>,
    has_no_memory: bool,
    transfer_bytes: u32,
    exchanges: Exchanges,
    work: Work<Call>,
    free: Vec<u16>,
    #[expect(
        clippy::vec_box,
        reason = "a gather travels to the kernel and back in this box: it is made once"
    )]
    gathers: Vec<Box<Gather>>,
    /// Whether all requests fail from now on.
    failing: bool,
    /// Whether the kernel has unmounted the file.
    over: bool,
}

impl Server {
    pub(super) fn open(
        shard: &mut Shard,
        disk: Arc<dyn Device>,
        device: std::fs::File,
        owner: (u32, u32),
        (on_event, over_uring): (EventHandler, OverUring),
    ) -> Result<TaskId, BeginError> {
        let channel = DiskChannel::open(shard, disk)?;
        let transfer_bytes = channel
            .geometry()
            .max_transfer_bytes
            .min(TRANSFER_BYTES_MAX);
        let message_bytes = transfer_bytes as usize + fuse::WRITE_HEAD_BYTES;
        let message = shard.take_buf(message_bytes.max(fuse::MESSAGE_BYTES_MIN));
        let message = message.ok_or_else(|| BeginError("no memory for messages".to_owned()))?;
        let task = shard.reserve();
        let mut server = Self {
            task,
            file: File::from(device),
            channel,
            owner,
            on_event,
            message: Some(message),
            has_no_memory: false,
            transfer_bytes,
            exchanges: Exchanges::new(over_uring),
            work: Work::new(SLOTS, Token { task, slot: RETRY }),
            free: (0..SLOTS).rev().collect(),
            gathers: Vec::new(),
            failing: false,
            over: false,
        };
        server.await_message(shard);
        shard.install(task, Rc::new(RefCell::new(server)));
        Ok(task)
    }

    fn await_message(&mut self, shard: &mut Shard) {
        if self.over || !self.has_room() {
            return;
        }
        if self.has_no_memory {
            self.message = shard.take_buf(self.message_bytes());
            self.has_no_memory = self.message.is_none();
            if self.has_no_memory {
                return self.work.retry_later(shard);
            }
        }
        if let Some(buf) = self.message.take() {
            let bytes = buf.len();
            let file = self.file.clone();
            let op = Op::TakeMessage {
                file,
                buf,
                start: 0,
                bytes,
            };
            shard.start(self.token(RECEIVE), op);
        }
    }

    /// Handles a received message or an error of the receive, and reads the messages behind it.
    fn messages(&mut self, shard: &mut Shard, result: i32, mut buf: Buf) {
        let mut result = result;
        let mut left = MESSAGES_AT_ONCE;
        loop {
            match usize::try_from(result) {
                Ok(bytes) => match self.message(shard, buf, bytes) {
                    AfterMessage::Reuse(back) => buf = back,
                    AfterMessage::Keep => match shard.take_buf(self.message_bytes()) {
                        Some(fresh) => buf = fresh,
                        None => {
                            self.has_no_memory = true;
                            return self.await_message(shard);
                        }
                    },
                    AfterMessage::Unmounted => return self.end(shard),
                },
                Err(_) if is_transient(-result) => {}
                Err(_) => return self.end(shard),
            }
            left -= 1;
            if !self.has_room() || left == 0 {
                break;
            }
            let most = buf.len();
            result = match self.file.take_message(&mut buf, 0, most) {
                Ok(bytes) => i32::try_from(bytes).unwrap_or(i32::MAX),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => -error.raw_os_error().unwrap_or(errno::EIO),
            };
        }
        self.message = Some(buf);
        self.await_message(shard);
    }

    /// Executes the request of a message, or starts it.
    fn message(&mut self, shard: &mut Shard, buf: Buf, bytes: usize) -> AfterMessage {
        let Some((unique, operation)) = fuse::parse(&buf.bytes()[..bytes]) else {
            return AfterMessage::Reuse(buf);
        };
        let requester = Requester {
            unique,
            entry: None,
        };
        match operation {
            Operation::Init { .. } => self.init(shard, unique, operation),
            Operation::Unanswered => {}
            Operation::Destroy => return AfterMessage::Unmounted,
            _ => {
                return self
                    .act(shard, requester, operation, Some(buf))
                    .map_or(AfterMessage::Keep, AfterMessage::Reuse);
            }
        }
        AfterMessage::Reuse(buf)
    }

    /// Executes a request that expects an answer, or starts it. Returns the message if its data is
    /// no longer needed.
    fn act(
        &mut self,
        shard: &mut Shard,
        requester: Requester,
        operation: Operation,
        message: Option<Buf>,
    ) -> Option<Buf> {
        let geometry = self.channel.geometry().clone();
        match operation {
            Operation::Attributes => self.attributes(shard, requester, &geometry),
            Operation::Change {
                size,
                owner_or_mode,
            } => {
                let keeps = !owner_or_mode && size.is_none_or(|size| size == geometry.bytes());
                match keeps {
                    true => self.attributes(shard, requester, &geometry),
                    false => self.refuse(shard, requester, errno::EPERM),
                }
            }
            Operation::Open => self.answer(shard, requester, &fuse::opened()),
            Operation::StatFs => {
                self.answer(shard, requester, &fuse::statfs(&self.facts(&geometry)))
            }
            Operation::Close => self.answer(shard, requester, &[]),
            Operation::Broken => self.refuse(shard, requester, errno::EINVAL),
            // FUSE_INIT and requests without an answer come as messages only.
            Operation::Unknown
            | Operation::Init { .. }
            | Operation::Unanswered
            | Operation::Destroy => {
                self.refuse(shard, requester, errno::ENOSYS);
            }
            Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Sync
            | Operation::Zero { .. } => {
                return self.io(shard, requester, operation, &geometry, message);
            }
        }
        message
    }

    /// Answers FUSE_INIT: negotiates the features and decides whether requests come over io_uring.
    fn init(&mut self, shard: &mut Shard, unique: u64, operation: Operation) {
        let Operation::Init {
            major,
            minor,
            max_readahead,
            flags,
        } = operation
        else {
            return debug_assert!(false, "it is no first message");
        };
        let bytes_max = self.transfer_bytes.min(PAYLOAD_BYTES);
        let over_uring = self.exchanges.make(shard, &self.file, (flags, bytes_max));
        if over_uring {
            self.transfer_bytes = bytes_max;
            let old = self.work.slots();
            self.work.grow(self.exchanges.entries());
            self.free.extend(old.end..self.work.slots().end);
        }
        let offer = Offer {
            bytes_max: self.transfer_bytes,
            page_bytes: u32::try_from(page_bytes()).unwrap_or(u32::MAX),
            background: BACKGROUND,
            over_uring,
        };
        let slot = if over_uring { SEND_INIT_ANSWER } else { SEND };
        match fuse::init((major, minor, flags), max_readahead, &offer) {
            Some(body) => self.send_answer(shard, slot, unique, Ok(&body)),
            None => self.send_answer(shard, SEND, unique, Err(errno::EPROTO)),
        }
    }

    /// Whether a slot is free for a message. Every entry of io_uring has a reserved slot.
    fn has_room(&self) -> bool {
        self.free.len() > self.exchanges.entries()
    }

    fn message_bytes(&self) -> usize {
        (self.transfer_bytes as usize + fuse::WRITE_HEAD_BYTES).max(fuse::MESSAGE_BYTES_MIN)
    }

    fn token(&self, slot: u32) -> Token {
        Token {
            task: self.task,
            slot,
        }
    }

    /// Ends the server when the disk has completed all requests. The kernel no longer needs it.
    fn end(&mut self, shard: &mut Shard) {
        self.over = true;
        self.continue_or_end(shard);
    }

    fn continue_or_end(&mut self, shard: &mut Shard) {
        if !self.over {
            return self.await_message(shard);
        }
        if self.free.len() == self.work.slots().len() {
            (self.on_event)(FrontEndEvent::Ended);
            shard.remove(self.task);
        }
    }
}

impl Task for Server {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        match (slot, completion.loan) {
            (RECEIVE, Loan::Buf(buf)) => self.messages(shard, completion.result, buf),
            // The result is ignored: an error means that the request has ended meanwhile (ENOENT).
            (SEND | SEND_INIT_ANSWER, Loan::Gather(mut gather)) => {
                gather.clear();
                self.gathers.push(gather);
                if slot == SEND_INIT_ANSWER && completion.result > 0 {
                    self.begin_exchanges(shard);
                }
            }
            (slot, Loan::Exchange(exchange)) => {
                let entry =
                    u16::try_from(slot - EXCHANGE_SLOTS).expect("the slot belongs to an entry");
                self.exchanged(shard, entry, (completion.result, exchange));
            }
            (slot, loan) if slot >= DISK_SLOTS => {
                let completion = Completion {
                    result: completion.result,
                    loan,
                };
                self.disk_answered(shard, slot, completion);
            }
            _ => debug_assert!(false, "an operation gives back what it held"),
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
            Order::Resized(Resize { disk, result }) => {
                let _nobody_waits = result.send(self.channel.replace(shard, disk));
            }
            Order::Fail => self.fail(shard),
        }
    }
}

/// Whether a receive may be repeated: it was interrupted, or the kernel has ended its request.
fn is_transient(error: i32) -> bool {
    matches!(
        error,
        errno::EINTR | errno::EAGAIN | errno::ENOENT | errno::EIO
    )
}
