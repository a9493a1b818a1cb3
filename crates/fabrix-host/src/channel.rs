//! Channel of a remote disk, for every protocol: the disk's user submits requests to the session
//! through it.

use std::cell::RefCell;
use std::rc::Rc;

use fabrix_block::{Channel, Request, Submit};
use fabrix_rt::{Remote, Shard, TaskId, Token};

use crate::link::Link;
use crate::multipath::link::{AssociationName, PathChannel, PathLink};
use crate::session::{ChannelClosed, Protocol, Session};

struct RemoteChannel<P: Protocol<L>, L: Link> {
    session: Rc<RefCell<Session<P, L>>>,
    task: TaskId,
    remote: Remote,
}

/// Opens a channel with a session of its own, which starts to connect. `path` makes it a path of a
/// pool.
pub(crate) fn open<P: Protocol<L>, L: Link>(
    shard: &mut Shard,
    path: Option<Rc<PathLink>>,
    make: impl FnOnce(TaskId) -> Session<P, L>,
) -> Box<dyn PathChannel> {
    let task = shard.reserve();
    let mut session = make(task);
    session.reconnection.path = path;
    let session = Rc::new(RefCell::new(session));
    shard.install(task, Rc::clone(&session) as Rc<RefCell<_>>);
    session.borrow_mut().connect(shard);
    let remote = shard.remote();
    Box::new(RemoteChannel {
        session,
        task,
        remote,
    })
}

impl<P: Protocol<L>, L: Link> Channel for RemoteChannel<P, L> {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        // Not borrowed elsewhere: the shard's loop delivers completions, the session does not.
        self.session.borrow_mut().submit(shard, request)
    }
}

impl<P: Protocol<L>, L: Link> PathChannel for RemoteChannel<P, L> {
    fn end_association(
        &mut self,
        shard: &mut Shard,
        lost: &AssociationName,
        answer: Token,
    ) -> bool {
        P::end_association(&mut self.session.borrow_mut(), shard, lost, answer)
    }
}

impl<P: Protocol<L>, L: Link> Drop for RemoteChannel<P, L> {
    fn drop(&mut self) {
        let sent = self.remote.send(self.task, Box::new(ChannelClosed));
        // With a full mailbox the session ends at its next completion or timer.
        if sent.is_err()
            && let Ok(mut session) = self.session.try_borrow_mut()
        {
            session.channel_closed();
        }
    }
}
