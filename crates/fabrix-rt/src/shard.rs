//! A shard: the loop of one thread, with its tasks, its memory, and one call of the driver per
//! turn.
//!
//! What a shard promises its tasks:
//!
//! - The methods of a task are never entered twice at once.
//! - Every operation has exactly one completion.
//! - A removed task hears nothing.
//!
//! Only the driver waits.

mod commons;
mod ending;
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
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use self::commons::Commons;
use self::ending::Ending;
pub use self::mailbox::{Full, Remote};
use self::mailbox::{Mailbox, Message};
pub(crate) use self::start::system;
pub use self::start::{ShardConfig, StartError};
use self::tasks::Tasks;
use self::turns::Turns;
use crate::bell::Bell;
use crate::buf::Arena;
use crate::driver::{Completed, Driver, Submission, Until};
use crate::loan::{self, LocalRegion, ZEROES_BYTES};
use crate::slab::{MemoryListener, Slabs};
use crate::timer::Timers;
use crate::{
    Buf, Completion, Engine, Lent, Listener, Nanos, Op, Poller, Refused, Region, Socket, TaskId,
    TimerId, Token,
};

/// An object that lives on a shard: a connection, a listener, a job.
///
/// Only the loop of the shard calls these methods, so a task may call every method of the shard in
/// them, even to remove itself. It must not keep its own `RefCell` borrowed outside of them.
pub trait Task {
    /// An operation, or a request at a disk, has ended.
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion);

    /// A timer has expired.
    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        let _ = (shard, slot);
    }

    /// A turn ends in which the task has called [`Shard::flush_later`].
    fn flush(&mut self, shard: &mut Shard) {
        let _ = shard;
    }

    /// The loop ends soon. A task that has to tell its peer does so now, and calls
    /// [`Shard::stop_after`].
    fn stopping(&mut self, shard: &mut Shard) {
        let _ = shard;
    }

    /// Another thread has sent a message.
    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        let _ = (shard, message);
    }
}

/// Longest wait of a turn without work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// No wait.
    Never,
    /// A limited wait.
    AtMost(Duration),
    /// A wait without limit.
    Forever,
}

/// Loop, tasks and memory of one thread. A shard stays on the thread that made it.
pub struct Shard {
    driver: Box<dyn Driver>,
    submissions: Vec<Submission>,
    endings: Vec<Completed>,
    answers: VecDeque<Completed>,
    timers: Timers,
    mailbox: Mailbox,
    tasks: Tasks,
    flushes: Vec<TaskId>,
    turns: Turns,
    arena: Rc<Arena>,
    slabs: Rc<Slabs>,
    zeroes: LocalRegion,
    commons: Commons,
    now: Nanos,
    id: usize,
    engine: Engine,
    refused: Option<Refused>,
    exchanges: bool,
    ending: Ending,
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
            commons: Commons::default(),
            id: config.id,
            engine,
            refused,
            exchanges: config.exchanges && engine != Engine::Epoll,
            ending: Ending::default(),
        })
    }

    /// Number of the shard.
    pub fn id(&self) -> usize {
        self.id
    }

    /// The engine in use; `Auto` for a driver of the caller.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Reason why io_uring cannot be used, if the config allowed it.
    pub fn refused(&self) -> Option<&Refused> {
        self.refused.as_ref()
    }

    /// Whether this shard carries out [`Op::Exchange`].
    pub fn takes_exchanges(&self) -> bool {
        self.exchanges
    }

    /// Time at the start of this turn.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Adds a task.
    pub fn add(&mut self, task: Rc<RefCell<dyn Task>>) -> TaskId {
        let id = self.reserve();
        self.install(id, task);
        id
    }

    /// Reserves an id, for a task that needs its id before it is made. Completions are dropped
    /// until the task is installed.
    pub fn reserve(&mut self) -> TaskId {
        self.tasks.reserve()
    }

    /// Adds the task for a reserved id. Panics for any other id.
    pub fn install(&mut self, id: TaskId, task: Rc<RefCell<dyn Task>>) {
        self.tasks.install(id, task);
    }

    /// Removes a task. Its operations that wait for a peer are cancelled, the others end by
    /// themselves. All their completions are dropped, and the buffers are freed. Its timers expire
    /// without effect. An id without a task is ignored.
    pub fn remove(&mut self, id: TaskId) {
        self.submissions
            .retain(|(token, op)| token.task != id || !op.waits_for_a_peer());
        self.driver.forget(id);
        drop(self.tasks.remove(id));
        self.ending.is_removed(id);
    }

    /// The task of an id.
    pub fn task(&self, id: TaskId) -> Option<Rc<RefCell<dyn Task>>> {
        self.tasks.get(id).map(Rc::clone)
    }

    /// Begins an operation. All operations of a turn are submitted together, in one system call.
    /// Panics for a range outside its buffer, and for a shared buffer that is to be filled.
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

    /// An unconnected socket for [`Op::Connect`] to `to`. `from`: address of this end, None if the
    /// system chooses.
    ///
    /// Errors: see [`net::stream`](crate::net::stream) and
    /// [`net::stream_from`](crate::net::stream_from).
    pub fn stream(&mut self, to: &SocketAddr, from: Option<IpAddr>) -> io::Result<Socket> {
        self.driver.stream(to, from)
    }

    /// A listening socket.
    ///
    /// Errors: see [`net::listen`](crate::net::listen).
    pub fn listen(&mut self, address: SocketAddr) -> io::Result<Listener> {
        self.driver.listen(address)
    }

    /// Adds a poller for a task: [`Task::completed`] is called with the slot of the token and
    /// result 0 in every turn that finds the poller ready. The poller ends with its task. A
    /// negative errno as the result ends it earlier: its descriptor cannot be waited for.
    ///
    /// Errors: `Unsupported` for a driver without pollers.
    pub fn add_poller(&mut self, token: Token, poller: Rc<dyn Poller>) -> io::Result<()> {
        self.driver.add_poller(token, poller)
    }

    /// Delivers the completion of a request at a disk, in this turn, but not within this call.
    #[inline]
    pub fn complete(&mut self, token: Token, completion: Completion) {
        self.answers.push_back((token, completion));
    }

    /// Asks for one call of the task's [`Task::flush`] at the end of this turn.
    #[inline]
    pub fn flush_later(&mut self, id: TaskId) {
        if self.tasks.ask_flush(id) {
            self.flushes.push(id);
        }
    }

    /// Sets a timer. It never expires early.
    pub fn set_timer(&mut self, token: Token, at: Nanos) -> TimerId {
        self.timers.set(token, at)
    }

    /// Cancels a timer. An expired or cancelled timer is ignored.
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

    /// Operations in progress.
    pub fn operations_in_flight(&self) -> usize {
        self.driver.in_flight() + self.submissions.len()
    }

    /// Makes the table for registered buffers ([`Registered`](crate::Registered)), once. Drivers of
    /// the kernel fill it.
    ///
    /// Errors: `Unsupported` without io_uring, `ResourceBusy` if the table exists, and what the
    /// kernel says.
    pub fn make_table(&mut self, places: u16) -> io::Result<()> {
        self.driver.make_table(places)
    }

    /// At most 1 MiB of zeroes that nobody writes. None: `bytes` is more.
    pub fn zeroes(&self, bytes: usize) -> Option<Lent> {
        (bytes <= ZEROES_BYTES).then(|| self.zeroes.lend(0, bytes))
    }

    /// A sender of messages to this shard, for any thread.
    pub fn remote(&self) -> Remote {
        self.mailbox.remote()
    }

    /// When the next turn is due if no operation ends before, for a simulator that chooses which
    /// shard turns.
    pub fn due(&self) -> Until {
        if !self.submissions.is_empty() || self.mailbox.bell().is_rung() {
            return Until::Now;
        }
        self.how_long(Wait::Forever)
    }

    /// One turn: begins all operations, waits if none has ended, and delivers completions, expired
    /// timers and messages. It returns after the first that it delivers, so a caller can check its
    /// condition after every turn.
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
        self.endings = endings; // keeps its memory
    }

    /// Delivers a bounded number of completions of disks, because each may cause another one.
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
        if self.mailbox.bell().take_stop() {
            self.stop();
        }
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

    /// A task that asks again during its flush is flushed in the next turn.
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
        if self.ending.is_asked_for() || !self.answers.is_empty() || !self.flushes.is_empty() {
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

/// Panics for a wrong range or a shared buffer here, where the caller is on the stack, and not in
/// the driver a turn later.
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

/// Bounds of one turn, so that sockets and timers are served in between.
const ANSWERS_PER_TURN: usize = 4096;
const MESSAGES_PER_TURN: usize = 64;
