//! Data of one connection, on the initiator's side: Data-Out in one direction, Data-In in the
//! other.
//!
//! The target gets no byte of a write twice or from outside the write, and stores no byte outside
//! a read. The machine hands out the data of an R2T at once, so an R2T is outstanding only in the
//! socket.
//!
//! Source: RFC 7143, sections 4.2.4, 11.7 and 11.8.

use zerocopy::FromZeros;
use zerocopy::byteorder::big_endian::U32;

use super::login::SEGMENT_BYTES;
use super::tasks::{Direction, Task};
use super::{Event, Initiator, Received};
use crate::iscsi::framing::{Fault, Framing, Header, Piece, Segment};
use crate::iscsi::keys::BYTES_MIN;
use crate::iscsi::pdu::{
    BasicHeader, DATA_IN_STATUS, DataIn, DataOut, FINAL, Lun, NO_TAG, Opcode, RESIDUAL_UNDERFLOW,
    ReadyToTransfer, U24,
};
use crate::{Breach, Slot};

/// One sequence of Data-Out: its range of the write, and the R2T that it answers.
struct Burst {
    itt: u32,
    /// Target transfer tag of an R2T, or `NO_TAG` for unsolicited data.
    ttt: u32,
    lun: Lun,
    from: u32,
    to: u32,
}

impl Initiator {
    /// SCSI Data-In: the next piece of a read's data. The last piece may carry the status.
    pub(super) fn data_in(&mut self) -> Result<Received, Fault> {
        let header: DataIn = self.header_as();
        let (offset, bytes) = (header.buffer_offset.get(), header.data_bytes.get());
        let (slot, task) = self.in_progress(header.itt.get())?;
        if task.direction != Direction::Read {
            let sentence = "Data-In for a command that does not read";
            return Err(Fault::new(Breach::Sequence, 16, header.itt.get(), sentence));
        }
        if header.data_sn.get() != task.pdus {
            let sentence = "a DataSN that is not the next of its command";
            let found = header.data_sn.get();
            return Err(Fault::new(Breach::Sequence, 36, found, sentence));
        }
        if offset != task.moved {
            let sentence = "Data-In does not continue where the last one ended";
            return Err(Fault::new(Breach::DataRange, 40, offset, sentence));
        }
        if bytes > task.bytes - task.moved {
            let sentence = "Data-In with more data than the command asked for";
            return Err(Fault::new(Breach::DataRange, 5, bytes, sentence));
        }
        let has_status = header.flags & DATA_IN_STATUS != 0;
        check_data_in(&header, has_status)?;
        task.pdus += 1;
        let residual = residual(header.flags, header.residual);
        task.status = has_status.then_some((header.status, residual));
        let piece = Piece {
            slot,
            offset,
            bytes,
        };
        if has_status {
            self.acknowledge();
        }
        if bytes == 0 {
            return Ok(Received::skipped(self.data_arrived(piece, true)));
        }
        Ok(Received {
            event: None,
            segment: Segment::Kept(piece),
        })
    }

    /// Counts a piece of a read that is in the slot. Completes the task if the piece had a status.
    pub(super) fn data_arrived(&mut self, piece: Piece, intact: bool) -> Option<Event> {
        let task = self.tasks.at(piece.slot);
        task.moved += piece.bytes;
        task.intact &= intact;
        let (status, residual) = task.status?;
        self.sense_bytes = 0;
        Some(self.complete(piece.slot, true, status, residual))
    }

    /// Hands out the piece of a write's data that an R2T requests.
    pub(super) fn ready_to_transfer<F: Framing>(
        &mut self,
        basic: &BasicHeader,
        out: &mut F,
    ) -> Result<(), Fault> {
        let header: ReadyToTransfer = self.header_as();
        let (offset, bytes) = (header.buffer_offset.get(), header.desired_bytes.get());
        let max_burst_bytes = self.parameters.max_burst_bytes;
        let (slot, task) = self.in_progress(header.itt.get())?;
        if task.direction != Direction::Write {
            let sentence = "R2T for a command without data to be asked for";
            return Err(Fault::new(Breach::Sequence, 16, header.itt.get(), sentence));
        }
        if header.ttt.get() == NO_TAG || basic.data_bytes.get() != 0 {
            let sentence = "R2T without a tag, or with data";
            return Err(Fault::new(
                Breach::HeaderField,
                20,
                header.ttt.get(),
                sentence,
            ));
        }
        if bytes == 0 || bytes > max_burst_bytes {
            let sentence = "R2T for no data, or for more than MaxBurstLength";
            return Err(Fault::new(Breach::Limit, 44, bytes, sentence));
        }
        if offset != task.moved {
            let sentence = "R2T does not continue where the last one ended";
            return Err(Fault::new(Breach::DataRange, 40, offset, sentence));
        }
        if bytes > task.bytes - task.moved {
            let sentence = "R2T past the end of the command's data";
            return Err(Fault::new(Breach::DataRange, 44, bytes, sentence));
        }
        if header.r2t_sn.get() != task.pdus || task.pdus >= most_r2ts(task.bytes) {
            let sentence = "an R2TSN out of order, or more R2Ts than the command's data can need";
            let found = header.r2t_sn.get();
            return Err(Fault::new(Breach::Sequence, 36, found, sentence));
        }
        task.moved += bytes;
        task.pdus += 1;
        let burst = Burst {
            itt: header.itt.get(),
            ttt: header.ttt.get(),
            lun: header.lun,
            from: offset,
            to: offset + bytes,
        };
        self.send_burst(slot, &burst, out);
        Ok(())
    }

    /// Sends unsolicited data of a write behind its immediate data, without an R2T.
    pub(super) fn send_unsolicited<F: Framing>(
        &mut self,
        slot: Slot,
        itt: u32,
        from: u32,
        to: u32,
        out: &mut F,
    ) {
        let burst = Burst {
            itt,
            ttt: NO_TAG,
            lun: Lun::default(),
            from,
            to,
        };
        self.send_burst(slot, &burst, out);
    }

    /// Sends one sequence in Data-Out PDUs of at most the target's MaxRecvDataSegmentLength.
    fn send_burst<F: Framing>(&self, slot: Slot, burst: &Burst, out: &mut F) {
        let (mut offset, mut data_sn) = (burst.from, 0);
        while offset < burst.to {
            let bytes = (burst.to - offset).min(self.parameters.target_segment_bytes);
            let mut header = DataOut::new_zeroed();
            header.opcode = Opcode::DATA_OUT.0;
            header.flags = if offset + bytes == burst.to { FINAL } else { 0 };
            header.data_bytes = U24::new(bytes);
            header.lun = burst.lun;
            header.itt = U32::new(burst.itt);
            header.ttt = U32::new(burst.ttt);
            header.exp_stat_sn = U32::new(self.exp_stat_sn);
            header.data_sn = U32::new(data_sn);
            header.buffer_offset = U32::new(offset);
            out.payload(header.as_header(), slot, offset, bytes);
            offset += bytes;
            data_sn += 1;
        }
    }

    /// The task in progress of a PDU's Initiator Task Tag.
    pub(super) fn in_progress(&mut self, itt: u32) -> Result<(Slot, &mut Task), Fault> {
        let Some(slot) = self.tasks.find(itt) else {
            let sentence = "a PDU for a command that is not in progress";
            return Err(Fault::new(Breach::Sequence, 16, itt, sentence));
        };
        Ok((slot, self.tasks.at(slot)))
    }
}

fn check_data_in(header: &DataIn, has_status: bool) -> Result<(), Fault> {
    let bytes = header.data_bytes.get();
    if bytes > SEGMENT_BYTES {
        let sentence = "Data-In longer than MaxRecvDataSegmentLength";
        return Err(Fault::new(Breach::Limit, 5, bytes, sentence));
    }
    if has_status && header.flags & FINAL == 0 {
        let sentence = "Data-In with a status that is not the last of its sequence";
        return Err(Fault::new(
            Breach::HeaderField,
            1,
            header.flags.into(),
            sentence,
        ));
    }
    if bytes == 0 && !has_status {
        let sentence = "Data-In with neither data nor a status";
        return Err(Fault::new(Breach::HeaderField, 5, 0, sentence));
    }
    Ok(())
}

/// Number of expected bytes that did not move.
pub(super) fn residual(flags: u8, count: U32) -> u32 {
    if flags & RESIDUAL_UNDERFLOW != 0 {
        count.get()
    } else {
        0
    }
}

/// Maximum number of R2Ts for a command of this length. Each R2T of an honest target requests at
/// least the smallest MaxBurstLength. Without this limit, R2Ts for single bytes would make the
/// initiator send fifty times the data.
const fn most_r2ts(bytes: u32) -> u32 {
    bytes / BYTES_MIN + 2
}
