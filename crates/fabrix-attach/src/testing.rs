//! Test helper for front ends: a disk whose answers the test controls.

use std::sync::{Arc, Mutex, MutexGuard};

use fabrix_block::{
    Channel, Device, Geometry, Identity, OpenError, Operation, Payload, Request, Submit,
};
use fabrix_rt::{Registered, Shard, Token};

/// A disk that answers on the test's demand. It accepts two requests at a time.
pub(crate) struct Slow {
    pub(crate) geometry: Geometry,
    pub(crate) identity: Identity,
    pub(crate) takes_registered: bool,
    pub(crate) submitted: Submitted,
}

/// Submitted requests without an answer.
#[derive(Clone, Default)]
pub(crate) struct Submitted(Arc<Mutex<Vec<AtDisk>>>);

/// A request, with the first byte of a write's buffer or with the registered memory.
#[derive(Clone, Copy)]
pub(crate) struct AtDisk {
    pub(crate) token: Token,
    pub(crate) operation: Operation,
    pub(crate) byte: Option<u8>,
    pub(crate) lent: Option<Registered>,
}

impl Slow {
    pub(crate) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            identity: Identity::derive("slow", "slow", "slow"),
            takes_registered: false,
            submitted: Submitted::default(),
        }
    }
}

impl Submitted {
    pub(crate) fn count(&self) -> usize {
        self.list().len()
    }

    /// Takes all requests, so that the disk accepts others.
    pub(crate) fn take(&self) -> Vec<AtDisk> {
        std::mem::take(&mut self.list())
    }

    /// Takes the oldest request.
    pub(crate) fn take_first(&self) -> AtDisk {
        self.list().remove(0)
    }

    fn list(&self) -> MutexGuard<'_, Vec<AtDisk>> {
        self.0.lock().expect("nobody panics with it")
    }
}

impl Device for Slow {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn open(&self, _shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        Ok(Box::new(SlowChannel(self.submitted.clone())))
    }

    fn takes_registered(&self) -> bool {
        self.takes_registered
    }
}

struct SlowChannel(Submitted);

impl Channel for SlowChannel {
    fn submit<'a>(&mut self, _shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        let mut submitted = self.0.list();
        if submitted.len() == 2 {
            return Submit::Busy(request);
        }
        submitted.push(AtDisk {
            token: request.token,
            operation: request.operation,
            byte: match &request.payload {
                Payload::Owned(data) => data.bytes().first().copied(),
                _ => None,
            },
            lent: match &request.payload {
                Payload::Registered(memory) => Some(*memory),
                _ => None,
            },
        });
        Submit::Pending
    }
}
