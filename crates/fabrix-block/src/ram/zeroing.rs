//! Zeroes long ranges of a RAM disk piece by piece, one piece per turn of the shard, so that other
//! tasks run in between. Releasing the pages of a large range takes the kernel milliseconds.
//!
//! A channel's task owns the ranges and their progress. It touches only the disk's memory. A piece
//! ends at a multiple of its length from the start of the disk, so that huge pages are released
//! whole.

use std::collections::VecDeque;

use fabrix_rt::{Completion, Loan, Shard, TaskId, Token};

use super::Memory;
use crate::task::{ChannelTask, complete};
use crate::{Request, Status, Submit};

pub(super) struct Zeroing {
    id: TaskId,
    memory: Memory,
    /// Ranges in progress. The front is the next to be worked on.
    ranges: VecDeque<Range>,
}

/// Remaining part of a request.
struct Range {
    caller: Token,
    lba: u64,
    blocks: u32,
    deallocate: bool,
}

impl Zeroing {
    pub(super) fn new(id: TaskId, memory: Memory) -> Self {
        let ranges = VecDeque::with_capacity(RANGES_MAX);
        Self { id, memory, ranges }
    }

    /// Zeroes one piece of the front range and moves the range to the back.
    fn step(&mut self, shard: &mut Shard) {
        let Some(mut range) = self.ranges.pop_front() else {
            return;
        };
        let most = AT_ONCE_BYTES / u64::from(self.memory.geometry.block_bytes);
        let to_the_boundary = u32::try_from(most - range.lba % most).unwrap_or(u32::MAX);
        let piece = range.blocks.min(to_the_boundary);
        self.memory.zero(range.lba, piece, range.deallocate);
        range.lba += u64::from(piece);
        range.blocks -= piece;
        if range.blocks > 0 {
            return self.ranges.push_back(range);
        }
        complete(shard, range.caller, Status::Ok, Loan::None);
    }
}

impl ChannelTask for Zeroing {
    /// Accepts a request. Its blocks lie on the disk.
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if self.ranges.len() == RANGES_MAX {
            return Submit::Busy(request);
        }
        self.ranges.push_back(Range {
            caller: request.token,
            lba: request.lba,
            blocks: request.blocks,
            deallocate: request.operation.deallocates(),
        });
        shard.flush_later(self.id);
        Submit::Pending
    }

    fn completed(&mut self, _shard: &mut Shard, _slot: u32, _completion: Completion) {
        debug_assert!(false, "it starts no operations");
    }

    fn flush(&mut self, shard: &mut Shard) {
        self.step(shard);
        if !self.ranges.is_empty() {
            shard.flush_later(self.id);
        }
    }

    fn is_idle(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// Length of a piece: 16 MiB, about one millisecond of work when every page was written.
pub(super) const AT_ONCE_BYTES: u64 = 16 << 20;
/// Largest number of requests in progress per channel. Further requests get `Busy`.
const RANGES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FrontEnd, on_both_engines, ram_disk};
    use crate::{Channel, Operation, Payload};

    const BLOCKS_AT_ONCE: u32 = 32768;
    const _: () = assert!(BLOCKS_AT_ONCE as u64 * 512 == AT_ONCE_BYTES);

    fn begin(
        front: &mut FrontEnd,
        channel: &mut Box<dyn Channel>,
        (lba, blocks): (u64, u32),
    ) -> Option<u32> {
        let submitted = front.submit(channel, Operation::Deallocate, lba, blocks, Payload::None);
        submitted.err()
    }

    #[test]
    fn a_long_range_takes_a_turn_for_each_piece_and_others_have_theirs() {
        let disk = ram_disk(u64::from(BLOCKS_AT_ONCE) * 8);
        let last = u64::from(BLOCKS_AT_ONCE) * 4 + 6;
        on_both_engines(|front| {
            let mut channel = front.open(&disk);
            for lba in [0, 7, last, last + 1] {
                assert_eq!(front.write(&mut channel, lba, &[7; 512]), Status::Ok);
            }
            // A range from within the first piece to within the fifth.
            let range = (7, BLOCKS_AT_ONCE * 4);
            let long = begin(front, &mut channel, range).expect("it takes its time");
            for _ in 0..4 {
                front.turns(1);
                assert!(
                    !front.has_ended(long),
                    "all of it in fewer turns than pieces"
                );
                assert_eq!(
                    front.read(&mut channel, last, 1),
                    Ok(vec![7; 512]),
                    "its turn is to come"
                );
            }
            assert_eq!(front.wait(long).0, Status::Ok);
            for (lba, is) in [(0, 7), (7, 0), (last, 0), (last + 1, 7)] {
                assert_eq!(
                    front.read(&mut channel, lba, 1),
                    Ok(vec![is; 512]),
                    "block {lba}"
                );
            }
            assert_eq!(
                begin(front, &mut channel, (0, BLOCKS_AT_ONCE)),
                None,
                "no longer than a piece"
            );
        });
    }

    #[test]
    fn a_second_long_range_does_not_wait_for_the_first() {
        let disk = ram_disk(u64::from(BLOCKS_AT_ONCE) * 64);
        on_both_engines(|front| {
            let mut channel = front.open(&disk);
            let longest = begin(front, &mut channel, (0, BLOCKS_AT_ONCE * 64));
            let other = begin(front, &mut channel, (0, BLOCKS_AT_ONCE * 2));
            let [longest, other] = [longest, other].map(|slot| slot.expect("it takes its time"));
            front.wait(other);
            assert!(!front.has_ended(longest));
            front.wait(longest);
        });
    }

    #[test]
    fn more_ranges_than_there_is_room_for_are_told_to_wait() {
        let disk = ram_disk(u64::from(BLOCKS_AT_ONCE) * 2);
        let mut front = FrontEnd::new();
        let mut channel = front.open(&disk);
        let range = (0, BLOCKS_AT_ONCE * 2);
        let begun: Vec<_> = (0..RANGES_MAX)
            .map(|_| begin(&mut front, &mut channel, range))
            .collect();
        let one_more = Request {
            operation: Operation::Deallocate,
            lba: 0,
            blocks: BLOCKS_AT_ONCE * 2,
            payload: Payload::None,
            token: front.token(),
        };
        assert!(matches!(
            channel.submit(&mut front.shard, one_more),
            Submit::Busy(_)
        ));
        for slot in begun {
            assert_eq!(front.wait(slot.expect("it takes its time")).0, Status::Ok);
        }
    }

    #[test]
    fn what_has_begun_ends_although_its_channel_is_gone() {
        let disk = ram_disk(u64::from(BLOCKS_AT_ONCE) * 4);
        on_both_engines(|front| {
            let mut channel = front.open(&disk);
            let end = u64::from(BLOCKS_AT_ONCE) * 4 - 1;
            assert_eq!(front.write(&mut channel, end, &[7; 512]), Status::Ok);
            let long =
                begin(front, &mut channel, (0, BLOCKS_AT_ONCE * 4)).expect("it takes its time");
            drop(channel);
            assert_eq!(front.wait(long).0, Status::Ok);
            let mut again = front.open(&disk);
            assert_eq!(front.read(&mut again, end, 1), Ok(vec![0; 512]));
        });
    }
}
