//! SCSI Command: its flags and lengths, and their check against the negotiated parameters.
//!
//! The content of CDBs is unknown here. The machine itself answers a valid command that the target
//! does not support (data in both directions, a CDB of more than 16 bytes, a write that is too
//! large). Such a command takes a slot.
//!
//! Source: RFC 7143, section 11.3 "SCSI Command", section 4.2.5 "Data Transfer".

use super::answer::{Answer, SENSE_INVALID_FIELD, SENSE_INVALID_OPCODE};
use super::tasks::{Direction, Task, TaskState};
use super::{Event, Fault, Received, Target, Transfer};
use crate::iscsi::framing::{Framing, Piece, Segment};
use crate::iscsi::pdu::{
    BasicHeader, COMMAND_READ, COMMAND_WRITE, FINAL, NO_TAG, RejectReason, ScsiCommand,
};
use crate::{Breach, Claim, Slot};

impl Target {
    /// Processes a command that has entered the window.
    pub(super) fn scsi_command<F: Framing>(
        &mut self,
        extended: bool,
        out: &mut F,
    ) -> Result<Received, Fault> {
        let (basic, command) = (self.basic(), self.header_as::<ScsiCommand>());
        if let Some(reason) = self.unwelcome(&basic) {
            self.leave(&basic);
            self.send_reject(reason, out);
            return Ok(Received::event(None));
        }
        self.check_announcement(&command)?;
        let mut task = self.task(&command);
        if let Some(answer) = self.refusal(&command, extended) {
            task.state = TaskState::Answered(answer);
        }
        self.begin(task, command.data_bytes.get(), out)
    }

    /// Reason to reject a command regardless of its content.
    fn unwelcome(&self, basic: &BasicHeader) -> Option<RejectReason> {
        let itt = basic.itt.get();
        if self.is_discovery() {
            Some(RejectReason::Protocol)
        } else if itt == NO_TAG {
            Some(RejectReason::InvalidField)
        } else if self.tasks.find(itt).is_some() {
            Some(RejectReason::TaskInProgress)
        } else if basic.is_immediate() && self.immediate >= self.limits.immediate.max(1) {
            Some(RejectReason::TooManyImmediate)
        } else {
            None
        }
    }

    /// Checks the immediate data and the F bit against the negotiated parameters.
    fn check_announcement(&self, command: &ScsiCommand) -> Result<(), Fault> {
        let writes = command.flags & COMMAND_WRITE != 0;
        let immediate = command.data_bytes.get();
        let field = |offset, sentence| Err(Fault::new(Breach::HeaderField, offset, 0, sentence));
        if immediate > 0 && !writes {
            return field(5, "immediate data with a command that writes nothing");
        }
        if immediate > 0 && !self.parameters.immediate_data {
            let sentence = "immediate data, where ImmediateData is No";
            return Err(Fault::new(Breach::Sequence, 5, immediate, sentence));
        }
        if immediate > command.expected_bytes.get() {
            let sentence = "more immediate data than the command has";
            return Err(Fault::new(Breach::DataRange, 5, immediate, sentence));
        }
        if immediate > self.parameters.first_burst_bytes {
            let sentence = "more immediate data than FirstBurstLength";
            return Err(Fault::new(Breach::Limit, 5, immediate, sentence));
        }
        if command.flags & FINAL == 0 && (!writes || self.parameters.initial_r2t) {
            return field(1, "unsolicited data announced where none may come");
        }
        Ok(())
    }

    fn task(&self, command: &ScsiCommand) -> Task {
        let mut task = Task::new(command.itt.get(), command.lun, command.cdb);
        task.attribute = command.attribute();
        task.immediate = self.basic().is_immediate();
        task.direction = direction(command);
        if task.direction != Direction::None {
            task.expected = command.expected_bytes.get();
        }
        task.asked = command.data_bytes.get();
        if command.flags & FINAL == 0 && command.data_bytes.get() < task.expected {
            task.unsolicited = true;
            task.asked = task.expected.min(self.parameters.first_burst_bytes);
        }
        task
    }

    /// The machine's own answer to a command that the target does not support.
    fn refusal(&self, command: &ScsiCommand, extended: bool) -> Option<Answer> {
        let both = COMMAND_READ | COMMAND_WRITE;
        if extended || command.flags & both == both {
            return Some(Answer::check_condition(&SENSE_INVALID_OPCODE));
        }
        let too_large = command.flags & COMMAND_WRITE != 0
            && command.expected_bytes.get() > self.limits.max_write_bytes;
        too_large.then(|| Answer::check_condition(&SENSE_INVALID_FIELD))
    }

    /// Gives the task a slot, and returns where its immediate data goes.
    fn begin<F: Framing>(
        &mut self,
        mut task: Task,
        immediate: u32,
        out: &mut F,
    ) -> Result<Received, Fault> {
        let refused = matches!(task.state, TaskState::Answered(_));
        let whole = immediate > 0 && immediate == task.expected;
        let inline = whole && immediate <= self.limits.max_inline_bytes && !refused;
        if inline {
            task.state = TaskState::Arriving;
        }
        task.arriving = u16::from(immediate > 0);
        let Some(slot) = self.tasks.insert(task) else {
            let sentence = "more commands at once than there are slots";
            return Err(Fault::new(Breach::Limit, 0, 0, sentence));
        };
        out.task(slot);
        self.immediate += u16::from(task.immediate);
        let piece = Piece {
            slot,
            offset: 0,
            bytes: immediate,
        };
        let segment = match (immediate, refused) {
            (0, false) => Segment::Skipped,
            (0, true) => {
                let _ = self.finish_if_quiet(slot, out);
                Segment::Skipped
            }
            (_, false) => Segment::Kept(piece),
            (_, true) => Segment::Dropped(piece),
        };
        let known = !refused && !inline;
        let event = known.then(|| command_event(slot, &task, transfer(&task), true));
        Ok(Received::segment(event, segment))
    }

    /// Ends a task and frees its place in the window, or among the immediate commands.
    pub(super) fn end_task(&mut self, slot: Slot) -> Option<Task> {
        let task = self.tasks.remove(slot)?;
        if task.immediate {
            self.immediate = self.immediate.saturating_sub(1);
        } else {
            self.window.leave();
        }
        Some(task)
    }
}

/// The event that hands a task to the owner of the connection.
pub(super) fn command_event(slot: Slot, task: &Task, transfer: Transfer, intact: bool) -> Event {
    Event::Command {
        claim: Claim::new(slot),
        cdb: task.cdb,
        lun: task.lun,
        attribute: task.attribute,
        transfer,
        intact,
    }
}

fn direction(command: &ScsiCommand) -> Direction {
    match command.flags & (COMMAND_READ | COMMAND_WRITE) {
        COMMAND_READ => Direction::Read,
        COMMAND_WRITE => Direction::Write,
        0 => Direction::None,
        // The target refuses the command, but must follow the data that it writes.
        _ => Direction::Write,
    }
}

fn transfer(task: &Task) -> Transfer {
    let bytes = task.expected;
    match task.direction {
        _ if bytes == 0 => Transfer::None,
        Direction::None => Transfer::None,
        Direction::Read => Transfer::Send { bytes },
        Direction::Write => Transfer::Fetch {
            bytes,
            arriving: task.asked > 0,
        },
    }
}
