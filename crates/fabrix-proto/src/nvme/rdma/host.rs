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

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use zerocopy::IntoBytes;

    use super::*;

    const WINDOW: WindowAddress = WindowAddress {
        address: 0x1000,
        key: 0x0700,
    };

    /// Begins a command in a slot. Returns its entry as bytes.
    fn begin(host: &mut Host, slot: u16, transfer: HostTransfer) -> Vec<u8> {
        let mut entry = SubmissionEntry::read(1, 0, 8);
        let carriage = host.carriage(Slot(slot), transfer).expect("a free slot");
        let window = match carriage {
            Carriage::Read { .. } | Carriage::Write { .. } => Some(WINDOW),
            Carriage::None | Carriage::InCapsule { .. } => None,
        };
        host.begin(Slot(slot), &mut entry, (carriage, window));
        entry.as_bytes().to_vec()
    }

    /// A response to the command of an entry.
    fn response(entry: &[u8], status: Status) -> Vec<u8> {
        let mut response = CompletionEntry::new(status, 0);
        response.command_id = U16::new(u16::from_le_bytes([entry[2], entry[3]]));
        response.as_bytes().to_vec()
    }

    fn completed(slot: u16, data_bytes: u32) -> HostEvent {
        HostEvent::Completed {
            slot: Slot(slot),
            data_bytes,
            intact: true,
        }
    }

    #[test]
    fn data_in_a_window_has_an_address_a_length_and_a_key_to_invalidate() {
        let mut host = Host::new(4);
        let bytes = 0x0001_2345;
        let entry = begin(&mut host, 2, HostTransfer::Read { bytes });
        assert_eq!(entry[1], 0x40);
        assert_eq!(entry[24..32], 0x1000_u64.to_le_bytes());
        assert_eq!(entry[32..35], [0x45, 0x23, 0x01]);
        assert_eq!(entry[35..39], 0x0700_u32.to_le_bytes());
        assert_eq!(entry[39], 0x4F);
    }

    #[test]
    fn short_writes_travel_in_their_capsules_once_the_controller_allows_it() {
        let mut host = Host::new(4);
        let write = |bytes| HostTransfer::Write { bytes };
        let slot = Slot(0);
        assert_eq!(
            host.carriage(slot, write(512)),
            Some(Carriage::Read { bytes: 512 })
        );
        host.set_in_capsule(8192);
        for (bytes, expected) in [
            (0, Carriage::None),
            (4096, Carriage::InCapsule { bytes: 4096 }),
            (4097, Carriage::Read { bytes: 4097 }),
        ] {
            assert_eq!(host.carriage(slot, write(bytes)), Some(expected));
        }
        host.set_in_capsule(1024);
        assert_eq!(
            host.carriage(slot, write(1025)),
            Some(Carriage::Read { bytes: 1025 })
        );
        let entry = begin(&mut host, 0, write(1024));
        assert_eq!(entry[24..32], [0; 8]);
        assert_eq!(entry[32..36], 1024_u32.to_le_bytes());
        assert_eq!(entry[39], 0x01);
    }

    #[test]
    fn a_command_without_data_has_an_empty_keyed_descriptor() {
        let mut host = Host::new(4);
        let entry = begin(&mut host, 0, HostTransfer::None);
        assert_eq!(entry[24..39], [0; 15]);
        assert_eq!(entry[39], 0x40);
    }

    #[test]
    fn a_command_completes_when_answer_message_and_window_are_done_in_any_order() {
        let bytes = 512;
        for order in 0..3 {
            let mut host = Host::new(2);
            let entry = begin(&mut host, 1, HostTransfer::Read { bytes });
            let answer = response(&entry, Status::SUCCESS);
            if order == 0 {
                assert_eq!(host.sent(Slot(1)), None);
            }
            let responded = host.response(&answer, Some(WINDOW.key));
            assert_eq!(responded, Ok(Responded::Close(Slot(1))));
            if order == 1 {
                assert_eq!(host.sent(Slot(1)), None);
            }
            let closed = host.closed(Slot(1));
            if order == 2 {
                assert_eq!(closed, None);
                assert_eq!(host.sent(Slot(1)), Some(completed(1, bytes)));
            } else {
                assert_eq!(closed, Some(completed(1, bytes)));
            }
            assert!(host.carriage(Slot(1), HostTransfer::None).is_some());
        }
    }

    #[test]
    fn an_answer_before_the_end_of_its_message_waits_for_it() {
        let mut host = Host::new(2);
        let entry = begin(&mut host, 0, HostTransfer::None);
        let answer = response(&entry, Status::INVALID_FIELD);
        assert_eq!(host.response(&answer, None), Ok(Responded::Waiting));
        assert_eq!(host.carriage(Slot(0), HostTransfer::None), None);
        assert_eq!(host.sent(Slot(0)), Some(completed(0, 0)));
        assert_eq!(host.entry().status(), Status::INVALID_FIELD);
    }

    #[test]
    fn a_response_that_answers_nothing_is_a_violation() {
        let mut host = Host::new(3);
        let first = begin(&mut host, 0, HostTransfer::None);
        host.sent(Slot(0));
        let answer = response(&first, Status::SUCCESS);
        assert!(host.response(&answer, None).is_ok());
        assert!(host.response(&answer, None).is_err(), "it was answered");
        begin(&mut host, 0, HostTransfer::None);
        assert!(host.response(&answer, None).is_err(), "an earlier command");
        let mut unknown = answer;
        unknown[12..14].copy_from_slice(&3_u16.to_le_bytes());
        assert!(host.response(&unknown, None).is_err(), "there is no slot 3");
    }

    #[test]
    fn a_message_of_another_length_is_a_violation() {
        let mut host = Host::new(1);
        let entry = begin(&mut host, 0, HostTransfer::None);
        let mut answer = response(&entry, Status::SUCCESS);
        answer.push(0);
        for end in (0..16).chain([17]) {
            assert!(host.response(&answer[..end], None).is_err(), "{end}");
        }
        assert!(host.response(&answer[..16], None).is_ok());
    }

    #[test]
    fn a_response_invalidates_the_key_of_its_command_and_no_other() {
        let mut host = Host::new(2);
        let bytes = 512;
        let with = begin(&mut host, 0, HostTransfer::Read { bytes });
        let without = begin(&mut host, 1, HostTransfer::None);
        let other = host.response(&response(&with, Status::SUCCESS), Some(1));
        assert!(other.is_err());
        let none = host.response(&response(&without, Status::SUCCESS), Some(WINDOW.key));
        assert!(none.is_err());
        let right = host.response(&response(&with, Status::SUCCESS), None);
        assert_eq!(right, Ok(Responded::Close(Slot(0))));
    }

    #[test]
    fn no_descriptor_holds_16_mebibytes() {
        let host = Host::new(1);
        let carriage = |bytes| host.carriage(Slot(0), HostTransfer::Read { bytes });
        assert_eq!(carriage(1 << 24), None);
        assert!(carriage((1 << 24) - 1).is_some());
        assert_eq!(host.carriage(Slot(1), HostTransfer::None), None);
    }
}
