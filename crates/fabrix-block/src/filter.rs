//! Filters: disks in front of another disk that count requests, inject faults, refuse writes,
//! change the identity, or keep an object alive.

pub mod fault;
pub mod keeping;
pub mod named;
pub mod read_only;
pub mod stats;

use std::sync::Arc;

use fabrix_rt::Shard;

use crate::{Attributes, Channel, Device, Geometry, Identity, OpenError, Ownership, Run, Watching};

/// A disk in front of another disk. Every method that a filter does not define is forwarded.
pub(crate) trait Filter: Send + Sync {
    /// The disk below.
    fn inner(&self) -> &dyn Device;

    /// This filter in front of the resized disk.
    fn around(&self, inner: Arc<dyn Device>) -> Arc<dyn Device>;

    /// See [`Device::open`].
    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        self.inner().open(shard)
    }

    /// See [`Device::resize`].
    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        Ok(self.around(self.inner().resize(bytes)?))
    }

    /// See [`Device::geometry`].
    fn geometry(&self) -> &Geometry {
        self.inner().geometry()
    }

    /// See [`Device::identity`].
    fn identity(&self) -> &Identity {
        self.inner().identity()
    }

    /// See [`Device::compares_and_writes`].
    fn compares_and_writes(&self) -> bool {
        self.inner().compares_and_writes()
    }

    /// See [`Device::takes_registered`]. A filter that reads the bytes of requests says no.
    fn takes_registered(&self) -> bool {
        self.inner().takes_registered()
    }
}

impl<F: Filter> Device for F {
    fn geometry(&self) -> &Geometry {
        Filter::geometry(self)
    }

    fn identity(&self) -> &Identity {
        Filter::identity(self)
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        Filter::open(self, shard)
    }

    fn compares_and_writes(&self) -> bool {
        Filter::compares_and_writes(self)
    }

    fn takes_registered(&self) -> bool {
        Filter::takes_registered(self)
    }

    fn allocation(&self, lba: u64) -> Run {
        self.inner().allocation(lba)
    }

    fn notes(&self) -> &[String] {
        self.inner().notes()
    }

    fn attributes(&self) -> Option<Arc<dyn Attributes>> {
        self.inner().attributes()
    }

    fn ownership(&self) -> Option<Arc<dyn Ownership>> {
        self.inner().ownership()
    }

    fn watch(&self, changed: Box<dyn Fn() + Send + Sync>) -> Option<Watching> {
        self.inner().watch(changed)
    }

    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        Filter::resize(self, bytes)
    }
}
