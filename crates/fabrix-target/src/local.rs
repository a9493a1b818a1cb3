//! A target's part on one shard: its channels to the disks, and its connections. It knows neither
//! the protocols of the connections nor how they are made.
//!
//! A change of the exports takes two steps, because a controller's queues are on several shards.
//!
//! - Every shard serves the new snapshot: its channels, and the views of its I/O queues.
//! - When all shards have done so, the admin queues report the change to their hosts. So no host
//!   learns of a namespace that one of its I/O queues does not know yet.
//!
//! A connection that authenticates meanwhile misses no change, because a shard handles one event
//! after the other. Either the connection comes before the config task changes the shard's
//! snapshot, and then gets the order of the config task, or it comes later, and finds the new
//! snapshot.

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

/// The part of a target that the connections of one shard share.
pub(crate) struct Local {
    pub(crate) shared: Arc<Shared>,
    pub(crate) channels: Channels,
    counters: Arc<Counters>,
    /// The mailbox of this shard.
    remote: Remote,
    /// Index of this shard among the target's shards.
    index: usize,
    pub(crate) connections: RefCell<Vec<TaskId>>,
    /// The snapshot of channels, I/O queues and sessions.
    served: RefCell<Arc<Snapshot>>,
    /// The snapshot of admin queues, which hosts know.
    announced: RefCell<Arc<Snapshot>>,
    /// CHAP challenges of the logins on this shard.
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

    /// The counters of this shard.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The snapshot of I/O queues and sessions.
    pub(crate) fn served(&self) -> Arc<Snapshot> {
        Arc::clone(&self.served.borrow())
    }

    /// The snapshot of admin queues.
    pub(crate) fn announced(&self) -> Arc<Snapshot> {
        Arc::clone(&self.announced.borrow())
    }

    /// The proof that a login has to give if `chap` is configured.
    ///
    /// # Errors
    /// No challenge can be made: a sentence.
    pub(crate) fn demand(&self, chap: Option<&Chap>) -> Result<Auth, String> {
        chap.map_or(Ok(Auth::None), |chap| {
            chap.demand(&mut self.challenges.borrow_mut(), &*self.shared.control)
        })
    }

    /// The address of a connection of this shard.
    pub(crate) fn place(&self, task: TaskId) -> ConnectionAddress {
        ConnectionAddress {
            shard: self.remote.clone(),
            index: self.index,
            task,
        }
    }

    /// This shard's channel to a disk, for a request of `extent`: its first block, and the number
    /// of blocks. A flush has none.
    ///
    /// The disk may have changed since its command was checked: it may be gone or smaller. Every
    /// request passes here, so the check is repeated here.
    ///
    /// # Errors
    /// The request must not, or cannot, reach the disk. The operator gets a notice of a disk that
    /// does not open.
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

    /// Abandons the request of a slot, which its disk has not ended in time. The slot is free for
    /// another command. `disk` is None if it is not exported any more.
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

    /// Tells the operator of a failed request, unless the request was at fault.
    #[cold]
    pub(crate) fn disk_failed(&self, disk: DiskId, failed: Failed) {
        if failed.status.is_the_disks()
            && let Some((nsid, disk)) = self.channels.name(disk)
        {
            let notice = Notice::DiskFailed { nsid, disk, failed };
            self.shared.notice(&notice);
        }
    }

    /// Adds a connection. Its port has counted it.
    pub(crate) fn joined(&self, task: TaskId) {
        self.connections.borrow_mut().push(task);
    }

    /// Removes a connection that has ended.
    pub(crate) fn left(&self, task: TaskId) {
        let mut connections = self.connections.borrow_mut();
        if let Some(at) = connections.iter().position(|id| *id == task) {
            connections.swap_remove(at);
            self.shared.disconnected();
        }
    }

    /// Serves the present snapshot. False: the shard does so already.
    pub(crate) fn serve(&self) -> bool {
        let current = self.shared.catalog.current();
        if current.version == self.served.borrow().version {
            return false;
        }
        self.channels.serve(&current.disks);
        self.served.replace(current);
        true
    }

    /// Announces the served snapshot. False: the shard has done so already.
    pub(crate) fn announce(&self) -> bool {
        let served = Arc::clone(&self.served.borrow());
        let earlier = self.announced.replace(Arc::clone(&served));
        served.version != earlier.version
    }
}

/// The operator's notice of a disk whose first request is abandoned.
const DOES_NOT_ANSWER: &str = "the disk does not answer: an aborted command still waits for it. New commands wait \
                               until the disk has ended the old one; if this lasts, look at the disk";
