//! Gives a disk another identity: one that the user has named. Everything else passes with the caller's own token.

use std::sync::Arc;

use fabrix_rt::Shard;

use crate::{Channel, Device, Geometry, Identity, OpenError, Run};

/// A disk under another name.
pub struct Named {
    inner: Arc<dyn Device>,
    identity: Identity,
}

impl Named {
    /// The same disk, which hosts take for another one.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, identity: Identity) -> Arc<Self> {
        Arc::new(Self { inner, identity })
    }
}

impl Device for Named {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        self.inner.open(shard)
    }

    fn allocation(&self, lba: u64) -> Run {
        self.inner.allocation(lba)
    }

    fn notes(&self) -> &[String] {
        self.inner.notes()
    }

    fn compares_and_writes(&self) -> bool {
        self.inner.compares_and_writes()
    }

    fn takes_registered(&self) -> bool {
        self.inner.takes_registered()
    }

    fn remeasure(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        let inner = self.inner.remeasure(bytes)?;
        Ok(Self::new(inner, self.identity.clone()))
    }
}
