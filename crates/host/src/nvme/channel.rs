//! A remote namespace as a disk, and its channels.
//!
//! Knows what the namespace promised when it was first seen. Each channel has a controller of its own, so shards share
//! nothing; see `docs/design/host.md`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use fabrix_block::{Channel, Device, Geometry, Identity, OpenError, Request, Submit};
use fabrix_proto::nvme::bringup::{Facts, Found, Purpose};
use fabrix_proto::nvme::timing::TimingPage;
use fabrix_rt::{Remote, Shard, TaskId};

use super::seen::Seen;
use super::session::{Forsaken, Plan, Session};
use crate::{Address, ConnectError};

/// A disk that another machine exports over NVMe/TCP.
pub struct RemoteDisk {
    plan: Plan,
    seen: Arc<Seen>,
    identity: Identity,
}

impl RemoteDisk {
    /// The disk that `facts` were learned about by following `plan`.
    pub(crate) fn new(plan: Plan, facts: &Facts, asked: &Address) -> Result<Self, ConnectError> {
        let seen = Arc::new(Seen::new(&plan.options, facts)?);
        let name = Address {
            subsystem: Some(plan.subsystem.as_str().to_owned()),
            nsid: Some(seen.nsid),
            ..asked.clone()
        };
        let identity = seen.identity(&name.to_string(), &plan.subsystem, facts);
        let purpose = Purpose::Io {
            nsid: Some(seen.nsid),
            queues: plan.options.nr_io_queues,
        };
        let plan = Plan {
            purpose,
            expected: Some(Arc::clone(&seen)),
            ..plan
        };
        Ok(Self {
            plan,
            seen,
            identity,
        })
    }
}

impl RemoteDisk {
    /// Has the target time its commands for so many seconds (zero: not any more), and reads what it has added up.
    /// `None`: it is not one that does so, and nothing was changed there.
    ///
    /// # Errors
    /// It cannot be reached, or does not let us in.
    pub fn time_commands(&self, seconds: u32) -> Result<Option<TimingPage>, ConnectError> {
        let plan = Plan {
            purpose: Purpose::Timing { seconds },
            expected: None,
            ..self.plan.clone()
        };
        match plan.probe(plan.address)?.found {
            Found::Timing(page) => Ok(page),
            Found::Io { .. } | Found::Queue { .. } | Found::Discovery(_) => Ok(None),
        }
    }
}

impl Device for RemoteDisk {
    fn geometry(&self) -> &Geometry {
        &self.seen.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Begins to connect and does not wait for it: requests that come before the connection wait in the channel.
    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let task = shard.reserve();
        let session = Rc::new(RefCell::new(Session::new(shard, task, self.plan.clone())));
        shard.install(task, Rc::clone(&session) as Rc<RefCell<_>>);
        session.borrow_mut().rise(shard);
        let remote = shard.remote();
        Ok(Box::new(RemoteChannel {
            session,
            task,
            remote,
        }))
    }

    fn compares_and_writes(&self) -> bool {
        self.seen.compares_and_writes
    }
}

struct RemoteChannel {
    session: Rc<RefCell<Session>>,
    task: TaskId,
    remote: Remote,
}

impl Channel for RemoteChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        // Free: endings are delivered by the shard's loop, never from within the session.
        self.session.borrow_mut().submit(shard, request)
    }
}

impl Drop for RemoteChannel {
    fn drop(&mut self) {
        let told = self.remote.send(self.task, Box::new(Forsaken));
        // A full mailbox does not keep the session: the endings of its sockets, or its next try, tell it.
        if told.is_err()
            && let Ok(mut session) = self.session.try_borrow_mut()
        {
            session.forsake();
        }
    }
}
