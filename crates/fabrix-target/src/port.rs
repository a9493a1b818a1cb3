//! A listening socket: accepts connections on one shard, and hands each to the shard that serves
//! it.
//!
//! A port knows sockets and shards, and no protocol. When file descriptors run out, the port pauses
//! for a moment.

use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::portal::canonical;
use fabrix_rt::{
    Completion, DetachedSocket, Listener, Loan, Op, Shard, Task, TaskId, Token, errno,
};

use crate::shared::{Arrival, Carrier, Done, Shared};
use crate::{Listen, Notice};

/// The accept in flight, and the pause after a failed one.
const ACCEPT: u32 = 0;
const PAUSE: u32 = 1;
/// Pause when the process has no file descriptor or no memory for another connection.
const PAUSE_MS: u64 = 100;

/// One listening socket.
pub(crate) struct Port {
    task: TaskId,
    listener: Listener,
    /// Protocol and bound address.
    at: Listen,
    /// What an accepted socket carries.
    carrier: fn(DetachedSocket) -> Carrier,
    shared: Arc<Shared>,
    pausing: bool,
}

/// An order to a port: close the listener.
pub(crate) struct Close(pub(crate) Done);

impl Port {
    /// Opens a port on this shard. Returns the port's task, and the address that the system chose.
    ///
    /// # Errors
    /// The address is in use, not ours, or needs a privilege.
    pub(crate) fn open(
        shard: &mut Shard,
        at: Listen,
        carrier: fn(DetachedSocket) -> Carrier,
        shared: Arc<Shared>,
    ) -> io::Result<(TaskId, Listen)> {
        let listener = shard.listen(at.portal.address)?;
        let bound = at.bound(listener.local_addr()?);
        let task = shard.reserve();
        let port = Self {
            task,
            listener,
            at: bound,
            carrier,
            shared,
            pausing: false,
        };
        port.accept(shard);
        shard.install(task, Rc::new(RefCell::new(port)));
        Ok((task, bound))
    }

    fn accept(&self, shard: &mut Shard) {
        shard.start(
            Token {
                task: self.task,
                slot: ACCEPT,
            },
            Op::Accept {
                listener: self.listener.clone(),
            },
        );
    }

    /// Hands a connection over if the limits allow it, or closes it.
    fn admit(&self, socket: DetachedSocket) {
        let Ok(peer) = socket.peer_addr().map(canonical) else {
            // The peer has closed it already.
            return;
        };
        if let Some((unauthenticated_peer, load)) = self.shared.admit(peer) {
            self.shared.hand_over(Arrival {
                carrier: (self.carrier)(socket),
                peer,
                listener: self.at,
                unauthenticated_peer,
                load,
            });
        }
    }

    fn pause(&mut self, shard: &mut Shard, errno: i32) {
        if !self.pausing {
            self.shared.notice(&Notice::AcceptPaused { errno });
        }
        self.pausing = true;
        let at = shard.now() + Duration::from_millis(PAUSE_MS);
        shard.set_timer(
            Token {
                task: self.task,
                slot: PAUSE,
            },
            at,
        );
    }
}

impl Task for Port {
    fn completed(&mut self, shard: &mut Shard, _slot: u32, completion: Completion) {
        if self.shared.is_draining() {
            return;
        }
        match completion.loan {
            Loan::Socket(socket) => {
                self.pausing = false;
                // The socket has no other owner, so this cannot fail.
                if let Ok(socket) = socket.detach() {
                    self.admit(socket);
                }
                self.accept(shard);
            }
            _ if completion.result == -errno::ECONNABORTED
                || completion.result == -errno::EINTR =>
            {
                self.accept(shard)
            }
            _ => self.pause(shard, -completion.result),
        }
    }

    fn expired(&mut self, shard: &mut Shard, _slot: u32) {
        self.accept(shard);
    }

    /// Closes the listener. The system refuses later connections at once, so no peer waits for an
    /// answer.
    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        let Ok(close) = message.downcast::<Close>() else {
            return debug_assert!(false, "a port takes Close only");
        };
        let Close(done) = *close;
        self.listener.shutdown();
        shard.remove(self.task);
        drop(done);
    }
}
