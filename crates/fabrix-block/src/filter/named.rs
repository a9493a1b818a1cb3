//! Gives a disk another identity, chosen by the user. Requests pass with the caller's own token.

use std::sync::Arc;

use super::Filter;
use crate::{Device, Identity};

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

    fn around(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Self::new(inner, self.identity.clone())
    }
}
