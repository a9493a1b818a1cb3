//! A front end's access to its disk: the device, and one channel for all requests.

use std::cell::{Ref, RefCell};
use std::sync::Arc;

use fabrix_block::{Channel, Device, Geometry, OpenError, Request, Run, Submit};
use fabrix_rt::Shard;

pub(crate) struct DiskChannel {
    open: RefCell<Open>,
}

struct Open {
    device: Arc<dyn Device>,
    takes_registered: bool,
    channel: Box<dyn Channel>,
}

impl DiskChannel {
    pub(crate) fn open(shard: &mut Shard, device: Arc<dyn Device>) -> Result<Self, OpenError> {
        let open = RefCell::new(Open::new(shard, device)?);
        Ok(Self { open })
    }

    /// Replaces the device by a resized one. Requests in progress end on the old channel.
    pub(crate) fn replace(
        &self,
        shard: &mut Shard,
        device: Arc<dyn Device>,
    ) -> Result<(), OpenError> {
        self.open.replace(Open::new(shard, device)?);
        Ok(())
    }

    pub(crate) fn geometry(&self) -> Ref<'_, Geometry> {
        Ref::map(self.open.borrow(), |open| open.device.geometry())
    }

    /// Allocation state of blocks: see [`Device::allocation`].
    pub(crate) fn allocation(&self, lba: u64) -> Run {
        self.open.borrow().device.allocation(lba)
    }

    /// Whether the disk accepts memory that is registered with the shard's ring.
    pub(crate) fn takes_registered(&self) -> bool {
        self.open.borrow().takes_registered
    }

    pub(crate) fn submit<'a>(&self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        self.open.borrow_mut().channel.submit(shard, request)
    }
}

impl Open {
    fn new(shard: &mut Shard, device: Arc<dyn Device>) -> Result<Self, OpenError> {
        Ok(Self {
            channel: device.open(shard)?,
            takes_registered: device.takes_registered(),
            device,
        })
    }
}
