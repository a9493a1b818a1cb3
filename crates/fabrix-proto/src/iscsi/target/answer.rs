//! Answers to commands (status, sense, residual), and aborts without an answer.
//!
//! Source: RFC 7143, section 11.4 "SCSI Response".

use zerocopy::FromZeros;
use zerocopy::byteorder::big_endian::U32;

use super::Target;
use super::tasks::{Direction, Task, TaskState};
use crate::iscsi::framing::{Framing, Header};
use crate::iscsi::pdu::{
    FINAL, Opcode, RESIDUAL_OVERFLOW, RESIDUAL_UNDERFLOW, ScsiResponse, U24, padding,
};
use crate::{Claim, Settled, Slot};

/// Maximum length of sense data in bytes. It exceeds all sense data of this target, and is small
/// enough to be stored in every slot.
pub const SENSE_BYTES_MAX: usize = 96;
/// Fixed format sense: ABORTED COMMAND, PROTOCOL SERVICE CRC ERROR. The answer to a command with
/// damaged data.
///
/// Source: RFC 7143, section 11.4.7.2.
pub const SENSE_CRC_ERROR: [u8; 18] = fixed_sense(0x0B, 0x47, 0x05);
/// Fixed format sense: ILLEGAL REQUEST, INVALID COMMAND OPERATION CODE.
pub(super) const SENSE_INVALID_OPCODE: [u8; 18] = fixed_sense(0x05, 0x20, 0x00);
/// Fixed format sense: ILLEGAL REQUEST, INVALID FIELD IN CDB.
pub(super) const SENSE_INVALID_FIELD: [u8; 18] = fixed_sense(0x05, 0x24, 0x00);

/// Source: SPC-4, "Fixed format sense data".
const fn fixed_sense(key: u8, code: u8, qualifier: u8) -> [u8; 18] {
    let mut sense = [0; 18];
    sense[0] = 0x70;
    sense[2] = key;
    sense[7] = 10; // bytes behind byte 7
    sense[12] = code;
    sense[13] = qualifier;
    sense
}

/// Answer to a command.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The SCSI status.
    pub status: u8,
    /// Length of the command's data in bytes, independent of the length that the initiator expects.
    /// The residual is the difference. For a read, the target sends this many bytes of the slot, at
    /// most the expected length.
    pub moved: u32,
    sense: [u8; SENSE_BYTES_MAX],
    sense_bytes: u8,
}

impl Answer {
    /// GOOD, with `moved` bytes of data.
    #[must_use]
    pub const fn good(moved: u32) -> Self {
        Self::status(0, moved)
    }

    /// A status without sense.
    #[must_use]
    pub const fn status(status: u8, moved: u32) -> Self {
        Self {
            status,
            moved,
            sense: [0; SENSE_BYTES_MAX],
            sense_bytes: 0,
        }
    }

    /// CHECK CONDITION with sense and without data. At most [`SENSE_BYTES_MAX`] bytes of sense are
    /// sent.
    #[must_use]
    pub fn check_condition(sense: &[u8]) -> Self {
        let mut answer = Self::status(0x02, 0);
        let bytes = sense.len().min(SENSE_BYTES_MAX);
        answer.sense[..bytes].copy_from_slice(&sense[..bytes]);
        answer.sense_bytes = u8::try_from(bytes).unwrap_or(u8::MAX);
        answer
    }

    /// The sense data.
    #[must_use]
    pub fn sense(&self) -> &[u8] {
        &self.sense[..usize::from(self.sense_bytes)]
    }

    /// Whether the answer is GOOD without sense. The last Data-In can carry such an answer.
    pub(super) const fn is_good(&self) -> bool {
        self.status == 0 && self.sense_bytes == 0
    }
}

/// Difference between the length of a command's data and the length that the initiator expects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Residual {
    pub(super) flags: u8,
    pub(super) bytes: u32,
}

impl Residual {
    /// The exact residual, without a flag if there is no difference. ESXi checks both.
    pub(super) fn of(task: &Task, moved: u32) -> Self {
        let flags = match moved.cmp(&task.expected) {
            core::cmp::Ordering::Less => RESIDUAL_UNDERFLOW,
            core::cmp::Ordering::Equal => 0,
            core::cmp::Ordering::Greater => RESIDUAL_OVERFLOW,
        };
        Self {
            flags,
            bytes: moved.abs_diff(task.expected),
        }
    }
}

impl Target {
    /// Answers a command: sends the data of a read from the start of the slot, then the status.
    ///
    /// Returns `true` if the slot is free and the answer is in `out`. Returns `false` if requested
    /// data is still arriving: the machine keeps the answer, and the slot keeps its memory, until
    /// `Event::Released`. A claim of another machine returns `false` without any other effect.
    #[inline(always)]
    pub fn answer<F: Framing>(
        &mut self,
        claim: Claim,
        answer: &Answer,
        out: &mut F,
    ) -> (Settled, bool) {
        let is_free = self.answer_slot(claim.slot(), answer, out);
        (claim.answered(), is_free)
    }

    fn answer_slot<F: Framing>(&mut self, slot: Slot, answer: &Answer, out: &mut F) -> bool {
        let closed = self.closed;
        let Some(task) = self.tasks.get(slot) else {
            return false;
        };
        if !matches!(task.state, TaskState::Owned) {
            return false;
        }
        if task.arriving > 0 && !closed || task.awaits_data() {
            task.state = TaskState::Answered(*answer);
            return false;
        }
        if let Some(task) = self.end_task(slot) {
            self.complete(slot, &task, answer, out);
        }
        true
    }

    /// Ends a command without an answer, for task management. Returns `true` if the slot is free.
    /// Returns `false` if a piece of its data is arriving: the slot keeps its memory until
    /// `Event::Released`. Data that comes later is dropped.
    pub fn abort(&mut self, claim: Claim) -> (Settled, bool) {
        let is_free = self.abort_unclaimed(claim.slot());
        (claim.answered(), is_free)
    }

    /// Aborts a task on which the owner has no claim: the owner has answered or aborted it while
    /// its data was arriving, or has not yet received its event.
    pub fn abort_unclaimed(&mut self, slot: Slot) -> bool {
        let closed = self.closed;
        match self.tasks.get(slot) {
            Some(task) if task.arriving > 0 && !closed => {
                task.state = TaskState::Aborted;
                false
            }
            _ => self.end_task(slot).is_some(),
        }
    }

    /// Sends the answer of a task that has ended, unless the connection is over.
    pub(super) fn complete<F: Framing>(
        &mut self,
        slot: Slot,
        task: &Task,
        answer: &Answer,
        out: &mut F,
    ) {
        if self.closed {
            return;
        }
        let bytes = match task.direction {
            Direction::Read => answer.moved.min(task.expected),
            Direction::None | Direction::Write => 0,
        };
        let pdus = match bytes {
            0 => Some(task.r2t_sn),
            bytes => self.send_data(slot, (task, bytes), answer, out),
        };
        if let Some(pdus) = pdus {
            self.send_response(slot, (task, pdus), answer, out);
        }
    }

    /// `pdus`: number of Data-In or R2T PDUs of the command.
    fn send_response<F: Framing>(
        &mut self,
        slot: Slot,
        (task, pdus): (&Task, u32),
        answer: &Answer,
        out: &mut F,
    ) {
        let residual = Residual::of(task, answer.moved);
        let mut header = ScsiResponse::new_zeroed();
        header.opcode = Opcode::SCSI_RESPONSE.0;
        header.flags = FINAL | residual.flags;
        header.status = answer.status;
        header.itt = U32::new(task.itt);
        header.sequence = self.status_sequence();
        header.exp_data_sn = U32::new(pdus);
        header.residual = U32::new(residual.bytes);
        send_with_sense(slot, &mut header, answer.sense(), out);
    }
}

/// Sends a response with its sense data, behind its length (SenseLength). Does not allocate: an
/// error is an I/O too.
fn send_with_sense<F: Framing>(slot: Slot, header: &mut ScsiResponse, sense: &[u8], out: &mut F) {
    let mut segment = [0; SENSE_SEGMENT_BYTES];
    let bytes = if sense.is_empty() { 0 } else { sense.len() + 2 };
    header.data_bytes = U24::new(u32::try_from(bytes).unwrap_or(0));
    if bytes > 0 {
        segment[1] = u8::try_from(sense.len()).unwrap_or(u8::MAX);
        segment[2..bytes].copy_from_slice(sense);
    }
    let segment = &segment[..bytes + padding(bytes)];
    out.response(slot, header.as_header(), segment);
}

/// Size in bytes of SenseLength, the longest sense data, and padding.
const SENSE_SEGMENT_BYTES: usize = SENSE_BYTES_MAX + 4;
