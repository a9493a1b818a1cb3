//! The contract between what PDUs mean and what carries them.
//!
//! An [`Endpoint`] is one side of a connection: its login, its numbers, its tasks. It takes whole
//! headers, and says what becomes of the data segment behind each. A [`Framing`] carries what an
//! endpoint sends. The data of a task has a slot and a range of bytes on both sides of the
//! contract:
//!
//! | the endpoint says | over TCP | over RDMA |
//! |---|---|---|
//! | `pdu` | header, digests, data segment | one message |
//! | `command`, `payload` | the same, the segment from the slot | the same; tags of its memory |
//! | `fetch` | R2T; Data-Out answers it | RDMA READ |
//! | `send` | Data-In, the last with the status | RDMA WRITE |
//!
//! [`super::tcp`] is the framing of a byte stream.
//!
//! Source: RFC 7143, sections 4.2 and 11.1; RFC 7145, section 7.

use alloc::vec::Vec;

use zerocopy::{Immutable, IntoBytes};

use super::keys::Parameters;
use super::pdu::{
    BHS_BYTES, DATA_SEGMENT_MAX, DataIn, Digests, ReadyToTransfer, ScsiCommand, U24, padding,
};
use crate::{Breach, Slot, Violation};

/// Carries PDUs, and the data of tasks, to the peer.
pub trait Framing {
    /// Sends a PDU. `segment` is its data segment, filled with zeros to a multiple of
    /// [`PADDING_UNIT`](super::pdu::PADDING_UNIT). Both are copied before the call returns.
    fn pdu(&mut self, header: &[u8; BHS_BYTES], segment: &[u8]);

    /// Sends a PDU whose data segment is `bytes` of a slot's data from `offset`.
    fn payload(&mut self, header: &[u8; BHS_BYTES], slot: Slot, offset: u32, bytes: u32);

    /// Initiator: sends a command, with so many bytes of its slot's data behind it. True when the
    /// target moves the rest of the data by itself: neither R2T nor Data-In tells of it.
    fn command(&mut self, header: &ScsiCommand, slot: Slot, immediate: u32) -> bool;

    /// Target: asks for the range of a write's data that the R2T names. True when the data may
    /// arrive in the slot's memory at any time from now on, until [`Endpoint::arrived`]; false when
    /// Data-Out PDUs announce it first.
    fn fetch(&mut self, slot: Slot, r2t: &ReadyToTransfer) -> bool;

    /// Target: sends a read's data. None when the status went with it; else the number of Data-In
    /// PDUs, and a SCSI Response has to follow.
    fn send(&mut self, slot: Slot, read: &ReadData<'_>) -> Option<u32>;
}

/// The data of a read on its way to the initiator.
#[derive(Clone, Copy, Debug)]
pub struct ReadData<'a> {
    /// Length of the data, which begins at the start of the slot's.
    pub bytes: u32,
    /// Header of a Data-In, with the tags and numbers that every Data-In of this read has.
    pub header: DataIn,
    /// What the last Data-In may tell instead of a SCSI Response, if the command ended well.
    pub good: Option<GoodStatus>,
    /// Limits of segments and sequences.
    pub parameters: &'a Parameters,
}

/// Status GOOD within a Data-In.
#[derive(Clone, Copy, Debug)]
pub struct GoodStatus {
    /// StatSN of the status.
    pub stat_sn: u32,
    /// Flags of the residual.
    pub residual_flags: u8,
    /// Residual count, in bytes.
    pub residual_bytes: u32,
}

/// One side of a connection, whatever carries its PDUs.
///
/// Every call yields at most one event. After an error, and once [`is_closed`](Self::is_closed),
/// nothing more may be handed to it.
pub trait Endpoint {
    /// What the endpoint tells its owner.
    type Event;

    /// Whether the connection is over.
    fn is_closed(&self) -> bool;

    /// Digests of the PDU that comes next.
    fn digests(&self) -> Digests;

    /// Whether PDUs may have additional header segments. Where they may not, a PDU that announces
    /// some is refused for its basic header alone.
    fn takes_additional_headers(&self) -> bool;

    /// Takes the header of a PDU: the basic segment and the additional ones.
    ///
    /// # Errors
    /// The peer broke the rules; the connection ends, best after [`terminate`](Self::terminate).
    fn pdu<F: Framing>(
        &mut self,
        header: &[u8; BHS_BYTES],
        additional: &[u8],
        out: &mut F,
    ) -> Result<Received<Self::Event>, Violation>;

    /// Takes the data segment of the last PDU, after [`Segment::Whole`]; `intact` is false when its
    /// digest differs.
    ///
    /// # Errors
    /// As for [`pdu`](Self::pdu).
    fn segment<F: Framing>(
        &mut self,
        data: &[u8],
        intact: bool,
        out: &mut F,
    ) -> Result<Option<Self::Event>, Violation>;

    /// Learns that a piece of a task's data has arrived, or was read over; `intact` is false when
    /// its digest differs.
    fn arrived<F: Framing>(
        &mut self,
        piece: Piece,
        intact: bool,
        out: &mut F,
    ) -> Option<Self::Event>;

    /// Says the standard's goodbye for `violation`; the connection is over then.
    fn terminate<F: Framing>(&mut self, violation: &Violation, out: &mut F);
}

/// A connection that carries the PDUs of an endpoint, seen from the owner of both.
pub trait Carrier {
    /// The side of the connection that is ours.
    type Endpoint: Endpoint;

    /// The endpoint, to ask it.
    fn endpoint(&self) -> &Self::Endpoint;

    /// The endpoint, and the framing that its calls need.
    fn speak(&mut self) -> (&mut Self::Endpoint, impl Framing);
}

/// What an endpoint makes of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<E> {
    /// What the header meant.
    pub event: Option<E>,
    /// What becomes of the data segment behind it, after the event.
    pub segment: Segment,
}

/// What becomes of a data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Nothing: there is none, or it is read over.
    Skipped,
    /// [`Endpoint::segment`] takes it whole. It has at least one byte, and at most
    /// [`SEGMENT_BYTES_MAX`].
    Whole,
    /// It goes to its place in a slot, then [`Endpoint::arrived`] is called.
    Kept(Piece),
    /// It is read over, then [`Endpoint::arrived`] is called: a task waits for its end.
    Dropped(Piece),
}

/// A piece of a task's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Slot of the task.
    pub slot: Slot,
    /// Offset in the task's data, in bytes.
    pub offset: u32,
    /// Length, in bytes.
    pub bytes: u32,
}

/// The longest data segment that an endpoint takes whole, in bytes: as much as a login's PDU may
/// have.
pub const SEGMENT_BYTES_MAX: usize = 8192;

/// A broken rule before the header it stood in is quoted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    breach: Breach,
    offset: u32,
    found: u32,
    sentence: &'static str,
}

impl Fault {
    pub(super) const fn new(
        breach: Breach,
        offset: u32,
        found: u32,
        sentence: &'static str,
    ) -> Self {
        Self {
            breach,
            offset,
            found,
            sentence,
        }
    }

    pub(super) fn violation(self, header: &[u8]) -> Violation {
        Violation::new(self.breach, self.offset, self.sentence)
            .found(u64::from(self.found))
            .with_header(header)
    }
}

/// Any header of 48 bytes.
pub(super) trait Header {
    fn as_header(&self) -> &[u8; BHS_BYTES];
}

impl<T: IntoBytes + Immutable> Header for T {
    #[inline(always)]
    fn as_header(&self) -> &[u8; BHS_BYTES] {
        let bytes = self.as_bytes().first_chunk();
        bytes.expect("every header has 48 bytes")
    }
}

/// The length of a data segment of our own, as headers have it.
pub(super) fn segment_length(data: &[u8]) -> U24 {
    U24::new(u32::try_from(data.len()).unwrap_or(DATA_SEGMENT_MAX))
}

/// Sends a PDU with data of our own: short, and by value.
pub(super) fn send<F: Framing>(header: &impl Header, data: &[u8], out: &mut F) {
    let mut padded: Vec<u8> = data.to_vec();
    padded.resize(data.len() + padding(data.len()), 0);
    out.pdu(header.as_header(), &padded);
}
