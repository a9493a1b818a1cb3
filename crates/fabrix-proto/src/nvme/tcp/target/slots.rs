//! The commands in progress of one connection, on the controller's side.
//!
//! The table has a fixed size and allocates only when it is made. It knows the free slots, the
//! command ids in use, and how much of each command's data was granted and has arrived. PDUs are
//! unknown here.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::Slot;
use crate::nvme::command_ids::CommandIds;
use crate::nvme::spec::CompletionEntry;

/// One command in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    /// Command identifier (CCCID), echoed in every PDU of this command.
    pub(super) command_id: u16,
    /// Whether this command holds `command_id`. False if the command was refused because another
    /// command holds the id.
    holds_id: bool,
    /// True for an Asynchronous Event Request. The host may reuse its id for another command.
    waits_for_event: bool,
    /// The host has reused this command's id. An answer would be mistaken for the newer command's,
    /// so none is sent.
    pub(super) forgotten: bool,
    /// Progress of the command: data arriving, with the owner, or being answered.
    pub(super) state: CommandState,
    /// Length of the command's data in bytes, in either direction.
    pub(super) bytes: u32,
    /// Bytes of a write that have arrived.
    pub(super) received: u32,
    /// End of the write's data that R2Ts have requested or that the capsule contains, in bytes.
    pub(super) granted: u32,
    /// True while every data digest matched.
    pub(super) intact: bool,
}

impl Command {
    /// Whether requested data has not arrived yet.
    pub(super) fn is_arriving(&self) -> bool {
        self.received < self.granted
    }
}

/// State of a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum CommandState {
    /// The slot is empty.
    Free,
    /// The in-capsule data of the command is arriving.
    Arriving,
    /// The owner executes the command. If `fetchable`, the owner may request the data once.
    Owned { fetchable: bool, sends: bool },
    /// The owner waits for the data that it has requested.
    Fetching,
    /// The command is answered. The response is sent when the outstanding data has arrived.
    Answered(CompletionEntry),
}

impl CommandState {
    /// The owner executes the command, and all data has arrived. Only the answer is missing.
    pub(super) const COMPLETE: Self = Self::Owned {
        fetchable: false,
        sends: false,
    };
}

/// All commands in progress of one connection.
pub(super) struct SlotTable {
    commands: Box<[Command]>,
    free: Vec<u16>,
    ids: CommandIds,
}

impl SlotTable {
    /// A table of `max_slots` empty slots, at least one.
    pub(super) fn new(max_slots: u16) -> Self {
        let count = max_slots.max(1);
        let empty = Command {
            command_id: 0,
            holds_id: false,
            waits_for_event: false,
            forgotten: false,
            state: CommandState::Free,
            bytes: 0,
            received: 0,
            granted: 0,
            intact: true,
        };
        Self {
            commands: alloc::vec![empty; usize::from(count)].into_boxed_slice(),
            free: (0..count).rev().collect(),
            ids: CommandIds::new(),
        }
    }

    /// Whether a command in progress has this id.
    pub(super) fn is_taken(&self, command_id: u16) -> bool {
        self.ids.is_taken(command_id)
    }

    /// Puts a command into a free slot. `None` when all slots are in use.
    ///
    /// A command with an id in use gets a slot too, because its data has to be received. It does
    /// not hold the id.
    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        command_id: u16,
        state: CommandState,
        bytes: u32,
    ) -> Option<Slot> {
        let index = self.free.pop()?;
        let holds_id = self.ids.take(command_id);
        self.commands[usize::from(index)] = Command {
            command_id,
            holds_id,
            waits_for_event: false,
            forgotten: false,
            state,
            bytes,
            received: 0,
            granted: 0,
            intact: true,
        };
        Some(Slot(index))
    }

    /// Marks the command in this slot as an Asynchronous Event Request.
    pub(super) fn set_waits_for_event(&mut self, slot: Slot) {
        if let Some(command) = self.get(slot) {
            command.waits_for_event = true;
        }
    }

    /// Frees the id of an event request. The request keeps its slot until it is answered. Returns
    /// false if the id belongs to another command.
    pub(super) fn forget_event_request(&mut self, command_id: u16) -> bool {
        let holder = |command: &Command| command.holds_id && command.command_id == command_id;
        let Some(index) = self.commands.iter().position(holder) else {
            return false;
        };
        self.forget(index)
    }

    /// Frees the ids of all event requests.
    pub(super) fn forget_event_requests(&mut self) {
        for index in 0..self.commands.len() {
            self.forget(index);
        }
    }

    fn forget(&mut self, index: usize) -> bool {
        let command = &mut self.commands[index];
        if !command.holds_id || !command.waits_for_event {
            return false;
        }
        (command.holds_id, command.forgotten) = (false, true);
        self.ids.free(command.command_id);
        true
    }

    /// The command in a slot. `None` for a free slot or a number beyond the table, which a peer may
    /// have sent.
    pub(super) fn get(&mut self, slot: Slot) -> Option<&mut Command> {
        self.commands
            .get_mut(usize::from(slot.0))
            .filter(|command| !matches!(command.state, CommandState::Free))
    }

    /// Frees a slot and the id of its command.
    #[inline(always)]
    pub(super) fn remove(&mut self, slot: Slot) {
        let Some(command) = self.get(slot) else {
            return;
        };
        let (command_id, holds_id) = (command.command_id, command.holds_id);
        command.state = CommandState::Free;
        command.holds_id = false;
        if holds_id {
            self.ids.free(command_id);
        }
        self.free.push(slot.0);
    }

    /// Number of slots in use.
    pub(super) fn in_use(&self) -> usize {
        self.commands.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNED: CommandState = CommandState::COMPLETE;

    #[test]
    fn a_full_table_gives_no_slot_until_one_is_removed() {
        let mut table = SlotTable::new(2);
        let first = table.insert(1, OWNED, 0).expect("empty");
        table.insert(2, OWNED, 0).expect("one left");
        assert!(table.insert(3, OWNED, 0).is_none());
        assert!(!table.is_taken(3));
        table.remove(first);
        assert_eq!(table.in_use(), 1);
        assert!(table.insert(3, OWNED, 0).is_some());
    }

    #[test]
    fn a_duplicate_leaves_the_first_commands_id_taken() {
        let mut table = SlotTable::new(4);
        let first = table.insert(0xFFFF, OWNED, 0).expect("empty");
        let second = table.insert(0xFFFF, OWNED, 0).expect("room");
        table.remove(second);
        assert!(table.is_taken(0xFFFF));
        table.remove(first);
        assert!(!table.is_taken(0xFFFF));
    }

    #[test]
    fn an_event_request_gives_its_id_away_and_keeps_its_slot() {
        let mut table = SlotTable::new(3);
        let event = table.insert(5, OWNED, 0).expect("empty");
        table.set_waits_for_event(event);
        let other = table.insert(6, OWNED, 0).expect("room");
        assert!(!table.forget_event_request(6) && !table.forget_event_request(7));
        assert!(table.forget_event_request(5) && !table.is_taken(5));
        assert!(!table.forget_event_request(5), "nobody holds it any more");
        let second = table.insert(5, OWNED, 0).expect("room");
        table.remove(event);
        assert!(table.is_taken(5), "it is the second command's now");
        table.remove(second);
        table.set_waits_for_event(other);
        table.forget_event_requests();
        assert!(!table.is_taken(6) && table.in_use() == 1);
        table.remove(other);
        assert!(!table.is_taken(5) && table.in_use() == 0);
    }

    #[test]
    fn removing_twice_frees_one_slot_once() {
        let mut table = SlotTable::new(1);
        let slot = table.insert(7, OWNED, 0).expect("empty");
        table.remove(slot);
        table.remove(slot);
        assert_eq!(table.in_use(), 0);
        assert!(table.insert(7, OWNED, 0).is_some());
        assert!(table.insert(8, OWNED, 0).is_none());
    }

    #[test]
    fn a_slot_number_beyond_the_table_is_nobody() {
        let mut table = SlotTable::new(3);
        assert!(table.get(Slot(3)).is_none());
        assert!(table.get(Slot(u16::MAX)).is_none());
        table.remove(Slot(u16::MAX));
    }
}
