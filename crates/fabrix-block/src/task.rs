//! Channels whose requests a task of the shard executes. The task stays on the shard until the
//! channel is dropped and its last request has ended. No answer is lost, and a dropped channel
//! leaves no request half done.

use std::any::Any;
use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use fabrix_rt::{Completion, Loan, Remote, Shard, Task, TaskId, Token};

use crate::{Channel, Request, Status, Submit};

/// Executes the requests of one channel.
pub trait ChannelTask: 'static {
    /// See [`Channel::submit`].
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a>;

    /// See [`Task::completed`].
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion);

    /// See [`Task::expired`].
    fn expired(&mut self, _shard: &mut Shard, _slot: u32) {}

    /// See [`Task::flush`].
    fn flush(&mut self, _shard: &mut Shard) {}

    /// A message has arrived. Only a task that hands out its address gets messages.
    fn woken(&mut self, _shard: &mut Shard) {}

    /// The channel was dropped.
    fn channel_dropped(&mut self) {}

    /// Whether no request is in progress.
    fn is_idle(&self) -> bool;
}

/// A channel's handle to its task. Dropping it tells the task that no more requests follow.
pub struct TaskHandle<T: ChannelTask> {
    task: Rc<RefCell<Running<T>>>,
    remote: Remote,
}

/// A task on a shard. It removes itself when the channel is gone and no request is in progress.
struct Running<T> {
    task: T,
    id: TaskId,
    closing: bool,
}

/// Message to a task whose channel was dropped.
struct Closing;

impl<T: ChannelTask> TaskHandle<T> {
    /// Creates a task that knows its own id, and adds it to the shard.
    pub fn new(shard: &mut Shard, make: impl FnOnce(TaskId) -> T) -> Self {
        let id = shard.reserve();
        let (task, closing) = (make(id), false);
        let task = Rc::new(RefCell::new(Running { task, id, closing }));
        shard.install(id, Rc::clone(&task) as Rc<RefCell<dyn Task>>);
        let remote = shard.remote();
        Self { task, remote }
    }

    /// Borrows the task. The borrow never conflicts: a front end submits outside of the task, and
    /// completions are delivered between turns.
    #[inline(always)]
    pub fn task(&self) -> RefMut<'_, T> {
        RefMut::map(self.task.borrow_mut(), |running| &mut running.task)
    }
}

impl<T: ChannelTask> Channel for TaskHandle<T> {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        self.task().submit(shard, request)
    }
}

/// If the shard's mailbox is full the message is lost. The idle task then stays until the shard
/// ends.
impl<T: ChannelTask> Drop for TaskHandle<T> {
    fn drop(&mut self) {
        let mut running = self.task.borrow_mut();
        running.task.channel_dropped();
        let _ = self.remote.send(running.id, Box::new(Closing));
    }
}

impl<T: ChannelTask> Running<T> {
    #[inline(always)]
    fn remove_if_idle(&self, shard: &mut Shard) {
        if self.closing && self.task.is_idle() {
            shard.remove(self.id);
        }
    }
}

impl<T: ChannelTask> Task for Running<T> {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        self.task.completed(shard, slot, completion);
        self.remove_if_idle(shard);
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        self.task.expired(shard, slot);
        self.remove_if_idle(shard);
    }

    fn flush(&mut self, shard: &mut Shard) {
        self.task.flush(shard);
        self.remove_if_idle(shard);
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        match message.is::<Closing>() {
            true => self.closing = true,
            false => self.task.woken(shard),
        }
        self.remove_if_idle(shard);
    }
}

/// The token of a task's slot.
pub const fn token(task: TaskId, slot: u32) -> Token {
    Token { task, slot }
}

/// Completes a pending request.
#[inline(always)]
pub fn complete(shard: &mut Shard, caller: Token, status: Status, loan: Loan) {
    let result = status.to_result();
    shard.complete(caller, Completion { result, loan });
}

/// Submits a request whose completion goes to `token`. A busy disk hands the request back with the
/// caller's token.
#[inline(always)]
pub fn submit_as<'a>(
    channel: &mut Box<dyn Channel>,
    shard: &mut Shard,
    request: Request<'a>,
    token: Token,
) -> Submit<'a> {
    let caller = request.token;
    match channel.submit(shard, request.with_token(token)) {
        Submit::Busy(request) => Submit::Busy(request.with_token(caller)),
        answer => answer,
    }
}
