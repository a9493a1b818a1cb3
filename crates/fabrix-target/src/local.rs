//! A target's part on one shard: its channels to the disks and the connections it keeps.
//!
//! Knows which connections live here; does not know what they speak, nor who makes them.
//!
//! What is exported changes in two steps, because a controller's queues live on several shards.
//! First every shard serves the new snapshot: channels, and the views of I/O queues. Only when all
//! have said so are the admin queues told and with them their hosts, so that no host hears of a
//! namespace which one of its I/O queues does not know yet. A connection that says who it is
//! meanwhile misses nothing: it takes its view from this shard's own snapshot, and what happens on
//! a shard happens in turn. It comes either before the config task changed that snapshot, and then
//! is among the connections which the config task tells, or after, and then finds the new one.

use std::cell::{Ref, RefCell};
use std::sync::Arc;

use fabrix_block::Failed;
use fabrix_proto::Slot;
use fabrix_proto::iscsi::auth::Challenges;
use fabrix_proto::iscsi::login::Auth;
use fabrix_rt::{Remote, Shard, TaskId};

use crate::catalog::Snapshot;
use crate::channels::{Channels, SharedChannel, Unreached};
use crate::counters::Counters;
use crate::disk::{Barrier, DiskId, DiskState};
use crate::registry::ConnectionAddress;
use crate::requests::Requests;
use crate::shared::Shared;
use crate::{Chap, Notice};

/// What connections of one shard use together.
pub(crate) struct Local {
    pub(crate) shared: Arc<Shared>,
    pub(crate) channels: Channels,
    counters: Arc<Counters>,
    /// This shard, as others reach it.
    remote: Remote,
    /// Which of the target's shards this is.
    index: usize,
    pub(crate) connections: RefCell<Vec<TaskId>>,
    /// What I/O queues see, and the channels serve.
    served: RefCell<Arc<Snapshot>>,
    /// What admin queues see, and hosts have been told.
    announced: RefCell<Arc<Snapshot>>,
    /// Of the logins that came here.
    challenges: RefCell<Challenges>,
}

impl Local {
    /// The part of `shard`, which is the target's shard number `index`.
    pub(crate) fn new(shard: &Shard, index: usize, shared: Arc<Shared>) -> Self {
        let current = shared.catalog.current();
        Self {
            channels: Channels::new(&current.disks),
            remote: shard.remote(),
            index,
            counters: Arc::clone(&shared.counters[index]),
            connections: RefCell::new(Vec::new()),
            served: RefCell::new(Arc::clone(&current)),
            announced: RefCell::new(current),
            challenges: RefCell::default(),
            shared,
        }
    }

    /// What this shard counts.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What I/O queues and sessions of this shard see.
    pub(crate) fn served(&self) -> Arc<Snapshot> {
        Arc::clone(&self.served.borrow())
    }

    /// What admin queues of this shard see.
    pub(crate) fn announced(&self) -> Arc<Snapshot> {
        Arc::clone(&self.announced.borrow())
    }

    /// What an initiator must prove that logs in now where `chap` is asked for.
    ///
    /// # Errors
    /// A sentence: no challenge can be made.
    pub(crate) fn demand(&self, chap: Option<&Chap>) -> Result<Auth, String> {
        chap.map_or(Ok(Auth::None), |chap| {
            chap.demand(&mut self.challenges.borrow_mut())
        })
    }

    /// Where others reach a connection of this shard.
    pub(crate) fn place(&self, task: TaskId) -> ConnectionAddress {
        ConnectionAddress {
            shard: self.remote.clone(),
            index: self.index,
            task,
        }
    }

    /// This shard's channel to a disk, for a request that wants `extent` of it: first block, and
    /// how many. A flush wants none.
    ///
    /// A command was checked when it came, and its disk may have changed since: it may be gone, its
    /// id may be another disk's, and it may have become smaller. Every request of every command
    /// passes here, so here that is seen.
    ///
    /// # Errors
    /// The request must not, or cannot, reach that disk. An operator is told of a disk that does
    /// not open.
    #[inline(always)]
    pub(crate) fn reach(
        &self,
        shard: &mut Shard,
        disk: DiskId,
        extent: Option<(u64, u32)>,
    ) -> Result<Ref<'_, SharedChannel>, Unreached> {
        if let Some(channel) = self.channels.ready(disk, extent)? {
            return Ok(channel);
        }
        self.open(shard, disk)?;
        self.channels
            .ready(disk, extent)?
            .ok_or(Unreached::NotReady)
    }

    /// The first request for a disk on this shard.
    #[cold]
    fn open(&self, shard: &mut Shard, disk: DiskId) -> Result<(), Unreached> {
        let index = self.channels.find(disk).ok_or(Unreached::Gone)?;
        self.channels.open(shard, index).map_err(|error| {
            self.tell_of_disk(disk, error.to_string());
            Unreached::NotReady
        })
    }

    fn tell_of_disk(&self, disk: DiskId, why: String) {
        if let Some((nsid, _)) = self.channels.name(disk) {
            self.shared.notice(&Notice::Disk { nsid, why });
        }
    }

    /// The disk has not ended the request of a slot in time. The slot is free for another command;
    /// `disk` is where the request is, if it is still exported.
    pub(crate) fn abandon(
        &self,
        requests: &mut Requests,
        slot: Slot,
        disk: Option<&Arc<DiskState>>,
    ) {
        let barrier = disk.map(|state| {
            let barrier = Barrier::before(state);
            if barrier.is_news() {
                self.tell_of_disk(state.id(), DOES_NOT_ANSWER.to_owned());
            }
            barrier
        });
        requests.abandon(slot, barrier);
    }

    /// A disk has failed a request: the operator is told, unless the request was at fault.
    #[cold]
    pub(crate) fn disk_failed(&self, disk: DiskId, failed: Failed) {
        if failed.status.is_the_disks()
            && let Some((nsid, disk)) = self.channels.name(disk)
        {
            let notice = Notice::DiskFailed { nsid, disk, failed };
            self.shared.notice(&notice);
        }
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

    /// Serves what is exported now; false if it does so already.
    pub(crate) fn serve(&self) -> bool {
        let current = self.shared.catalog.current();
        if current.version == self.served.borrow().version {
            return false;
        }
        self.channels.serve(&current.disks);
        self.served.replace(current);
        true
    }

    /// Announces what is served; false if that was done already.
    pub(crate) fn announce(&self) -> bool {
        let served = Arc::clone(&self.served.borrow());
        let earlier = self.announced.replace(Arc::clone(&served));
        served.version != earlier.version
    }
}

/// What an operator is told of a disk when the first of its requests is abandoned.
const DOES_NOT_ANSWER: &str = "the disk does not answer: an aborted command still waits for it. New commands wait \
                               until the disk has ended the old one; if this lasts, look at the disk";
