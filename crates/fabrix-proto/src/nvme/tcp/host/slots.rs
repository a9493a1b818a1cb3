//! Commands in progress of one connection, on the host's side.
//!
//! The table has a fixed size and allocates only when it is made. A command id consists of a slot
//! and a generation, so that a late PDU of the slot's earlier command matches no command. PDUs are
//! unknown here.

use alloc::boxed::Box;

use crate::Slot;

/// One slot and its command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Command {
    in_use: bool,
    /// Slot and generation. The next command in this slot has another id.
    pub(super) command_id: u16,
    generation: u16,
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
    /// Number of low bits of a command id that are the slot.
    slot_bits: u32,
}

impl SlotTable {
    /// A table of `max_slots` empty slots, 1 to [`MAX_SLOTS`].
    pub(super) fn new(max_slots: u16) -> Self {
        Self {
            commands: alloc::vec![Command::default(); usize::from(max_slots)].into_boxed_slice(),
            in_use: 0,
            slot_bits: u16::BITS - (max_slots - 1).leading_zeros(),
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
        let slot_bits = self.slot_bits;
        let command = self
            .commands
            .get_mut(usize::from(slot.0))
            .filter(|it| !it.in_use)?;
        let generation = next_generation(command.generation, slot, slot_bits);
        *command = Command {
            in_use: true,
            command_id: generation << slot_bits | slot.0,
            generation,
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
        let slot = command_id & slot_mask(self.slot_bits);
        let command = self.commands.get(usize::from(slot))?;
        (command.in_use && command.command_id == command_id).then_some(Slot(slot))
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

/// Next generation. Skips the one that would make the command id 0xFFFF, which NVMe reserves.
fn next_generation(generation: u16, slot: Slot, slot_bits: u32) -> u16 {
    let largest = u16::MAX >> slot_bits;
    let next = if generation >= largest {
        0
    } else {
        generation + 1
    };
    if next << slot_bits | slot.0 == u16::MAX {
        0
    } else {
        next
    }
}

fn slot_mask(slot_bits: u32) -> u16 {
    (1 << slot_bits) - 1
}

/// Maximum number of slots. Four bits of each command id remain for the generation.
pub(super) const MAX_SLOTS: u16 = 4096;
