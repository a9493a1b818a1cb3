//! Changes of the disk whose fate is unknown: a lost path may have carried them out, or may do so
//! later. Repeated too early, such a request could overwrite newer data of the same blocks at last.
//!
//! While a request is unsettled, requests that change some of its blocks wait, and so do flushes.
//! Reads go on: a request without an answer may be seen or not.

use fabrix_block::Operation;
use fabrix_rt::Nanos;

use crate::request::Request;

/// The unsettled requests of a pool.
pub(super) struct Unsettled {
    all: Vec<One>,
}

struct One {
    slot: u32,
    /// The path, and the number of its association that was lost.
    of: (usize, u32),
    /// First block, and the one behind the last.
    from: u64,
    to: u64,
    /// When the lost path executes nothing more.
    until: Nanos,
}

impl Unsettled {
    pub(super) fn new(capacity: u16) -> Self {
        let all = Vec::with_capacity(capacity.into());
        Self { all }
    }

    /// A path has lost a request, and its target may execute it until a time.
    pub(super) fn add(&mut self, (slot, of): (u32, (usize, u32)), request: &Request, until: Nanos) {
        let (from, to) = blocks(request);
        self.all.push(One {
            slot,
            of,
            from,
            to,
            until,
        });
    }

    /// Whether a request may be sent.
    pub(super) fn lets_go(&self, request: &Request) -> bool {
        if self.all.is_empty() {
            return true;
        }
        let (from, to) = blocks(request);
        match request.operation {
            Operation::Read => true,
            Operation::Flush => false,
            _ => !self.all.iter().any(|one| one.from < to && from < one.to),
        }
    }

    /// The target of a path executes nothing of what was lost before.
    pub(super) fn settled_by(&mut self, path: usize, quiet_at: Nanos) {
        let of_path = self.all.iter_mut().filter(|one| one.of.0 == path);
        of_path.for_each(|one| one.until = one.until.min(quiet_at));
    }

    /// Whether requests of a lost association are unsettled.
    pub(super) fn has(&self, of: (usize, u32)) -> bool {
        self.all.iter().any(|one| one.of == of)
    }

    /// Whether requests of a path are unsettled.
    pub(super) fn has_of(&self, path: usize) -> bool {
        self.all.iter().any(|one| one.of.0 == path)
    }

    /// It is proven that a lost association executes nothing more.
    pub(super) fn proven(&mut self, of: (usize, u32), now: Nanos) {
        let of_it = self.all.iter_mut().filter(|one| one.of == of);
        of_it.for_each(|one| one.until = one.until.min(now));
    }

    /// The next request that can be repeated now. Later ones come first: their callers put each
    /// ahead of the one before.
    pub(super) fn next_settled(&mut self, now: Nanos) -> Option<u32> {
        let index = self.all.iter().rposition(|one| one.until <= now)?;
        Some(self.all.remove(index).slot)
    }

    /// When the next request can be repeated.
    pub(super) fn next_at(&self) -> Option<Nanos> {
        self.all.iter().map(|one| one.until).min()
    }

    /// Takes any request.
    pub(super) fn take_any(&mut self) -> Option<u32> {
        self.all.pop().map(|one| one.slot)
    }
}

fn blocks(request: &Request) -> (u64, u64) {
    (request.lba, request.lba + u64::from(request.blocks))
}

#[cfg(test)]
mod tests {
    use fabrix_block::{Payload, Request as BlockRequest};
    use fabrix_rt::{Shard, ShardConfig, TaskId, Token};

    use super::*;
    use crate::request::Data;

    const WRITE: Operation = Operation::Write { durable: false };

    fn request(operation: Operation, lba: u64, blocks: u32) -> Request {
        let mut shard = Shard::new(ShardConfig::default()).expect("a shard");
        let mut request = BlockRequest {
            operation,
            lba,
            blocks,
            payload: Payload::None,
            token: Token {
                task: TaskId::NOBODY,
                slot: 0,
            },
        };
        let geometry = fabrix_block::Geometry::new(512, 100);
        let data = Data::take(&mut shard, &mut request, &geometry).expect("no data");
        Request::new(&request, data)
    }

    #[test]
    fn what_could_meet_an_unsettled_write_waits_and_all_else_goes() {
        let mut unsettled = Unsettled::new(4);
        let flush = request(Operation::Flush, 0, 0);
        assert!(unsettled.lets_go(&flush));
        unsettled.add((7, (0, 1)), &request(WRITE, 10, 5), Nanos(100));
        let goes = |operation, lba, blocks| unsettled.lets_go(&request(operation, lba, blocks));
        for (lba, blocks, expected) in [(5, 5, true), (5, 6, false), (14, 1, false), (15, 5, true)]
        {
            assert_eq!(
                goes(WRITE, lba, blocks),
                expected,
                "{blocks} blocks from {lba} on"
            );
            assert_eq!(goes(Operation::Deallocate, lba, blocks), expected);
        }
        assert!(goes(Operation::Read, 10, 5));
        assert!(!unsettled.lets_go(&flush), "a flush waits for all");
    }

    #[test]
    fn writes_are_settled_by_time_or_by_their_path_in_their_order() {
        let mut unsettled = Unsettled::new(4);
        for (slot, path, until) in [(1, 0, 100), (2, 1, 50), (3, 0, 100), (4, 1, 200)] {
            unsettled.add((slot, (path, 1)), &request(WRITE, 0, 1), Nanos(until));
        }
        assert_eq!(unsettled.next_at(), Some(Nanos(50)));
        assert_eq!(unsettled.next_settled(Nanos(49)), None);
        assert_eq!(unsettled.next_settled(Nanos(50)), Some(2));
        unsettled.settled_by(0, Nanos(60));
        assert_eq!(unsettled.next_settled(Nanos(60)), Some(3));
        assert_eq!(unsettled.next_settled(Nanos(60)), Some(1));
        assert_eq!(unsettled.next_settled(Nanos(60)), None);
        assert_eq!(unsettled.take_any(), Some(4));
        assert_eq!(unsettled.next_at(), None);
    }

    #[test]
    fn a_proof_settles_the_writes_of_one_association_of_one_path() {
        let mut unsettled = Unsettled::new(4);
        for (slot, of) in [(1, (0, 1)), (2, (0, 2)), (3, (1, 2)), (4, (0, 2))] {
            unsettled.add((slot, of), &request(WRITE, 0, 1), Nanos(100));
        }
        assert!(unsettled.has((0, 2)) && !unsettled.has((1, 1)));
        unsettled.proven((0, 2), Nanos(10));
        assert_eq!(unsettled.next_settled(Nanos(10)), Some(4));
        assert_eq!(unsettled.next_settled(Nanos(10)), Some(2));
        assert_eq!(unsettled.next_settled(Nanos(10)), None);
        assert!(!unsettled.has((0, 2)));
        assert_eq!(unsettled.next_at(), Some(Nanos(100)));
    }
}
