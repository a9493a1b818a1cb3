//! Compare and Write: one request, two fused commands on one queue, one completion.
//!
//! A part of `session`, beside `transfer`, which sends requests with one command.
//! Source: NVM Express Base Specification 2.x, "Fused Operations".

use fabrix_block::{Operation, Status as DiskStatus};
use fabrix_proto::Slot;
use fabrix_proto::nvme::queue::HostTransfer;
use fabrix_proto::nvme::spec::CompletionEntry;
use fabrix_rt::{Buf, Shard};

use super::command;
use super::queue::{Command, NvmeLink};
use super::session::Session;
use crate::connection::InFlight;
use crate::request::Request;

impl<L: NvmeLink> Session<L> {
    /// Sends Compare and Write. Its commands must follow each other on one queue.
    pub(super) fn send_fused(
        &mut self,
        shard: &mut Shard,
        index: usize,
        mut request: Request,
    ) -> Result<(), Request> {
        let (Some(disk), Some(both)) = (&self.plan.expected, request.data.take()) else {
            return Err(request);
        };
        self.last_used = index;
        let bytes = request.blocks.saturating_mul(disk.geometry.block_bytes);
        let (mut compare, mut write) = command::fused(
            disk.nsid,
            (request.lba, request.blocks),
            request.operation.promises_durability(),
        );
        let transfer = HostTransfer::Write { bytes };
        let (now, queue) = (shard.now(), &mut self.connections[index]);
        let half = Some((both.clone(), 0));
        let Some(first) = queue.send(now, &mut compare, transfer, half, Command::Session) else {
            request.data = Some(both);
            return Err(request);
        };
        let half = Some((both, bytes as usize));
        match queue.start(now, &mut write, transfer, half) {
            Ok(second) => {
                let content = InFlight::Other(Command::Write {
                    request,
                    compare: None,
                    write: None,
                    is_refused: false,
                });
                queue.carry(second, content);
                queue.put(first, InFlight::Other(Command::Compare { write: second }));
            }
            Err(data) => {
                request.data = data;
                return Err(request);
            }
        }
        shard.flush_later(self.reconnection.task);
        Ok(())
    }

    /// Processes the answer to one of the two commands.
    pub(super) fn half_answered(
        &mut self,
        shard: &mut Shard,
        (index, slot): (usize, Slot),
        content: InFlight<Command>,
        data: Option<Buf>,
        entry: &CompletionEntry,
    ) {
        self.reconnection.is_useful();
        let half = command::disk_status(Operation::CompareAndWrite { durable: false }, entry);
        let refused = self.is_refused_here(entry);
        let queue = &mut self.connections[index];
        let both = match content {
            InFlight::Other(Command::Compare { write }) => {
                drop(data);
                queue.free(slot);
                let both = compare_answered(queue.content(write), (half, refused));
                both.map(|(request, status, refused)| {
                    (write, request, (Some(half), status), refused)
                })
            }
            InFlight::Other(Command::Write {
                mut request,
                compare,
                is_refused,
                ..
            }) => {
                request.data = data;
                let is_refused = is_refused || refused;
                if compare.is_some() {
                    Some((slot, request, (compare, half), is_refused))
                } else {
                    let write = Some(half);
                    let command = Command::Write {
                        request,
                        compare,
                        write,
                        is_refused,
                    };
                    queue.put(slot, InFlight::Other(command));
                    None
                }
            }
            content => {
                debug_assert!(false, "no other command waits for an answer");
                queue.put(slot, content);
                None
            }
        };
        if let Some((slot, request, (compare, write), is_refused)) = both {
            queue.put(slot, InFlight::Request(request));
            // A pair of which one half is refused is not executed.
            if is_refused && !write.is_ok() {
                self.refused_here(shard, (index, slot));
            } else {
                let status = command::fused_status(compare, Some(write));
                self.complete(shard, (index, slot), status);
            }
        }
        self.send_waiting(shard);
    }
}

/// Notes the status of the Compare in the slot of the Write, and whether it was refused on this
/// path. Yields the request, the status of the Write, and whether one of both was refused, if the
/// Write was answered before.
fn compare_answered(
    content: &mut Option<InFlight<Command>>,
    (status, refused): (DiskStatus, bool),
) -> Option<(Request, DiskStatus, bool)> {
    match content.take() {
        Some(InFlight::Other(Command::Write {
            request,
            write: Some(write),
            is_refused,
            ..
        })) => Some((request, write, is_refused || refused)),
        Some(InFlight::Other(Command::Write { request, .. })) => {
            let compare = Some(status);
            *content = Some(InFlight::Other(Command::Write {
                request,
                compare,
                write: None,
                is_refused: refused,
            }));
            None
        }
        other => {
            debug_assert!(
                false,
                "the Write keeps its slot until both commands are answered"
            );
            *content = other;
            None
        }
    }
}

/// Whether an operation needs two fused commands.
pub(super) fn is_fused(operation: Operation) -> bool {
    matches!(operation, Operation::CompareAndWrite { .. })
}
