//! A target's part on one shard: its channels to the disks and the connections it keeps.
//!
//! Knows which connections live here and hands them messages; does not know what they speak.

use std::any::Any;
use std::cell::RefCell;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;

use fabrix_rt::{Completion, Remote, Shard, Task, TaskId};

use crate::counters::Counters;
use crate::export::Channels;
use crate::{Shared, nvme};

/// What connections of one shard use together.
pub(crate) struct Local {
    pub(crate) shared: Arc<Shared>,
    pub(crate) channels: Channels,
    /// This shard, as others reach it.
    pub(crate) remote: Remote,
    /// Which of the target's shards this is.
    index: usize,
    connections: RefCell<Vec<TaskId>>,
}

impl Local {
    /// What this shard counts.
    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.counters[self.index]
    }

    /// A connection lives here from now on. Its port has counted it.
    pub(crate) fn joined(&self, task: TaskId) {
        self.connections.borrow_mut().push(task);
    }

    /// A connection has ended.
    pub(crate) fn left(&self, task: TaskId) {
        let mut connections = self.connections.borrow_mut();
        if let Some(at) = connections.iter().position(|id| *id == task) {
            connections.swap_remove(at);
            self.shared.disconnected();
        }
    }
}

/// Told to a shard's part of the target.
pub(crate) enum Order {
    /// Keep this connection.
    Adopt(TcpStream),
    /// Finish what has begun, then close every connection.
    Drain,
}

/// The task that takes orders from other shards.
pub(crate) struct Steward {
    local: Rc<Local>,
}

impl Steward {
    /// Sets up the target's part on `shard`.
    pub(crate) fn install(shard: &mut Shard, index: usize, shared: Arc<Shared>) -> TaskId {
        let channels = Channels::new(Arc::clone(&shared.exports));
        let local = Local {
            channels,
            remote: shard.remote(),
            index,
            connections: RefCell::new(Vec::new()),
            shared,
        };
        shard.add(Rc::new(RefCell::new(Self {
            local: Rc::new(local),
        })))
    }

    fn drain(&self, shard: &mut Shard) {
        let connections = self.local.connections.borrow().clone();
        for id in connections {
            if let Some(task) = shard.task(id) {
                task.borrow_mut()
                    .message(shard, Box::new(nvme::Told::Drain));
            }
        }
    }
}

impl Task for Steward {
    fn completed(&mut self, _shard: &mut Shard, _slot: u32, _completion: Completion) {
        unreachable!("a steward starts no operations");
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        match message.downcast::<Order>().map(|order| *order) {
            // It was on its way when the draining began.
            Ok(Order::Adopt(_)) if self.local.shared.is_draining() => {
                self.local.shared.disconnected()
            }
            Ok(Order::Adopt(stream)) => nvme::Connection::adopt(shard, stream, &self.local),
            Ok(Order::Drain) => self.drain(shard),
            Err(_) => debug_assert!(false, "a steward takes orders only"),
        }
    }
}
