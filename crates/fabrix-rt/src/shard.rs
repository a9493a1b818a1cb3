//! The loop: one thread, its tasks, its memory, and one call of the driver per turn.
//!
//! A shard promises its tasks that their methods are never entered twice at once, that an ending
//! comes exactly once, and that nothing comes for a task that was removed. Nothing here waits
//! except the driver. What a shard is made with, and why it could not be made, is in
//! `shard/start.rs`; how long one task's sends may keep the others waiting is in
//! `shard/turns.rs`.

mod mailbox;
mod start;
mod tasks;
mod turns;

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub use self::mailbox::{Full, Remote};
use self::mailbox::{Mailbox, Message};
pub(crate) use self::start::system;
pub use self::start::{ShardConfig, StartError};
use self::tasks::Tasks;
use self::turns::Turns;
use crate::bell::Bell;
use crate::buf::Arena;
use crate::driver::{Driver, Ending, Submission, Until};
use crate::loan::{self, LocalRegion, ZEROES_BYTES};
use crate::slab::{MemoryListener, Slabs};
use crate::timer::Timers;
use crate::{
    Buf, Completion, Engine, Lent, Nanos, Op, Poller, Refused, Region, TaskId, TimerId, Token,
};

/// Something that lives on a shard: a connection, a listener, a job.
///
/// A method is entered only from the shard's loop, so a task may ask for anything, even its own
/// removal, in any of them. It must not keep its own `RefCell` borrowed outside of them.
pub trait Task {
    /// An operation of the kernel, or of a disk, has ended.
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion);

    /// A timer has expired.
    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        let _ = (shard, slot);
    }

    /// The end of a turn in which [`Shard::flush_later`] was asked for.
    fn flush(&mut self, shard: &mut Shard) {
        let _ = shard;
    }

    /// Something another shard has sent.
    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        let _ = (shard, message);
    }
}

/// How long a turn may wait when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Never,
    /// So long at most.
    AtMost(Duration),
    /// Until something happens.
    Forever,
}

/// One thread's loop, tasks and memory. It stays on the thread that made it.
pub struct Shard {
    driver: Box<dyn Driver>,
    submissions: Vec<Submission>,
    endings: Vec<Ending>,
    answers: VecDeque<Ending>,
    timers: Timers,
    mailbox: Mailbox,
    tasks: Tasks,
    flushes: Vec<TaskId>,
    turns: Turns,
    arena: Rc<Arena>,
    slabs: Rc<Slabs>,
    zeroes: LocalRegion,
    now: Nanos,
    id: usize,
    engine: Engine,
    refused: Option<Refused>,
    exchanges: bool,
    stopping: bool,
}

impl Shard {
    /// Makes a shard over a driver of the caller, for simulators. The engine of the config is
    /// ignored.
    pub fn with_driver(config: &ShardConfig, driver: Box<dyn Driver>) -> Result<Self, StartError> {
        let bell = Bell::new().map_err(system("the mailbox of a shard"))?;
        Self::build(config, driver, Arc::new(bell), (Engine::Auto, None))
    }

    /// Makes a shard over a driver that listens to `bell`. The engine and its refusal are what the
    /// shard tells about its driver.
    pub(crate) fn build(
        config: &ShardConfig,
        driver: Box<dyn Driver>,
        bell: Arc<Bell>,
        (engine, refused): (Engine, Option<Refused>),
    ) -> Result<Self, StartError> {
        let slabs = Slabs::new();
        let zeroes = loan::zeroes().map_err(system("the page of zeroes"))?;
        Ok(Self {
            now: driver.now(),
            driver,
            submissions: Vec::new(),
            endings: Vec::new(),
            answers: VecDeque::new(),
            timers: Timers::new(),
            mailbox: Mailbox::new(config.mailbox, bell),
            tasks: Tasks::new(),
            flushes: Vec::new(),
            turns: Turns::new(),
            arena: Arena::new(config.arena_bytes, Rc::clone(&slabs)),
            zeroes: LocalRegion::known(zeroes, &slabs),
            slabs,
            id: config.id,
            engine,
            refused,
            exchanges: config.exchanges && engine != Engine::Epoll,
            stopping: false,
        })
    }

    /// The number it was given.
    pub fn id(&self) -> usize {
        self.id
    }

    /// The engine in use; `Auto` for a driver of the caller.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Why it is not io_uring although that was wanted.
    pub fn refused(&self) -> Option<&Refused> {
        self.refused.as_ref()
    }

    /// Whether [`Op::Exchange`] can be carried out here.
    pub fn takes_exchanges(&self) -> bool {
        self.exchanges
    }

    /// The time at which this turn began.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Takes a task in.
    pub fn add(&mut self, task: Rc<RefCell<dyn Task>>) -> TaskId {
        let id = self.reserve();
        self.install(id, task);
        id
    }

    /// An id for a task that needs to know it before it exists; endings are dropped until it is
    /// installed.
    pub fn reserve(&mut self) -> TaskId {
        self.tasks.reserve()
    }

    /// Takes the task in that an id was reserved for. Panics for any other id.
    pub fn install(&mut self, id: TaskId, task: Rc<RefCell<dyn Task>>) {
        self.tasks.install(id, task);
    }

    /// Lets a task go. What of it waits for a peer is cancelled, the rest ends by itself; its
    /// endings are dropped and what they lent is freed. Its timers expire unheard. An id that means
    /// nobody is no mistake.
    pub fn remove(&mut self, id: TaskId) {
        self.submissions
            .retain(|(token, op)| token.task != id || !op.waits_for_a_peer());
        self.driver.forget(id);
        drop(self.tasks.remove(id));
    }

    /// The task of an id.
    pub fn task(&self, id: TaskId) -> Option<Rc<RefCell<dyn Task>>> {
        self.tasks.get(id).map(Rc::clone)
    }

    /// Begins an operation, together with all others of this turn in one system call. A range
    /// outside its buffer, or a shared buffer to be filled, is the caller's mistake and panics.
    pub fn start(&mut self, token: Token, mut op: Op) {
        check(&op);
        if let Op::Send { gather, .. } = &mut op {
            let at_once = self
                .turns
                .at_once(token.task, gather.total_bytes(), self.now);
            gather.send_at_once(at_once);
        }
        self.submissions.push((token, op));
    }

    /// Adds a poller for a task: [`Task::completed`] is called with the slot of the token and
    /// result 0 in every turn that finds the poller ready. The poller ends with its task. A
    /// negative errno as the result ends it earlier: its descriptor cannot be waited for.
    ///
    /// Errors: `Unsupported` for a driver without pollers.
    pub fn add_poller(&mut self, token: Token, poller: Rc<dyn Poller>) -> io::Result<()> {
        self.driver.add_poller(token, poller)
    }

    /// A disk answers: delivered in this turn, but never from within this call.
    #[inline]
    pub fn complete(&mut self, token: Token, completion: Completion) {
        self.answers.push_back((token, completion));
    }

    /// Asks for the task's [`Task::flush`] at the end of this turn, once however often it is asked.
    #[inline]
    pub fn flush_later(&mut self, id: TaskId) {
        if self.tasks.ask_flush(id) {
            self.flushes.push(id);
        }
    }

    /// Sets a timer; it never expires early.
    pub fn set_timer(&mut self, token: Token, at: Nanos) -> TimerId {
        self.timers.set(token, at)
    }

    /// Cancels a timer; one that has expired or was cancelled is no mistake.
    pub fn cancel_timer(&mut self, id: TimerId) {
        self.timers.cancel(id);
    }

    /// A page-aligned buffer of at most 4 MiB with old contents. None: `bytes` is too long, or the
    /// limit of the arena is reached.
    pub fn take_buf(&mut self, bytes: usize) -> Option<Buf> {
        self.arena.take(bytes).map(Buf::new)
    }

    /// This shard's view of a region. Listeners learn of the region with the first view, and of its
    /// end with the last.
    pub fn view(&mut self, region: &Arc<Region>) -> LocalRegion {
        LocalRegion::known(region, &self.slabs)
    }

    /// Tells a listener of all memory in which buffers and loans of this shard lie: of the slabs
    /// that exist, and of every other one until the listener is dropped.
    pub fn listen_to_memory(&mut self, listener: &Rc<dyn MemoryListener>) {
        self.slabs.listen(listener);
    }

    /// Bytes of all buffers in use, rounded up to the sizes of chunks.
    pub fn buffer_bytes_in_use(&self) -> usize {
        self.arena.used_bytes()
    }

    /// Operations the kernel has not ended.
    pub fn operations_in_flight(&self) -> usize {
        self.driver.in_flight() + self.submissions.len()
    }

    /// Makes room for so many registered buffers ([`Registered`](crate::Registered)), once for a
    /// shard; drivers of the kernel's put them there.
    ///
    /// Errors: `Unsupported`: there is no io_uring; `ResourceBusy`: there is such room already;
    /// what the kernel says.
    pub fn make_table(&mut self, places: u16) -> io::Result<()> {
        self.driver.make_table(places)
    }

    /// Up to 1 MiB of zeroes that nobody writes. None: more was asked for.
    pub fn zeroes(&self, bytes: usize) -> Option<Lent> {
        (bytes <= ZEROES_BYTES).then(|| self.zeroes.lend(0, bytes))
    }

    /// The way to this shard from any thread.
    pub fn remote(&self) -> Remote {
        self.mailbox.remote()
    }

    /// Ends [`Shard::run`] after this turn.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Turns until stopped, by [`Shard::stop`] or [`Remote::stop`]; what is in flight then stays
    /// so.
    pub fn run(&mut self) {
        while !mem::take(&mut self.stopping) {
            self.turn(Wait::Forever);
        }
    }

    /// One turn: begins everything asked for, waits when nothing has happened, then tells what has.
    /// It returns as soon as something was told, so a caller may look for what it is waiting for
    /// after every turn.
    pub fn turn(&mut self, wait: Wait) {
        let until = self.how_long(wait);
        self.now = self
            .driver
            .turn(&mut self.submissions, &mut self.endings, until);
        self.deliver_endings();
        self.deliver_answers();
        self.expire_timers();
        self.read_mailbox();
        self.flush_tasks();
    }

    fn deliver_endings(&mut self) {
        let mut endings = mem::take(&mut self.endings);
        for (token, completion) in endings.drain(..) {
            self.deliver(token, completion);
        }
        self.endings = endings; // its memory is used again
    }

    /// Answers may cause answers: a bounded number of them in one turn.
    fn deliver_answers(&mut self) {
        for _ in 0..ANSWERS_PER_TURN {
            let Some((token, completion)) = self.answers.pop_front() else {
                return;
            };
            self.deliver(token, completion);
        }
    }

    fn deliver(&mut self, token: Token, completion: Completion) {
        self.turns.ended(token.task, self.now);
        if let Some(task) = self.task(token.task) {
            task.borrow_mut().completed(self, token.slot, completion);
        }
    }

    fn expire_timers(&mut self) {
        let mark = self.timers.mark();
        while let Some(token) = self.timers.expire(self.now, mark) {
            if let Some(task) = self.task(token.task) {
                task.borrow_mut().expired(self, token.slot);
            }
        }
    }

    fn read_mailbox(&mut self) {
        if !self.mailbox.bell().answer() {
            return;
        }
        self.stopping |= self.mailbox.bell().take_stop();
        for _ in 0..MESSAGES_PER_TURN {
            match self.mailbox.take() {
                Some(Message::Run(f)) => f(self),
                Some(Message::Send(id, message)) => {
                    if let Some(task) = self.task(id) {
                        task.borrow_mut().message(self, message);
                    }
                }
                None => return,
            }
        }
        self.mailbox.bell().keep_ringing();
    }

    /// Whoever asks again while flushing is flushed in the next turn.
    fn flush_tasks(&mut self) {
        let asked = self.flushes.len();
        for index in 0..asked {
            let id = self.flushes[index];
            self.tasks.begin_flush(id);
            if let Some(task) = self.task(id) {
                task.borrow_mut().flush(self);
            }
        }
        self.flushes.drain(..asked);
    }

    fn how_long(&self, wait: Wait) -> Until {
        if self.stopping || !self.answers.is_empty() || !self.flushes.is_empty() {
            return Until::Now;
        }
        let asked = match wait {
            Wait::Never => Until::Now,
            Wait::AtMost(length) => Until::At(self.driver.now() + length),
            Wait::Forever => Until::Forever,
        };
        asked.or_before(self.timers.next())
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Shard({}, {:?}, {} operations in flight)",
            self.id,
            self.engine,
            self.operations_in_flight()
        )
    }
}

/// Where the mistake was made is where it should be seen, not in the driver a turn later.
fn check(op: &Op) {
    match op {
        Op::Receive {
            buf, start, bytes, ..
        }
        | Op::Read {
            buf, start, bytes, ..
        }
        | Op::TakeMessage {
            buf, start, bytes, ..
        } => {
            assert!(buf.is_unique(), "a Buf to be filled is shared: {buf:?}");
            check_range(buf, *start, *bytes);
        }
        Op::Write {
            buf, start, bytes, ..
        } => check_range(buf, *start, *bytes),
        _ => {}
    }
}

fn check_range(buf: &Buf, start: usize, bytes: usize) {
    let inside = start.checked_add(bytes).is_some_and(|end| end <= buf.len());
    assert!(inside, "{bytes} bytes from {start} of {buf:?}");
}

/// Bounds one turn's work, so that sockets and timers are looked at in between.
const ANSWERS_PER_TURN: usize = 4096;
const MESSAGES_PER_TURN: usize = 64;
