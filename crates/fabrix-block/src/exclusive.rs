//! Makes `CompareAndWrite` one step among all writes of a disk, whatever shard and protocol they
//! come from. The `gate` is open as long as nobody compares, and then a write costs one increment
//! of a counter that only its own channel writes. To compare, a channel closes the gate, waits
//! until the writes in progress have ended, reads, compares, writes, and opens it; writes that come
//! meanwhile wait in their channel's bounded queue.
//!
//! Reads and flushes pass at once with the caller's own token. All users of a disk must go through
//! the same `Exclusive`: two of them over one disk know nothing of each other.

mod channel;
mod gate;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use fabrix_rt::Shard;

use crate::{Channel, Device, Geometry, Identity, OpenError, Run};
use gate::Gate;

/// A disk that compares and writes in one step.
pub struct Exclusive {
    inner: Arc<dyn Device>,
    gate: Arc<Gate>,
}

impl Exclusive {
    /// The disk as it is when it compares and writes by itself, and behind a gate otherwise.
    #[must_use]
    pub fn wrap(device: Arc<dyn Device>) -> Arc<dyn Device> {
        if device.compares_and_writes() {
            device
        } else {
            Self::new(device)
        }
    }

    /// The same disk, with `CompareAndWrite`.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            gate: Arc::new(Gate::new()),
        })
    }
}

impl Device for Exclusive {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let inner = self.inner.open(shard)?;
        Ok(channel::open(
            shard,
            inner,
            self.geometry().clone(),
            &self.gate,
        ))
    }

    fn allocation(&self, lba: u64) -> Run {
        self.inner.allocation(lba)
    }

    fn notes(&self) -> &[String] {
        self.inner.notes()
    }

    fn compares_and_writes(&self) -> bool {
        true
    }

    /// Both go through one gate: while channels of the two are open, they are one disk to those who
    /// compare.
    fn remeasure(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        Ok(Arc::new(Self {
            inner: self.inner.remeasure(bytes)?,
            gate: Arc::clone(&self.gate),
        }))
    }
}
