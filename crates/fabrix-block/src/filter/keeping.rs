//! Keeps an object alive as long as the disk is in use, also after a resize. Example: a resource
//! that the opener of the disk holds for it.

use std::any::Any;
use std::sync::Arc;

use super::Filter;
use crate::Device;

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

    fn around(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Self::new(inner, Arc::clone(&self.kept))
    }
}
