//! Submits the request of a prepared slot to the disk, and keeps it while the disk is busy.

use fabrix_block::{Operation, Payload, Request, Submit};
use fabrix_rt::{Shard, Token};

use super::Worker;
use crate::access::Direction;

impl Worker {
    /// Submits the request of a slot. False: the disk is busy.
    pub(super) fn submit(&mut self, shard: &mut Shard, slot: u32) -> bool {
        if self.flushing.slot == Some(slot) {
            return self.submit_flush(shard, slot);
        }
        let Some(payload) = self.payload(slot) else {
            self.park(slot);
            self.end_early(shard, "the shard has no memory for one more buffer".into());
            return true;
        };
        let request = self.request(slot, payload);
        let writes = request.operation != Operation::Read;
        let channel = match &mut self.copy {
            Some(copy) if writes => Some(&mut copy.channel),
            _ => self.channel.as_mut(),
        };
        let channel = channel.expect("the channel is open until the job has ended");
        self.in_flight += 1;
        match channel.submit(shard, request) {
            Submit::Pending => true,
            Submit::Done(status, loan) => {
                self.clock.read();
                self.finish(shard, slot, status, loan);
                true
            }
            Submit::Busy(request) => {
                self.in_flight -= 1;
                self.tally.busy += 1;
                self.put_back(slot, request.payload.into_loan());
                self.park(slot);
                false
            }
        }
    }

    /// The data of a slot's request. None without memory for it.
    fn payload(&mut self, slot: u32) -> Option<Payload<'static>> {
        match self.slots[slot as usize].access.direction {
            Direction::Trim => Some(Payload::None),
            _ => self.buffer(slot).map(Payload::Owned),
        }
    }

    fn request(&self, slot: u32, payload: Payload<'static>) -> Request<'static> {
        let access = self.slots[slot as usize].access;
        let region = self.region_of(access.direction);
        let (first, blocks) = match self.pieces.most {
            1 => (0, access.units * region.blocks_per_unit),
            _ => self.piece(slot),
        };
        Request {
            operation: match access.direction {
                Direction::Read => Operation::Read,
                Direction::Write => Operation::Write {
                    durable: self.setup.job.durable,
                },
                Direction::Trim => Operation::Deallocate,
            },
            lba: region.lba_of(access.unit) + u64::from(first),
            blocks,
            payload,
            token: Token {
                task: self.id,
                slot,
            },
        }
    }

    /// Keeps a prepared request until the disk can accept it.
    fn park(&mut self, slot: u32) {
        match &mut self.copy {
            Some(copy) if self.slots[slot as usize].access.direction == Direction::Write => {
                copy.due.push_front(slot)
            }
            _ => self.parked = Some(slot),
        }
    }
}
