//! Gives a disk another identity, chosen by the user. Requests pass with the caller's own token.

use std::sync::Arc;

use fabrix_rt::Shard;

use super::Filter;
use crate::{Channel, Device, Identity, OpenError};

/// A disk with another identity.
pub struct Named {
    inner: Arc<dyn Device>,
    identity: Identity,
}

impl Named {
    /// The same disk with `identity`. Hosts see it as another disk.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, identity: Identity) -> Arc<Self> {
        Arc::new(Self { inner, identity })
    }
}

impl Filter for Named {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        self.inner.open(shard)
    }

    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        let inner = self.inner.resize(bytes)?;
        Ok(Self::new(inner, self.identity.clone()))
    }
}
