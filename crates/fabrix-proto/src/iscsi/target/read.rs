//! How bytes become PDUs: header, additional headers, their digest, and what is read by whom after
//! them.
//!
//! It knows lengths, digests and the place of a request in the window; what a request means stands
//! beside it.
//!
//! Source: RFC 7143, sections 11.2 and 4.2.2.1.

use super::{
    AHS_BYTES_MAX, Event, Fault, Outcome, Phase, Piece, Reading, SEGMENT_BYTES_MAX, Target,
};
use crate::codec::Reader;
use crate::iscsi::pdu::{AdditionalHeader, BHS_BYTES, BasicHeader, Opcode, RejectReason, padding};
use crate::iscsi::serial::Place;
use crate::{Breach, Sink};

impl Target {
    pub(super) fn basic_header<S: Sink>(&mut self, bytes: &[u8], out: &mut S) -> Outcome {
        self.bhs.copy_from_slice(bytes);
        self.timers.hear();
        let basic = self.basic();
        if matches!(self.phase, Phase::Login(_)) {
            return Ok(self.login_header(&basic, out));
        }
        let more = basic.ahs_bytes() + self.digests().header_bytes();
        if more > 0 {
            self.reading = Reading::Additional { bytes: more };
            return Ok(None);
        }
        self.dispatch(&basic, false, out)
    }

    pub(super) fn check_lengths(&self, basic: &BasicHeader) -> Result<(), Fault> {
        let bytes = basic.data_bytes.get();
        if bytes > self.parameters.target_segment_bytes {
            let sentence = "a data segment longer than MaxRecvDataSegmentLength";
            return Err(Fault::new(Breach::Limit, 5, bytes, sentence));
        }
        if basic.ahs_words != 0 && basic.kind() != Opcode::SCSI_COMMAND {
            let sentence = "additional header segments at a PDU that has none";
            let words = u32::from(basic.ahs_words);
            return Err(Fault::new(Breach::HeaderField, 4, words, sentence));
        }
        Ok(())
    }

    /// The rest of the header: its digest holds before anything in it is believed.
    pub(super) fn additional<S: Sink>(&mut self, bytes: &[u8], out: &mut S) -> Outcome {
        let basic = self.basic();
        let (segments, digest) = bytes.split_at(basic.ahs_bytes());
        if !digest.is_empty() && !self.header_is_intact(segments, digest) {
            let sentence = "the header digest differs from the header";
            return Err(Fault::new(Breach::HeaderDigest, 0, 0, sentence));
        }
        let mut reader = Reader::new(segments);
        while reader.remaining() > 0 {
            if AdditionalHeader::read(&mut reader).is_err() {
                let sentence = "an additional header segment that ends behind the list";
                return Err(Fault::new(Breach::HeaderField, 4, 0, sentence));
            }
        }
        self.dispatch(&basic, !segments.is_empty(), out)
    }

    pub(super) fn header_is_intact(&self, segments: &[u8], digest: &[u8]) -> bool {
        let mut whole = [0; BHS_BYTES + AHS_BYTES_MAX];
        let end = BHS_BYTES + segments.len();
        whole[..BHS_BYTES].copy_from_slice(&self.bhs);
        whole[BHS_BYTES..end].copy_from_slice(segments);
        (self.crc32c)(&whole[..end]).to_le_bytes() == digest
    }

    /// The header is whole. `extended`: it has additional segments.
    pub(super) fn dispatch<S: Sink>(
        &mut self,
        basic: &BasicHeader,
        extended: bool,
        out: &mut S,
    ) -> Outcome {
        self.reading = Reading::Basic;
        self.check_lengths(basic)?;
        if self.logout.is_some() {
            self.skip(basic, None);
            return Ok(None);
        }
        let kind = basic.kind();
        if kind == Opcode::DATA_OUT {
            return self.data_out();
        }
        if takes_cmd_sn(kind) && !self.enters(basic)? {
            self.skip(basic, None);
            return Ok(None);
        }
        match kind {
            Opcode::SCSI_COMMAND => self.scsi_command(extended, out),
            Opcode::NOP_OUT | Opcode::TEXT_REQUEST if basic.segment_bytes() > 0 => {
                self.read_segment(basic, out)
            }
            _ => self.control(basic, &[], out),
        }
    }

    /// Whether a request may be taken by its CmdSN; it has its place in the window then.
    ///
    /// Immediate requests have no place, and their CmdSN is not looked at: Linux sends pings with
    /// an old one.
    pub(super) fn enters(&mut self, basic: &BasicHeader) -> Result<bool, Fault> {
        if basic.is_immediate() {
            return Ok(true);
        }
        match self.window.place(basic.cmd_sn.get()) {
            Place::Next => self.window.enter(),
            Place::Outside => return Ok(false),
            Place::Gap => {
                let sentence = "CmdSN leaves out a command, which on one connection never comes";
                let found = basic.cmd_sn.get();
                return Err(Fault::new(Breach::Sequence, 24, found, sentence));
            }
        }
        Ok(true)
    }

    /// A request that is not a task, and did not become one, gives its place back.
    pub(super) fn leave(&mut self, basic: &BasicHeader) {
        if !basic.is_immediate() {
            self.window.leave();
        }
    }

    /// Text and pings: short, and read by the machine itself.
    pub(super) fn read_segment<S: Sink>(&mut self, basic: &BasicHeader, out: &mut S) -> Outcome {
        let bytes = basic.segment_bytes();
        if bytes > SEGMENT_BYTES_MAX {
            self.leave(basic);
            self.reject_and_skip(basic, RejectReason::InvalidField, out);
            return Ok(None);
        }
        let bytes = bytes + self.digests().trailer_bytes(bytes);
        self.reading = Reading::Segment { bytes };
        Ok(None)
    }

    pub(super) fn segment<S: Sink>(&mut self, bytes: &[u8], out: &mut S) -> Outcome {
        self.reading = Reading::Basic;
        let basic = self.basic();
        let data = &bytes[..basic.segment_bytes()];
        if let Phase::Login(_) = self.phase {
            return Ok(self.login_segment(data, out));
        }
        let padded = data.len() + padding(data.len());
        let digest = &bytes[padded..];
        if !digest.is_empty() && (self.crc32c)(&bytes[..padded]).to_le_bytes() != *digest {
            self.leave(&basic);
            self.send_reject(RejectReason::DataDigest, out);
            return Ok(None);
        }
        self.control(&basic, data, out)
    }

    /// Reads over the data of a PDU.
    pub(super) fn skip(&mut self, basic: &BasicHeader, piece: Option<Piece>) {
        let bytes = basic.segment_bytes();
        let bytes = bytes + self.digests().trailer_bytes(bytes);
        if bytes > 0 {
            self.reading = Reading::Skip { bytes, piece };
        }
    }

    pub(super) fn skipped<S: Sink>(&mut self, bytes: usize, out: &mut S) -> Option<Event> {
        let Reading::Skip { bytes: left, piece } = &mut self.reading else {
            return None;
        };
        *left -= bytes;
        if *left > 0 {
            return None;
        }
        let piece = *piece;
        self.reading = Reading::Basic;
        piece.and_then(|piece| self.piece_arrived(piece, true, out))
    }
}

/// Which requests are numbered; of an unknown kind nothing is believed.
fn takes_cmd_sn(kind: Opcode) -> bool {
    matches!(
        kind,
        Opcode::NOP_OUT
            | Opcode::SCSI_COMMAND
            | Opcode::TASK_MANAGEMENT_REQUEST
            | Opcode::TEXT_REQUEST
            | Opcode::LOGOUT_REQUEST
    )
}
