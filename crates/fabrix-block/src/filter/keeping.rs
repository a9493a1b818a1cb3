//! Keeps an object alive as long as the disk is in use, also after a resize. Example: a resource
//! that the opener of the disk holds for it.

use std::any::Any;
use std::sync::Arc;

use fabrix_rt::Shard;

use super::Filter;
use crate::{Channel, Device, OpenError};

/// A disk, and an object that is dropped with the disk's last user.
pub struct Keeping {
    inner: Arc<dyn Device>,
    kept: Arc<dyn Any + Send + Sync>,
}

impl Keeping {
    /// The same disk, which keeps `kept` alive.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, kept: Arc<dyn Any + Send + Sync>) -> Arc<Self> {
        Arc::new(Self { inner, kept })
    }
}

impl Filter for Keeping {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        self.inner.open(shard)
    }

    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        let inner = self.inner.resize(bytes)?;
        Ok(Self::new(inner, Arc::clone(&self.kept)))
    }
}
