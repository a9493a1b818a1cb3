//! What a request of a workload may bring, as the checker knows it.

use std::ops::Range;

use fabrix_block::{Deallocate, Operation, Status};
use fabrix_rt::Loan;

use super::values;
use crate::checker::{Checker, ReadId, Value, WriteId};
use crate::choices::Choices;
use crate::disk_faults::DiskFaults;

/// What a request in progress may bring.
pub(super) enum Expectation {
    Read(ReadId),
    Flush(ReadId),
    Write(WriteId),
    /// A deallocation without a promise: zeroes or the old bytes.
    Hint(WriteId),
    Compare {
        read: ReadId,
        expected: Value,
        write: WriteId,
    },
}

impl Expectation {
    /// A request begins. `deallocate`: what a deallocated block holds.
    pub(super) fn new(
        checker: &mut Checker,
        choices: &mut Choices,
        operation: Operation,
        blocks: &Range<u64>,
        deallocate: Deallocate,
    ) -> Self {
        let range = blocks.clone();
        match operation {
            Operation::Read => Self::Read(checker.read_begins(range)),
            Operation::Flush => Self::Flush(checker.flush_begins()),
            Operation::CompareAndWrite { .. } => {
                // Now and then a value that the block cannot hold.
                let expected = match choices.once_in(8) {
                    true => Value::MAX,
                    false => checker.guess(blocks.start),
                };
                let value = checker.next_value();
                let read = checker.read_begins(range.clone());
                let write = checker.write_begins(value, range);
                Self::Compare {
                    read,
                    expected,
                    write,
                }
            }
            Operation::Write { .. } => {
                let value = checker.next_value();
                Self::Write(checker.write_begins(value, range))
            }
            Operation::Deallocate if deallocate != Deallocate::Zeroes => {
                Self::Hint(checker.write_begins(0, range))
            }
            Operation::WriteZeroes { .. } | Operation::Deallocate => {
                Self::Write(checker.write_begins(0, range))
            }
        }
    }

    /// What the request writes, after what it compares with.
    pub(super) fn values(&self) -> [Value; 2] {
        match self {
            Self::Read(_) | Self::Flush(_) => [0, 0],
            Self::Write(write) | Self::Hint(write) => [0, write.value],
            Self::Compare {
                expected, write, ..
            } => [*expected, write.value],
        }
    }

    /// The write of the request, if it writes.
    pub(super) fn write(&self) -> Option<WriteId> {
        match self {
            Self::Read(_) | Self::Flush(_) => None,
            Self::Write(write) | Self::Hint(write) | Self::Compare { write, .. } => Some(*write),
        }
    }

    /// The request has ended. `durable`: what it has written is on the medium.
    ///
    /// # Errors
    /// A sentence: what cannot be.
    pub(super) fn ended(
        self,
        checker: &mut Checker,
        blocks: Range<u64>,
        (status, loan): (Status, &Loan),
        durable: bool,
    ) -> Result<(), String> {
        match (self, status) {
            (Self::Read(read), Status::Ok) => {
                let Loan::Buf(buf) = loan else {
                    return Err("a read came back without its buffer".to_owned());
                };
                let values = values(buf.bytes(), blocks)?;
                let ended = checker.read_ends(read, &values);
                return ended.map_err(|wrong| wrong.to_string());
            }
            (Self::Flush(flush), Status::Ok) => checker.flush_ends(flush),
            (Self::Read(read) | Self::Flush(read), _) => checker.read_fails(read),
            (Self::Write(write), Status::Ok) => checker.write_ends(write, blocks, durable),
            // Nobody knows what has become of it.
            (Self::Write(write) | Self::Hint(write), Status::Aborted | Status::NotReady) => {
                checker.write_fails(write, blocks, true);
            }
            (Self::Write(write) | Self::Hint(write), _) => checker.may_have_changed(write, blocks),
            (
                Self::Compare {
                    read,
                    expected,
                    write,
                },
                _,
            ) => return compared(checker, (read, expected, write), blocks, status, durable),
        }
        Ok(())
    }
}

fn compared(
    checker: &mut Checker,
    (read, expected, write): (ReadId, Value, WriteId),
    blocks: Range<u64>,
    status: Status,
    durable: bool,
) -> Result<(), String> {
    match status {
        Status::Ok => checker
            .compare_ends(read, expected, write, durable)
            .map_err(|wrong| format!("the comparison succeeded, but {wrong}")),
        Status::CompareFailed => checker
            .compare_fails(read, expected, write)
            .map_err(|wrong| format!("the comparison failed, but {wrong}")),
        Status::Aborted | Status::NotReady => {
            checker.read_fails(read);
            checker.write_fails(write, blocks, true);
            Ok(())
        }
        _ => {
            checker.read_fails(read);
            checker.may_have_changed(write, blocks);
            Ok(())
        }
    }
}

/// Whether a request may end so, on a disk with these faults.
pub(super) fn fits(operation: Operation, status: Status, faults: &DiskFaults) -> bool {
    match status {
        Status::Ok => true,
        // Nobody knows whether it was carried out when its connection was lost.
        Status::CompareFailed | Status::Aborted => {
            matches!(operation, Operation::CompareAndWrite { .. })
        }
        _ => faults.explain(operation, status),
    }
}
