//! Commands in progress of one connection, on the host's side.
//!
//! The table has a fixed size and allocates only when it is made. PDUs are unknown here.

use alloc::boxed::Box;

use crate::Slot;
use crate::nvme::slot_ids::SlotIds;

/// One slot and its command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Command {
    in_use: bool,
    /// Slot and generation. The next command in this slot has another id.
    pub(super) command_id: u16,
    pub(super) direction: Direction,
    /// Length of the command's data in bytes.
    pub(super) bytes: u32,
    /// Bytes that were received, or requested by R2Ts.
    pub(super) moved: u32,
    /// Number of R2Ts so far.
    pub(super) r2ts: u32,
    /// Number of R2Ts with unsent data.
    pub(super) r2ts_waiting: u32,
    /// True after a C2HData with the LAST flag.
    pub(super) last: bool,
    pub(super) intact: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Direction {
    #[default]
    None,
    /// By R2T. In-capsule data has been sent with the command.
    Write,
    Read,
}

/// All commands in progress of one connection.
pub(super) struct SlotTable {
    commands: Box<[Command]>,
    in_use: usize,
    ids: SlotIds,
}

impl SlotTable {
    /// A table of `max_slots` empty slots, as [`SlotIds::new`].
    pub(super) fn new(max_slots: u16) -> Self {
        Self {
            commands: alloc::vec![Command::default(); usize::from(max_slots)].into_boxed_slice(),
            in_use: 0,
            ids: SlotIds::new(max_slots),
        }
    }

    /// Number of slots in use.
    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    /// Occupies a free slot. Its command gets an id that differs from the last id of the slot.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        slot: Slot,
        direction: Direction,
        bytes: u32,
        in_capsule: bool,
    ) -> Option<u16> {
        let ids = self.ids;
        let command = self
            .commands
            .get_mut(usize::from(slot.0))
            .filter(|it| !it.in_use)?;
        *command = Command {
            in_use: true,
            command_id: ids.next(command.command_id, slot),
            direction: if in_capsule {
                Direction::None
            } else {
                direction
            },
            bytes,
            moved: if in_capsule { bytes } else { 0 },
            r2ts: 0,
            r2ts_waiting: 0,
            last: false,
            intact: true,
        };
        self.in_use += 1;
        Some(command.command_id)
    }

    /// Slot of the command in progress with this id. Ids of earlier generations match no command.
    #[inline(always)]
    pub(super) fn find(&self, command_id: u16) -> Option<Slot> {
        let slot = self.ids.slot(command_id);
        let command = self.commands.get(usize::from(slot.0))?;
        (command.in_use && command.command_id == command_id).then_some(slot)
    }

    /// Command of a slot that `find` has returned, or whose data is arriving.
    pub(super) fn at(&mut self, slot: Slot) -> &mut Command {
        &mut self.commands[usize::from(slot.0)]
    }

    /// Frees a slot, and returns its command.
    #[inline(always)]
    pub(super) fn free(&mut self, slot: Slot) -> Command {
        let command = self.at(slot);
        command.in_use = false;
        let command = *command;
        self.in_use -= 1;
        command
    }
}
