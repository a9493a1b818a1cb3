//! Host side of one NVMe/RDMA queue: the commands in progress, where their data lies, and their
//! responses.
//!
//! The owner chooses the slot of a command, moves messages, and opens and closes the windows
//! through which the controller reaches the data of a command. The slot is free again with
//! `Completed`, or with the end of the connection. `Completed` comes when the controller has
//! answered, the command's message has left, and the command's window is closed: then nobody uses
//! the data any more.
//!
//! The controller is not trusted. The worst that it can do is end this connection. It reaches no
//! memory but the data of commands in progress.
//!
//! Source: NVM Express RDMA Transport Specification 1.1.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;

use zerocopy::FromBytes;
use zerocopy::little_endian::U16;

use super::IN_CAPSULE_BYTES;
use crate::nvme::queue::{HostEvent, HostTransfer};
use crate::nvme::slot_ids::{MAX_SLOTS, SlotIds};
use crate::nvme::spec::{
    CompletionEntry, KeyedSglDescriptor, MAX_KEYED_BYTES, PSDT_SGL, SglDescriptor, SglKind, Status,
    SubmissionEntry,
};
use crate::{Breach, Slot, Violation};

/// Host side of one queue.
pub struct Host {
    commands: Box<[Command]>,
    ids: SlotIds,
    in_capsule_bytes: u32,
    /// Last completion.
    entry: CompletionEntry,
}

/// One slot and its command.
#[derive(Clone, Copy)]
struct Command {
    /// Slot and generation. The next command in this slot has another id.
    command_id: u16,
    /// What the command waits for. Nothing: the slot is free.
    waits: Waits,
    /// Key of the command's window.
    key: Option<u32>,
    /// Length of the command's data in bytes.
    bytes: u32,
    response: CompletionEntry,
}

/// What a command waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Waits {
    response: bool,
    message: bool,
    window: bool,
}

impl Waits {
    const NOTHING: Self = Self {
        response: false,
        message: false,
        window: false,
    };
}

/// How the data of a command travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carriage {
    /// There is no data.
    None,
    /// The data follows the entry in the capsule.
    InCapsule {
        /// Length of the data in bytes.
        bytes: u32,
    },
    /// The controller reads the data through a window.
    Read {
        /// Length of the data in bytes.
        bytes: u32,
    },
    /// The controller writes the data through a window.
    Write {
        /// Length of the data in bytes.
        bytes: u32,
    },
}

/// A window that the controller reaches data through: its address and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowAddress {
    /// Address of the first byte.
    pub address: u64,
    /// Remote key.
    pub key: u32,
}

/// What a response has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Responded {
    /// The command is complete.
    Completed(HostEvent),
    /// The window of the slot's command has to be closed: then comes [`Host::closed`].
    Close(Slot),
    /// The command's message is still on its way: then comes [`Host::sent`].
    Waiting,
}

impl Host {
    /// A queue with `max_slots` slots, 1 to 4096.
    #[must_use]
    pub fn new(max_slots: u16) -> Self {
        let max_slots = max_slots.clamp(1, MAX_SLOTS);
        let free = Command {
            command_id: 0,
            waits: Waits::NOTHING,
            key: None,
            bytes: 0,
            response: CompletionEntry::new(Status::SUCCESS, 0),
        };
        Self {
            commands: alloc::vec![free; usize::from(max_slots)].into_boxed_slice(),
            ids: SlotIds::new(max_slots),
            in_capsule_bytes: 0,
            entry: CompletionEntry::new(Status::SUCCESS, 0),
        }
    }

    /// Sets the maximum in-capsule data of a command in bytes: IOCCSZ in bytes less the 64 of the
    /// entry. Before the call no data travels in capsules.
    pub fn set_in_capsule(&mut self, bytes: u32) {
        self.in_capsule_bytes = bytes.min(IN_CAPSULE_BYTES);
    }

    /// Completion of the last event.
    #[must_use]
    pub const fn entry(&self) -> &CompletionEntry {
        &self.entry
    }

    /// How the data of a command will travel. None: the slot is in use or does not exist, or a
    /// descriptor cannot hold the length.
    #[must_use]
    pub fn carriage(&self, slot: Slot, transfer: HostTransfer) -> Option<Carriage> {
        let command = self.commands.get(usize::from(slot.0))?;
        let fits = |bytes| bytes <= MAX_KEYED_BYTES;
        if command.waits != Waits::NOTHING {
            return None;
        }
        match transfer {
            HostTransfer::Write { bytes } if bytes > 0 && bytes <= self.in_capsule_bytes => {
                Some(Carriage::InCapsule { bytes })
            }
            HostTransfer::Write { bytes } if bytes > 0 => {
                fits(bytes).then_some(Carriage::Read { bytes })
            }
            HostTransfer::Read { bytes } if bytes > 0 => {
                fits(bytes).then_some(Carriage::Write { bytes })
            }
            _ => Some(Carriage::None),
        }
    }

    /// Begins a command in `slot`, whose data travels as [`carriage`](Self::carriage) has said,
    /// through `window` if it needs one. Fills in the command id and the SGL.
    pub fn begin(
        &mut self,
        slot: Slot,
        entry: &mut SubmissionEntry,
        (carriage, window): (Carriage, Option<WindowAddress>),
    ) {
        let command = &mut self.commands[usize::from(slot.0)];
        command.command_id = self.ids.next(command.command_id, slot);
        command.key = window.map(|window| window.key);
        command.waits = Waits {
            response: true,
            message: true,
            window: window.is_some(),
        };
        let window = window.unwrap_or(WindowAddress { address: 0, key: 0 });
        let keyed = |bytes, kind| {
            KeyedSglDescriptor::new(window.address, bytes, window.key, kind).unkeyed()
        };
        (command.bytes, entry.sgl) = match carriage {
            Carriage::None => (0, keyed(0, SglKind::KEYED)),
            Carriage::InCapsule { bytes } => (bytes, SglDescriptor::in_capsule(bytes)),
            Carriage::Read { bytes } | Carriage::Write { bytes } => {
                (bytes, keyed(bytes, SglKind::KEYED_INVALIDATE))
            }
        };
        entry.flags = entry.flags & !PSDT_MASK | PSDT_SGL;
        entry.command_id = U16::new(command.command_id);
    }

    /// Processes a response, and the key that came with it and is invalid now.
    ///
    /// # Errors
    /// The controller broke the protocol. The connection cannot go on.
    pub fn response(
        &mut self,
        message: &[u8],
        invalidated: Option<u32>,
    ) -> Result<Responded, Violation> {
        let Ok(response) = CompletionEntry::read_from_bytes(message) else {
            let sentence = "a message has not the 16 bytes of a response";
            let found = u64::try_from(message.len()).unwrap_or(u64::MAX);
            let violation = Violation::new(Breach::HeaderField, 0, sentence).found(found);
            return Err(violation.with_header(message));
        };
        let id = response.command_id.get();
        let slot = self.ids.slot(id);
        let broken = |offset, found: u32, sentence| {
            let violation = Violation::new(Breach::Sequence, offset, sentence);
            Err(violation.found(found.into()).with_header(message))
        };
        let found = self.commands.get_mut(usize::from(slot.0));
        let found = found.filter(|command| command.waits.response && command.command_id == id);
        let Some(command) = found else {
            let sentence = "a response to a command that is not in progress";
            return broken(ID_OFFSET, id.into(), sentence);
        };
        if let Some(key) = invalidated
            && command.key != Some(key)
        {
            return broken(
                0,
                key,
                "a response invalidates a key that is not its command's",
            );
        }
        command.response = response;
        command.waits.response = false;
        if command.waits.window {
            return Ok(Responded::Close(slot));
        }
        let completed = self.complete(slot);
        Ok(completed.map_or(Responded::Waiting, Responded::Completed))
    }

    /// The message of a slot's command has left.
    pub fn sent(&mut self, slot: Slot) -> Option<HostEvent> {
        self.commands[usize::from(slot.0)].waits.message = false;
        self.complete(slot)
    }

    /// The window of a slot's command is closed.
    pub fn closed(&mut self, slot: Slot) -> Option<HostEvent> {
        self.commands[usize::from(slot.0)].waits.window = false;
        self.complete(slot)
    }

    /// The event of a command that waits for nothing any more.
    fn complete(&mut self, slot: Slot) -> Option<HostEvent> {
        let command = &self.commands[usize::from(slot.0)];
        if command.waits != Waits::NOTHING {
            return None;
        }
        self.entry = command.response;
        Some(HostEvent::Completed {
            slot,
            data_bytes: command.bytes,
            intact: true,
        })
    }
}

/// PSDT in the flags byte of an entry.
const PSDT_MASK: u8 = 0b1100_0000;
/// Offset of the command id in a response.
const ID_OFFSET: u32 = 12;
