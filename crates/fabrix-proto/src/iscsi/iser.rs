//! PDUs as messages of an RDMA connection (iSER).
//!
//! Each message is one PDU behind a header of 28 bytes. The header of a command names memory of the
//! initiator by tags: the target reads a write's data from it (RDMA READ) and writes a read's data
//! to it (RDMA WRITE). So there are no R2T, Data-In and solicited Data-Out PDUs. Digests do not
//! exist, because the RDMA connection has its own.
//!
//! [`Iser`] is the machine of a connection on the target's side, and [`framing`] sends its PDUs.
//! [`initiator`] is the other side. [`message`] has the header, [`connect`] the private data of the
//! connection manager. Queue pairs and buffers are outside.
//!
//! Source: RFC 7145, "iSCSI Extensions for Remote Direct Memory Access (RDMA) Specification".

pub mod connect;
pub mod framing;
pub mod initiator;
pub mod message;

use alloc::boxed::Box;

use zerocopy::FromBytes;

use self::framing::{IserFraming, Messages};
use self::message::{Message, Tags};
use super::framing::{Endpoint, Fault, Piece, Received, SEGMENT_BYTES_MAX, Segment};
use super::keys::{Permission, SEGMENT_BYTES_DEFAULT, Wishes};
use super::pdu::{BHS_BYTES, COMMAND_READ, COMMAND_WRITE, Opcode, ScsiCommand};
use crate::{Breach, Violation};

/// Length of the iSER header in bytes.
pub const ISER_HEADER_BYTES: usize = 28;
/// Length in bytes of both headers of a message: iSER's and the basic one.
pub const HEADERS_BYTES: usize = ISER_HEADER_BYTES + BHS_BYTES;
/// Maximum length of a message in bytes: both headers, and a data segment of a login or of
/// TargetRecvDataSegmentLength.
pub const MESSAGE_BYTES_MAX: usize = HEADERS_BYTES + SEGMENT_BYTES_MAX;

/// Maximum length in bytes of the data segment of a PDU to the initiator. Longer texts go in
/// pieces. So the memory for messages is small.
pub const REPLY_SEGMENT_BYTES: u32 = 1024;
/// Maximum length of a message to the initiator, in bytes.
pub const REPLY_BYTES_MAX: usize = HEADERS_BYTES + REPLY_SEGMENT_BYTES as usize;

/// Values that a target proposes on a connection over RDMA. All data that does not fit into the
/// message of its command is read from the initiator.
#[must_use]
pub fn wishes() -> Wishes {
    Wishes {
        rdma_extensions: true,
        header_digest: Permission::Refused,
        data_digest: Permission::Refused,
        initial_r2t: true,
        segment_bytes: SEGMENT_BYTES_DEFAULT,
        initiator_segment_bytes: REPLY_SEGMENT_BYTES,
        ..Wishes::default()
    }
}

/// The target's side of a connection over RDMA.
pub struct Iser<E> {
    endpoint: E,
    tags: TaskTags,
}

/// Tags of the commands in progress.
struct TaskTags {
    of_slots: Box<[Tags]>,
    /// Tags of the message that is being processed.
    of_message: Tags,
    /// Whether a response invalidates a tag of its command.
    invalidates: bool,
}

impl<E: Endpoint> Iser<E> {
    /// A connection without traffic. `invalidates`: the initiator and the device can do with
    /// messages that invalidate a tag.
    #[must_use]
    pub fn new(endpoint: E, slots: u16, invalidates: bool) -> Self {
        let tags = TaskTags {
            of_slots: alloc::vec![Tags::default(); usize::from(slots)].into_boxed_slice(),
            of_message: Tags::default(),
            invalidates,
        };
        Self { endpoint, tags }
    }

    /// The endpoint, for queries.
    #[must_use]
    pub const fn endpoint(&self) -> &E {
        &self.endpoint
    }

    /// The endpoint, and the framing that its calls need.
    #[inline(always)]
    pub fn speak<M: Messages>(&mut self, out: M) -> (&mut E, IserFraming<'_, M>) {
        let framing = IserFraming::new(&mut self.tags, out);
        (&mut self.endpoint, framing)
    }

    /// Processes a message up to its data segment. `additional` has its additional header segments.
    ///
    /// # Errors
    /// The peer broke a rule. The connection ends, best after [`terminate`](Self::terminate).
    pub fn message<M: Messages>(
        &mut self,
        message: &Message,
        additional: &[u8],
        out: M,
    ) -> Result<Received<E::Event>, Violation> {
        check(message).map_err(|fault| fault.violation(&message.bhs))?;
        self.tags.of_message = message.tags;
        let (endpoint, mut framing) = self.speak(out);
        endpoint.pdu(&message.bhs, additional, &mut framing)
    }

    /// Processes the data segment of a message, after its event. Data of a slot is in the slot's
    /// memory.
    ///
    /// # Errors
    /// As of [`message`](Self::message).
    pub fn segment<M: Messages>(
        &mut self,
        segment: Segment,
        data: &[u8],
        out: M,
    ) -> Result<Option<E::Event>, Violation> {
        let (endpoint, mut framing) = self.speak(out);
        match segment {
            Segment::Skipped => Ok(None),
            Segment::Whole => endpoint.segment(data, true, &mut framing),
            Segment::Kept(piece) | Segment::Dropped(piece) => {
                Ok(endpoint.arrived(piece, true, &mut framing))
            }
        }
    }

    /// Processes the end of an RDMA READ: this piece of a slot's data has arrived.
    pub fn fetched<M: Messages>(&mut self, piece: Piece, out: M) -> Option<E::Event> {
        let (endpoint, mut framing) = self.speak(out);
        endpoint.arrived(piece, true, &mut framing)
    }

    /// Sends the standard's answer to `violation`. The connection is over then.
    pub fn terminate<M: Messages>(&mut self, violation: &Violation, out: M) {
        let (endpoint, mut framing) = self.speak(out);
        endpoint.terminate(violation, &mut framing);
    }
}

/// Checks what is other than over TCP. A Data-Out could only bring data that an RDMA READ brings,
/// too: both would count, and the command would end before the READ.
fn check(message: &Message) -> Result<(), Fault> {
    match Opcode::of(message.bhs[0]) {
        Opcode::SCSI_COMMAND => check_tags(message),
        kind @ Opcode::DATA_OUT => {
            let sentence = "Data-Out over RDMA, where the target reads the data itself";
            Err(Fault::new(Breach::Sequence, 0, kind.0.into(), sentence))
        }
        _ => Ok(()),
    }
}

/// Checks that a command has the tags that its data needs. A command in both directions is refused
/// by the endpoint, and moves nothing.
fn check_tags(message: &Message) -> Result<(), Fault> {
    let command = ScsiCommand::read_from_bytes(&message.bhs).expect("every header has 48 bytes");
    let expected = command.expected_bytes.get();
    let field = |sentence| Err(Fault::new(Breach::HeaderField, 0, expected, sentence));
    match command.flags & (COMMAND_READ | COMMAND_WRITE) {
        COMMAND_READ if expected > 0 && message.tags.read.is_none() => {
            field("a read without a tag of the memory for its data (Read STag)")
        }
        COMMAND_WRITE if expected > message.tags.immediate && message.tags.write.is_none() => {
            field("a write without a tag of the memory that has its data (Write STag)")
        }
        _ => Ok(()),
    }
}
