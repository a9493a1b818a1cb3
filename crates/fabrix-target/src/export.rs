//! Which disk is which namespace: an immutable list that all shards share, and a shard's own way
//! into it.
//!
//! Knows devices and their geometry; makes of it the plain data that hosts are told. Does not know
//! connections.

use std::cell::{Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use fabrix_block::{Channel, Device, OpenError, Run};
use fabrix_rt::{Apart, Shard};

use crate::catalog::ExportedDisk;
use crate::disk::DiskState;

/// One disk and the namespace id it is exported under.
#[derive(Clone)]
pub struct Export {
    /// 1 to [`NAMESPACES_MAX`](crate::NAMESPACES_MAX).
    pub nsid: u32,
    /// The disk. The target puts the compare-and-write gate in front of it.
    pub device: Arc<dyn Device>,
}

/// An export as the shards see it.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) nsid: u32,
    /// The version with which its namespace was added. A command that was checked against another
    /// disk of the same id knows by it that this one is not meant.
    pub(crate) added: u64,
    pub(crate) disk: ExportedDisk,
}

impl Entry {
    /// What all connections share about it, and its namespace.
    pub(crate) fn state(&self) -> (u32, Arc<DiskState>) {
        (self.nsid, Arc::clone(self.disk.state()))
    }

    /// The entry as the user gave it.
    pub(crate) fn export(&self) -> Export {
        Export {
            nsid: self.nsid,
            device: Arc::clone(self.disk.given()),
        }
    }
}

/// A shard's channels to the exported disks, opened when the first connection of the shard needs
/// them.
pub(crate) struct Channels {
    all: RefCell<Vec<Access>>,
}

/// A shard's access to one disk.
struct Access {
    entry: Entry,
    /// How many blocks the disk has, at hand for every command.
    blocks: u64,
    channel: Option<SharedChannel>,
}

/// A disk as commands remember it: its namespace, and the version with which that was added.
pub(crate) type DiskName = (u32, u64);

/// One channel, used by all connections of a shard.
pub(crate) type SharedChannel = Rc<Apart<RefCell<Box<dyn Channel>>>>;

impl Channels {
    pub(crate) fn new(entries: &[Entry]) -> Self {
        let all = entries.iter().map(Access::to).collect();
        Self {
            all: RefCell::new(all),
        }
    }

    /// From now on these are the disks. Channels of those that stay remain open; the others are
    /// dropped, and what is pending at them still ends.
    pub(crate) fn serve(&self, entries: &[Entry]) {
        let mut next: Vec<_> = entries.iter().map(Access::to).collect();
        let mut old = self.all.take();
        for access in &mut next {
            let earlier = old.iter_mut().find(|earlier| earlier.is_same(access));
            access.channel = earlier.and_then(|earlier| earlier.channel.take());
        }
        self.all.replace(next);
    }

    /// The version with which the disk was added that is namespace `nsid` now; zero: there is none.
    #[inline]
    pub(crate) fn added(&self, nsid: u32) -> u64 {
        let all = self.all.borrow();
        position(&all, nsid).map_or(0, |at| all[at].entry.added)
    }

    /// Where a disk stands in the list, if it is still there.
    pub(crate) fn find(&self, (nsid, added): DiskName) -> Option<usize> {
        let all = self.all.borrow();
        position(&all, nsid).filter(|at| all[*at].entry.added == added)
    }

    /// What a disk is called, for people; nothing if it is not there any more.
    pub(crate) fn name(&self, disk: DiskName) -> String {
        let all = self.all.borrow();
        let device = self.find(disk).map(|at| all[at].entry.disk.device());
        device.map_or_else(String::new, |device| device.identity().name.clone())
    }

    /// The channel to a disk, for a request that wants `extent` of it; None: it has not been opened
    /// yet.
    ///
    /// # Errors
    /// The request must not reach that disk.
    #[inline(always)]
    pub(crate) fn ready(
        &self,
        (nsid, added): DiskName,
        extent: Option<(u64, u32)>,
    ) -> Result<Option<Ref<'_, SharedChannel>>, Unreached> {
        let all = self.all.borrow();
        let found = position(&all, nsid).filter(|at| all[*at].entry.added == added);
        let at = found.ok_or(Unreached::Gone)?;
        if all[at].entry.disk.state().has_barrier() {
            return Err(Unreached::Barrier);
        }
        if extent.is_some_and(|(lba, blocks)| !all[at].contains(lba, blocks)) {
            return Err(Unreached::OutOfRange);
        }
        Ok(Ref::filter_map(all, |all| all[at].channel.as_ref()).ok())
    }

    /// How many blocks the disk at `index` has.
    pub(crate) fn blocks(&self, index: usize) -> u64 {
        self.all.borrow()[index].blocks
    }

    /// How the blocks of the disk at `index` are kept from `lba` on.
    pub(crate) fn allocation(&self, index: usize, lba: u64) -> Run {
        self.all.borrow()[index].entry.disk.device().allocation(lba)
    }

    /// What all connections share about each of the disks, by namespace, in order.
    pub(crate) fn states(&self) -> Vec<(u32, Arc<DiskState>)> {
        let all = self.all.borrow();
        let entries = all.iter().map(|access| &access.entry);
        entries.map(Entry::state).collect()
    }

    /// Opens the disk at `index` for this shard.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn open(&self, shard: &mut Shard, index: usize) -> Result<(), OpenError> {
        let device = Arc::clone(self.all.borrow()[index].entry.disk.device());
        let channel = device.open(shard)?;
        let channel = Rc::new(Apart::new(RefCell::new(channel)));
        self.all.borrow_mut()[index].channel = Some(channel);
        Ok(())
    }
}

/// Where namespace `nsid` stands. Ids are dense from 1 unless somebody removed one: then they are
/// still sorted.
#[inline]
fn position(all: &[Access], nsid: u32) -> Option<usize> {
    let guess = usize::try_from(nsid.checked_sub(1)?).ok()?;
    match all.get(guess) {
        Some(access) if access.entry.nsid == nsid => Some(guess),
        _ => all
            .binary_search_by_key(&nsid, |access| access.entry.nsid)
            .ok(),
    }
}

/// Why a request does not reach its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreached {
    /// It is not there any more; what is there under its id is another one.
    Gone,
    /// It has no such blocks now.
    OutOfRange,
    /// It does not open from this shard.
    NotReady,
    /// It has to end older requests first: the request is made again later.
    Barrier,
}

impl Access {
    fn to(entry: &Entry) -> Self {
        Self {
            blocks: entry.disk.device().geometry().blocks,
            entry: entry.clone(),
            channel: None,
        }
    }

    /// Whether the disk has these blocks.
    fn contains(&self, lba: u64, blocks: u32) -> bool {
        lba.checked_add(u64::from(blocks))
            .is_some_and(|end| end <= self.blocks)
    }

    fn is_same(&self, other: &Self) -> bool {
        let (entry, other) = (&self.entry, &other.entry);
        entry.nsid == other.nsid && Arc::ptr_eq(entry.disk.device(), other.disk.device())
    }
}
