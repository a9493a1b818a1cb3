//! What the kernel asks of the file. How its requests reach the disk is `disk`, how they are answered `answers`.
//!
//! One message is waited for; when it has come, those behind it are taken at once until there is none. Answers leave
//! together at the end of the turn, a read's data from where the disk has it.

mod answers;
mod disk;
mod plan;

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use fabrix_block::Device;
use fabrix_proto::fuse::{self, Asked};
use fabrix_rt::{Buf, Completion, File, Gather, Loan, Op, Shard, Task, TaskId, Token, errno};

use crate::job::Job;
use crate::lane::Lane;
use crate::{BeginError, Resize, Tell, Told};
use plan::Reply;

const TAKE: u32 = 0;
const GIVE: u32 = 1;
const RETRY: u32 = 2;
/// The disk's endings: this and the slot's number.
const DISK_SLOTS: u32 = 16;

/// Requests in progress. The kernel waits with more.
const SLOTS: u16 = 256;
/// How many requests that nobody waits for (writeback, direct I/O side by side) the kernel sends at once.
const BACKGROUND: u16 = 192;
/// The longest read and write: what one message carries.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Messages taken at once: then others have their turn.
const MESSAGES_AT_ONCE: usize = 64;

/// What is told to a server.
pub(super) enum Order {
    Resized(Resize),
    Fail,
}

/// What is in a slot.
#[derive(Default)]
enum Work {
    #[default]
    Nothing,
    AtDisk(Call),
    /// The disk was busy; a write's data is kept.
    Stalled(Call, Option<Buf>),
}

/// What a message leaves behind.
enum Left {
    /// Itself.
    Message(Buf),
    /// Nothing: its data is still needed.
    Nothing,
    /// The kernel has gone.
    Kernel,
}

/// One request of the kernel.
struct Call {
    unique: u64,
    job: Job,
    reply: Reply,
    /// It was answered before its time; its ending is for nobody.
    answered: bool,
}

pub(super) struct Server {
    task: TaskId,
    file: File,
    lane: Lane,
    owner: (u32, u32),
    tell: Tell,
    /// Where messages are received; None while the kernel has it, or there is no memory for one.
    message: Option<Buf>,
    has_no_memory: bool,
    transfer_bytes: u32,
    work: Vec<Work>,
    free: Vec<u16>,
    stalled: usize,
    #[expect(
        clippy::vec_box,
        reason = "a gather travels to the kernel and back in this box: it is made once"
    )]
    gathers: Vec<Box<Gather>>,
    /// Everything fails from now on.
    failing: bool,
    retrying: bool,
    /// The kernel needs the file no more.
    over: bool,
}

impl Server {
    pub(super) fn open(
        shard: &mut Shard,
        disk: Arc<dyn Device>,
        device: std::fs::File,
        owner: (u32, u32),
        tell: Tell,
    ) -> Result<TaskId, BeginError> {
        let lane = Lane::open(shard, disk).map_err(|error| BeginError(error.to_string()))?;
        let transfer_bytes = lane.geometry().max_transfer_bytes.min(TRANSFER_BYTES_MAX);
        let message_bytes = transfer_bytes as usize + fuse::WRITE_HEAD_BYTES;
        let message = shard.take_buf(message_bytes.max(fuse::MESSAGE_BYTES_MIN));
        let message = message.ok_or_else(|| BeginError("no memory for messages".to_owned()))?;
        let task = shard.reserve();
        let mut server = Self {
            task,
            file: File::from(device),
            lane,
            owner,
            tell,
            message: Some(message),
            has_no_memory: false,
            transfer_bytes,
            work: (0..SLOTS).map(|_| Work::Nothing).collect(),
            free: (0..SLOTS).rev().collect(),
            stalled: 0,
            gathers: Vec::new(),
            failing: false,
            retrying: false,
            over: false,
        };
        server.await_message(shard);
        shard.install(task, Rc::new(RefCell::new(server)));
        Ok(task)
    }

    fn await_message(&mut self, shard: &mut Shard) {
        if self.over || self.free.is_empty() {
            return;
        }
        if self.has_no_memory {
            self.message = shard.take_buf(self.message_bytes());
            self.has_no_memory = self.message.is_none();
            if self.has_no_memory {
                return self.arrange_retry(shard);
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
            shard.start(self.token(TAKE), op);
        }
    }

    /// A message has come, or the kernel says why none comes; takes those behind it.
    fn messages(&mut self, shard: &mut Shard, result: i32, mut buf: Buf) {
        let mut result = result;
        let mut left = MESSAGES_AT_ONCE;
        loop {
            match usize::try_from(result) {
                Ok(bytes) => match self.message(shard, buf, bytes) {
                    Left::Message(back) => buf = back,
                    Left::Nothing => match shard.take_buf(self.message_bytes()) {
                        Some(fresh) => buf = fresh,
                        None => {
                            self.has_no_memory = true;
                            return self.await_message(shard);
                        }
                    },
                    Left::Kernel => return self.end(shard),
                },
                Err(_) if is_passing(-result) => {}
                Err(_) => return self.end(shard),
            }
            left -= 1;
            if self.free.is_empty() || left == 0 {
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

    /// Carries out what the kernel asks, or begins to.
    fn message(&mut self, shard: &mut Shard, buf: Buf, bytes: usize) -> Left {
        let Some((unique, asked)) = fuse::parse(&buf.bytes()[..bytes]) else {
            return Left::Message(buf);
        };
        let geometry = self.lane.geometry().clone();
        match asked {
            Asked::Init {
                major,
                minor,
                max_readahead,
                flags,
            } => {
                let most = self.transfer_bytes;
                match fuse::init((major, minor, flags), max_readahead, most, BACKGROUND) {
                    Some(body) => self.answer(shard, unique, &body),
                    None => self.refuse(shard, unique, errno::EPROTO),
                }
            }
            Asked::Attributes => self.attributes(shard, unique, &geometry),
            Asked::Change {
                size,
                owner_or_mode,
            } => {
                let keeps = !owner_or_mode && size.is_none_or(|size| size == geometry.bytes());
                match keeps {
                    true => self.attributes(shard, unique, &geometry),
                    false => self.refuse(shard, unique, errno::EPERM),
                }
            }
            Asked::Open => self.answer(shard, unique, &fuse::opened()),
            Asked::StatFs => self.answer(shard, unique, &fuse::statfs(&self.facts(&geometry))),
            Asked::Close => self.answer(shard, unique, &[]),
            Asked::Unanswered => {}
            Asked::Destroy => return Left::Kernel,
            Asked::Unknown => self.refuse(shard, unique, errno::ENOSYS),
            Asked::Broken => self.refuse(shard, unique, errno::EINVAL),
            Asked::Read { .. } | Asked::Write { .. } | Asked::Sync | Asked::Zero { .. } => {
                let back = self.io(shard, unique, asked, &geometry, buf);
                return back.map_or(Left::Nothing, Left::Message);
            }
        }
        Left::Message(buf)
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

    /// The kernel needs the file no more: ends when the disk has given everything back.
    fn end(&mut self, shard: &mut Shard) {
        self.over = true;
        self.leave_or_go_on(shard);
    }

    fn leave_or_go_on(&mut self, shard: &mut Shard) {
        if !self.over {
            return self.await_message(shard);
        }
        if self.free.len() == usize::from(SLOTS) {
            (self.tell)(Told::Over);
            shard.remove(self.task);
        }
    }
}

impl Task for Server {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        match (slot, completion.loan) {
            (TAKE, Loan::Buf(buf)) => self.messages(shard, completion.result, buf),
            // An answer that comes too late finds nobody (ENOENT), and that is all the kernel has to say.
            (GIVE, Loan::Gather(mut gather)) => {
                gather.clear();
                self.gathers.push(gather);
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
        self.retrying = false;
        self.retry(shard);
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        let Ok(order) = message.downcast::<Order>() else {
            return debug_assert!(false, "a server is told orders only");
        };
        match *order {
            Order::Resized(Resize { disk, tell }) => {
                let _nobody_waits = tell.send(self.lane.replace(shard, disk));
            }
            Order::Fail => self.fail(shard),
        }
    }
}

/// Whether the kernel has only been disturbed, or has answered somebody itself.
fn is_passing(error: i32) -> bool {
    matches!(
        error,
        errno::EINTR | errno::EAGAIN | errno::ENOENT | errno::EIO
    )
}
