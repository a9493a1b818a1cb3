//! The initiator's side of one connection over RDMA.
//!
//! The initiator opens a window to the data of each command and names it in the command's message.
//! The target moves the data through the window, and then answers. The response may close the
//! window (remote invalidation); otherwise this side closes it. A task ends for its owner when the
//! target has answered, the command's message has left, and the window is closed: then nobody uses
//! the data any more.
//!
//! The target is not trusted. The worst that it can do is end this connection. It reaches no memory
//! but the data of commands in progress, and only in the direction of the command.
//!
//! [`framing`] sends the initiator's PDUs. The owner of the connection moves messages, and opens
//! and closes windows ([`Requests`]).
//!
//! Source: RFC 7145, sections 7 and 8.

pub mod framing;

use alloc::boxed::Box;

use self::framing::{InitiatorFraming, Requests};
use super::REPLY_BYTES_MAX;
use super::message::{Message, Tags};
use crate::iscsi::framing::{Endpoint, Segment};
use crate::iscsi::initiator::{Event, Initiator, TaskOutcome};
use crate::iscsi::pdu::{BHS_BYTES, Opcode};
use crate::{Breach, Slot, Violation};

/// Maximum length in bytes of a message to the target, without data that follows it from a slot.
/// The texts of a login are shorter.
pub const REQUEST_BYTES_MAX: usize = REPLY_BYTES_MAX;

/// The initiator's side of one connection.
pub struct IserInitiator {
    initiator: Initiator,
    tasks: Tasks,
    /// Event of the last message that follows the returned one.
    next: Option<Event>,
}

/// Messages and windows of the commands in progress, by slot.
struct Tasks(Box<[Task]>);

/// What a slot's command has outside the initiator.
#[derive(Default)]
struct Task {
    /// Key of the command's window.
    key: Option<u32>,
    /// The command's message has not left.
    sends: bool,
    /// The command's window is being closed.
    closes: bool,
    answer: Option<Answer>,
}

/// Answer to a command whose data is still in use.
struct Answer {
    outcome: TaskOutcome,
    sense: Box<[u8]>,
}

impl Tasks {
    fn of(&mut self, slot: Slot) -> &mut Task {
        &mut self.0[usize::from(slot.0)]
    }
}

impl Task {
    fn uses_data(&self) -> bool {
        self.sends || self.closes
    }
}

impl IserInitiator {
    /// A connection without traffic, of an initiator with `slots` slots.
    #[must_use]
    pub fn new(initiator: Initiator, slots: u16) -> Self {
        let tasks = (0..slots).map(|_| Task::default()).collect();
        Self {
            initiator,
            tasks: Tasks(tasks),
            next: None,
        }
    }

    /// The initiator, for queries.
    #[must_use]
    pub const fn initiator(&self) -> &Initiator {
        &self.initiator
    }

    /// The initiator, and the framing that its calls need.
    #[inline(always)]
    pub fn speak<R: Requests>(&mut self, out: R) -> (&mut Initiator, InitiatorFraming<'_, R>) {
        let framing = InitiatorFraming::new(&mut self.tasks, out);
        (&mut self.initiator, framing)
    }

    /// An event that is left over. The owner takes it before the next message.
    pub fn take_event(&mut self) -> Option<Event> {
        self.next.take()
    }

    /// Processes a message with its data segment, and the key that the message has made invalid.
    ///
    /// # Errors
    /// The target broke a rule. The connection cannot go on.
    pub fn message<R: Requests>(
        &mut self,
        message: &Message,
        data: &[u8],
        invalidated: Option<u32>,
        mut out: R,
    ) -> Result<Option<Event>, Violation> {
        check(message)?;
        let (initiator, mut framing) = self.speak(&mut out);
        let received = initiator.pdu(&message.bhs, &[], &mut framing)?;
        let whole = match received.segment {
            Segment::Whole => initiator.segment(data, true, &mut framing)?,
            Segment::Skipped | Segment::Kept(_) | Segment::Dropped(_) => None,
        };
        let event = match whole {
            Some(event) => {
                self.next = received.event;
                Some(event)
            }
            None => received.event,
        };
        match event {
            Some(Event::Completed { slot, outcome }) => {
                let key = self.tasks.of(slot).key.take();
                check_key(invalidated, key, &message.bhs)?;
                let closes = key.is_some() && !out.close(slot);
                self.tasks.of(slot).closes = closes;
                Ok(self.answered(slot, outcome))
            }
            event => {
                check_key(invalidated, None, &message.bhs)?;
                Ok(event.or_else(|| self.next.take()))
            }
        }
    }

    /// The message of a slot's command has left.
    pub fn sent(&mut self, slot: Slot) -> Option<Event> {
        self.tasks.of(slot).sends = false;
        self.end(slot)
    }

    /// The window of a slot's command is closed.
    pub fn closed(&mut self, slot: Slot) -> Option<Event> {
        self.tasks.of(slot).closes = false;
        self.end(slot)
    }

    /// The target has answered a command: ends the task, or keeps the answer until nobody uses the
    /// task's data.
    fn answered(&mut self, slot: Slot, outcome: TaskOutcome) -> Option<Event> {
        let task = self.tasks.of(slot);
        if task.uses_data() {
            let sense = self.initiator.sense().into();
            task.answer = Some(Answer { outcome, sense });
            return self.next.take();
        }
        Some(Event::Completed { slot, outcome })
    }

    /// Ends a task whose data nobody uses any more, if the target has answered.
    fn end(&mut self, slot: Slot) -> Option<Event> {
        let task = self.tasks.of(slot);
        if task.uses_data() {
            return None;
        }
        let Answer { outcome, sense } = task.answer.take()?;
        self.initiator.restore_sense(&sense);
        Some(Event::Completed { slot, outcome })
    }
}

/// Refuses messages that a target over RDMA does not send.
fn check(message: &Message) -> Result<(), Violation> {
    let kind = Opcode::of(message.bhs[0]);
    let Tags { write, read, .. } = message.tags;
    let sentence = if matches!(kind, Opcode::DATA_IN | Opcode::READY_TO_TRANSFER) {
        "Data-In or R2T over RDMA, where the target moves data itself"
    } else if write.is_some() || read.is_some() {
        "a message of a target names memory by a tag"
    } else {
        return Ok(());
    };
    let violation = Violation::new(Breach::Sequence, 0, sentence);
    Err(violation.found(kind.0.into()).with_header(&message.bhs))
}

/// Checks that a message makes no other key invalid than `key`.
fn check_key(
    invalidated: Option<u32>,
    key: Option<u32>,
    header: &[u8; BHS_BYTES],
) -> Result<(), Violation> {
    match invalidated {
        Some(found) if key != Some(found) => {
            let sentence = "a message invalidates a tag that is not its command's";
            let violation = Violation::new(Breach::Sequence, 0, sentence);
            Err(violation.found(found.into()).with_header(header))
        }
        _ => Ok(()),
    }
}
