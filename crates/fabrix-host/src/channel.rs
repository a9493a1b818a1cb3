//! A channel of a remote disk, whatever is spoken to its target: the way from the disk's user to a
//! session.

use std::cell::RefCell;
use std::rc::Rc;

use fabrix_block::{Channel, Request, Submit};
use fabrix_rt::{Remote, Shard, Task, TaskId};

use crate::probe;

/// A session that carries requests.
pub(crate) trait Carrier: Task {
    /// Takes a request of the disk's user.
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a>;

    /// Its channel is gone, and the shard could not be told: the endings of its sockets will.
    fn forsake(&mut self);
}

/// The message of a channel that is gone.
pub(crate) struct Forsaken;

struct RemoteChannel<S: Carrier> {
    session: Rc<RefCell<S>>,
    task: TaskId,
    remote: Remote,
}

/// Opens a channel with a session of its own, which begins to connect.
pub(crate) fn open<S: Carrier + probe::Session + 'static>(
    shard: &mut Shard,
    make: impl FnOnce(TaskId) -> S,
) -> Box<dyn Channel> {
    let task = shard.reserve();
    let session = Rc::new(RefCell::new(make(task)));
    shard.install(task, Rc::clone(&session) as Rc<RefCell<_>>);
    session.borrow_mut().rise(shard);
    let remote = shard.remote();
    Box::new(RemoteChannel {
        session,
        task,
        remote,
    })
}

impl<S: Carrier> Channel for RemoteChannel<S> {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        // Free: endings are delivered by the shard's loop, never from within the session.
        self.session.borrow_mut().submit(shard, request)
    }
}

impl<S: Carrier> Drop for RemoteChannel<S> {
    fn drop(&mut self) {
        let told = self.remote.send(self.task, Box::new(Forsaken));
        // A full mailbox does not keep the session: the endings of its sockets, or its next try,
        // tell it.
        if told.is_err()
            && let Ok(mut session) = self.session.try_borrow_mut()
        {
            session.forsake();
        }
    }
}
