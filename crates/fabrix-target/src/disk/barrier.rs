//! A barrier before a disk: while there is one, the disk is given no new request.
//!
//! A request that is at a disk cannot be taken back. When its command has been aborted, or its
//! connection has ended, the disk may still carry it out, at any time until it ends the request. A
//! newer write that were carried out in between would be lost, and a newer read would show what
//! then changes by itself. So new requests of all connections wait until the disk has ended the old
//! one. It also bounds what a disk that does not answer holds: commands that wait in front of a
//! barrier are not at the disk, and end at once when they are aborted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::DiskState;

/// Held as long as a request is at the disk for which nobody waits any more.
pub(crate) struct Barrier(Arc<DiskState>);

impl Barrier {
    /// A barrier before this disk. Other barriers may be there too: the last one that goes lets
    /// requests through.
    pub(crate) fn before(disk: &Arc<DiskState>) -> Self {
        disk.barriers.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(disk))
    }

    /// True once until the disk has ended all requests for which nobody waits: its operator is to
    /// be told.
    pub(crate) fn is_news(&self) -> bool {
        !self.0.is_overdue.swap(true, Ordering::Relaxed)
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        if self.0.barriers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.is_overdue.store(false, Ordering::Relaxed);
        }
    }
}

impl DiskState {
    /// Whether there is a barrier before the disk. Every request asks, and nobody writes here while
    /// disks answer.
    #[inline(always)]
    pub(crate) fn has_barrier(&self) -> bool {
        self.barriers.load(Ordering::Acquire) != 0
    }
}
