//! Data of one connection: R2T and Data-Out in one direction, Data-In in the other.
//!
//! The target accepts each byte of a write only if it was requested or announced, once, and in
//! order. R2Ts of one command are fulfilled in their order (DataSequenceInOrder is Yes). The
//! target skips data of a task that has ended: the task may have been aborted while its data was
//! on the way.
//!
//! Source: RFC 7143, sections 11.7 "SCSI Data-Out and SCSI Data-In" and 11.8 "Ready To Transfer
//! (R2T)".

use zerocopy::FromZeros;
use zerocopy::byteorder::big_endian::U32;

use super::answer::{Answer, Residual};
use super::command::command_event;
use super::tasks::{R2t, Task, TaskState};
use super::{Event, Fault, Received, Target, Transfer};
use crate::iscsi::framing::{Framing, GoodStatus, Piece, ReadData, Segment};
use crate::iscsi::pdu::{DataIn, DataOut, FINAL, NO_TAG, Opcode, ReadyToTransfer};
use crate::{Breach, Slot};

impl Target {
    /// Requests a write's data. `Event::Fetched` follows when all of it is in the slot.
    ///
    /// Called once for a command whose transfer is `Fetch`. R2Ts follow the unsolicited data. If
    /// all data is unsolicited, no R2T is sent, and `Fetched` may come before this call.
    pub fn fetch<F: Framing>(&mut self, slot: Slot, out: &mut F) {
        let Some(task) = self.tasks.get(slot) else {
            debug_assert!(false, "{slot:?} has no data to fetch");
            return;
        };
        task.fetching = true;
        self.grant(slot, out);
    }

    /// Sends R2Ts for data not requested yet, up to MaxOutstandingR2T.
    fn grant<F: Framing>(&mut self, slot: Slot, out: &mut F) {
        let most = self.parameters.max_outstanding_r2t;
        loop {
            let closed = self.closed;
            let Some(task) = self.tasks.get(slot) else {
                return;
            };
            let waits = closed || task.unsolicited || !task.fetching;
            let owned = matches!(task.state, TaskState::Owned);
            if waits || !owned || task.asked >= task.expected || task.r2ts.len() >= most {
                return;
            }
            self.send_r2t(slot, out);
        }
    }

    fn send_r2t<F: Framing>(&mut self, slot: Slot, out: &mut F) {
        let (ttt, largest) = (self.new_tag(slot.0), self.parameters.max_burst_bytes);
        let mut header = ReadyToTransfer::new_zeroed();
        header.sequence = self.plain_sequence();
        let Some(task) = self.tasks.get(slot) else {
            return;
        };
        let bytes = (task.expected - task.asked).min(largest);
        header.opcode = Opcode::READY_TO_TRANSFER.0;
        header.flags = FINAL;
        header.lun = task.lun;
        header.itt = U32::new(task.itt);
        header.ttt = U32::new(ttt);
        header.r2t_sn = U32::new(task.r2t_sn);
        header.buffer_offset = U32::new(task.asked);
        header.desired_bytes = U32::new(bytes);
        task.asked += bytes;
        task.r2t_sn += 1;
        let end = task.asked;
        task.r2ts.push(R2t { ttt, end });
        task.arriving += u16::from(out.fetch(slot, &header));
    }

    /// Processes a Data-Out. It must be the next piece of requested or announced data.
    pub(super) fn data_out(&mut self) -> Result<Received, Fault> {
        let header = self.header_as::<DataOut>();
        let ttt = header.ttt.get();
        let slot = self.tasks.find(header.itt.get());
        let Some((slot, task)) = slot.and_then(|slot| Some((slot, self.tasks.get(slot)?))) else {
            return Ok(Received::event(None));
        };
        let known = match ttt {
            NO_TAG => task.unsolicited,
            _ => task.r2ts.contains(ttt),
        };
        if !known {
            return Ok(Received::event(None));
        }
        let end = sequence_end(task, ttt)?;
        let (piece, ends) = check_piece(task, &header, slot, end)?;
        // A skipped DataSN means lost data. The command fails when its remaining data has arrived.
        // The connection continues.
        // Source: RFC 7143, section 7.9 (a data PDU with an out-of-order DataSN at a target).
        let data_sn = header.data_sn.get();
        task.intact &= data_sn == task.data_sn;
        task.data_sn = if ends { 0 } else { data_sn.wrapping_add(1) };
        task.ends = ends;
        task.arriving += 1;
        let segment = match task.state {
            TaskState::Owned => Segment::Kept(piece),
            _ => Segment::Dropped(piece),
        };
        Ok(Received::segment(None, segment))
    }

    /// Counts a piece of a write that is in the slot or was skipped. Sends the next R2T, reports an
    /// event to the owner, or sends the postponed answer.
    pub(super) fn piece_arrived<F: Framing>(
        &mut self,
        piece: Piece,
        intact: bool,
        out: &mut F,
    ) -> Option<Event> {
        let slot = piece.slot;
        let task = self.tasks.get(slot)?;
        task.received += piece.bytes;
        task.arriving -= 1;
        task.intact &= intact;
        end_sequence(task);
        match task.state {
            TaskState::Arriving => {
                task.state = TaskState::Owned;
                (task.complete, task.asked) = (true, task.expected);
                let transfer = Transfer::Inline {
                    bytes: task.expected,
                };
                Some(command_event(slot, task, transfer, task.intact))
            }
            TaskState::Owned if task.received == task.expected && !task.complete => {
                task.complete = true;
                let intact = task.intact;
                Some(Event::Fetched { slot, intact })
            }
            TaskState::Owned => {
                self.grant(slot, out);
                None
            }
            TaskState::Answered(_) | TaskState::Aborted => self.finish_if_quiet(slot, out),
            TaskState::Free => None,
        }
    }

    /// Frees a task that is answered or aborted, once none of its data is outstanding.
    pub(super) fn finish_if_quiet<F: Framing>(&mut self, slot: Slot, out: &mut F) -> Option<Event> {
        let task = self.tasks.get(slot)?;
        match task.state {
            TaskState::Answered(_) if task.awaits_data() => return None,
            TaskState::Aborted if task.arriving > 0 => return None,
            TaskState::Answered(answer) => {
                let task = self.end_task(slot)?;
                self.complete(slot, &task, &answer, out);
            }
            _ => {
                self.end_task(slot);
            }
        }
        Some(Event::Released { slot })
    }

    /// Sends a read's data. Returns the number of Data-In PDUs, or `None` when the last of them
    /// carries the status.
    #[inline(always)]
    pub(super) fn send_data<F: Framing>(
        &mut self,
        slot: Slot,
        (task, bytes): (&Task, u32),
        answer: &Answer,
        out: &mut F,
    ) -> Option<u32> {
        let residual = Residual::of(task, answer.moved);
        let good = answer.is_good().then_some(GoodStatus {
            stat_sn: self.stat_sn,
            residual_flags: residual.flags,
            residual_bytes: residual.bytes,
        });
        let mut header = DataIn::new_zeroed();
        header.opcode = Opcode::DATA_IN.0;
        header.itt = U32::new(task.itt);
        header.ttt = U32::new(NO_TAG);
        header.sequence = self.plain_sequence();
        header.sequence.stat_sn = U32::ZERO;
        let read = ReadData {
            bytes,
            header,
            good,
            parameters: &self.parameters,
        };
        let pdus = out.send(slot, &read);
        if pdus.is_none() {
            self.stat_sn = self.stat_sn.wrapping_add(1);
        }
        pdus
    }
}

/// End of the current sequence of Data-Out PDUs. R2Ts are fulfilled in their order.
fn sequence_end(task: &Task, ttt: u32) -> Result<u32, Fault> {
    match task.r2ts.first() {
        _ if ttt == NO_TAG => Ok(task.asked),
        Some(r2t) if r2t.ttt == ttt => Ok(r2t.end),
        _ => {
            let sentence = "Data-Out for a later R2T before an earlier one is fulfilled";
            Err(Fault::new(Breach::Sequence, 20, ttt, sentence))
        }
    }
}

/// The piece of a write's data in a Data-Out, and whether the piece ends its sequence.
fn check_piece(
    task: &Task,
    header: &DataOut,
    slot: Slot,
    end: u32,
) -> Result<(Piece, bool), Fault> {
    let (offset, bytes) = (header.buffer_offset.get(), header.data_bytes.get());
    let ends = header.flags & FINAL != 0;
    if offset != task.received {
        let sentence = "Data-Out does not continue where the last one ended";
        return Err(Fault::new(Breach::DataRange, 40, offset, sentence));
    }
    if bytes == 0 {
        let sentence = "Data-Out without data";
        return Err(Fault::new(Breach::HeaderField, 5, bytes, sentence));
    }
    if bytes > end.saturating_sub(offset) {
        let sentence = "Data-Out past the end of what was asked for or announced";
        return Err(Fault::new(Breach::Limit, 5, bytes, sentence));
    }
    if ends && header.ttt.get() != NO_TAG && bytes < end - offset {
        let sentence = "F before the end of what the R2T asked for";
        return Err(Fault::new(Breach::DataRange, 1, bytes, sentence));
    }
    // The target counts the requested bytes, and does not insist on F in the last piece.
    let ends = ends || bytes == end - offset;
    let piece = Piece {
        slot,
        offset,
        bytes,
    };
    Ok((piece, ends))
}

/// Ends the sequence of a piece after its last byte: the unsolicited data is complete, or an R2T
/// is fulfilled.
fn end_sequence(task: &mut Task) {
    let first = task.r2ts.first();
    if task.unsolicited && task.ends {
        task.unsolicited = false;
        task.asked = task.received;
    } else if first.is_some_and(|r2t| r2t.end == task.received) {
        task.r2ts.pop();
    }
}
