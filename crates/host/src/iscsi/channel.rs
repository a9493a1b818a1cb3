//! A remote logical unit as a disk, and its channels.
//!
//! Knows what the disk promised when it was first seen. Each channel has a session of its own, so shards share nothing;
//! see `docs/design/host.md`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use fabrix_block::{
    Channel, Device, Geometry, Identity, OpenError, OpenErrorKind, Request, Submit,
};
use fabrix_proto::scsi::bringup::UnitFacts;
use fabrix_rt::{Remote, Shard, TaskId};

use super::Address;
use super::seen::Seen;
use super::session::{Forsaken, Found, Plan, Session};
use crate::nvme::sized_elsewhere;
use crate::{ConnectError, ConnectErrorKind};

/// A disk that another machine exports over iSCSI.
pub struct RemoteUnit {
    plan: Plan,
    seen: Arc<Seen>,
    identity: Identity,
    /// Each session has an ISID of its own, those of the disk in another size included.
    sessions: Arc<AtomicU16>,
}

impl RemoteUnit {
    /// The disk that `facts` were learned about by following `plan`.
    pub(super) fn new(
        plan: &Plan,
        facts: &UnitFacts,
        asked: &Address,
    ) -> Result<Self, ConnectError> {
        let seen = Arc::new(Seen::new(facts)?);
        let name = Address {
            lun: Some(facts.lun),
            ..asked.clone()
        };
        let place = format!("{}/{}", asked.target.as_deref().unwrap_or(""), facts.lun);
        let identity = seen.identity(&name.to_string(), &place);
        let plan = plan.expecting(&seen);
        Ok(Self {
            plan,
            seen,
            identity,
            sessions: Arc::new(AtomicU16::new(1)),
        })
    }
}

impl Device for RemoteUnit {
    fn geometry(&self) -> &Geometry {
        &self.seen.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Begins to connect and does not wait for it: requests that come before the connection wait in the channel.
    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let task = shard.reserve();
        let number = self.sessions.fetch_add(1, Ordering::Relaxed);
        let plan = self.plan.session(number);
        let session = Rc::new(RefCell::new(Session::new(shard, task, plan)));
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
        self.seen.compare_and_write_blocks > 0
    }

    /// Asks the target again, and waits for the answer.
    fn remeasure(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        let cannot = |error: ConnectError| {
            let sentence = format!("{}: {error}", self.identity.name);
            OpenError::new(OpenErrorKind::Unreachable, sentence)
        };
        if bytes.is_some() {
            return Err(sized_elsewhere(&self.identity));
        }
        let number = self.sessions.fetch_add(1, Ordering::Relaxed);
        let found = self.plan.session(number).ask().map_err(cannot)?;
        let Found::Unit(facts) = found else {
            let sentence = "the target has no disk there any more";
            let gone = ConnectError::new(ConnectErrorKind::Refused, sentence);
            return Err(cannot(gone));
        };
        let seen = Arc::new(self.seen.again(&facts).map_err(cannot)?);
        Ok(Arc::new(Self {
            plan: self.plan.expecting(&seen),
            seen,
            identity: self.identity.clone(),
            sessions: Arc::clone(&self.sessions),
        }))
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
