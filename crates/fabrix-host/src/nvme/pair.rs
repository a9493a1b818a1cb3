//! Compare and Write through a session: one request, two commands on one queue, one ending.
//!
//! Part of `session`, beside `transfer`, which sends what travels as one command. Knows which half
//! has ended and how; the rest is the queue's.
//! Source: NVM Express Base Specification 2.x, "Fused Operations".

use fabrix_block::{Operation, Status as DiskStatus};
use fabrix_proto::Slot;
use fabrix_proto::nvme::queue::HostTransfer;
use fabrix_proto::nvme::spec::CompletionEntry;
use fabrix_rt::{Buf, Shard};

use super::command;
use super::queue::{Carried, Link};
use super::session::Session;
use crate::request::Request;

impl<L: Link> Session<L> {
    /// Sends Compare and Write, whose halves must follow each other on one queue.
    pub(super) fn send_pair(
        &mut self,
        shard: &mut Shard,
        index: usize,
        mut request: Request,
    ) -> Result<(), Request> {
        let (Some(seen), Some(both)) = (&self.plan.expected, request.data.take()) else {
            return Err(request);
        };
        self.last_queue = index;
        let bytes = request.blocks.saturating_mul(seen.geometry.block_bytes);
        let (mut compare, mut write) = command::fused(
            seen.nsid,
            (request.lba, request.blocks),
            request.operation.promises_durability(),
        );
        let transfer = HostTransfer::Write { bytes };
        let (now, queue) = (shard.now(), &mut self.queues[index]);
        let half = Some((both.clone(), 0));
        let Some(first) = queue.send(now, &mut compare, transfer, half, Carried::Own) else {
            request.data = Some(both);
            return Err(request);
        };
        let half = Some((both, bytes as usize));
        match queue.start(now, &mut write, transfer, half) {
            Ok(second) => {
                let carried = Carried::Write {
                    request,
                    compare: None,
                    write: None,
                };
                queue.carry(second, carried);
                queue.put(first, Carried::Compare { write: second });
            }
            Err(data) => {
                request.data = data;
                return Err(request);
            }
        }
        shard.flush_later(self.reconnection.task);
        Ok(())
    }

    /// One half of a pair was answered.
    pub(super) fn half_answered(
        &mut self,
        shard: &mut Shard,
        (index, slot): (usize, Slot),
        carried: Carried,
        data: Option<Buf>,
        entry: &CompletionEntry,
    ) {
        self.reconnection.has_lived();
        let half = command::disk_status(Operation::CompareAndWrite { durable: false }, entry);
        let queue = &mut self.queues[index];
        let ended = match carried {
            Carried::Compare { write } => {
                drop(data);
                queue.free(slot);
                let ended = compare_ended(queue.carried(write), half);
                ended.map(|(request, status)| (write, request, Some(half), status))
            }
            Carried::Write {
                mut request,
                compare,
                ..
            } => {
                request.data = data;
                if compare.is_some() {
                    Some((slot, request, compare, half))
                } else {
                    let write = Some(half);
                    let carried = Carried::Write {
                        request,
                        compare,
                        write,
                    };
                    queue.put(slot, carried);
                    None
                }
            }
            carried => {
                debug_assert!(false, "no other command waits for an answer");
                queue.put(slot, carried);
                None
            }
        };
        if let Some((slot, request, compare, write)) = ended {
            queue.put(slot, Carried::Request(request));
            let status = command::pair_status(compare, Some(write));
            self.end(shard, (index, slot), status);
        }
        self.send_waiting(shard);
    }
}

/// The compare of a pair has ended. The write's request, if that is all that was missing, and how
/// the write ended.
fn compare_ended(
    carried: &mut Option<Carried>,
    status: DiskStatus,
) -> Option<(Request, DiskStatus)> {
    match carried.take() {
        Some(Carried::Write {
            request,
            write: Some(write),
            ..
        }) => Some((request, write)),
        Some(Carried::Write { request, .. }) => {
            let compare = Some(status);
            *carried = Some(Carried::Write {
                request,
                compare,
                write: None,
            });
            None
        }
        other => {
            debug_assert!(
                false,
                "the write of a pair keeps its slot until both have ended"
            );
            *carried = other;
            None
        }
    }
}

/// Whether it travels as two commands.
pub(super) fn is_pair(operation: Operation) -> bool {
    matches!(operation, Operation::CompareAndWrite { .. })
}
