//! What the kernel asks of the file. How its requests reach the disk is `disk`, how they are
//! answered `answers`, how they come over io_uring `exchanges`.
//!
//! One message is waited for; when it has come, those behind it are taken at once until there is
//! none. Answers leave together at the end of the turn, a read's data from where the disk has it.

mod answers;
mod disk;
mod exchanges;
mod plan;

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use fabrix_block::Device;
use fabrix_proto::fuse::{self, Asked, Offer};
use fabrix_rt::{Buf, Completion, File, Gather, Loan, Op, Shard, Task, TaskId, Token, errno};
use sys_devices::page_bytes;

use crate::job::Job;
use crate::lane::Lane;
use crate::{BeginError, Resize, Tell, Told};
pub(super) use exchanges::OverUring;
use exchanges::{Exchanges, PAYLOAD_BYTES};
use plan::Reply;

const TAKE: u32 = 0;
const GIVE: u32 = 1;
const RETRY: u32 = 2;
/// The answer to the kernel's first message, when its requests may come over io_uring.
const GIVE_FIRST: u32 = 3;
/// The disk's endings: this and the slot's number.
const DISK_SLOTS: u32 = 16;
/// What comes over io_uring: this and the number of its place.
const EXCHANGE_SLOTS: u32 = 1 << 16;

/// Requests in progress that were read. The kernel waits with more.
const SLOTS: u16 = 256;
/// How many requests that nobody waits for (writeback, direct I/O side by side) the kernel sends at
/// once.
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

/// Who waits for an answer, and where.
#[derive(Clone, Copy)]
struct Asker {
    unique: u64,
    /// The place in which the request came over io_uring. None: it was read.
    place: Option<u16>,
}

/// One request of the kernel.
struct Call {
    asker: Asker,
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
    exchanges: Exchanges,
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
        (tell, over_uring): (Tell, OverUring),
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
            exchanges: Exchanges::new(over_uring),
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
        if self.over || !self.has_room() {
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

    /// Carries out what a message asks, or begins to.
    fn message(&mut self, shard: &mut Shard, buf: Buf, bytes: usize) -> Left {
        let Some((unique, asked)) = fuse::parse(&buf.bytes()[..bytes]) else {
            return Left::Message(buf);
        };
        let asker = Asker {
            unique,
            place: None,
        };
        match asked {
            Asked::Init { .. } => self.begun(shard, unique, asked),
            Asked::Unanswered => {}
            Asked::Destroy => return Left::Kernel,
            _ => {
                return self
                    .act(shard, asker, asked, Some(buf))
                    .map_or(Left::Nothing, Left::Message);
            }
        }
        Left::Message(buf)
    }

    /// Carries out what the kernel asks and waits for, or begins to. Gives the message back when
    /// its data is needed no more.
    fn act(
        &mut self,
        shard: &mut Shard,
        asker: Asker,
        asked: Asked,
        message: Option<Buf>,
    ) -> Option<Buf> {
        let geometry = self.lane.geometry().clone();
        match asked {
            Asked::Attributes => self.attributes(shard, asker, &geometry),
            Asked::Change {
                size,
                owner_or_mode,
            } => {
                let keeps = !owner_or_mode && size.is_none_or(|size| size == geometry.bytes());
                match keeps {
                    true => self.attributes(shard, asker, &geometry),
                    false => self.refuse(shard, asker, errno::EPERM),
                }
            }
            Asked::Open => self.answer(shard, asker, &fuse::opened()),
            Asked::StatFs => self.answer(shard, asker, &fuse::statfs(&self.facts(&geometry))),
            Asked::Close => self.answer(shard, asker, &[]),
            Asked::Broken => self.refuse(shard, asker, errno::EINVAL),
            // The first and those without an answer are read.
            Asked::Unknown | Asked::Init { .. } | Asked::Unanswered | Asked::Destroy => {
                self.refuse(shard, asker, errno::ENOSYS);
            }
            Asked::Read { .. } | Asked::Write { .. } | Asked::Sync | Asked::Zero { .. } => {
                return self.io(shard, asker, asked, &geometry, message);
            }
        }
        message
    }

    /// The kernel's first message: what it can, and whether its requests come over io_uring from
    /// now on.
    fn begun(&mut self, shard: &mut Shard, unique: u64, asked: Asked) {
        let Asked::Init {
            major,
            minor,
            max_readahead,
            flags,
        } = asked
        else {
            return debug_assert!(false, "it is no first message");
        };
        let bytes_max = self.transfer_bytes.min(PAYLOAD_BYTES);
        let over_uring = self.exchanges.make(shard, &self.file, (flags, bytes_max));
        if over_uring {
            self.transfer_bytes = bytes_max;
            let more = self.exchanges.places();
            let all = self.work.len() + more;
            let slot = |slot: usize| u16::try_from(slot).expect("some hundreds");
            self.free.extend((self.work.len()..all).map(slot));
            self.work.resize_with(all, || Work::Nothing);
        }
        let offer = Offer {
            bytes_max: self.transfer_bytes,
            page_bytes: u32::try_from(page_bytes()).unwrap_or(u32::MAX),
            background: BACKGROUND,
            over_uring,
        };
        let slot = if over_uring { GIVE_FIRST } else { GIVE };
        match fuse::init((major, minor, flags), max_readahead, &offer) {
            Some(body) => self.give(shard, slot, unique, Ok(&body)),
            None => self.give(shard, GIVE, unique, Err(errno::EPROTO)),
        }
    }

    /// Whether a message may be taken: what comes over io_uring finds room in any case.
    fn has_room(&self) -> bool {
        self.free.len() > self.exchanges.places()
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
        if self.free.len() == self.work.len() {
            (self.tell)(Told::Over);
            shard.remove(self.task);
        }
    }
}

impl Task for Server {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        match (slot, completion.loan) {
            (TAKE, Loan::Buf(buf)) => self.messages(shard, completion.result, buf),
            // An answer that comes too late finds nobody (ENOENT), and that is all the kernel has
            // to say.
            (GIVE | GIVE_FIRST, Loan::Gather(mut gather)) => {
                gather.clear();
                self.gathers.push(gather);
                if slot == GIVE_FIRST && completion.result > 0 {
                    self.begin_exchanges(shard);
                }
            }
            (slot, Loan::Exchange(exchange)) => {
                let place = u16::try_from(slot - EXCHANGE_SLOTS).expect("it came from a place");
                self.exchanged(shard, place, (completion.result, exchange));
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
