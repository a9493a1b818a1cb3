//! Limits of one send, so that the tasks of a shard share the processor.
//!
//! A send occupies the processor until the kernel has copied its bytes, and other tasks wait
//! meanwhile. So a task that sends much sends it in several calls if other tasks are active, in
//! smaller ones if another task sends short answers.

use std::time::Duration;

use crate::{Nanos, TaskId};

/// Recently active tasks.
pub(super) struct Turns {
    last: TaskId,
    shared_until: Nanos,
    short: TaskId,
    short_until: Nanos,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self {
            last: TaskId::NOBODY,
            shared_until: Nanos(0),
            short: TaskId::NOBODY,
            short_until: Nanos(0),
        }
    }

    /// An operation of a task has ended.
    #[inline]
    pub(super) fn ended(&mut self, task: TaskId, now: Nanos) {
        if self.last != task {
            if self.last != TaskId::NOBODY {
                self.shared_until = now + LATELY;
            }
            self.last = task;
        }
    }

    /// Most bytes of a send that one call sends.
    pub(super) fn at_once(&mut self, task: TaskId, bytes: usize, now: Nanos) -> usize {
        if bytes <= SHORT_BYTES {
            (self.short, self.short_until) = (task, now + LATELY);
            usize::MAX
        } else if now < self.short_until && self.short != task {
            BESIDE_SHORT_BYTES
        } else if now < self.shared_until {
            SHARED_BYTES
        } else {
            usize::MAX
        }
    }
}

/// Time for which a task counts as active.
const LATELY: Duration = Duration::from_millis(1);
/// Longest short send: an answer or two, for which a host waits.
const SHORT_BYTES: usize = 16 << 10;
/// Most bytes of one call while another task makes short sends.
const BESIDE_SHORT_BYTES: usize = (128 << 10) + AROUND_BYTES;
/// Most bytes of one call while all active tasks send much. Less would cost 7 % of the throughput
/// of two hosts that read blocks of 128 KiB.
const SHARED_BYTES: usize = (256 << 10) + AROUND_BYTES;
/// Room for the headers and digests of one or two blocks of 128 KiB. Without it a call would leave
/// the last bytes of a block to the next call.
const AROUND_BYTES: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const MUCH: usize = 1 << 20;
    const LITTLE: usize = 4 << 10;

    fn task(index: u32) -> TaskId {
        TaskId::new(index, 0)
    }

    #[test]
    fn who_is_alone_sends_all_at_once() {
        let mut turns = Turns::new();
        turns.ended(task(1), Nanos(5));
        turns.ended(task(1), Nanos(6));
        assert_eq!(turns.at_once(task(1), LITTLE, Nanos(7)), usize::MAX);
        assert_eq!(turns.at_once(task(1), MUCH, Nanos(8)), usize::MAX);
    }

    #[test]
    fn who_sends_much_leaves_turns_to_others_and_more_of_them_to_who_sends_little() {
        let mut turns = Turns::new();
        turns.ended(task(1), Nanos(5));
        turns.ended(task(2), Nanos(6));
        assert_eq!(turns.at_once(task(1), MUCH, Nanos(7)), SHARED_BYTES);
        turns.at_once(task(2), LITTLE, Nanos(8));
        assert_eq!(turns.at_once(task(1), MUCH, Nanos(9)), BESIDE_SHORT_BYTES);
        assert_eq!(turns.at_once(task(2), MUCH, Nanos(9)), SHARED_BYTES);
        let later = Nanos(9) + LATELY;
        assert_eq!(turns.at_once(task(1), MUCH, later), usize::MAX);
    }

    #[test]
    fn what_one_call_sends_ends_with_no_few_bytes_of_a_block_left() {
        const BLOCK: usize = 24 + (128 << 10) + 2 * 4; // NVMe/TCP, data with both digests
        const COMMAND: usize = 72 + 4; // may stand in between
        let mut turns = Turns::new();
        turns.ended(task(1), Nanos(5));
        turns.ended(task(2), Nanos(6));
        assert!(turns.at_once(task(1), MUCH, Nanos(7)) >= 2 * (BLOCK + COMMAND));
        turns.at_once(task(2), LITTLE, Nanos(8));
        assert!(turns.at_once(task(1), MUCH, Nanos(9)) >= BLOCK + COMMAND);
    }
}
