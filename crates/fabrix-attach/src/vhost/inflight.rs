//! Requests in progress of a queue, kept in a record in the monitor's memory. The record survives
//! this process, and the next process reads it.

use std::sync::Arc;

use fabrix_block::Identity;
use fabrix_proto::virtio::Broken;
pub(super) use fabrix_proto::virtio::inflight::Disk;
use fabrix_proto::virtio::inflight::{QueueRegion, Shape, own};
use fabrix_proto::virtio::queue::Queue;

use super::memory::GuestMemory;

/// The record of all queues.
pub(super) struct Inflight {
    memory: GuestMemory,
    shape: Shape,
}

impl Inflight {
    /// Opens a record for a disk.
    ///
    /// Errors: the record belongs to another disk.
    pub(super) fn open(memory: GuestMemory, shape: Shape, disk: &Disk) -> Result<Self, Broken> {
        own(&memory, shape, disk)?;
        Ok(Self { memory, shape })
    }
}

/// Identification of a disk in a record.
pub(super) fn of(identity: &Identity) -> Disk {
    let mut disk = [0; size_of::<Disk>()];
    disk[..16].copy_from_slice(&identity.uuid);
    disk[16..32].copy_from_slice(&identity.nguid);
    let serial = identity.serial.as_bytes();
    let bytes = serial.len().min(disk.len() - 32);
    disk[32..32 + bytes].copy_from_slice(&serial[..bytes]);
    disk
}

/// A queue's part of the record.
pub(super) struct Tracked {
    record: Arc<Inflight>,
    region: QueueRegion,
}

impl Tracked {
    /// Opens the part of queue `index`. Also returns the requests to execute again, the last one
    /// first. `queue` continues behind them.
    pub(super) fn open(
        record: &Arc<Inflight>,
        index: usize,
        queue: &mut Queue,
    ) -> Result<(Self, Vec<u16>), Broken> {
        let shape = record.shape;
        let place = shape
            .region(index)
            .filter(|_| queue.size() <= shape.entries);
        let address = place.ok_or(Broken(
            "a queue has no place in the record of what is in progress",
        ))?;
        let opened = QueueRegion::open(&record.memory, address, shape.entries, queue.used())?;
        let (region, left) = opened;
        if let Some(left) = &left {
            queue.go_on_behind(u16::try_from(left.len()).unwrap_or(u16::MAX));
        }
        let mut left = left.unwrap_or_default();
        left.reverse();
        let record = Arc::clone(record);
        Ok((Self { record, region }, left))
    }

    /// Records that a request was taken from the queue, before its execution starts.
    pub(super) fn taken(&mut self, head: u16) -> Result<(), Broken> {
        self.region.taken(&self.record.memory, head)
    }

    /// Returns a request to the guest.
    pub(super) fn give(
        &self,
        queue: &mut Queue,
        memory: &GuestMemory,
        head: u16,
        written: u32,
    ) -> Result<(), Broken> {
        self.region.giving(&self.record.memory, head)?;
        queue.give(memory, head, written)?;
        self.region.given(&self.record.memory, head, queue.used())
    }
}
