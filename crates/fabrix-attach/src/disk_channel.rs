//! A front end's access to its disk: the device, and one channel for all requests.

use std::cell::{Ref, RefCell};
use std::sync::Arc;

use fabrix_block::{
    Channel, Device, Geometry, OpenError, Payload, Request, Run, Status, Submit, copy_to_buf,
};
use fabrix_rt::{Buf, Loan, Shard, Token};

use crate::BeginError;
use crate::job::{Job, PIECES_AT_ONCE};

pub(crate) struct DiskChannel {
    open: RefCell<Open>,
}

/// Result of submitting a job.
pub(crate) enum Submitted {
    /// The job has ended.
    Ended(Status, Loan),
    /// A request of the job is at the disk.
    Pending,
    /// The job is to be submitted again later, with this data of a write.
    Stalled(Option<Buf>),
}

struct Open {
    device: Arc<dyn Device>,
    takes_registered: bool,
    channel: Box<dyn Channel>,
}

impl DiskChannel {
    pub(crate) fn open(shard: &mut Shard, device: Arc<dyn Device>) -> Result<Self, BeginError> {
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

    /// Submits the pieces of a job until one is pending or the job has ended. Only the first piece
    /// has data: a read or write has no other. While the disk is busy, `keep` makes the data of a
    /// write outlive this call.
    #[inline(always)]
    pub(crate) fn submit<'a>(
        &self,
        shard: &mut Shard,
        job: &mut Job,
        mut payload: Payload<'a>,
        token: Token,
        keep: impl FnOnce(&mut Shard, Payload<'a>) -> Result<Option<Buf>, Status>,
    ) -> Submitted {
        if !job.fits(&self.geometry()) {
            return Submitted::Ended(Status::OutOfRange, Loan::None);
        }
        for _ in 0..PIECES_AT_ONCE {
            let (operation, lba, blocks) = job.next();
            let request = Request {
                operation,
                lba,
                blocks,
                payload: std::mem::replace(&mut payload, Payload::None),
                token,
            };
            let submitted = self.open.borrow_mut().channel.submit(shard, request);
            match submitted {
                Submit::Done(status, loan) => {
                    if let Some(status) = job.ended(status) {
                        return Submitted::Ended(status, loan);
                    }
                }
                Submit::Pending => return Submitted::Pending,
                Submit::Busy(request) => {
                    return match keep(shard, request.payload) {
                        Ok(data) => Submitted::Stalled(data),
                        Err(status) => Submitted::Ended(status, Loan::None),
                    };
                }
            }
        }
        Submitted::Stalled(None)
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

/// Keeps the data of a write: the buffer, or a copy of bytes that are gone after the call.
pub(crate) fn keep_data(shard: &mut Shard, payload: Payload<'_>) -> Result<Option<Buf>, Status> {
    match payload {
        Payload::Borrowed(bytes) => match copy_to_buf(shard, bytes) {
            None => Err(Status::NotReady),
            copy => Ok(copy),
        },
        Payload::Owned(buf) => Ok(Some(buf)),
        Payload::None | Payload::Lend | Payload::Registered(_) => Ok(None),
    }
}
