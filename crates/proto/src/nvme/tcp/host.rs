//! The host's side of one NVMe/TCP connection: capsules out, R2T and data in, answers.
//!
//! It knows PDUs, the slots of the commands in progress, and how much of each command's data has moved. It touches
//! neither the socket nor the data: it names where data goes (`want`) and where it is taken from (`Sink`). The owner
//! chooses the slot of a command; the slot is free again with `Completed`, or with the connection.
//!
//! The controller is not trusted: it can end this connection, and nothing more. It cannot make the machine write
//! outside the data of a command that reads, send outside the data of a command that writes, answer a command twice,
//! or ask for so many small pieces that their headers outweigh the data.
//!
//! `host/data.rs` follows the data. `target.rs` is the mirror.
//!
//! Source: NVM Express TCP Transport Specification 1.1.

mod data;

use alloc::boxed::Box;

use zerocopy::byteorder::little_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

use super::pdu::{
    ADMIN_IN_CAPSULE_BYTES, CommandHeader, CommonHeader, Digests, FLAG_LAST, FLAG_SUCCESS,
    InitializeRequest, InitializeResponse, MAX_ALIGNMENT, MIN_MAX_H2C_BYTES, PduType,
    ResponseHeader, TerminateRequest,
};
use super::{Fault, TerminateReason, WholeHeader};
use crate::nvme::spec::{CompletionEntry, PSDT_SGL, SglDescriptor, SubmissionEntry};
use crate::{Crc32c, Machine, Sink, Slot, Violation, Want};

/// What the host asks for and insists on. Decided before the first byte.
#[derive(Clone, Copy, Debug)]
pub struct HostLimits {
    /// Commands in progress at most, 1 to 4096: the rest of the command id tells their generations apart.
    pub max_slots: u16,
    /// R2Ts of one command that the controller may have outstanding, as a plain count, at least 1.
    pub max_r2t: u32,
    /// Whether headers are to have digests.
    pub header_digest: bool,
    /// Whether data is to have digests.
    pub data_digest: bool,
    /// Whether a controller that will not use the digests asked for is good enough.
    pub fewer_digests: bool,
}

impl Default for HostLimits {
    fn default() -> Self {
        Self {
            max_slots: 128,
            max_r2t: 1,
            header_digest: false,
            data_digest: false,
            fewer_digests: false,
        }
    }
}

/// How a command's data moves, seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostTransfer {
    /// It has none.
    None,
    /// The slot's data goes to the controller, in the capsule when it fits.
    Write {
        /// How much, in bytes.
        bytes: u32,
    },
    /// The controller's data goes to the slot.
    Read {
        /// How much at most, in bytes.
        bytes: u32,
    },
}

/// What happened, for the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The controller has agreed: commands may be sent.
    Ready {
        /// The most data the controller takes in one H2CData, in bytes.
        max_h2c_bytes: u32,
        /// What both sides use now.
        digests: Digests,
    },
    /// A command was answered, and its slot is free.
    Completed {
        /// Which one.
        slot: Slot,
        /// The answer; made here (success, no result) when the data said SUCCESS.
        entry: CompletionEntry,
        /// How much data has moved; a read that succeeded with less than it asked for is the owner's to refuse.
        data_bytes: u32,
        /// `false`: data of this command did not match its digest.
        intact: bool,
    },
    /// The controller ended the connection (C2HTermReq); `Host::goodbye` says why.
    Goodbye,
}

/// The host's side of one connection.
pub struct Host {
    limits: HostLimits,
    crc32c: Crc32c,
    reading: Reading,
    initialized: bool,
    digests: Digests,
    controller_alignment: u8,
    max_h2c_bytes: u32,
    in_capsule_bytes: u32,
    commands: Box<[Command]>,
    in_use: usize,
    /// How many low bits of a command id are the slot.
    slot_bits: u32,
    /// The header whose digest or padding is still to come.
    head: [u8; HEAD_BYTES],
    goodbye: Option<TerminateReason>,
    /// One side has said its goodbye: the other says none.
    parted: bool,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// The first 24 bytes of a PDU: all of the header, but for ICResp.
    Head,
    /// What lies between those and the data, or the next PDU: digest and padding, or the rest of ICResp.
    Rest { bytes: usize },
    /// A piece of a read's data; `completes` when it says that no CapsuleResp follows.
    Data {
        slot: Slot,
        offset: u32,
        bytes: u32,
        completes: bool,
    },
    /// Nothing, for ever.
    Closed,
}

/// One slot.
#[derive(Clone, Copy, Debug, Default)]
struct Command {
    in_use: bool,
    /// Slot and generation: the next command in this slot has another id.
    command_id: u16,
    generation: u16,
    direction: Direction,
    /// How much data the command has.
    bytes: u32,
    /// How much of it has been received, or handed out for sending.
    moved: u32,
    /// R2Ts so far.
    r2ts: u32,
    /// The controller has said LAST.
    last: bool,
    intact: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Direction {
    #[default]
    None,
    /// By R2T; in-capsule data has already left.
    Write,
    Read,
}

impl Host {
    /// A connection on which no byte has passed; `start` sends the first.
    ///
    /// Limits that are not possible are moved to the nearest that is.
    #[must_use]
    pub fn new(limits: HostLimits, crc32c: Crc32c) -> Self {
        let max_slots = limits.max_slots.clamp(1, MAX_SLOTS);
        Self {
            limits: HostLimits {
                max_slots,
                max_r2t: limits.max_r2t.max(1),
                ..limits
            },
            crc32c,
            reading: Reading::Head,
            initialized: false,
            digests: Digests::default(),
            controller_alignment: 0,
            max_h2c_bytes: MIN_MAX_H2C_BYTES,
            in_capsule_bytes: ADMIN_IN_CAPSULE_BYTES,
            commands: alloc::vec![Command::default(); usize::from(max_slots)].into_boxed_slice(),
            in_use: 0,
            slot_bits: u16::BITS - (max_slots - 1).leading_zeros(),
            head: [0; HEAD_BYTES],
            goodbye: None,
            parted: false,
        }
    }

    /// Opens the connection: ICReq.
    pub fn start<S: Sink>(&mut self, out: &mut S) {
        let request = InitializeRequest::new(0, self.wanted_digests(), self.limits.max_r2t);
        out.bytes(request.as_bytes());
    }

    /// The most in-capsule data of an I/O command, in bytes: IOCCSZ in bytes, less the 64 of the entry.
    ///
    /// Until this is called the connection is taken for an admin queue, with 8192. Fabrics commands have that much
    /// on every queue.
    pub fn set_in_capsule(&mut self, bytes: u32) {
        self.in_capsule_bytes = bytes;
    }

    /// Sends a command and keeps it in `slot`, which must be free; the command id and the SGL are filled in here.
    ///
    /// `false`, and nothing sent: the connection is not ready or is over, or the slot is in use or does not exist.
    pub fn command<S: Sink>(
        &mut self,
        slot: Slot,
        entry: &mut SubmissionEntry,
        transfer: HostTransfer,
        out: &mut S,
    ) -> bool {
        if !self.initialized || self.is_closed() {
            return false;
        }
        let (direction, bytes) = match transfer {
            HostTransfer::Write { bytes } if bytes > 0 => (Direction::Write, bytes),
            HostTransfer::Read { bytes } if bytes > 0 => (Direction::Read, bytes),
            _ => (Direction::None, 0),
        };
        let in_capsule = direction == Direction::Write && bytes <= self.in_capsule_limit(entry);
        let Some(command_id) = self.take(slot, direction, bytes, in_capsule) else {
            return false;
        };
        entry.flags = entry.flags & !PSDT_MASK | PSDT_SGL;
        entry.command_id = U16::new(command_id);
        if in_capsule {
            entry.sgl = SglDescriptor::in_capsule(bytes);
            self.send_capsule_with_data(slot, entry, bytes, out);
        } else {
            entry.sgl = SglDescriptor::transport(bytes);
            let common = CommonHeader::without_data(PduType::COMMAND, self.digests);
            self.send_capsule(common, entry, out);
        }
        true
    }

    /// Whether the controller has agreed and the connection is not over.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.initialized && !self.is_closed()
    }

    /// How many slots hold a command that is not answered.
    #[must_use]
    pub fn slots_in_use(&self) -> usize {
        self.in_use
    }

    /// Why the controller ended the connection, after `Event::Goodbye`.
    #[must_use]
    pub fn goodbye(&self) -> Option<TerminateReason> {
        self.goodbye
    }

    fn wanted_digests(&self) -> Digests {
        Digests {
            header: self.limits.header_digest,
            data: self.limits.data_digest,
        }
    }

    fn is_closed(&self) -> bool {
        matches!(self.reading, Reading::Closed)
    }

    fn in_capsule_limit(&self, entry: &SubmissionEntry) -> u32 {
        let limit = if entry.is_fabrics() {
            ADMIN_IN_CAPSULE_BYTES
        } else {
            self.in_capsule_bytes
        };
        limit.min(MAX_IN_CAPSULE_BYTES)
    }

    /// Takes a free slot and gives its command an id that differs from the last one there.
    fn take(
        &mut self,
        slot: Slot,
        direction: Direction,
        bytes: u32,
        in_capsule: bool,
    ) -> Option<u16> {
        let slot_bits = self.slot_bits;
        let command = self
            .commands
            .get_mut(usize::from(slot.0))
            .filter(|it| !it.in_use)?;
        let generation = next_generation(command.generation, slot, slot_bits);
        *command = Command {
            in_use: true,
            command_id: generation << slot_bits | slot.0,
            generation,
            direction: if in_capsule {
                Direction::None
            } else {
                direction
            },
            bytes,
            moved: if in_capsule { bytes } else { 0 },
            r2ts: 0,
            last: false,
            intact: true,
        };
        self.in_use += 1;
        Some(command.command_id)
    }

    /// The slot of a command in progress with this id; an id of an earlier generation is nobody's.
    fn find(&self, command_id: u16) -> Option<Slot> {
        let slot = command_id & slot_mask(self.slot_bits);
        let command = self.commands.get(usize::from(slot))?;
        (command.in_use && command.command_id == command_id).then_some(Slot(slot))
    }

    fn command_at(&mut self, slot: Slot) -> &mut Command {
        &mut self.commands[usize::from(slot.0)]
    }

    /// Frees a slot and says how its command ended.
    fn complete(&mut self, slot: Slot, entry: CompletionEntry) -> Event {
        let command = self.command_at(slot);
        command.in_use = false;
        let (data_bytes, intact) = (command.moved, command.intact);
        self.in_use -= 1;
        Event::Completed {
            slot,
            entry,
            data_bytes,
            intact,
        }
    }

    fn send_capsule<S: Sink>(&self, common: CommonHeader, entry: &SubmissionEntry, out: &mut S) {
        let header = CommandHeader {
            common,
            entry: entry.to_array(),
        };
        super::send_header(header.as_bytes(), self.digests, self.crc32c, out);
    }

    fn send_capsule_with_data<S: Sink>(
        &self,
        slot: Slot,
        entry: &SubmissionEntry,
        bytes: u32,
        out: &mut S,
    ) {
        let alignment = self.controller_alignment;
        let common = CommonHeader::with_data(PduType::COMMAND, self.digests, alignment, bytes)
            .expect("in-capsule data is bounded");
        self.send_capsule(common, entry, out);
        out.payload(slot, 0, bytes, self.digests.data);
    }

    /// Checks what the first 24 bytes of a PDU decide, and acts on it if that is the whole header.
    fn head<S: Sink>(&mut self, head: &[u8], out: &mut S) -> Result<Option<Event>, Fault> {
        let (common, _) = CommonHeader::read_from_prefix(head).expect("the driver obeys want()");
        self.check_sequence(common.pdu_type)?;
        super::check_header_length(&common)?;
        let end = match common.pdu_type {
            PduType::INITIALIZE_RESPONSE => check_initialize_lengths(&common)?,
            PduType::CONTROLLER_TERMINATE => {
                super::check_terminate(&common).map(|()| u32::from(common.header_bytes))?
            }
            PduType::CONTROLLER_DATA => self.check_data_lengths(&common)?,
            _ => self.check_plain_lengths(&common)?,
        };
        let rest = end as usize - HEAD_BYTES;
        if rest == 0 {
            return self.act(&common, head, &[], out);
        }
        self.head.copy_from_slice(head);
        self.reading = Reading::Rest { bytes: rest };
        Ok(None)
    }

    /// Which PDU may come when: ICResp first and once, then the others; the goodbye at any time.
    fn check_sequence(&self, pdu_type: PduType) -> Result<(), Fault> {
        let fault = match (pdu_type, self.initialized) {
            (PduType::CONTROLLER_TERMINATE, _)
            | (PduType::INITIALIZE_RESPONSE, false)
            | (PduType::RESPONSE | PduType::CONTROLLER_DATA | PduType::READY_TO_TRANSFER, true) => {
                return Ok(());
            }
            _ if pdu_type.header_bytes().is_none() => {
                Fault::field(0, pdu_type.0, "a PDU of unknown type")
            }
            (PduType::INITIALIZE_RESPONSE, true) => Fault::sequence(pdu_type.0, "a second ICResp"),
            (PduType::RESPONSE | PduType::CONTROLLER_DATA | PduType::READY_TO_TRANSFER, false) => {
                Fault::sequence(pdu_type.0, "a PDU came before ICResp")
            }
            _ => Fault::sequence(pdu_type.0, "a PDU that only a host sends"),
        };
        Err(fault)
    }

    /// CapsuleResp and R2T are a header and its digest.
    fn check_plain_lengths(&self, common: &CommonHeader) -> Result<u32, Fault> {
        let (end, total) = (common.header_end(self.digests), common.total_bytes.get());
        if total != end {
            return Err(Fault::field(
                4,
                total,
                "PLEN is not that of the header and its digest",
            ));
        }
        super::check_flags(common, self.digests, false, 0)?;
        Ok(end)
    }

    /// Where the data begins in a C2HData; PLEN is compared with DATAL in `act`.
    fn check_data_lengths(&self, common: &CommonHeader) -> Result<u32, Fault> {
        super::check_flags(common, self.digests, true, FLAG_LAST | FLAG_SUCCESS)?;
        super::check_data_offset(common, self.digests)?;
        Ok(u32::from(common.data_offset))
    }

    /// The whole header is there: `head` its first 24 bytes, `rest` what lies behind.
    fn act<S: Sink>(
        &mut self,
        common: &CommonHeader,
        head: &[u8],
        rest: &[u8],
        out: &mut S,
    ) -> Result<Option<Event>, Fault> {
        self.reading = Reading::Head;
        match common.pdu_type {
            PduType::INITIALIZE_RESPONSE => return self.initialized(common, head, rest).map(Some),
            PduType::CONTROLLER_TERMINATE => return Ok(Some(self.controller_terminates(head))),
            _ if self.digests.header => super::check_header_digest(head, rest, self.crc32c)?,
            _ => {}
        }
        match common.pdu_type {
            PduType::RESPONSE => self.response(head).map(Some),
            PduType::CONTROLLER_DATA => self.controller_data(head),
            _ => self.ready_to_transfer(head, out),
        }
    }

    /// ICResp: what both sides use from now on, if we can live with it.
    fn initialized(
        &mut self,
        common: &CommonHeader,
        head: &[u8],
        rest: &[u8],
    ) -> Result<Event, Fault> {
        let whole = WholeHeader::join(common, &head[8..], rest);
        let response: InitializeResponse = whole.parse();
        let (wanted, digests) = (self.wanted_digests(), Digests::from_wire(response.digests));
        let (alignment, max_h2c_bytes) =
            (response.controller_alignment, response.max_h2c_bytes.get());
        if response.format_version.get() != 0 {
            let sentence = "ICResp of a PDU format version other than 0";
            return Err(Fault::unsupported(
                8,
                response.format_version.get(),
                sentence,
            ));
        }
        if alignment > MAX_ALIGNMENT {
            return Err(Fault::field(10, alignment, "CPDA of ICResp is above 31"));
        }
        if digests.header && !wanted.header || digests.data && !wanted.data {
            let sentence = "ICResp turns on a digest that was not asked for";
            return Err(Fault::field(11, response.digests, sentence));
        }
        if digests != wanted && !self.limits.fewer_digests {
            let sentence = "the controller does not use a digest that was asked for";
            return Err(Fault::unsupported(11, response.digests, sentence));
        }
        if max_h2c_bytes < MIN_MAX_H2C_BYTES || !max_h2c_bytes.is_multiple_of(4) {
            let sentence = "MAXH2CDATA of ICResp is below 4096 or no multiple of 4";
            return Err(Fault::field(12, max_h2c_bytes, sentence));
        }
        self.digests = digests;
        self.controller_alignment = alignment;
        self.max_h2c_bytes = max_h2c_bytes;
        self.initialized = true;
        Ok(Event::Ready {
            max_h2c_bytes,
            digests,
        })
    }

    /// CapsuleResp: the answer to a command in progress, once.
    fn response(&mut self, head: &[u8]) -> Result<Event, Fault> {
        let header = ResponseHeader::read_from_bytes(head).expect("24 bytes");
        let entry = CompletionEntry::from_array(header.entry);
        let command_id = entry.command_id.get();
        let slot = self.find(command_id).ok_or_else(|| {
            Fault::sequence(
                command_id,
                "CapsuleResp for a command that is not in progress",
            )
        })?;
        Ok(self.complete(slot, entry))
    }

    fn controller_terminates(&mut self, head: &[u8]) -> Event {
        let request = TerminateRequest::read_from_bytes(head).expect("24 bytes");
        self.goodbye = Some(TerminateReason {
            status: request.status.get(),
            information: request.information.get(),
        });
        self.reading = Reading::Closed;
        self.parted = true;
        Event::Goodbye
    }
}

impl Machine for Host {
    type Event = Event;

    fn want(&self) -> Want {
        match self.reading {
            Reading::Head => Want::Header { bytes: HEAD_BYTES },
            Reading::Rest { bytes } => Want::Header { bytes },
            Reading::Data {
                slot,
                offset,
                bytes,
                ..
            } => Want::Payload {
                slot,
                offset,
                bytes,
                digest: self.digests.data,
            },
            Reading::Closed => Want::Closed,
        }
    }

    fn header<S: Sink>(&mut self, bytes: &[u8], out: &mut S) -> Result<Option<Event>, Violation> {
        match self.reading {
            Reading::Head => self.head(bytes, out).map_err(|fault| {
                self.reading = Reading::Closed;
                fault.violation(bytes)
            }),
            Reading::Rest { .. } => {
                let head = self.head;
                let (common, body) = CommonHeader::read_from_prefix(&head).expect("24 bytes");
                self.act(&common, &head, bytes, out).map_err(|fault| {
                    self.reading = Reading::Closed;
                    fault.violation(WholeHeader::join(&common, body, bytes).as_slice())
                })
            }
            Reading::Data { .. } | Reading::Closed => Ok(None),
        }
    }

    fn payload<S: Sink>(&mut self, intact: bool, _out: &mut S) -> Result<Option<Event>, Violation> {
        let Reading::Data {
            slot,
            bytes,
            completes,
            ..
        } = self.reading
        else {
            return Ok(None);
        };
        self.reading = Reading::Head;
        Ok(self.data_arrived(slot, bytes, intact, completes))
    }

    fn terminate<S: Sink>(&mut self, violation: &Violation, out: &mut S) {
        self.reading = Reading::Closed;
        if !self.parted {
            self.parted = true;
            super::send_terminate(PduType::HOST_TERMINATE, violation, out);
        }
    }
}

fn check_initialize_lengths(common: &CommonHeader) -> Result<u32, Fault> {
    if common.total_bytes.get() != 128 {
        return Err(Fault::field(
            4,
            common.total_bytes.get(),
            "PLEN of ICResp must be 128",
        ));
    }
    if common.flags != 0 {
        return Err(Fault::field(1, common.flags, "ICResp has no flags"));
    }
    Ok(128)
}

/// The generation after `generation`, skipping the one that would make the command id 0xFFFF, which NVMe reserves.
fn next_generation(generation: u16, slot: Slot, slot_bits: u32) -> u16 {
    let largest = u16::MAX >> slot_bits;
    let next = if generation >= largest {
        0
    } else {
        generation + 1
    };
    if next << slot_bits | slot.0 == u16::MAX {
        0
    } else {
        next
    }
}

fn slot_mask(slot_bits: u32) -> u16 {
    (1 << slot_bits) - 1
}

/// All headers that a controller sends are this long, but for ICResp.
const HEAD_BYTES: usize = 24;
/// Four bits of each command id are left for the generation.
const MAX_SLOTS: u16 = 4096;
/// A controller that offers more in-capsule data than this gets no more in one capsule.
const MAX_IN_CAPSULE_BYTES: u32 = 1 << 20;
/// PSDT in the flags byte of an entry.
const PSDT_MASK: u8 = 0b1100_0000;
