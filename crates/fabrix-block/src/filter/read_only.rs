//! Refuses writes to a writable disk. Other requests pass with the caller's own token.

use std::sync::Arc;

use fabrix_rt::Shard;

use super::Filter;
use crate::{Channel, Device, Geometry, OpenError, OpenErrorKind, Request, Status, Submit};

/// A disk that refuses writes.
pub struct ReadOnly {
    inner: Arc<dyn Device>,
    geometry: Geometry,
}

impl ReadOnly {
    /// The same disk, read-only.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Arc<Self> {
        let geometry = Geometry {
            read_only: true,
            ..inner.geometry().clone()
        };
        Arc::new(Self { inner, geometry })
    }
}

impl Filter for ReadOnly {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn around(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Self::new(inner)
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        Ok(Box::new(ReadOnlyChannel(self.inner.open(shard)?)))
    }

    /// A resize is a change of the disk, so it is refused too.
    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        if bytes.is_some() {
            let name = &self.inner.identity().name;
            let sentence = format!("{name} is read-only, so it cannot be given another size");
            return Err(OpenError::new(OpenErrorKind::Denied, sentence));
        }
        Ok(self.around(self.inner.resize(None)?))
    }
}

struct ReadOnlyChannel(Box<dyn Channel>);

impl Channel for ReadOnlyChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if request.operation.writes() {
            return request.done(Status::ReadOnly);
        }
        self.0.submit(shard, request)
    }
}
