//! The controller's side of one NVMe/TCP connection: capsules in, R2T and data out, answers.
//!
//! It knows PDUs, the slots of the commands in progress, and how much of each write was asked for. It touches
//! neither the socket nor the data: it names where data goes (`want`) and where it is taken from (`Sink`). What a
//! command means, and whether this host may send it, is the adapter's business; a few answers are given here
//! because the command never becomes one: a command id in use, a transfer above the limit.
//!
//! The life of a slot: `Command` hands it to the adapter, which may `fetch` a write's data once, and answers. An
//! answer given while data is still on its way waits until that data has arrived (a host frees the memory it is
//! sending from when the answer comes): `answer` returns `false` then, and `Released` follows.
//!
//! In-capsule data comes in two ways. Little of it is taken where it lies, and then the command is an event with its
//! data. More of it follows its event, `Fetch`, as if an R2T had asked for it: the adapter gives it its place before
//! it arrives.
//!
//! `target/capsule.rs` decides what a command moves, `target/data.rs` follows the data, `target/slots.rs` keeps
//! the table. `host.rs` is the mirror.
//!
//! Source: NVM Express TCP Transport Specification 1.1.

mod capsule;
mod data;
mod slots;

use zerocopy::byteorder::little_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

use self::capsule::{CapsuleLimits, Verdict, classify, in_capsule_limit};
use self::slots::{Phase, SlotTable};
use super::pdu::{
    ADMIN_IN_CAPSULE_BYTES, COMMON_BYTES, CommonHeader, Digests, InitializeRequest,
    InitializeResponse, MAX_ALIGNMENT, MIN_MAX_H2C_BYTES, PduType, ResponseHeader,
    TerminateRequest,
};
use super::{Fault, TerminateReason, WholeHeader};
use crate::nvme::spec::{CompletionEntry, Status, SubmissionEntry};
use crate::{Crc32c, Machine, Sink, Slot, Violation, Want};

/// What one connection may use. Decided by the adapter before the first byte.
#[derive(Clone, Copy, Debug)]
pub struct TargetLimits {
    /// Commands in progress at most; one more ends the connection. At least 1, and at least the queue's size.
    pub max_slots: u16,
    /// In-capsule data of an I/O queue's command, in bytes: what IOCCSZ tells the host, less the 64 of the entry. Up to
    /// 8 KiB of it must be received in one piece.
    pub in_capsule_bytes: u32,
    /// Data of one command, in bytes (MDTS); a command that wants more is refused with Invalid Field.
    pub max_data_bytes: u32,
    /// Data of one H2CData (MAXH2CDATA), in bytes; made a multiple of 4 and at least 4096.
    pub max_h2c_bytes: u32,
    /// Data asked for by one R2T, in bytes; a larger write is asked for in pieces, one after the other. At least 4096.
    pub max_r2t_bytes: u32,
    /// Whether a host that wants header digests gets them.
    pub header_digest_allowed: bool,
    /// Whether a host that wants data digests gets them.
    pub data_digest_allowed: bool,
    /// Whether a read may end with its data (SUCCESS), without a CapsuleResp, where the standard allows that.
    pub success_flag: bool,
}

impl Default for TargetLimits {
    fn default() -> Self {
        Self {
            max_slots: 128,
            in_capsule_bytes: ADMIN_IN_CAPSULE_BYTES,
            max_data_bytes: 1 << 20,
            max_h2c_bytes: 1 << 20,
            max_r2t_bytes: u32::MAX,
            header_digest_allowed: true,
            data_digest_allowed: true,
            success_flag: true,
        }
    }
}

/// How a command's data moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// It has none.
    None,
    /// It came with the command and is in the slot.
    Inline {
        /// How much, in bytes.
        bytes: u32,
    },
    /// It is not here yet: `fetch` asks the host for it, or gives its place to what is already coming. That is to be
    /// done, or the command answered, before anything more is received.
    Fetch {
        /// How much, in bytes.
        bytes: u32,
    },
    /// The host expects it: `answer` sends it.
    Send {
        /// How much at most, in bytes.
        bytes: u32,
    },
}

/// What happened, for the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A command, and with it the slot, is the adapter's until it answers.
    Command {
        /// Where it is kept, and its data.
        slot: Slot,
        /// The submission entry.
        entry: [u8; 64],
        /// How its data moves.
        transfer: Transfer,
        /// `false`: the in-capsule data does not match its digest; the command must not be executed, and is answered
        /// with Transient Transport Error.
        intact: bool,
    },
    /// All data asked for by `fetch` is in the slot.
    Fetched {
        /// Whose data.
        slot: Slot,
        /// `false`: a piece did not match its digest, as for `Command`.
        intact: bool,
    },
    /// A slot that held data is free again without a further answer of the adapter.
    ///
    /// After an early answer (see `answer`), or after in-capsule data of a command that was refused.
    Released {
        /// Which one.
        slot: Slot,
    },
    /// The host ended the connection (H2CTermReq); `Target::goodbye` says why.
    Goodbye,
}

/// The controller's side of one connection.
pub struct Target {
    limits: TargetLimits,
    crc32c: Crc32c,
    reading: Reading,
    initialized: bool,
    digests: Digests,
    host_alignment: u8,
    admin: bool,
    flow_control: bool,
    queue_entries: u32,
    sq_head: u16,
    slots: SlotTable,
    /// The entry whose in-capsule data is arriving: there is one at most.
    entry: [u8; 64],
    goodbye: Option<TerminateReason>,
    /// One side has said its goodbye: the other says none.
    parted: bool,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// A common header.
    Common,
    /// The rest of this PDU's header, its digest, and padding.
    Rest { common: CommonHeader, bytes: usize },
    /// In-capsule data.
    Capsule { slot: Slot, bytes: u32 },
    /// A piece of a write's data.
    Data { slot: Slot, offset: u32, bytes: u32 },
    /// In-capsule data that nobody wants, and its digest.
    Unwanted { slot: Slot, bytes: u32 },
    /// Nothing, for ever.
    Closed,
}

impl Target {
    /// A connection on which no byte has passed.
    ///
    /// Limits that the standard does not allow are moved to the nearest it does.
    #[must_use]
    pub fn new(limits: TargetLimits, crc32c: Crc32c) -> Self {
        let limits = TargetLimits {
            max_h2c_bytes: (limits.max_h2c_bytes & !3).max(MIN_MAX_H2C_BYTES),
            max_data_bytes: limits.max_data_bytes.min(MAX_DATA_BYTES),
            max_r2t_bytes: (limits.max_r2t_bytes & !3).max(MIN_MAX_H2C_BYTES),
            ..limits
        };
        Self {
            limits,
            crc32c,
            reading: Reading::Common,
            initialized: false,
            digests: Digests::default(),
            host_alignment: 0,
            admin: true,
            flow_control: true,
            queue_entries: u32::from(u16::MAX) + 1,
            sq_head: 0,
            slots: SlotTable::new(limits.max_slots),
            entry: [0; 64],
            goodbye: None,
            parted: false,
        }
    }

    /// Whether SQ flow control is used (the Connect command's CATTR says otherwise). Without it SQHD is 0xFFFF and
    /// reads may end without a CapsuleResp.
    pub fn set_flow_control(&mut self, used: bool) {
        self.flow_control = used;
    }

    /// What the Connect command said about the queue: which kind, and its size.
    ///
    /// Until then it counts as an admin queue, whose in-capsule limit is that of the Connect command itself.
    /// `entries` is a plain count (SQSIZE + 1).
    pub fn set_queue(&mut self, admin: bool, entries: u32) {
        self.admin = admin;
        self.queue_entries = entries.max(1);
    }

    /// Whether it is an admin queue, as far as Connect has said.
    #[must_use]
    pub const fn is_admin(&self) -> bool {
        self.admin
    }

    /// How many slots are in use: commands not answered, or answered while their data was on its way.
    #[must_use]
    pub fn slots_in_use(&self) -> usize {
        self.slots.in_use()
    }

    /// The digests in use; none before the host asked.
    #[must_use]
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// Why the host ended the connection, after `Event::Goodbye`.
    #[must_use]
    pub fn goodbye(&self) -> Option<TerminateReason> {
        self.goodbye
    }

    /// Answers a command: `data_bytes` of the slot's data from its start, then the completion where one is needed.
    ///
    /// The command id and SQHD of `entry` are filled in here. The slot is free, and the answer is in `out`, when
    /// this returns `true`. `false`: granted data is still arriving; the machine keeps the answer and the slot,
    /// swallows that data (`want` goes on naming the slot), and `Event::Released` says when it is over. A slot
    /// that is not the adapter's to answer gives `false` and nothing else.
    ///
    /// `data_bytes` above what the host expects is our own mistake; no more than expected is sent.
    pub fn answer<S: Sink>(
        &mut self,
        slot: Slot,
        entry: CompletionEntry,
        data_bytes: u32,
        out: &mut S,
    ) -> bool {
        let Some(command) = self.slots.get(slot) else {
            return false;
        };
        let command_id = command.command_id;
        match command.phase {
            Phase::Owned { .. } if command.is_arriving() => {
                command.phase = Phase::Answered(entry);
                self.drop_capsule(slot);
                false
            }
            Phase::Owned { sends, .. } => {
                let expected = if sends { command.bytes } else { 0 };
                debug_assert!(data_bytes <= expected, "more data than the host expects");
                self.slots.remove(slot);
                let data = (data_bytes > 0).then(|| (slot, data_bytes.min(expected)));
                self.complete(command_id, entry, data, out);
                true
            }
            Phase::Fetching => {
                command.phase = Phase::Answered(entry);
                false
            }
            Phase::Free | Phase::Arriving | Phase::Answered(_) => false,
        }
    }

    /// Sends what answers a command: `data`, a response, or both. After the end of the connection, nothing.
    fn complete<S: Sink>(
        &mut self,
        command_id: u16,
        mut entry: CompletionEntry,
        data: Option<(Slot, u32)>,
        out: &mut S,
    ) {
        if self.is_closed() {
            return;
        }
        entry.command_id = U16::new(command_id);
        entry.sq_head = U16::new(self.advance_sq_head());
        let says_success = data.is_some() && self.success_flag_fits(&entry);
        if let Some((slot, bytes)) = data {
            self.send_data(slot, command_id, bytes, says_success, out);
        }
        if !says_success {
            self.send_response(&entry, out);
        }
    }

    /// SQHD as it is after this answer: with each, the host may send one command more.
    ///
    /// It advances when a command ends rather than when it arrives, so that the queue's size also bounds the
    /// commands in progress.
    fn advance_sq_head(&mut self) -> u16 {
        if !self.flow_control {
            return u16::MAX;
        }
        let next = (u32::from(self.sq_head) + 1) % self.queue_entries;
        self.sq_head = u16::try_from(next).unwrap_or(0);
        self.sq_head
    }

    /// SUCCESS says "status 0" and cannot say a result; and with flow control SQHD would be lost.
    fn success_flag_fits(&self, entry: &CompletionEntry) -> bool {
        self.limits.success_flag
            && !self.flow_control
            && entry.status().is_success()
            && entry.result.get() == 0
    }

    fn send_response<S: Sink>(&self, entry: &CompletionEntry, out: &mut S) {
        let header = ResponseHeader {
            common: CommonHeader::without_data(PduType::RESPONSE, self.digests),
            entry: entry.to_array(),
        };
        super::send_header(header.as_bytes(), self.digests, self.crc32c, out);
    }

    fn is_closed(&self) -> bool {
        matches!(self.reading, Reading::Closed)
    }

    fn common_header(&mut self, bytes: &[u8]) -> Result<Option<Event>, Fault> {
        let common = CommonHeader::read_from_bytes(bytes).expect("the driver obeys want()");
        self.check_sequence(common.pdu_type)?;
        super::check_header_length(&common)?;
        let end = match common.pdu_type {
            PduType::INITIALIZE_REQUEST => check_initialize_lengths(&common)?,
            PduType::COMMAND => self.check_command_lengths(&common)?,
            PduType::HOST_DATA => self.check_data_lengths(&common)?,
            _ => super::check_terminate(&common).map(|()| u32::from(common.header_bytes))?,
        };
        self.reading = Reading::Rest {
            common,
            bytes: end as usize - COMMON_BYTES,
        };
        Ok(None)
    }

    /// Which PDU may come when: ICReq first and once, then commands and data; the goodbye at any time.
    fn check_sequence(&self, pdu_type: PduType) -> Result<(), Fault> {
        let fault = match (pdu_type, self.initialized) {
            (PduType::HOST_TERMINATE, _)
            | (PduType::INITIALIZE_REQUEST, false)
            | (PduType::COMMAND | PduType::HOST_DATA, true) => return Ok(()),
            _ if pdu_type.header_bytes().is_none() => {
                Fault::field(0, pdu_type.0, "a PDU of unknown type")
            }
            (PduType::INITIALIZE_REQUEST, true) => Fault::sequence(pdu_type.0, "a second ICReq"),
            (PduType::COMMAND | PduType::HOST_DATA, false) => {
                Fault::sequence(pdu_type.0, "a PDU came before ICReq")
            }
            _ => Fault::sequence(pdu_type.0, "a PDU that only a controller sends"),
        };
        Err(fault)
    }

    /// Where the data, or the next PDU, begins in a CapsuleCmd.
    fn check_command_lengths(&self, common: &CommonHeader) -> Result<u32, Fault> {
        let (end, total) = (common.header_end(self.digests), common.total_bytes.get());
        if total < end {
            return Err(Fault::field(
                4,
                total,
                "PLEN is shorter than the header and its digest",
            ));
        }
        super::check_flags(common, self.digests, total > end, 0)?;
        if total == end {
            return Ok(end);
        }
        super::check_data_offset(common, self.digests)?;
        if total <= u32::from(common.data_offset) + self.digests.data_bytes() {
            return Err(Fault::field(
                4,
                total,
                "PLEN leaves no room for the data it announces",
            ));
        }
        Ok(u32::from(common.data_offset))
    }

    fn rest_of_header<S: Sink>(
        &mut self,
        common: CommonHeader,
        rest: &[u8],
        out: &mut S,
    ) -> Result<Option<Event>, Fault> {
        self.reading = Reading::Common;
        match common.pdu_type {
            PduType::INITIALIZE_REQUEST => self.initialize(&common, rest, out),
            PduType::COMMAND => {
                self.check_digest(&common, rest)?;
                self.command(&common, rest, out)
            }
            PduType::HOST_DATA => {
                self.check_digest(&common, rest)?;
                self.host_data(&common, rest)
            }
            _ => Ok(Some(self.host_terminates(&common, rest))),
        }
    }

    fn check_digest(&self, common: &CommonHeader, rest: &[u8]) -> Result<(), Fault> {
        if !self.digests.header {
            return Ok(());
        }
        let whole = WholeHeader::new(common, rest);
        let after = &rest[usize::from(common.header_bytes) - COMMON_BYTES..];
        super::check_header_digest(whole.as_slice(), after, self.crc32c)
    }

    /// ICReq: both sides use the digests that the host wants and we allow.
    fn initialize<S: Sink>(
        &mut self,
        common: &CommonHeader,
        rest: &[u8],
        out: &mut S,
    ) -> Result<Option<Event>, Fault> {
        let request: InitializeRequest = WholeHeader::new(common, rest).parse();
        if request.format_version.get() != 0 {
            let sentence = "ICReq of a PDU format version other than 0";
            return Err(Fault::unsupported(
                8,
                request.format_version.get(),
                sentence,
            ));
        }
        if request.host_alignment > MAX_ALIGNMENT {
            let sentence = "HPDA of ICReq is above 31";
            return Err(Fault::field(10, request.host_alignment, sentence));
        }
        let wanted = Digests::from_wire(request.digests);
        self.digests = Digests {
            header: wanted.header && self.limits.header_digest_allowed,
            data: wanted.data && self.limits.data_digest_allowed,
        };
        self.host_alignment = request.host_alignment;
        self.initialized = true;
        let response = InitializeResponse::new(0, self.digests, self.limits.max_h2c_bytes);
        out.bytes(response.as_bytes());
        Ok(None)
    }

    fn command<S: Sink>(
        &mut self,
        common: &CommonHeader,
        rest: &[u8],
        out: &mut S,
    ) -> Result<Option<Event>, Fault> {
        let (entry, _) = SubmissionEntry::ref_from_prefix(rest).expect("the driver obeys want()");
        let carried = self.carried_bytes(common);
        let io_bytes = self.limits.in_capsule_bytes;
        let limits = CapsuleLimits {
            in_capsule_bytes: in_capsule_limit(entry, self.admin, io_bytes),
            max_data_bytes: self.limits.max_data_bytes,
        };
        let verdict = match classify(entry, carried, limits)? {
            _ if self.slots.is_taken(entry.command_id.get()) => {
                Verdict::Refuse(Status::COMMAND_ID_CONFLICT)
            }
            verdict => verdict,
        };
        match verdict {
            Verdict::Run(transfer) if carried == 0 => self.run(entry, transfer).map(Some),
            Verdict::Run(_) if carried <= IN_PLACE_BYTES => self.receive_capsule(entry, carried),
            Verdict::Run(_) => self.announce_capsule(entry, carried).map(Some),
            Verdict::Refuse(status) => {
                let answer = CompletionEntry::new(status, 0);
                if carried == 0 {
                    self.complete(entry.command_id.get(), answer, None, out);
                } else {
                    let slot = self.take_slot(entry, Phase::Answered(answer), carried)?;
                    self.expect_capsule(slot, carried);
                    self.drop_capsule(slot);
                }
                Ok(None)
            }
        }
    }

    /// The in-capsule data that the lengths of a CapsuleCmd speak of, checked by `check_command_lengths`.
    fn carried_bytes(&self, common: &CommonHeader) -> u32 {
        let total = common.total_bytes.get();
        if total == common.header_end(self.digests) {
            return 0;
        }
        total - u32::from(common.data_offset) - self.digests.data_bytes()
    }

    fn run(&mut self, entry: &SubmissionEntry, transfer: Transfer) -> Result<Event, Fault> {
        let (phase, bytes) = match transfer {
            Transfer::Fetch { bytes } => (
                Phase::Owned {
                    fetchable: true,
                    sends: false,
                },
                bytes,
            ),
            Transfer::Send { bytes } => (
                Phase::Owned {
                    fetchable: false,
                    sends: true,
                },
                bytes,
            ),
            Transfer::None | Transfer::Inline { .. } => (Phase::COMPLETE, 0),
        };
        let slot = self.take_slot(entry, phase, bytes)?;
        Ok(Event::Command {
            slot,
            entry: entry.to_array(),
            transfer,
            intact: true,
        })
    }

    /// In-capsule data that stays where it lies: the command is an event when all of it is there.
    fn receive_capsule(
        &mut self,
        entry: &SubmissionEntry,
        bytes: u32,
    ) -> Result<Option<Event>, Fault> {
        let slot = self.take_slot(entry, Phase::Arriving, bytes)?;
        self.entry = entry.to_array();
        self.reading = Reading::Capsule { slot, bytes };
        Ok(None)
    }

    /// In-capsule data that needs a place: the command is an event now.
    fn announce_capsule(&mut self, entry: &SubmissionEntry, bytes: u32) -> Result<Event, Fault> {
        let event = self.run(entry, Transfer::Fetch { bytes })?;
        if let Event::Command { slot, .. } = event {
            self.expect_capsule(slot, bytes);
        }
        Ok(event)
    }

    /// All data of a command comes now, as if an R2T had asked for it.
    fn expect_capsule(&mut self, slot: Slot, bytes: u32) {
        if let Some(command) = self.slots.get(slot) {
            command.granted = bytes;
        }
        self.reading = Reading::Data {
            slot,
            offset: 0,
            bytes,
        };
    }

    /// The in-capsule data that is to come now has no place and needs none.
    fn drop_capsule(&mut self, slot: Slot) {
        if let Reading::Data { bytes, .. } = self.reading {
            let bytes = bytes.saturating_add(self.digests.data_bytes());
            self.reading = Reading::Unwanted { slot, bytes };
        }
    }

    fn skip<S: Sink>(
        &mut self,
        slot: Slot,
        left: u32,
        skipped: usize,
        out: &mut S,
    ) -> Option<Event> {
        let left = left.saturating_sub(u32::try_from(skipped).unwrap_or(left));
        if left > 0 {
            self.reading = Reading::Unwanted { slot, bytes: left };
            return None;
        }
        self.reading = Reading::Common;
        let bytes = self.slots.get(slot)?.granted;
        self.data_arrived(slot, bytes, true, out)
    }

    fn take_slot(
        &mut self,
        entry: &SubmissionEntry,
        phase: Phase,
        bytes: u32,
    ) -> Result<Slot, Fault> {
        let command_id = entry.command_id.get();
        self.slots.insert(command_id, phase, bytes).ok_or_else(|| {
            Fault::sequence(
                command_id,
                "more commands at once than the queue was made for",
            )
        })
    }

    /// All in-capsule data is here: the command is the adapter's.
    fn capsule_arrived(&mut self, slot: Slot, bytes: u32, intact: bool) -> Option<Event> {
        self.slots.get(slot)?.phase = Phase::COMPLETE;
        Some(Event::Command {
            slot,
            entry: self.entry,
            transfer: Transfer::Inline { bytes },
            intact,
        })
    }

    fn host_terminates(&mut self, common: &CommonHeader, rest: &[u8]) -> Event {
        let request: TerminateRequest = WholeHeader::new(common, rest).parse();
        self.goodbye = Some(TerminateReason {
            status: request.status.get(),
            information: request.information.get(),
        });
        self.reading = Reading::Closed;
        self.parted = true;
        Event::Goodbye
    }
}

impl Machine for Target {
    type Event = Event;

    fn want(&self) -> Want {
        let digest = self.digests.data;
        match self.reading {
            Reading::Common => Want::Header {
                bytes: COMMON_BYTES,
            },
            Reading::Rest { bytes, .. } => Want::Header { bytes },
            Reading::Capsule { slot, bytes } => Want::Payload {
                slot,
                offset: 0,
                bytes,
                digest,
            },
            Reading::Data {
                slot,
                offset,
                bytes,
            } => Want::Payload {
                slot,
                offset,
                bytes,
                digest,
            },
            Reading::Unwanted { bytes, .. } => Want::Header {
                bytes: bytes.min(SKIPPED_AT_ONCE) as usize,
            },
            Reading::Closed => Want::Closed,
        }
    }

    fn header<S: Sink>(&mut self, bytes: &[u8], out: &mut S) -> Result<Option<Event>, Violation> {
        match self.reading {
            Reading::Common => self.common_header(bytes).map_err(|fault| {
                self.reading = Reading::Closed;
                fault.violation(bytes)
            }),
            Reading::Rest { common, .. } => {
                self.rest_of_header(common, bytes, out).map_err(|fault| {
                    self.reading = Reading::Closed;
                    fault.violation(WholeHeader::new(&common, bytes).as_slice())
                })
            }
            Reading::Unwanted { slot, bytes: left } => Ok(self.skip(slot, left, bytes.len(), out)),
            Reading::Capsule { .. } | Reading::Data { .. } | Reading::Closed => Ok(None),
        }
    }

    fn payload<S: Sink>(&mut self, intact: bool, out: &mut S) -> Result<Option<Event>, Violation> {
        let event = match self.reading {
            Reading::Capsule { slot, bytes } => {
                self.reading = Reading::Common;
                self.capsule_arrived(slot, bytes, intact)
            }
            Reading::Data { slot, bytes, .. } => {
                self.reading = Reading::Common;
                self.data_arrived(slot, bytes, intact, out)
            }
            Reading::Common | Reading::Rest { .. } | Reading::Unwanted { .. } | Reading::Closed => {
                None
            }
        };
        Ok(event)
    }

    fn terminate<S: Sink>(&mut self, violation: &Violation, out: &mut S) {
        self.reading = Reading::Closed;
        if !self.parted {
            self.parted = true;
            super::send_terminate(PduType::CONTROLLER_TERMINATE, violation, out);
        }
    }
}

fn check_initialize_lengths(common: &CommonHeader) -> Result<u32, Fault> {
    if common.total_bytes.get() != 128 {
        return Err(Fault::field(
            4,
            common.total_bytes.get(),
            "PLEN of ICReq must be 128",
        ));
    }
    if common.flags != 0 {
        return Err(Fault::field(1, common.flags, "ICReq has no flags"));
    }
    Ok(128)
}

/// Leaves room in PLEN for header, padding and digests, whatever they are.
const MAX_DATA_BYTES: u32 = u32::MAX - 1023;
/// More in-capsule data than this gets a place of its own; the admin queue and Fabrics commands never have more.
const IN_PLACE_BYTES: u32 = ADMIN_IN_CAPSULE_BYTES;
/// What is dropped is taken in pieces of this size.
const SKIPPED_AT_ONCE: u32 = 4096;
