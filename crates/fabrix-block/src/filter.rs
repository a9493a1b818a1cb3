//! What can stand in front of any disk and is a disk itself: counting, faults on purpose, refusing
//! writes, another name, something to keep.

pub mod fault;
pub mod keeping;
pub mod named;
pub mod read_only;
pub mod stats;

use std::sync::Arc;

use fabrix_rt::Shard;

use crate::{Channel, Device, Geometry, Identity, OpenError, Run};

/// A disk in front of another one, which passes requests on without a look at their bytes. What it
/// does not say itself, the other one says. Who looks at bytes is a [`Device`] of its own, as
/// [`Exclusive`](crate::exclusive::Exclusive) is.
trait Filter: Send + Sync {
    /// The other one.
    fn inner(&self) -> &dyn Device;

    /// See [`Device::open`].
    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError>;

    /// See [`Device::remeasure`]: this filter in front of what that gives.
    fn remeasure(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError>;

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

    fn remeasure(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        Filter::remeasure(self, bytes)
    }
}
