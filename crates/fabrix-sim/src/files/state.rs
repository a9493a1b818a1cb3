//! A file as the kernel keeps it: its page cache, its medium, and the errors of writing back, which
//! each open file is told once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use fabrix_block::{Operation, Status};
use fabrix_rt::{File, Op, errno};

use super::FileHabits;
use crate::choices::Choices;
use crate::images::{BLOCK, Images, Write};
use crate::trace::{self, Entry};
use crate::workload;

/// The state of a file.
pub(crate) struct FileState {
    images: Images,
    habits: FileHabits,
    choices: Choices,
    next: u64,
    /// Failures of writing back.
    failures: u64,
    /// How many of them an open file was told, by descriptor.
    told: BTreeMap<RawFd, u64>,
}

impl FileState {
    pub(super) fn new(habits: FileHabits, choices: Choices) -> Self {
        let blocks = usize::try_from(habits.blocks).expect("a small file");
        Self {
            images: Images::new(blocks * BLOCK),
            habits,
            choices,
            next: 0,
            failures: 0,
            told: BTreeMap::new(),
        }
    }

    pub(super) fn image(&self) -> &[u8] {
        self.images.seen()
    }

    pub(super) fn lose_power(&mut self) {
        self.images.lose_power(&mut self.choices);
        self.failures = 0;
        self.close_all();
    }

    /// The process has ended, and with it its descriptors.
    pub(super) fn close_all(&mut self) {
        self.told.clear();
    }

    /// An operation begins. Result: its number, the time until it takes effect, and the rest of its
    /// time.
    pub(super) fn begin(&mut self, op: &Op) -> (u64, Duration, Duration) {
        self.next += 1;
        if let Some(range) = changes(op) {
            let source = match op {
                Op::Write {
                    buf, start, bytes, ..
                } => buf.bytes()[*start..*start + *bytes].to_vec(),
                _ => vec![0; range.len()],
            };
            let write = Write {
                start: range.start,
                source,
                is_a_hint: false,
            };
            self.images.begin((self.next, 0), write);
        }
        let longest = u64::try_from(self.habits.longest.as_nanos()).expect("a short time");
        let whole = Duration::from_nanos(self.choices.below(longest + 1));
        let whole = whole + self.habits.faults.hang(&mut self.choices, operation(op));
        let nanos = u64::try_from(whole.as_nanos()).expect("a short time");
        let first = Duration::from_nanos(self.choices.below(nanos + 1));
        (self.next, first, whole - first)
    }

    /// An operation that has not taken effect never does.
    pub(super) fn forget(&mut self, number: u64) {
        self.images.forget(number);
    }

    /// An operation takes effect. Its result, as the system call gives it.
    pub(super) fn take_effect(&mut self, number: u64, op: &mut Op) -> i32 {
        let range = changes(op).unwrap_or_default();
        let result = match op {
            Op::Read {
                buf,
                start,
                bytes,
                offset,
                ..
            } => self.read(&mut buf.bytes_mut()[*start..*start + *bytes], *offset),
            Op::Write { durable, .. } => self.write(number, range, *durable),
            Op::Sync { .. } => {
                self.write_back(self.images.whole());
                Ok(0)
            }
            Op::Allocate { .. } if self.habits.allocates => self
                .interrupt()
                .and_then(|()| self.change(number, range, false))
                .map(|()| 0),
            _ => Err(errno::EOPNOTSUPP),
        };
        trace::note(|| self.entry(op, result));
        match result {
            Ok(bytes) => i32::try_from(bytes).expect("a short operation"),
            Err(errno) => -errno,
        }
    }

    /// An operation has taken effect, with what reads see now.
    fn entry(&self, op: &Op, result: Result<usize, i32>) -> Entry {
        let word = operation(op).word();
        let entry = match result {
            Ok(_) => Entry::new("file", format!("carries out a {word}")).status(Status::Ok),
            Err(errno) => Entry::new("file", format!("fails a {word}, errno {errno}")),
        };
        let Some(range) = touches(op) else {
            return entry.blocks(0..0);
        };
        let blocks = (range.start / BLOCK) as u64..(range.end / BLOCK) as u64;
        let values = workload::values(&self.images.seen()[range], blocks.clone());
        entry.blocks(blocks).values(&values.unwrap_or_default())
    }

    /// An operation ends. One that promises durability tells of failures to write back of which
    /// this descriptor was not told.
    pub(super) fn end(&mut self, op: &Op, result: i32) -> i32 {
        match op {
            Op::Sync { file }
            | Op::Write {
                file,
                durable: true,
                ..
            } if result >= 0 && self.is_news(file) => -errno::EIO,
            _ => result,
        }
    }

    fn is_news(&mut self, file: &File) -> bool {
        self.told.insert(file.as_raw_fd(), self.failures) != Some(self.failures)
            && self.failures > 0
    }

    fn read(&mut self, into: &mut [u8], offset: u64) -> Result<usize, i32> {
        self.interrupt()?;
        let start = usize::try_from(offset).expect("a small file");
        let mut bytes = into.len();
        self.verdict(Operation::Read, start..start + bytes)?;
        if self.ends_early() {
            bytes = BLOCK + self.choices.index(bytes - BLOCK + 1);
        }
        into[..bytes].copy_from_slice(&self.images.seen()[start..start + bytes]);
        Ok(bytes)
    }

    fn write(&mut self, number: u64, range: Range<usize>, durable: bool) -> Result<usize, i32> {
        self.interrupt()?;
        let mut bytes = range.len();
        if self.ends_early() {
            bytes = BLOCK * (1 + self.choices.index(bytes / BLOCK));
        }
        self.change(number, range.start..range.start + bytes, durable)?;
        Ok(bytes)
    }

    /// Carries out a write of the first bytes of an operation.
    fn change(&mut self, number: u64, range: Range<usize>, durable: bool) -> Result<(), i32> {
        let place = (number, 0);
        let write = Operation::Write { durable };
        if let Err(errno) = self.verdict(write, range.clone()) {
            self.images.tear(place, &mut self.choices);
            return Err(errno);
        }
        let changed = self
            .images
            .take_effect(place, range.len(), &mut self.choices);
        if durable {
            self.write_back(changed);
        }
        Ok(())
    }

    fn verdict(&mut self, operation: Operation, range: Range<usize>) -> Result<(), i32> {
        let block = |byte: usize| (byte / BLOCK) as u64;
        let blocks = block(range.start)..block(range.end);
        let faults = &self.habits.faults;
        match faults.verdict(&mut self.choices, operation, &blocks) {
            Status::Ok => Ok(()),
            Status::NoSpace => Err(errno::ENOSPC),
            _ => Err(errno::EIO),
        }
    }

    fn write_back(&mut self, range: Range<usize>) {
        let fails = self.choices.below(1000) < self.habits.faults.lost_flushes;
        if fails && self.images.give_up(range.clone(), &mut self.choices) {
            self.failures += 1;
        }
        self.images.write_back(range);
    }

    fn interrupt(&mut self) -> Result<(), i32> {
        match self.habits.interrupts && self.choices.once_in(8) {
            true => Err(self.choices.one_of(&[errno::EINTR, errno::EAGAIN])),
            false => Ok(()),
        }
    }

    fn ends_early(&mut self) -> bool {
        self.habits.interrupts && self.choices.once_in(4)
    }
}

/// The bytes of a file that an operation changes.
fn changes(op: &Op) -> Option<Range<usize>> {
    let (offset, bytes) = match op {
        Op::Write { offset, bytes, .. } => (*offset, *bytes as u64),
        Op::Allocate { offset, bytes, .. } => (*offset, *bytes),
        _ => return None,
    };
    let place = |byte: u64| usize::try_from(byte).expect("a small file");
    Some(place(offset)..place(offset + bytes))
}

/// The bytes of a file that an operation reads or changes.
fn touches(op: &Op) -> Option<Range<usize>> {
    let Op::Read { offset, bytes, .. } = op else {
        return changes(op);
    };
    let start = usize::try_from(*offset).expect("a small file");
    Some(start..start + bytes)
}

/// The kind of an operation.
fn operation(op: &Op) -> Operation {
    match op {
        Op::Read { .. } => Operation::Read,
        Op::Write { durable, .. } => Operation::Write { durable: *durable },
        Op::Allocate { .. } => Operation::Deallocate,
        _ => Operation::Flush,
    }
}
