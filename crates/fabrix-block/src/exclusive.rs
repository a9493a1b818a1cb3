//! Makes `CompareAndWrite` atomic towards all writes of a disk, from every shard and protocol.
//!
//! While no comparison runs, the `gate` is open. A write then costs one increment of a counter that
//! only its own channel changes. A comparison closes the gate, waits until the writes in progress
//! have ended, reads, compares, writes, and opens the gate again. Writes that arrive meanwhile wait
//! in their channel's bounded queue.
//!
//! Reads and flushes go straight to the disk with the caller's own token. All users of a disk must
//! share one `Exclusive`: two of them over one disk do not exclude each other's writes.

mod channel;
mod gate;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use fabrix_rt::Shard;

use crate::filter::Filter;
use crate::{Channel, Device, OpenError};
use gate::Gate;

/// A disk with an atomic compare and write.
pub struct Exclusive {
    inner: Arc<dyn Device>,
    gate: Arc<Gate>,
}

impl Exclusive {
    /// Puts a disk behind a new gate.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            gate: Arc::new(Gate::new()),
        })
    }

    /// The same disk in another state, for example with another size, behind this gate. Comparisons
    /// stay atomic while channels of both are open.
    #[must_use]
    pub fn around(&self, inner: Arc<dyn Device>) -> Arc<Self> {
        let gate = Arc::clone(&self.gate);
        Arc::new(Self { inner, gate })
    }
}

impl Filter for Exclusive {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn around(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Self::around(self, inner)
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let inner = self.inner.open(shard)?;
        let geometry = self.inner.geometry().clone();
        Ok(channel::open(shard, inner, geometry, &self.gate))
    }

    fn compares_and_writes(&self) -> bool {
        true
    }

    /// Comparisons read the bytes.
    fn takes_registered(&self) -> bool {
        false
    }
}
