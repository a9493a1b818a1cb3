//! Filters: disks in front of another disk that count requests, inject faults, refuse writes,
//! change the identity, or keep an object alive.

pub mod fault;
pub mod keeping;
pub mod named;
pub mod read_only;
pub mod stats;

use std::sync::Arc;

use fabrix_rt::Shard;

use crate::{Channel, Device, Geometry, Identity, OpenError, Run};

/// A disk in front of another disk that forwards requests without reading their bytes. Every method
/// that a filter does not define is forwarded. A layer that reads bytes implements [`Device`]
/// itself, as [`Exclusive`](crate::exclusive::Exclusive) does.
trait Filter: Send + Sync {
    /// The disk below.
    fn inner(&self) -> &dyn Device;

    /// See [`Device::open`].
    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError>;

    /// See [`Device::resize`]. Returns this filter in front of the resized disk.
    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError>;

    /// See [`Device::geometry`].
    fn geometry(&self) -> &Geometry {
        self.inner().geometry()
    }

    /// See [`Device::identity`].
    fn identity(&self) -> &Identity {
        self.inner().identity()
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
        self.inner().compares_and_writes()
    }

    fn takes_registered(&self) -> bool {
        self.inner().takes_registered()
    }

    fn allocation(&self, lba: u64) -> Run {
        self.inner().allocation(lba)
    }

    fn notes(&self) -> &[String] {
        self.inner().notes()
    }

    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        Filter::resize(self, bytes)
    }
}
