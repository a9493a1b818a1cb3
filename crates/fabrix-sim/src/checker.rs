//! The checker: what each block may hold, as its users know it.
//!
//! Every write has a number of its own, which fills its blocks. A block is a register: a read may
//! return the last write that was acknowledged, one that runs, or one that failed and may have
//! happened. A value that was replaced never comes back, unless the power fails: then a block holds
//! what was on its medium (`medium`).

mod block;
mod medium;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use self::block::{Block, Failed};
use crate::trace::{self, Entry};

/// Number of a write. Zero: the block was never written, or holds zeroes.
pub(crate) type Value = u64;

/// A point in the order of events.
type Tick = u64;

/// A write that has begun. Writes of zeroes differ in the times at which they began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WriteId {
    /// What the blocks hold after it.
    pub(crate) value: Value,
    began: Tick,
}

/// All blocks of a disk.
#[derive(Debug)]
pub(crate) struct Checker {
    blocks: Vec<Block>,
    reads: BTreeMap<ReadId, Read>,
    /// Acknowledged writes, by block, that a compare-and-write has replaced.
    replaced: BTreeSet<(u64, Value)>,
    tick: Tick,
    next: Value,
    /// When the power was lost for the last time.
    lost: Tick,
}

/// Number of a read.
pub(crate) type ReadId = u64;

/// A read in progress.
#[derive(Debug)]
struct Read {
    began: Tick,
    first: u64,
    /// What each of its blocks held or may have held since the read began.
    possible: Vec<Vec<Value>>,
}

/// A read returned what the block cannot hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// The block.
    pub(crate) block: u64,
    /// What was read.
    pub(crate) read: Value,
    /// What it may hold.
    pub(crate) possible: Vec<Value>,
}

impl Wrong {
    fn new(block: u64, read: Value, possible: Vec<Value>) -> Self {
        let wrong = Self {
            block,
            read,
            possible,
        };
        trace::note(|| Entry::new(trace::CHECKER, wrong.to_string()).blocks(block..block + 1));
        wrong
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "block {} holds write {}, and may hold only {:?}",
            self.block, self.read, self.possible
        )
    }
}

impl Checker {
    /// A disk of zeroes.
    pub(crate) fn new(blocks: u64) -> Self {
        let block = Block {
            acknowledged: vec![(0, 0)],
            ..Block::default()
        };
        Self {
            blocks: vec![block; usize::try_from(blocks).expect("a small disk")],
            reads: BTreeMap::new(),
            replaced: BTreeSet::new(),
            tick: 0,
            next: 1,
            lost: 0,
        }
    }

    /// A disk of zeroes whose writes have numbers above `first`.
    pub(crate) fn with_values_from(blocks: u64, first: Value) -> Self {
        let next = first + 1;
        Self {
            next,
            ..Self::new(blocks)
        }
    }

    fn now(&mut self) -> Tick {
        self.tick += 1;
        self.tick
    }

    /// A number for the next write.
    pub(crate) fn next_value(&mut self) -> Value {
        self.next += 1;
        self.next - 1
    }

    /// A write of `value` to `blocks` begins. Zero for zeroes.
    pub(crate) fn write_begins(&mut self, value: Value, blocks: Range<u64>) -> WriteId {
        let began = self.now();
        let write = WriteId { value, began };
        for block in self.range(blocks.clone()) {
            block.running.push((write, false));
            block.medium.write_begins(write);
        }
        self.reads_may_see(value, blocks);
        write
    }

    /// A write that was over may happen after all.
    pub(crate) fn write_resumes(&mut self, write: WriteId, blocks: Range<u64>) {
        for block in self.range(blocks.clone()) {
            block.running.push((write, false));
        }
        self.reads_may_see(write.value, blocks);
    }

    fn reads_may_see(&mut self, value: Value, blocks: Range<u64>) {
        for read in self.reads.values_mut() {
            let possible = (read.first..).zip(&mut read.possible);
            for (_, possible) in possible.filter(|(block, _)| blocks.contains(block)) {
                possible.push(value);
            }
        }
    }

    /// A write was acknowledged. `durable`: it is on the medium.
    pub(crate) fn write_ends(&mut self, write: WriteId, blocks: Range<u64>, durable: bool) {
        let now = self.now();
        for block in self.range(blocks) {
            if block.take_running(write).is_none() {
                continue;
            }
            block.acknowledged.retain(|(_, ended)| *ended > write.began);
            block.acknowledged.push((write.value, now));
            block.medium.write_ends(write, now);
            if durable {
                block.medium.is_durable(write);
            }
        }
    }

    /// A write has ended, and each of its blocks has changed or not: a deallocation by a disk that
    /// promises nothing, or a write that the disk has failed.
    pub(crate) fn may_have_changed(&mut self, write: WriteId, blocks: Range<u64>) {
        let now = self.now();
        for block in self.range(blocks) {
            block.take_running(write);
            block.acknowledged.push((write.value, now));
            block.medium.write_ends(write, now);
        }
    }

    /// A flush begins. It is like a read of every block: what it makes durable is what such a read
    /// could return.
    pub(crate) fn flush_begins(&mut self) -> ReadId {
        self.read_begins(0..self.blocks.len() as u64)
    }

    /// A flush was acknowledged.
    pub(crate) fn flush_ends(&mut self, flush: ReadId) {
        let flush = self.reads.remove(&flush).expect("it began");
        for (block, possible) in self.blocks.iter_mut().zip(flush.possible) {
            block.medium.flushed(&possible);
        }
    }

    /// The power of the disk is lost: each block holds what was on its medium.
    pub(crate) fn power_lost(&mut self) {
        let now = self.now();
        self.lost = now;
        self.replaced.clear();
        for block in &mut self.blocks {
            block.power_lost(now);
        }
        for read in self.reads.values_mut() {
            let first = usize::try_from(read.first).expect("a block");
            for (block, possible) in self.blocks[first..].iter().zip(&mut read.possible) {
                possible.extend(block.medium.values());
            }
        }
    }

    /// Whether the power was lost since a write began.
    pub(crate) fn has_lost_power_since(&self, write: WriteId) -> bool {
        self.lost > write.began
    }

    /// A value that a block may hold now, to compare with.
    pub(crate) fn guess(&self, block: u64) -> Value {
        let state = &self.blocks[usize::try_from(block).expect("a block")];
        state.possible().next().unwrap_or(0)
    }

    /// A compare-and-write of one block has replaced `expected` with `value`, and nothing happened
    /// in between: what came after `expected` came after `value` too.
    ///
    /// # Errors
    /// The block cannot have held `expected`, or another compare-and-write has replaced it too.
    pub(crate) fn compare_ends(
        &mut self,
        read: ReadId,
        expected: Value,
        write: WriteId,
        durable: bool,
    ) -> Result<(), String> {
        let it = &self.reads[&read];
        let (block, began) = (it.first, it.began);
        let state = &self.blocks[usize::try_from(block).expect("a block")];
        let was_replaced =
            expected != 0 && began > self.lost && !state.possible().any(|it| it == expected);
        let ended = self.read_ends(read, &[expected]);
        // A write that is not acknowledged may be carried out again. One that this comparison has
        // replaced before a loss of power may have come back.
        let state = &self.blocks[usize::try_from(block).expect("a block")];
        let is_over = !state.running.iter().any(|(it, _)| it.value == expected)
            && !state.failed.iter().any(|it| it.write.value == expected)
            && began > self.lost;
        let was_seen = state.running.contains(&(write, true));
        self.write_ends(write, block..block + 1, durable);
        if was_replaced && !was_seen {
            let state = &mut self.range(block..block + 1)[0];
            state.acknowledged.retain(|(it, _)| *it != write.value);
        }
        ended.map_err(|wrong| wrong.to_string())?;
        if expected != 0 && is_over && !self.replaced.insert((block, expected)) {
            return Err(format!(
                "two comparisons found write {expected} in block {block}"
            ));
        }
        Ok(())
    }

    /// A compare-and-write of one block found another value than `expected`: its write of `value`
    /// never happens.
    ///
    /// # Errors
    /// The block cannot have held another value since the read began.
    pub(crate) fn compare_fails(
        &mut self,
        read: ReadId,
        expected: Value,
        write: WriteId,
    ) -> Result<(), Wrong> {
        let read = self.reads.remove(&read).expect("it began");
        let block = read.first;
        let state = &mut self.range(block..block + 1)[0];
        state.take_running(write);
        state.medium.never_happens(write);
        // Its own value was possible only if the comparison had succeeded.
        let others = |possible: &&Value| ![expected, write.value].contains(*possible);
        match read.possible[0].iter().any(|it| others(&it)) {
            true => Ok(()),
            false => Err(Wrong::new(block, expected, read.possible[0].clone())),
        }
    }

    /// A write has failed, or nobody answered. `repeats`: its host may have sent it again, so a
    /// write that was seen may happen once more.
    pub(crate) fn write_fails(&mut self, write: WriteId, blocks: Range<u64>, repeats: bool) {
        let now = self.now();
        for block in self.range(blocks) {
            let Some(was_seen) = block.take_running(write) else {
                continue;
            };
            if was_seen {
                block.acknowledged.push((write.value, now));
            }
            if repeats || !was_seen {
                block.failed.push(Failed { write, repeats });
            }
        }
    }

    /// A write was refused: it never happens.
    ///
    /// # Errors
    /// Somebody has seen it.
    pub(crate) fn write_never_happens(
        &mut self,
        write: WriteId,
        blocks: Range<u64>,
    ) -> Result<(), String> {
        for (number, block) in (blocks.start..).zip(self.range(blocks)) {
            block.medium.never_happens(write);
            if block.take_running(write) == Some(true) {
                let value = write.value;
                return Err(format!(
                    "block {number} held write {value}, which was refused"
                ));
            }
        }
        Ok(())
    }

    /// The time of a write is over: it has happened by now, or it never does.
    pub(crate) fn is_over(&mut self, write: WriteId, blocks: Range<u64>) {
        let now = self.now();
        for block in self.range(blocks) {
            let ran = block.take_running(write).is_some();
            let failed = block.failed.len();
            block.failed.retain(|it| it.write != write);
            if ran || block.failed.len() < failed {
                block.acknowledged.push((write.value, now));
            }
        }
    }

    /// A read of `blocks` begins.
    pub(crate) fn read_begins(&mut self, blocks: Range<u64>) -> ReadId {
        let began = self.now();
        let first = blocks.start;
        let possible = self.range(blocks).iter();
        let possible = possible.map(|block| block.possible().collect()).collect();
        let read = Read {
            began,
            first,
            possible,
        };
        self.reads.insert(began, read);
        began
    }

    /// A read has failed.
    pub(crate) fn read_fails(&mut self, read: ReadId) {
        self.reads.remove(&read);
    }

    /// A read has returned these values, one for each of its blocks.
    ///
    /// # Errors
    /// A block cannot have held its value.
    pub(crate) fn read_ends(&mut self, read: ReadId, values: &[Value]) -> Result<(), Wrong> {
        let now = self.now();
        let lost = self.lost;
        let read = self.reads.remove(&read).expect("it began");
        let blocks = (read.first..).zip(read.possible).zip(values);
        for ((block, possible), value) in blocks {
            if !possible.contains(value) {
                let read = *value;
                return Err(Wrong::new(block, read, possible));
            }
            let block = &mut self.range(block..block + 1)[0];
            block.saw(*value, read.began, now);
            if read.began > lost {
                block.medium.saw(*value, lost);
            }
        }
        Ok(())
    }

    fn range(&mut self, blocks: Range<u64>) -> &mut [Block] {
        let index = |block| usize::try_from(block).expect("a block");
        &mut self.blocks[index(blocks.start)..index(blocks.end)]
    }
}

#[cfg(test)]
mod tests;
