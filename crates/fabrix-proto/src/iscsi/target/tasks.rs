//! The tasks in progress of one connection.
//!
//! The table has a fixed size and allocates only when it is made. It knows the free slots, the
//! Initiator Task Tags in use, and how much of each task's data was requested and has arrived. PDUs
//! are unknown here.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::answer::Answer;
use crate::Slot;
use crate::iscsi::keys::R2TS_MAX;
use crate::iscsi::pdu::{Lun, NO_TAG, TaskAttribute};

/// One task in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    /// Initiator Task Tag, in every PDU of the task.
    pub(super) itt: u32,
    /// Logical unit of the command.
    pub(super) lun: Lun,
    /// The first 16 bytes of the CDB.
    pub(super) cdb: [u8; 16],
    /// Task attribute: order among other tasks.
    pub(super) attribute: TaskAttribute,
    /// True for an immediate command, which takes no CmdSN.
    pub(super) immediate: bool,
    /// Progress of the task: data arriving, with the owner of the connection, or being answered.
    pub(super) state: TaskState,
    /// Direction of the data.
    pub(super) direction: Direction,
    /// Expected Data Transfer Length, in bytes.
    pub(super) expected: u32,
    /// Bytes of a write that have arrived.
    pub(super) received: u32,
    /// End of the write's data that R2Ts have requested or that comes unsolicited, in bytes.
    pub(super) asked: u32,
    /// True while unsolicited Data-Out PDUs are outstanding.
    pub(super) unsolicited: bool,
    /// True if the arriving piece is the last of the unsolicited data.
    pub(super) ends: bool,
    /// Number of pieces that may be written to the slot's memory now.
    pub(super) arriving: u16,
    /// True after the owner of the connection has called `fetch`.
    pub(super) fetching: bool,
    /// True after the event that all data has arrived.
    pub(super) complete: bool,
    /// True while every data digest matched.
    pub(super) intact: bool,
    /// Expected DataSN of the next Data-Out in the current sequence.
    pub(super) data_sn: u32,
    /// R2TSN of the next R2T.
    pub(super) r2t_sn: u32,
    /// Outstanding R2Ts, the oldest first.
    pub(super) r2ts: R2ts,
}

/// State of a task.
#[derive(Clone, Copy, Debug)]
pub(super) enum TaskState {
    /// The slot is empty.
    Free,
    /// The immediate data of the command is arriving. Its event has not been reported yet.
    Arriving,
    /// The owner of the connection executes the command.
    Owned,
    /// The command is answered. The response is sent when the outstanding data has arrived.
    Answered(Answer),
    /// The task is aborted. Its slot becomes free when the arriving piece has ended.
    Aborted,
}

/// Direction of a task's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    None,
    Read,
    Write,
}

/// Piece of a write that an R2T has requested.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct R2t {
    pub(super) ttt: u32,
    /// End of the piece, in bytes from the start of the task's data.
    pub(super) end: u32,
}

/// The R2Ts of one task, in order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct R2ts {
    list: [R2t; R2TS_MAX as usize],
    count: u8,
}

impl R2ts {
    pub(super) fn push(&mut self, r2t: R2t) {
        self.list[usize::from(self.count)] = r2t;
        self.count += 1;
    }

    /// The oldest R2T. Its data comes next.
    pub(super) fn first(&self) -> Option<R2t> {
        (self.count > 0).then_some(self.list[0])
    }

    pub(super) fn pop(&mut self) {
        self.list.rotate_left(1);
        self.count = self.count.saturating_sub(1);
    }

    pub(super) fn contains(&self, ttt: u32) -> bool {
        self.list[..usize::from(self.count)]
            .iter()
            .any(|r2t| r2t.ttt == ttt)
    }

    pub(super) fn len(&self) -> u16 {
        u16::from(self.count)
    }
}

impl Task {
    /// A task without data and without received bytes. The caller sets the other fields.
    pub(super) fn new(itt: u32, lun: Lun, cdb: [u8; 16]) -> Self {
        Self {
            itt,
            lun,
            cdb,
            attribute: TaskAttribute::UNTAGGED,
            immediate: false,
            state: TaskState::Owned,
            direction: Direction::None,
            expected: 0,
            received: 0,
            asked: 0,
            unsolicited: false,
            ends: false,
            arriving: 0,
            fetching: false,
            complete: false,
            intact: true,
            data_sn: 0,
            r2t_sn: 0,
            r2ts: R2ts::default(),
        }
    }

    /// Whether requested or announced data has not arrived yet.
    pub(super) fn awaits_data(&self) -> bool {
        self.unsolicited || self.r2ts.first().is_some()
    }
}

/// All tasks in progress of one connection.
///
/// The table looks up the Initiator Task Tag of every command, because a tag must not be in use
/// twice. Tags with the same low bits form a chain of slots. Initiators count their tags or number
/// them by their own slots, so chains are short. A search takes at most as many steps as there are
/// slots, even if an initiator chooses tags of one chain.
pub(super) struct TaskTable {
    tasks: Box<[Task]>,
    /// First slot of each chain, or `END`.
    chains: Box<[u16]>,
    /// Next slot in the chain of each slot, or `END`.
    next: Box<[u16]>,
    free: Vec<u16>,
}

impl TaskTable {
    pub(super) fn new(slots: u16) -> Self {
        let mut empty = Task::new(NO_TAG, Lun::default(), [0; 16]);
        empty.state = TaskState::Free;
        Self {
            tasks: alloc::vec![empty; usize::from(slots)].into_boxed_slice(),
            chains: alloc::vec![END; usize::from(slots).next_power_of_two()].into_boxed_slice(),
            next: alloc::vec![END; usize::from(slots)].into_boxed_slice(),
            free: (0..slots).rev().collect(),
        }
    }

    /// The slot of the task with this tag.
    pub(super) fn find(&self, itt: u32) -> Option<Slot> {
        if itt == NO_TAG {
            return None;
        }
        let mut index = self.chains[self.chain(itt)];
        while index != END {
            if self.tasks[usize::from(index)].itt == itt {
                return Some(Slot(index));
            }
            index = self.next[usize::from(index)];
        }
        None
    }

    /// Index of the chain of a tag. At least one chain exists.
    fn chain(&self, itt: u32) -> usize {
        itt as usize & (self.chains.len() - 1)
    }

    /// Puts a task into a free slot. `None` when all slots are in use.
    pub(super) fn insert(&mut self, task: Task) -> Option<Slot> {
        let index = self.free.pop()?;
        let chain = self.chain(task.itt);
        self.next[usize::from(index)] = core::mem::replace(&mut self.chains[chain], index);
        self.tasks[usize::from(index)] = task;
        Some(Slot(index))
    }

    /// The task in a slot. `None` for a free slot or a number beyond the table, which a peer may
    /// have sent.
    pub(super) fn get(&mut self, slot: Slot) -> Option<&mut Task> {
        self.tasks
            .get_mut(usize::from(slot.0))
            .filter(|task| !matches!(task.state, TaskState::Free))
    }

    /// Empties a slot.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Task> {
        let task = *self.get(slot)?;
        self.tasks[usize::from(slot.0)].state = TaskState::Free;
        self.unchain(slot.0, task.itt);
        self.free.push(slot.0);
        Some(task)
    }

    fn unchain(&mut self, index: u16, itt: u32) {
        let chain = self.chain(itt);
        let after = self.next[usize::from(index)];
        let mut link = &mut self.chains[chain];
        while *link != index {
            link = &mut self.next[usize::from(*link)];
        }
        *link = after;
    }

    /// Tasks that the owner of the connection executes.
    pub(super) fn owned(&self) -> impl Iterator<Item = (Slot, Lun)> {
        (0..).zip(&self.tasks).filter_map(|(index, task)| {
            matches!(task.state, TaskState::Owned).then_some((Slot(index), task.lun))
        })
    }

    /// Tasks that are answered, and whose response waits for outstanding data.
    pub(super) fn answered(&self) -> impl Iterator<Item = (Slot, Lun)> {
        (0..).zip(&self.tasks).filter_map(|(index, task)| {
            matches!(task.state, TaskState::Answered(_)).then_some((Slot(index), task.lun))
        })
    }

    /// Number of slots in use.
    pub(super) fn in_use(&self) -> usize {
        self.tasks.len() - self.free.len()
    }
}

/// End of a chain. The number is larger than every slot number.
const END: u16 = u16::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn task(itt: u32) -> Task {
        Task::new(itt, Lun::default(), [0; 16])
    }

    #[test]
    fn a_full_table_gives_no_slot_until_one_is_removed() {
        let mut table = TaskTable::new(1);
        let slot = table.insert(task(7)).expect("empty");
        assert!(table.insert(task(8)).is_none());
        assert_eq!(table.find(7), Some(slot));
        assert_eq!((table.find(8), table.find(NO_TAG)), (None, None));
        assert!(table.remove(slot).is_some() && table.remove(slot).is_none());
        assert_eq!((table.find(7), table.in_use()), (None, 0));
    }

    #[test]
    fn tags_of_one_chain_are_told_apart_in_whatever_order_they_go() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
            let mut table = TaskTable::new(4);
            let tags = [5, 5 + (1 << 8), 5 + (1 << 31)];
            let slots = tags.map(|itt| table.insert(task(itt)).expect("room"));
            for (gone, &which) in order.iter().enumerate() {
                assert_eq!(table.find(tags[which]), Some(slots[which]));
                assert!(table.remove(slots[which]).is_some());
                let found = tags.map(|itt| table.find(itt).is_some());
                assert_eq!(found.iter().filter(|found| **found).count(), 2 - gone);
                assert!(!found[which]);
            }
        }
        assert_eq!(TaskTable::new(0).find(5), None);
    }

    #[test]
    fn a_slot_number_beyond_the_table_is_nobody() {
        assert!(TaskTable::new(3).get(Slot(3)).is_none());
    }

    #[test]
    fn r2ts_are_fulfilled_in_their_order() {
        let mut r2ts = R2ts::default();
        for ttt in 1..=u32::from(R2TS_MAX) {
            r2ts.push(R2t { ttt, end: ttt * 10 });
        }
        r2ts.pop();
        assert_eq!(r2ts.first().map(|r2t| r2t.ttt), Some(2));
        assert!(r2ts.contains(8) && !r2ts.contains(1));
        assert_eq!(r2ts.len(), R2TS_MAX - 1);
    }
}
