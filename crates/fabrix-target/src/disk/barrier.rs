//! A barrier before a disk: it gets no new request while there is one.
//!
//! A request at a disk cannot be cancelled. After its command was aborted, or its connection has
//! ended, the disk may still execute it at any time. It could overwrite a newer write, or change
//! data that a newer read has returned. So new requests of all connections wait until the disk has
//! ended the abandoned one. A barrier also bounds the requests at a disk that does not answer:
//! commands that wait at a barrier end at once when they are aborted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::DiskState;

/// Held as long as an abandoned request is at the disk.
pub(crate) struct Barrier(Arc<DiskState>);

impl Barrier {
    /// Adds a barrier before this disk. Requests pass when the last barrier is dropped.
    pub(crate) fn before(disk: &Arc<DiskState>) -> Self {
        disk.barriers.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(disk))
    }

    /// True once until the disk has ended all abandoned requests: the operator needs a notice.
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
    /// Whether there is a barrier before the disk. Every request reads this. It is written only
    /// when disks do not answer.
    #[inline(always)]
    pub(crate) fn has_barrier(&self) -> bool {
        self.barriers.load(Ordering::Acquire) != 0
    }
}
