//! The lifetime of a channel's task. The task stays on the shard until the channel is dropped and
//! its last request has ended. No answer is lost, and a dropped channel leaves no request half
//! done.

use std::cell::RefCell;
use std::rc::Rc;

use fabrix_rt::{Remote, Shard, Task, TaskId};

/// A channel's handle to its task. Dropping it tells the task that no more requests follow.
pub(crate) struct TaskHandle<T> {
    task: Rc<RefCell<T>>,
    id: TaskId,
    remote: Remote,
}

/// Message to a task whose channel was dropped. The task removes itself when it has no requests in
/// progress.
pub(crate) struct Closing;

impl<T: Task + 'static> TaskHandle<T> {
    /// Creates a task that knows its own id, and adds it to the shard.
    pub(crate) fn new(shard: &mut Shard, make: impl FnOnce(TaskId) -> T) -> Self {
        let id = shard.reserve();
        let task = Rc::new(RefCell::new(make(id)));
        shard.install(id, Rc::clone(&task) as Rc<RefCell<dyn Task>>);
        Self {
            task,
            id,
            remote: shard.remote(),
        }
    }

    /// Borrows the task. The borrow never conflicts: a front end submits outside of the task, and
    /// completions are delivered between turns.
    pub(crate) fn task(&self) -> std::cell::RefMut<'_, T> {
        self.task.borrow_mut()
    }
}

/// If the shard's mailbox is full the message is lost. The idle task then stays until the shard
/// ends.
impl<T> Drop for TaskHandle<T> {
    fn drop(&mut self) {
        let _ = self.remote.send(self.id, Box::new(Closing));
    }
}
