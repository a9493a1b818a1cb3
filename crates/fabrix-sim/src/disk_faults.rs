//! How a disk fails, or the disk below a file.

use std::ops::Range;
use std::time::Duration;

use fabrix_block::{Operation, Status};

use crate::choices::Choices;

/// How a disk fails. The default: it never does.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskFaults {
    /// Of 1000 reads and writes, how many fail once.
    pub(crate) errors: u64,
    /// Blocks that cannot be read.
    pub(crate) unreadable: Range<u64>,
    /// Blocks that cannot be written.
    pub(crate) unwritable: Range<u64>,
    /// Blocks for which there is no space.
    pub(crate) without_space: Range<u64>,
    /// Of 1000 flushes and durable writes, how many lose what they were to make durable. It means
    /// nothing without a volatile cache.
    pub(crate) lost_flushes: u64,
    /// Of 1000 writes and flushes, how many hang.
    pub(crate) hangs: u64,
    /// The longest time that a request hangs.
    pub(crate) longest_hang: Duration,
    /// Of 1000 requests, how many find no memory.
    pub(crate) without_memory: u64,
    /// Whether the disk now and then has no room for one more request.
    pub(crate) is_busy: bool,
    /// Whether a file lies on the disk. After a durable write to a file has failed, no flush
    /// succeeds: the error may have been that of an earlier write.
    pub(crate) is_below_a_file: bool,
}

impl DiskFaults {
    /// Some faults of a disk with so many blocks.
    pub(crate) fn draw(choices: &mut Choices, blocks: u64) -> Self {
        Self {
            errors: choices.one_of(&[0, 0, 20, 100]),
            unreadable: range(choices, blocks),
            unwritable: range(choices, blocks),
            without_space: range(choices, blocks),
            lost_flushes: choices.one_of(&[0, 0, 50, 300]),
            hangs: choices.one_of(&[0, 0, 10, 30]),
            longest_hang: Duration::from_millis(choices.one_of(&[200, 5_000, 20_000, 40_000])),
            without_memory: choices.one_of(&[0, 0, 20]),
            is_busy: choices.once_in(2),
            is_below_a_file: false,
        }
    }

    /// The end of a request for these blocks, were it not for lost flushes.
    pub(crate) fn verdict(
        &self,
        choices: &mut Choices,
        operation: Operation,
        blocks: &Range<u64>,
    ) -> Status {
        let meets = |bad: &Range<u64>| bad.start < blocks.end && blocks.start < bad.end;
        let once = choices.below(1000) < self.errors;
        match operation {
            Operation::Flush => Status::Ok,
            Operation::Read if once || meets(&self.unreadable) => Status::MediaRead,
            Operation::Read => Status::Ok,
            _ if meets(&self.unwritable) => Status::MediaWrite,
            _ if meets(&self.without_space) => Status::NoSpace,
            _ if once => choices.one_of(&[Status::MediaWrite, Status::NoSpace]),
            _ => Status::Ok,
        }
    }

    /// How long a request hangs.
    pub(crate) fn hang(&self, choices: &mut Choices, operation: Operation) -> Duration {
        if operation == Operation::Read || choices.below(1000) >= self.hangs {
            return Duration::ZERO;
        }
        let longest = u64::try_from(self.longest_hang.as_nanos()).expect("a short time");
        Duration::from_nanos(choices.below(longest + 1))
    }

    /// Whether a request may end with this status.
    pub(crate) fn explain(&self, operation: Operation, status: Status) -> bool {
        let reads = matches!(
            operation,
            Operation::Read | Operation::CompareAndWrite { .. }
        );
        let writes = operation.writes();
        let lacks_space = self.errors > 0 || !self.without_space.is_empty();
        let fails_writes = self.errors > 0 || !self.unwritable.is_empty();
        let loses_trust = self.is_below_a_file && (fails_writes || lacks_space);
        let flush_fails = self.lost_flushes > 0 || loses_trust;
        match status {
            Status::MediaRead => reads && (self.errors > 0 || !self.unreadable.is_empty()),
            Status::NoSpace => writes && lacks_space,
            Status::MediaWrite => {
                operation != Operation::Read && flush_fails || writes && fails_writes
            }
            Status::NotReady => self.without_memory > 0 || self.hangs > 0,
            _ => false,
        }
    }
}

/// No blocks, or a few.
fn range(choices: &mut Choices, blocks: u64) -> Range<u64> {
    if !choices.once_in(4) {
        return 0..0;
    }
    let first = choices.below(blocks);
    first..choices.between(first + 1, blocks.min(first + 8))
}
