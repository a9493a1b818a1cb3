//! Controller side of one NVMe/RDMA queue: the commands in progress and their answers.
//!
//! Each receive of the queue is a slot. A command keeps the slot of its capsule until it is
//! answered, so the host cannot have more commands in progress than the queue has receives. The
//! capsule stays in its receive buffer, where the transport reads descriptors and inline data.
//! Messages, keys and data are outside: the owner says what has arrived, and sends what the machine
//! returns.
//!
//! A host gives up its memory when the answer comes. So an answer waits until an RDMA READ of the
//! command has ended: [`Target::answer`] then returns [`Answered::Later`], and the answer comes out
//! of [`Target::fetched`].
//!
//! Source: NVM Express RDMA Transport Specification 1.1.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, FromZeros};

use super::capsule::{ENTRY_BYTES, RESPONSE_BYTES, classify, invalidates};
use crate::nvme::command_ids::CommandIds;
use crate::nvme::queue::{ControllerEvent, Transfer};
use crate::nvme::spec::{AdminOpcode, CompletionEntry, Status, SubmissionEntry};
use crate::nvme::sq_head::SqHead;
use crate::{Breach, Claim, Slot, Violation};

/// Controller side of one queue.
pub struct Target {
    max_data_bytes: u32,
    /// The device can invalidate a key of the host with a message.
    can_invalidate: bool,
    commands: Box<[Option<Command>]>,
    in_use: usize,
    ids: CommandIds,
    sq_head: SqHead,
    admin: bool,
    entry: SubmissionEntry,
}

/// One command in progress.
#[derive(Clone, Copy, Debug)]
struct Command {
    command_id: u16,
    /// False after another command has taken the id: no answer is sent then.
    holds_id: bool,
    /// An Asynchronous Event Request. The host may reuse its id for another command.
    waits_for_event: bool,
    /// Key of the host that the answer makes invalid.
    invalidates: Option<u32>,
    /// Most bytes of data that the host takes.
    sends: u32,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The owner executes the command.
    Owned,
    /// An RDMA READ of the command is in progress.
    Fetching,
    /// The command is answered. The answer waits for the RDMA READ.
    Answered(CompletionEntry),
}

/// A response capsule, and what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The response.
    pub entry: CompletionEntry,
    /// Bytes of the slot's data that go to the host before the response.
    pub data_bytes: u32,
    /// Key of the host that the response makes invalid.
    pub invalidate: Option<u32>,
}

/// What a capsule has become.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrived {
    /// A command for the owner.
    Command(ControllerEvent),
    /// The command is not executed. Its slot is free.
    Refused(Answer),
}

/// What has become of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The answer goes to the host. The slot is free.
    Now(Answer),
    /// The answer comes out of [`Target::fetched`].
    Later,
    /// The host has forgotten the command, so nothing is sent. The slot is free.
    Forgotten,
    /// There is no command to answer in this slot.
    Unknown,
}

/// What follows the end of an RDMA READ.
#[derive(Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The owner goes on with the command.
    Command(ControllerEvent),
    /// The command was answered before. Its slot is free, and the answer goes to the host.
    Answer(Answer),
}

impl Target {
    /// A queue with `slots` receives. `max_data_bytes` is the most data of one command (MDTS).
    #[must_use]
    pub fn new(slots: u16, max_data_bytes: u32, can_invalidate: bool) -> Self {
        Self {
            max_data_bytes,
            can_invalidate,
            commands: alloc::vec![None; usize::from(slots)].into_boxed_slice(),
            in_use: 0,
            ids: CommandIds::new(),
            sq_head: SqHead::new(),
            admin: true,
            entry: SubmissionEntry::new_zeroed(),
        }
    }

    /// Sets kind and size of the queue, from the Connect command. `entries` is a plain count.
    pub fn set_queue(&mut self, admin: bool, entries: u32, flow_control: bool) {
        self.admin = admin;
        self.sq_head.set_entries(entries);
        self.sq_head.set_used(flow_control);
    }

    /// Whether the queue is an admin queue. True before Connect.
    #[must_use]
    pub const fn is_admin(&self) -> bool {
        self.admin
    }

    /// Submission entry of the command that was the last event.
    #[must_use]
    pub const fn entry(&self) -> &SubmissionEntry {
        &self.entry
    }

    /// Commands that are not answered, or whose answers wait for data.
    #[must_use]
    pub const fn slots_in_use(&self) -> usize {
        self.in_use
    }

    /// Takes a capsule that has arrived in the receive of this slot.
    ///
    /// # Errors
    /// The message is no capsule. The connection cannot go on: the host waits for answers that
    /// nobody can give.
    pub fn capsule(&mut self, slot: Slot, capsule: &[u8]) -> Result<Arrived, Violation> {
        let Ok((entry, _)) = SubmissionEntry::read_from_prefix(capsule) else {
            let sentence = "a message is shorter than the 64 bytes of a command";
            let violation = Violation::new(Breach::HeaderField, 0, sentence);
            let found = u64::try_from(capsule.len()).unwrap_or(u64::MAX);
            return Err(violation.found(found).with_header(capsule));
        };
        if !matches!(self.commands.get(usize::from(slot.0)), Some(None)) {
            let sentence = "a message in a slot that is in use";
            return Err(Violation::new(Breach::Sequence, 0, sentence));
        }
        let id = entry.command_id.get();
        let transfer = match classify(capsule, self.max_data_bytes) {
            _ if self.is_in_use(id) => Err(Status::COMMAND_ID_CONFLICT),
            transfer => transfer,
        };
        let invalidates = invalidates(capsule).filter(|_| self.can_invalidate);
        Ok(match transfer {
            Ok(transfer) => Arrived::Command(self.run(slot, entry, transfer, invalidates)),
            Err(status) => {
                let entry = CompletionEntry::new(status, 0);
                Arrived::Refused(self.complete(id, entry, 0, invalidates))
            }
        })
    }

    /// An RDMA READ of the command's data begins. False: the command is none that waits for data.
    pub fn fetch(&mut self, slot: Slot) -> bool {
        let command = self.command(slot);
        let command = command.filter(|command| matches!(command.state, State::Owned));
        command
            .map(|command| command.state = State::Fetching)
            .is_some()
    }

    /// The RDMA READ of a command has ended. None: there was none.
    pub fn fetched(&mut self, slot: Slot) -> Option<Fetched> {
        let command = self.command(slot)?;
        match command.state {
            State::Owned => None,
            State::Fetching => {
                command.state = State::Owned;
                let event = ControllerEvent::Fetched { slot, intact: true };
                Some(Fetched::Command(event))
            }
            State::Answered(entry) => {
                let command = self.remove(slot)?;
                let id = command.command_id;
                let answer = self.complete(id, entry, 0, command.invalidates);
                Some(Fetched::Answer(answer))
            }
        }
    }

    /// Answers a command with the first `data_bytes` of its data. Data beyond what the host takes
    /// is a bug of the caller, and is not sent.
    #[inline(always)]
    pub fn answer(&mut self, slot: Slot, entry: CompletionEntry, data_bytes: u32) -> Answered {
        let Some(command) = self.command(slot) else {
            return Answered::Unknown;
        };
        match command.state {
            State::Fetching => {
                command.state = State::Answered(entry);
                return Answered::Later;
            }
            State::Answered(_) => return Answered::Unknown,
            State::Owned => {}
        }
        let Some(command) = self.remove(slot) else {
            return Answered::Unknown;
        };
        debug_assert!(data_bytes <= command.sends, "more data than the host takes");
        if !command.holds_id {
            self.sq_head.advance();
            return Answered::Forgotten;
        }
        let data_bytes = data_bytes.min(command.sends);
        let (id, key) = (command.command_id, command.invalidates);
        Answered::Now(self.complete(id, entry, data_bytes, key))
    }

    /// Sends no answers to event requests from now on.
    pub fn forget_event_requests(&mut self) {
        for slot in 0..self.commands.len() {
            self.forget(slot);
        }
    }

    fn run(
        &mut self,
        slot: Slot,
        entry: SubmissionEntry,
        transfer: Transfer,
        invalidates: Option<u32>,
    ) -> ControllerEvent {
        let command_id = entry.command_id.get();
        let is_event_request = entry.admin_opcode() == AdminOpcode::ASYNC_EVENT_REQUEST;
        let sends = match transfer {
            Transfer::Send { bytes } => bytes,
            Transfer::None | Transfer::Inline { .. } | Transfer::Fetch { .. } => 0,
        };
        self.ids.take(command_id);
        self.commands[usize::from(slot.0)] = Some(Command {
            command_id,
            holds_id: true,
            waits_for_event: self.admin && is_event_request,
            invalidates,
            sends,
            state: State::Owned,
        });
        self.in_use += 1;
        self.entry = entry;
        ControllerEvent::Command {
            claim: Claim::new(slot),
            transfer,
            intact: true,
        }
    }

    /// Whether a command in progress has this id and keeps it. An event request does not: a host
    /// that forgets it reuses the id.
    fn is_in_use(&mut self, id: u16) -> bool {
        if !self.ids.is_taken(id) {
            return false;
        }
        let holder = |command: &Option<Command>| {
            command.is_some_and(|command| command.holds_id && command.command_id == id)
        };
        let holder = self.commands.iter().position(holder);
        holder.is_none_or(|slot| !self.forget(slot))
    }

    /// Frees the id of an event request. False: the slot has none.
    fn forget(&mut self, slot: usize) -> bool {
        let Some(command) = &mut self.commands[slot] else {
            return false;
        };
        if !command.holds_id || !command.waits_for_event {
            return false;
        }
        command.holds_id = false;
        self.ids.free(command.command_id);
        true
    }

    fn command(&mut self, slot: Slot) -> Option<&mut Command> {
        self.commands.get_mut(usize::from(slot.0))?.as_mut()
    }

    fn remove(&mut self, slot: Slot) -> Option<Command> {
        let command = self.commands.get_mut(usize::from(slot.0))?.take()?;
        if command.holds_id {
            self.ids.free(command.command_id);
        }
        self.in_use -= 1;
        Some(command)
    }

    fn complete(
        &mut self,
        id: u16,
        mut entry: CompletionEntry,
        data_bytes: u32,
        invalidate: Option<u32>,
    ) -> Answer {
        entry.command_id = U16::new(id);
        entry.sq_head = U16::new(self.sq_head.advance());
        Answer {
            entry,
            data_bytes,
            invalidate,
        }
    }
}

const _: () = assert!(size_of::<SubmissionEntry>() == ENTRY_BYTES as usize);
const _: () = assert!(size_of::<CompletionEntry>() == RESPONSE_BYTES as usize);
