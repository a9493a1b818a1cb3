//! What every channel with a task of its own shares: the task stays in the shard as long as the
//! channel lives and then until its last request has ended, so that an answer is never lost and a
//! disk is never left half written by a dropped channel.

use std::cell::RefCell;
use std::rc::Rc;

use fabrix_rt::{Remote, Shard, Task, TaskId};

/// A channel's hold on its task. Dropping it tells the task that nothing more will be asked.
pub(crate) struct Hold<T> {
    task: Rc<RefCell<T>>,
    id: TaskId,
    remote: Remote,
}

/// The message a task gets when its channel is dropped. It removes itself when nothing is in
/// progress.
pub(crate) struct Closing;

impl<T: Task + 'static> Hold<T> {
    /// Makes a task that knows its own id, and adds it to the shard.
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

    /// The task. It is borrowed by nobody while a front end submits: endings are delivered between
    /// turns.
    pub(crate) fn task(&self) -> std::cell::RefMut<'_, T> {
        self.task.borrow_mut()
    }
}

/// A shard whose mailbox is full forgets the message: the idle task then stays until the shard
/// ends.
impl<T> Drop for Hold<T> {
    fn drop(&mut self) {
        let _ = self.remote.send(self.id, Box::new(Closing));
    }
}
