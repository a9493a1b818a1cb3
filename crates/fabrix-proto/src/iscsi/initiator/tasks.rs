//! Tasks in progress, by slot, and their tags.
//!
//! A tag consists of a slot and a generation, so that a late PDU of the slot's earlier task matches
//! no task. Tags above all slots belong to requests that are not tasks.

use alloc::boxed::Box;

use super::Transfer;
use crate::Slot;

/// Direction of a task's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Direction {
    #[default]
    None,
    Write,
    Read,
}

/// One slot and its task.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Task {
    in_use: bool,
    generation: u16,
    pub(super) direction: Direction,
    /// Length of the task's data in bytes.
    pub(super) bytes: u32,
    /// Bytes that were received, or handed out for sending.
    pub(super) moved: u32,
    /// Number of Data-In or R2T PDUs so far.
    pub(super) pdus: u32,
    pub(super) intact: bool,
    /// Status and residual of the Data-In whose data is arriving.
    pub(super) status: Option<(u8, u32)>,
}

pub(super) struct TaskTable {
    tasks: Box<[Task]>,
    in_use: usize,
}

impl TaskTable {
    pub(super) fn new(slots: u16) -> Self {
        Self {
            tasks: alloc::vec![Task::default(); usize::from(slots)].into_boxed_slice(),
            in_use: 0,
        }
    }

    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    /// Occupies a free slot. Its task gets a tag that differs from the last tag of the slot.
    pub(super) fn take(&mut self, slot: Slot, transfer: Transfer) -> Option<u32> {
        let task = self
            .tasks
            .get_mut(usize::from(slot.0))
            .filter(|task| !task.in_use)?;
        let (direction, bytes) = match transfer {
            Transfer::Write { bytes } if bytes > 0 => (Direction::Write, bytes),
            Transfer::Read { bytes } if bytes > 0 => (Direction::Read, bytes),
            _ => (Direction::None, 0),
        };
        *task = Task {
            in_use: true,
            generation: task.generation.wrapping_add(1),
            direction,
            bytes,
            moved: 0,
            pdus: 0,
            intact: true,
            status: None,
        };
        self.in_use += 1;
        Some(tag(task.generation, slot.0))
    }

    /// Slot of the task in progress with this tag. Tags of earlier generations match no task.
    pub(super) fn find(&self, itt: u32) -> Option<Slot> {
        let slot = u16::try_from(itt & 0xFFFF).ok()?;
        let task = self.tasks.get(usize::from(slot))?;
        (task.in_use && tag(task.generation, slot) == itt).then_some(Slot(slot))
    }

    pub(super) fn at(&mut self, slot: Slot) -> &mut Task {
        &mut self.tasks[usize::from(slot.0)]
    }

    /// Frees a slot, and returns its task.
    pub(super) fn free(&mut self, slot: Slot) -> Task {
        let task = self.at(slot);
        debug_assert!(task.in_use, "{slot:?} is free already");
        task.in_use = false;
        let task = *task;
        self.in_use -= 1;
        task
    }
}

/// Kind of a request that is not a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    Ping,
    Text,
    Logout,
}

impl Errand {
    /// Tag of such a request. `number` distinguishes requests of the same kind.
    pub(super) fn tag(self, number: u16) -> u32 {
        tag(number, ERRANDS + self as u16)
    }

    /// Whether a tag belongs to this kind, with any number.
    pub(super) fn has(self, itt: u32) -> bool {
        itt & 0xFFFF == u32::from(ERRANDS + self as u16)
    }
}

fn tag(generation: u16, slot: u16) -> u32 {
    u32::from(generation) << 16 | u32::from(slot)
}

/// Low half of the tags of such requests: above all slots, and below the 0xFFFF of `NO_TAG`.
const ERRANDS: u16 = 0xFFF0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iscsi::pdu::NO_TAG;

    #[test]
    fn a_late_tag_is_nobodys_and_no_tag_names_nothing() {
        let mut tasks = TaskTable::new(2);
        let take = |tasks: &mut TaskTable| tasks.take(Slot(1), Transfer::None);
        let first = take(&mut tasks).expect("a free slot");
        assert_eq!(take(&mut tasks), None, "in use");
        assert_eq!(tasks.find(first), Some(Slot(1)));
        tasks.free(Slot(1));
        assert_eq!(tasks.find(first), None);
        let second = take(&mut tasks).expect("a free slot");
        assert_ne!(first, second);
        for wrong in [first, NO_TAG, second ^ 1, second & 0xFFFF | 5] {
            assert_eq!(tasks.find(wrong), None, "{wrong:#x}");
        }
    }
}
