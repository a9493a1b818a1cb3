//! PDUs on a byte stream: basic header, additional headers, digests, padding and data segments.
//!
//! [`Tcp`] is a machine that reads PDUs from a byte stream for an [`Endpoint`] of either side.
//! [`TcpFraming`] writes the endpoint's PDUs. Neither interprets PDUs, except for the data of
//! reads, which [`TcpFraming`] splits into Data-In PDUs.
//!
//! Source: RFC 7143, sections 11.1, 11.2, 11.7 and 13.1.

use zerocopy::FromBytes;
use zerocopy::byteorder::big_endian::U32;

use super::framing::{Endpoint, Fault, Framing, Header, Piece, ReadData, Segment};
use super::pdu::{
    BHS_BYTES, BasicHeader, DATA_IN_STATUS, DIGEST_BYTES, Digests, FINAL, PADDING_UNIT,
    ReadyToTransfer, ScsiCommand, U24, padding,
};
use crate::{Breach, Consumed, Crc32c, Machine, Sink, Slot, Violation, Want};

/// One side of a connection over TCP.
pub struct Tcp<E> {
    endpoint: E,
    crc32c: Crc32c,
    reading: Reading,
    /// Basic header segment of a header that has not arrived completely.
    bhs: [u8; BHS_BYTES],
}

/// Meaning of the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// A basic header segment.
    Basic,
    /// Additional header segments and the header digest, behind `bhs`.
    Additional { bytes: usize },
    /// A data segment that the endpoint processes whole: `data` bytes, then padding and digest.
    Whole { data: usize, bytes: usize },
    /// Data for a slot.
    Kept(Piece),
    /// A data segment to skip. A task may wait for its end.
    Skipped { bytes: usize, piece: Option<Piece> },
    /// None: a header differed from its digest.
    Closed,
}

impl<E: Endpoint> Tcp<E> {
    /// A connection without traffic.
    #[must_use]
    pub const fn new(endpoint: E, crc32c: Crc32c) -> Self {
        Self {
            endpoint,
            crc32c,
            reading: Reading::Basic,
            bhs: [0; BHS_BYTES],
        }
    }

    /// The endpoint, for queries.
    #[must_use]
    pub const fn endpoint(&self) -> &E {
        &self.endpoint
    }

    /// The endpoint, for calls that send nothing.
    #[must_use]
    pub const fn endpoint_mut(&mut self) -> &mut E {
        &mut self.endpoint
    }

    /// The endpoint, and the framing that its calls need.
    #[inline(always)]
    pub fn speak<S: Sink>(&mut self, out: S) -> (&mut E, TcpFraming<S>) {
        let framing = TcpFraming {
            out,
            digests: self.endpoint.digests(),
            crc32c: self.crc32c,
        };
        (&mut self.endpoint, framing)
    }

    /// Reads a PDU's header in one piece if all of it has arrived, as in nearly all cases.
    #[inline(always)]
    fn basic_header<S: Sink>(
        &mut self,
        arrived: &[u8],
        out: &mut S,
    ) -> Result<Consumed<E::Event>, Violation> {
        let bhs = arrived.first_chunk().expect("the stream obeys want()");
        let end = BHS_BYTES + self.additional_bytes(bhs);
        let Some(whole) = arrived.get(..end) else {
            self.bhs = *bhs;
            let bytes = end - BHS_BYTES;
            self.reading = Reading::Additional { bytes };
            return Ok(Consumed {
                bytes: BHS_BYTES,
                event: None,
            });
        };
        let event = self.whole_header(whole, out)?;
        Ok(Consumed { bytes: end, event })
    }

    /// Length of a header behind its basic segment: additional segments and digest.
    fn additional_bytes(&self, bhs: &[u8; BHS_BYTES]) -> usize {
        let segments = match self.endpoint.takes_additional_headers() {
            true => basic(bhs).ahs_bytes(),
            false => 0,
        };
        segments + self.endpoint.digests().header_bytes()
    }

    /// Processes the rest of a header whose basic segment was kept.
    fn additional<S: Sink>(
        &mut self,
        rest: &[u8],
        out: &mut S,
    ) -> Result<Option<E::Event>, Violation> {
        let mut whole = [0; BHS_BYTES + ADDITIONAL_BYTES_MAX];
        let end = BHS_BYTES + rest.len();
        whole[..BHS_BYTES].copy_from_slice(&self.bhs);
        whole[BHS_BYTES..end].copy_from_slice(rest);
        self.whole_header(&whole[..end], out)
    }

    /// Processes a complete header. Checks its digest before anything else.
    fn whole_header<S: Sink>(
        &mut self,
        whole: &[u8],
        out: &mut S,
    ) -> Result<Option<E::Event>, Violation> {
        let digests = self.endpoint.digests();
        let (header, digest) = whole.split_at(whole.len() - digests.header_bytes());
        let (bhs, additional) = header.split_first_chunk().expect("a header is whole");
        if digests.header && (self.crc32c)(header).to_le_bytes() != *digest {
            self.reading = Reading::Closed;
            let sentence = "the header digest differs from the header";
            return Err(Fault::new(Breach::HeaderDigest, 0, 0, sentence).violation(bhs));
        }
        let (endpoint, mut framing) = self.speak(out);
        let received = endpoint.pdu(bhs, additional, &mut framing)?;
        self.reading = reading(received.segment, basic(bhs).segment_bytes(), digests);
        Ok(received.event)
    }

    /// Processes a data segment that the endpoint needs whole, with padding and digest.
    fn whole_segment<S: Sink>(
        &mut self,
        (data, arrived): (usize, &[u8]),
        out: &mut S,
    ) -> Result<Option<E::Event>, Violation> {
        self.reading = Reading::Basic;
        let (padded, digest) = arrived.split_at(data + padding(data));
        let intact = digest.is_empty() || (self.crc32c)(padded).to_le_bytes() == *digest;
        let (endpoint, mut framing) = self.speak(out);
        endpoint.segment(&padded[..data], intact, &mut framing)
    }

    /// Counts `bytes` skipped bytes of a segment with `of` remaining bytes.
    fn skipped<S: Sink>(
        &mut self,
        (bytes, of): (usize, usize),
        piece: Option<Piece>,
        out: &mut S,
    ) -> Option<E::Event> {
        if bytes < of {
            let bytes = of - bytes;
            self.reading = Reading::Skipped { bytes, piece };
            return None;
        }
        self.reading = Reading::Basic;
        let (endpoint, mut framing) = self.speak(out);
        endpoint.arrived(piece?, true, &mut framing)
    }
}

/// State behind a header with a data segment of `data` bytes.
fn reading(segment: Segment, data: usize, digests: Digests) -> Reading {
    let piece = match segment {
        Segment::Kept(piece) => return Reading::Kept(piece),
        Segment::Dropped(piece) => Some(piece),
        Segment::Skipped if data == 0 => return Reading::Basic,
        Segment::Skipped | Segment::Whole => None,
    };
    let bytes = data + digests.trailer_bytes(data);
    match segment {
        Segment::Whole => Reading::Whole { data, bytes },
        _ => Reading::Skipped { bytes, piece },
    }
}

fn basic(bhs: &[u8; BHS_BYTES]) -> BasicHeader {
    BasicHeader::read_from_bytes(bhs).expect("every header has 48 bytes")
}

impl<E: Endpoint> Machine for Tcp<E> {
    type Event = E::Event;
    const PAYLOAD_UNIT: u32 = 4;

    fn want(&self) -> Want {
        match self.reading {
            _ if self.endpoint.is_closed() => Want::Closed,
            Reading::Closed => Want::Closed,
            Reading::Basic => Want::Header { bytes: BHS_BYTES },
            Reading::Additional { bytes } | Reading::Whole { bytes, .. } => Want::Header { bytes },
            Reading::Skipped { bytes, .. } => Want::Header {
                bytes: bytes.min(SKIP_BYTES),
            },
            Reading::Kept(piece) => Want::Payload {
                slot: piece.slot,
                offset: piece.offset,
                bytes: piece.bytes,
                pass: self.endpoint.digests().pass(),
            },
        }
    }

    #[inline(always)]
    fn header<S: Sink>(
        &mut self,
        arrived: &[u8],
        out: &mut S,
    ) -> Result<Consumed<E::Event>, Violation> {
        if matches!(self.reading, Reading::Basic) {
            return self.basic_header(arrived, out);
        }
        let bytes = self.want().header_bytes();
        let taken = &arrived[..bytes];
        let event = match self.reading {
            Reading::Additional { .. } => self.additional(taken, out)?,
            Reading::Whole { data, .. } => self.whole_segment((data, taken), out)?,
            Reading::Skipped { bytes: of, piece } => self.skipped((bytes, of), piece, out),
            Reading::Basic | Reading::Kept(_) | Reading::Closed => None,
        };
        Ok(Consumed { bytes, event })
    }

    fn payload<S: Sink>(
        &mut self,
        intact: bool,
        out: &mut S,
    ) -> Result<Option<E::Event>, Violation> {
        let Reading::Kept(piece) = self.reading else {
            return Ok(None);
        };
        self.reading = Reading::Basic;
        let (endpoint, mut framing) = self.speak(out);
        Ok(endpoint.arrived(piece, intact, &mut framing))
    }

    fn terminate<S: Sink>(&mut self, violation: &Violation, out: &mut S) {
        let (endpoint, mut framing) = self.speak(out);
        endpoint.terminate(violation, &mut framing);
    }
}

/// Writes PDUs on a byte stream.
pub struct TcpFraming<S> {
    out: S,
    digests: Digests,
    crc32c: Crc32c,
}

impl<S: Sink> TcpFraming<S> {
    #[inline(always)]
    fn header(&mut self, header: &[u8; BHS_BYTES]) {
        self.out.bytes(header);
        if self.digests.header {
            self.out.bytes(&(self.crc32c)(header).to_le_bytes());
        }
    }
}

impl<S: Sink> Framing for TcpFraming<S> {
    #[inline(always)]
    fn pdu(&mut self, header: &[u8; BHS_BYTES], segment: &[u8]) {
        debug_assert!(segment.len().is_multiple_of(PADDING_UNIT));
        self.header(header);
        if segment.is_empty() {
            return;
        }
        self.out.bytes(segment);
        if self.digests.data {
            self.out.bytes(&(self.crc32c)(segment).to_le_bytes());
        }
    }

    #[inline(always)]
    fn payload(&mut self, header: &[u8; BHS_BYTES], slot: Slot, offset: u32, bytes: u32) {
        self.header(header);
        self.out.payload(slot, offset, bytes, self.digests.pass());
    }

    #[inline(always)]
    fn command(&mut self, header: &ScsiCommand, slot: Slot, immediate: u32) -> bool {
        match immediate {
            0 => self.header(header.as_header()),
            bytes => self.payload(header.as_header(), slot, 0, bytes),
        }
        false
    }

    #[inline(always)]
    fn task(&mut self, _slot: Slot) {}

    #[inline(always)]
    fn response(&mut self, _slot: Slot, header: &[u8; BHS_BYTES], segment: &[u8]) {
        self.pdu(header, segment);
    }

    #[inline(always)]
    fn fetch(&mut self, _slot: Slot, r2t: &ReadyToTransfer) -> bool {
        self.header(r2t.as_header());
        false
    }

    /// Splits the data into Data-In PDUs of at most the initiator's MaxRecvDataSegmentLength, in
    /// sequences of at most MaxBurstLength.
    ///
    /// Source: RFC 7143, section 11.7.
    #[inline(always)]
    fn send(&mut self, slot: Slot, read: &ReadData<'_>) -> Option<u32> {
        let largest = read.parameters.initiator_segment_bytes & !3;
        let burst = read.parameters.max_burst_bytes;
        let (mut offset, mut left, mut data_sn) = (0, burst, 0);
        while offset < read.bytes {
            let piece = (read.bytes - offset).min(largest).min(left);
            let is_last = offset + piece == read.bytes;
            left -= piece;
            let mut header = read.header;
            header.data_bytes = U24::new(piece);
            header.data_sn = U32::new(data_sn);
            header.buffer_offset = U32::new(offset);
            if is_last || left == 0 {
                header.flags |= FINAL;
                left = burst;
            }
            if let Some(good) = read.good.filter(|_| is_last) {
                header.flags |= DATA_IN_STATUS | good.residual_flags;
                header.residual = U32::new(good.residual_bytes);
                header.sequence.stat_sn = U32::new(good.stat_sn);
            }
            self.payload(header.as_header(), slot, offset, piece);
            data_sn += 1;
            offset += piece;
        }
        read.good.is_none().then_some(data_sn)
    }
}

/// Maximum length in bytes of additional header segments (TotalAHSLength has 8 bits and counts
/// words) and the header digest.
const ADDITIONAL_BYTES_MAX: usize = 1020 + DIGEST_BYTES;
/// Skipped data is received in pieces of at most this many bytes.
const SKIP_BYTES: usize = 4096;
