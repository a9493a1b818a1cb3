//! Data of one connection: R2T and Data-Out in one direction, Data-In in the other.
//!
//! The rule that everything here serves: a byte of a write is accepted only if it was asked for or
//! announced, once, and in order. R2Ts of one command are fulfilled in their order
//! (DataSequenceInOrder is Yes). Data for a task that is gone is read over: it may have been
//! aborted while its data was on the way.
//!
//! Source: RFC 7143, sections 11.7 "SCSI Data-Out and SCSI Data-In" and 11.8 "Ready To Transfer
//! (R2T)".

use zerocopy::FromZeros;
use zerocopy::byteorder::big_endian::U32;

use super::answer::{Answer, Residual};
use super::command::command_event;
use super::tasks::{Phase, R2t, Task};
use super::{Event, Fault, Outcome, Piece, Reading, Target, Transfer};
use crate::iscsi::pdu::{
    DATA_IN_STATUS, DataIn, DataOut, FINAL, NO_TAG, Opcode, ReadyToTransfer, U24,
};
use crate::{Breach, Sink, Slot};

impl Target {
    /// Asks the initiator for a write's data; `Event::Fetched` follows when all of it is in the
    /// slot.
    ///
    /// Once for a command whose transfer is `Fetch`. What comes unasked is waited for first; where
    /// all of it does, `Fetched` may come before this is called, and this asks for nothing.
    pub fn fetch<S: Sink>(&mut self, slot: Slot, out: &mut S) {
        let Some(task) = self.tasks.get(slot) else {
            debug_assert!(false, "{slot:?} has no data to fetch");
            return;
        };
        task.fetching = true;
        self.grant(slot, out);
    }

    /// Sends R2Ts for what was not asked for, as many as may be outstanding.
    fn grant<S: Sink>(&mut self, slot: Slot, out: &mut S) {
        let most = self.parameters.max_outstanding_r2t;
        loop {
            let closed = self.is_closed();
            let Some(task) = self.tasks.get(slot) else {
                return;
            };
            let waits = closed || task.unsolicited || !task.fetching;
            let owned = matches!(task.phase, Phase::Owned);
            if waits || !owned || task.asked >= task.expected || task.r2ts.len() >= most {
                return;
            }
            self.send_r2t(slot, out);
        }
    }

    fn send_r2t<S: Sink>(&mut self, slot: Slot, out: &mut S) {
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
        self.send_header(&header, out);
    }

    /// Data-Out: accepted only if it is the next piece of what was asked for or announced.
    pub(super) fn data_out(&mut self) -> Outcome {
        let (basic, header) = (self.basic(), self.header_as::<DataOut>());
        let ttt = header.ttt.get();
        let slot = self.tasks.find(header.itt.get());
        let Some((slot, task)) = slot.and_then(|slot| Some((slot, self.tasks.get(slot)?))) else {
            self.skip(&basic, None);
            return Ok(None);
        };
        let known = match ttt {
            NO_TAG => task.unsolicited,
            _ => task.r2ts.contains(ttt),
        };
        if !known {
            self.skip(&basic, None);
            return Ok(None);
        }
        let end = sequence_end(task, ttt)?;
        let piece = check_piece(task, &header, slot, end)?;
        // Data are missing, so they were damaged: the command fails when the rest has come, the
        // connection goes on.
        // Source: RFC 7143, section 7.9 (a data PDU with an out-of-order DataSN at a target).
        let data_sn = header.data_sn.get();
        task.intact &= data_sn == task.data_sn;
        task.data_sn = if piece.ends {
            0
        } else {
            data_sn.wrapping_add(1)
        };
        if matches!(task.phase, Phase::Owned) {
            self.reading = Reading::Payload(piece);
        } else {
            self.skip(&basic, Some(piece));
        }
        Ok(None)
    }

    /// A piece of a write's data is in the slot, or was read over: the next R2T, the adapter's
    /// turn, or the answer that waited.
    pub(super) fn piece_arrived<S: Sink>(
        &mut self,
        piece: Piece,
        intact: bool,
        out: &mut S,
    ) -> Option<Event> {
        let slot = piece.slot;
        let task = self.tasks.get(slot)?;
        task.received += piece.bytes;
        task.intact &= intact;
        end_sequence(task, piece.ends);
        match task.phase {
            Phase::Arriving => {
                task.phase = Phase::Owned;
                (task.complete, task.asked) = (true, task.expected);
                let transfer = Transfer::Inline {
                    bytes: task.expected,
                };
                Some(command_event(slot, task, transfer, task.intact))
            }
            Phase::Owned if task.received == task.expected && !task.complete => {
                task.complete = true;
                let intact = task.intact;
                Some(Event::Fetched { slot, intact })
            }
            Phase::Owned => {
                self.grant(slot, out);
                None
            }
            Phase::Answered(_) | Phase::Aborted => self.finish_if_quiet(slot, out),
            Phase::Free => None,
        }
    }

    /// Lets a task go that is answered or aborted, once nothing of it is on the way.
    pub(super) fn finish_if_quiet<S: Sink>(&mut self, slot: Slot, out: &mut S) -> Option<Event> {
        let task = self.tasks.get(slot)?;
        match task.phase {
            Phase::Answered(_) if task.awaits_data() => return None,
            Phase::Answered(answer) => {
                let mut task = self.end_task(slot)?;
                self.complete(slot, &mut task, &answer, out);
            }
            _ => {
                self.end_task(slot);
            }
        }
        Some(Event::Released { slot })
    }

    /// A read's data, in PDUs as long as the initiator takes and sequences as long as was agreed.
    /// True when the last one bears the status.
    pub(super) fn send_data<S: Sink>(
        &mut self,
        slot: Slot,
        task: &mut Task,
        bytes: u32,
        answer: &Answer,
        out: &mut S,
    ) -> bool {
        let largest = self.parameters.initiator_segment_bytes & !3;
        let burst = self.parameters.max_burst_bytes;
        let collapses = answer.is_good();
        let (mut offset, mut left) = (0, burst);
        while offset < bytes {
            let piece = (bytes - offset).min(largest).min(left);
            let last = offset + piece == bytes;
            left -= piece;
            let mut header = data_in(task, offset, piece);
            if last || left == 0 {
                header.flags |= FINAL;
                left = burst;
            }
            if last && collapses {
                let residual = Residual::of(task, answer.moved);
                header.flags |= DATA_IN_STATUS | residual.flags;
                header.status = answer.status;
                header.residual = U32::new(residual.bytes);
                header.sequence = self.status_sequence();
            } else {
                header.sequence = self.plain_sequence();
                header.sequence.stat_sn = U32::ZERO;
            }
            task.data_sn += 1;
            self.send_header(&header, out);
            out.payload(slot, offset, piece, self.parameters.digests.pass());
            offset += piece;
        }
        collapses
    }
}

fn data_in(task: &Task, offset: u32, bytes: u32) -> DataIn {
    let mut header = DataIn::new_zeroed();
    header.opcode = Opcode::DATA_IN.0;
    header.data_bytes = U24::new(bytes);
    header.itt = U32::new(task.itt);
    header.ttt = U32::new(NO_TAG);
    header.data_sn = U32::new(task.data_sn);
    header.buffer_offset = U32::new(offset);
    header
}

/// Where the sequence that comes now ends: R2Ts are fulfilled in their order.
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

fn check_piece(task: &Task, header: &DataOut, slot: Slot, end: u32) -> Result<Piece, Fault> {
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
    // What was asked for is counted in bytes; that the last piece says F is not insisted on.
    let ends = ends || bytes == end - offset;
    Ok(Piece {
        slot,
        offset,
        bytes,
        ends,
    })
}

/// The sequence that the piece belongs to is over: an R2T is fulfilled, or no more comes unasked.
fn end_sequence(task: &mut Task, ends: bool) {
    if !ends {
        return;
    }
    if task.unsolicited {
        task.unsolicited = false;
        task.asked = task.received;
    } else if task
        .r2ts
        .first()
        .is_some_and(|r2t| r2t.end == task.received)
    {
        // Immediate data ends a sequence too, maybe after the first R2T was sent: it fulfils none.
        task.r2ts.pop();
    }
}
