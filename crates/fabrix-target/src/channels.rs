//! A shard's channels to the exported disks.
//!
//! This file knows devices and their geometry. It does not know connections, or the numbers under
//! which subsystems and iSCSI targets export a disk.

use std::cell::{Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use fabrix_block::{Channel, OpenError, Run};
use fabrix_rt::{Apart, Shard};

use crate::catalog::ExportedDisk;
use crate::disk::DiskId;

/// A shard's channels to the exported disks, opened when the first connection of the shard needs
/// them.
pub(crate) struct Channels {
    all: RefCell<Vec<Access>>,
}

/// A shard's access to one disk.
struct Access {
    id: DiskId,
    disk: ExportedDisk,
    /// Blocks of the disk, for the check of every command.
    blocks: u64,
    channel: Option<SharedChannel>,
}

/// One channel, used by all connections of a shard.
pub(crate) type SharedChannel = Rc<Apart<RefCell<Box<dyn Channel>>>>;

impl Channels {
    pub(crate) fn new(disks: &[ExportedDisk]) -> Self {
        let all = disks.iter().map(Access::to).collect();
        Self {
            all: RefCell::new(all),
        }
    }

    /// Replaces the disks. Channels of disks that stay remain open. The other channels are dropped,
    /// and their pending requests still end.
    pub(crate) fn serve(&self, disks: &[ExportedDisk]) {
        let mut next: Vec<_> = disks.iter().map(Access::to).collect();
        let mut old = self.all.take();
        for access in &mut next {
            let earlier = old.iter_mut().find(|earlier| earlier.is_same(access));
            access.channel = earlier.and_then(|earlier| earlier.channel.take());
        }
        self.all.replace(next);
    }

    /// Index of a disk in the list, if it is still exported.
    pub(crate) fn find(&self, disk: DiskId) -> Option<usize> {
        position(&self.all.borrow(), disk)
    }

    /// Namespace id and name of a disk, for the operator. None: it is not exported any more.
    pub(crate) fn name(&self, disk: DiskId) -> Option<(u32, String)> {
        let all = self.all.borrow();
        let disk = &all[position(&all, disk)?].disk;
        Some((disk.nsid(), disk.device().identity().name.clone()))
    }

    /// Whether the storage of a disk refuses this process.
    pub(crate) fn is_lost(&self, disk: DiskId) -> bool {
        let all = self.all.borrow();
        let access = position(&all, disk).map(|at| &all[at]);
        let ownership = access.and_then(|access| access.disk.given().ownership());
        ownership.is_some_and(|ownership| ownership.is_lost())
    }

    /// The channel to a disk, for a request of `extent`. None: it has not been opened yet.
    ///
    /// # Errors
    /// The request must not reach the disk.
    #[inline(always)]
    pub(crate) fn ready(
        &self,
        disk: DiskId,
        extent: Option<(u64, u32)>,
    ) -> Result<Option<Ref<'_, SharedChannel>>, Unreached> {
        let all = self.all.borrow();
        let at = position(&all, disk).ok_or(Unreached::Gone)?;
        if all[at].disk.state().has_barrier() {
            return Err(Unreached::Barrier);
        }
        if extent.is_some_and(|(lba, blocks)| !all[at].contains(lba, blocks)) {
            return Err(Unreached::OutOfRange);
        }
        Ok(Ref::filter_map(all, |all| all[at].channel.as_ref()).ok())
    }

    /// Blocks of the disk at `index`.
    pub(crate) fn blocks(&self, index: usize) -> u64 {
        self.all.borrow()[index].blocks
    }

    /// Allocation of the blocks of the disk at `index` from `lba` on.
    pub(crate) fn allocation(&self, index: usize, lba: u64) -> Run {
        self.all.borrow()[index].disk.device().allocation(lba)
    }

    /// Opens the disk at `index` for this shard.
    ///
    /// # Errors
    /// The disk cannot be opened.
    pub(crate) fn open(&self, shard: &mut Shard, index: usize) -> Result<(), OpenError> {
        let device = Arc::clone(self.all.borrow()[index].disk.device());
        let channel = device.open(shard)?;
        let channel = Rc::new(Apart::new(RefCell::new(channel)));
        self.all.borrow_mut()[index].channel = Some(channel);
        Ok(())
    }
}

/// Index of a disk. Ids are dense from 0 until a disk is removed. They are always sorted.
#[inline]
fn position(all: &[Access], disk: DiskId) -> Option<usize> {
    match all.get(disk.guess()) {
        Some(access) if access.id == disk => Some(disk.guess()),
        _ => all.binary_search_by_key(&disk, |access| access.id).ok(),
    }
}

/// The reason why a request does not reach its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreached {
    /// The disk is not exported any more.
    Gone,
    /// The disk has no such blocks now.
    OutOfRange,
    /// The disk does not open on this shard.
    NotReady,
    /// The disk has to end abandoned requests first. The request is retried.
    Barrier,
}

impl Access {
    fn to(disk: &ExportedDisk) -> Self {
        Self {
            id: disk.id(),
            blocks: disk.device().geometry().blocks,
            disk: disk.clone(),
            channel: None,
        }
    }

    /// Whether the disk has these blocks.
    fn contains(&self, lba: u64, blocks: u32) -> bool {
        lba.checked_add(u64::from(blocks))
            .is_some_and(|end| end <= self.blocks)
    }

    fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && Arc::ptr_eq(self.disk.device(), other.disk.device())
    }
}
