//! Contract between the two sides of a connection and the transport of their PDUs.
//!
//! An [`Endpoint`] is one side of a connection: its login, sequence numbers and tasks. The endpoint
//! receives whole headers, and returns how to process the data segment behind each. A [`Framing`]
//! sends the endpoint's PDUs. Both sides of the contract address the data of a task by slot and
//! byte range:
//!
//! | the endpoint calls | over TCP | over RDMA |
//! |---|---|---|
//! | `pdu` | header, digests, data segment | one message |
//! | `command`, `payload` | the same, the segment from the slot | the same; tags of its memory |
//! | `fetch` | R2T; Data-Out answers it | RDMA READ |
//! | `send` | Data-In, the last with the status | RDMA WRITE |
//! | `response` | the same as `pdu` | the same; may invalidate a tag |
//!
//! [`super::tcp`] is the framing of a byte stream, [`super::iser`] that of RDMA.
//!
//! Source: RFC 7143, sections 4.2 and 11.1; RFC 7145, section 7.

use alloc::vec::Vec;

use zerocopy::{Immutable, IntoBytes};

use super::keys::Parameters;
use super::pdu::{
    BHS_BYTES, DATA_SEGMENT_MAX, DataIn, Digests, ReadyToTransfer, ScsiCommand, U24, padding,
};
use crate::{Breach, Slot, Violation};

/// Sends PDUs, and the data of tasks, to the peer.
pub trait Framing {
    /// Sends a PDU. `segment` is its data segment, filled with zeros to a multiple of
    /// [`PADDING_UNIT`](super::pdu::PADDING_UNIT). Both are copied before the call returns.
    fn pdu(&mut self, header: &[u8; BHS_BYTES], segment: &[u8]);

    /// Sends a PDU whose data segment is `bytes` of a slot's data from `offset`.
    fn payload(&mut self, header: &[u8; BHS_BYTES], slot: Slot, offset: u32, bytes: u32);

    /// Initiator: sends a command with the first `immediate` bytes of its slot's data. True if the
    /// target moves the rest of the data itself, without R2T and Data-In PDUs.
    fn command(&mut self, header: &ScsiCommand, slot: Slot, immediate: u32) -> bool;

    /// Target: the command that is being processed has this slot from now on.
    fn task(&mut self, slot: Slot);

    /// Target: sends the SCSI Response of a slot's command, with the segment of [`pdu`](Self::pdu).
    fn response(&mut self, slot: Slot, header: &[u8; BHS_BYTES], segment: &[u8]);

    /// Target: requests the range of a write's data in the R2T. True if the data may arrive in the
    /// slot's memory at any time from now on, until [`Endpoint::arrived`]. False if Data-Out PDUs
    /// announce the data first.
    fn fetch(&mut self, slot: Slot, r2t: &ReadyToTransfer) -> bool;

    /// Target: sends a read's data. Returns the number of Data-In PDUs if a SCSI Response has to
    /// follow, or `None` if the status was sent with the data.
    fn send(&mut self, slot: Slot, read: &ReadData<'_>) -> Option<u32>;
}

/// Data of a read to send to the initiator.
#[derive(Clone, Copy, Debug)]
pub struct ReadData<'a> {
    /// Length of the data in bytes, from the start of the slot's data.
    pub bytes: u32,
    /// Header of a Data-In, with the tags and sequence numbers common to all Data-In of the read.
    pub header: DataIn,
    /// Status for the last Data-In, instead of a SCSI Response, if the command was successful.
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

/// One side of a connection, independent of the transport.
///
/// Every call returns at most one event. After an error, and once [`is_closed`](Self::is_closed)
/// is true, the caller must pass in no more PDUs.
pub trait Endpoint {
    /// Event for the owner of the connection.
    type Event;

    /// Whether the connection is over.
    fn is_closed(&self) -> bool;

    /// Digests of the next PDU.
    fn digests(&self) -> Digests;

    /// Whether PDUs may have additional header segments. If not, a PDU that announces some is
    /// refused by its basic header alone.
    fn takes_additional_headers(&self) -> bool;

    /// Processes the header of a PDU: the basic segment and the additional ones.
    ///
    /// # Errors
    /// The peer broke a rule. The connection ends, best after [`terminate`](Self::terminate).
    fn pdu<F: Framing>(
        &mut self,
        header: &[u8; BHS_BYTES],
        additional: &[u8],
        out: &mut F,
    ) -> Result<Received<Self::Event>, Violation>;

    /// Processes the data segment of the last PDU, after [`Segment::Whole`]. `intact` is false if
    /// its digest differs.
    ///
    /// # Errors
    /// As for [`pdu`](Self::pdu).
    fn segment<F: Framing>(
        &mut self,
        data: &[u8],
        intact: bool,
        out: &mut F,
    ) -> Result<Option<Self::Event>, Violation>;

    /// Processes the arrival of a piece of a task's data that is in the slot or was skipped.
    /// `intact` is false if its digest differs.
    fn arrived<F: Framing>(
        &mut self,
        piece: Piece,
        intact: bool,
        out: &mut F,
    ) -> Option<Self::Event>;

    /// Sends the standard's answer to `violation`. The connection is over then.
    fn terminate<F: Framing>(&mut self, violation: &Violation, out: &mut F);
}

/// A connection with its endpoint, seen from their owner.
pub trait Carrier {
    /// This side of the connection.
    type Endpoint: Endpoint;

    /// The endpoint, for queries.
    fn endpoint(&self) -> &Self::Endpoint;

    /// The endpoint, and the framing that its calls need.
    fn speak(&mut self) -> (&mut Self::Endpoint, impl Framing);

    /// Whether data is sent from buffers only, and never from a disk's own pages.
    fn needs_buffers(&self) -> bool;
}

/// Result of processing a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<E> {
    /// Event of the header.
    pub event: Option<E>,
    /// How to process the data segment behind the header, after the event.
    pub segment: Segment,
}

/// How to process a data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// The segment is absent or skipped.
    Skipped,
    /// [`Endpoint::segment`] processes the whole segment. It has at least one byte, and at most
    /// [`SEGMENT_BYTES_MAX`].
    Whole,
    /// The data goes to its slot, then [`Endpoint::arrived`] is called.
    Kept(Piece),
    /// The data is skipped, then [`Endpoint::arrived`] is called: a task waits for its end.
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

/// Maximum length in bytes of a segment that an endpoint processes whole: the limit of a login's
/// PDUs.
pub const SEGMENT_BYTES_MAX: usize = 8192;

/// A violation without the header that it quotes.
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

/// DataSegmentLength of an own data segment.
pub(super) fn segment_length(data: &[u8]) -> U24 {
    U24::new(u32::try_from(data.len()).unwrap_or(DATA_SEGMENT_MAX))
}

/// Sends a PDU with a short data segment, which is copied.
pub(super) fn send<F: Framing>(header: &impl Header, data: &[u8], out: &mut F) {
    let mut padded: Vec<u8> = data.to_vec();
    padded.resize(data.len() + padding(data.len()), 0);
    out.pdu(header.as_header(), &padded);
}
