//! The host's side of one NVMe/TCP connection: capsules out, R2T and data in, answers.
//!
//! It knows PDUs, the slots of the commands in progress, and how much of each command's data has
//! moved. It touches neither the socket nor the data: it names where data goes (`want`) and where
//! it is taken from (`Sink`). The owner chooses the slot of a command; the slot is free again with
//! `Completed`, or with the connection.
//!
//! The controller is not trusted: it can end this connection, and nothing more. It cannot make the
//! machine write outside the data of a command that reads, send outside the data of a command that
//! writes, answer a command twice, or ask for so many small pieces that their headers outweigh the
//! data.
//!
//! `host/command.rs` sends commands, `host/read.rs` is how bytes become PDUs and answers,
//! `host/data.rs` follows the data, `host/slots.rs` keeps the table. `target.rs` is the mirror.
//!
//! Source: NVM Express TCP Transport Specification 1.1.

mod command;
mod data;
mod read;
mod slots;

use alloc::collections::VecDeque;

use zerocopy::IntoBytes;

use self::data::Granted;
use self::slots::{MAX_SLOTS, SlotTable};
use super::TerminateReason;
use super::pdu::{
    ADMIN_IN_CAPSULE_BYTES, COMMON_BYTES, Digests, InitializeRequest, MIN_MAX_H2C_BYTES, PduType,
};
use crate::nvme::queue::HostEvent;
use crate::nvme::spec::{CompletionEntry, Status};
use crate::{Consumed, Crc32c, Machine, Sink, Slot, Violation, Want};

/// What the host asks for and insists on. Decided before the first byte.
#[derive(Clone, Copy, Debug)]
pub struct HostLimits {
    /// Commands in progress at most, 1 to 4096: the rest of the command id tells their generations
    /// apart.
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

/// The host's side of one connection.
pub struct Host {
    limits: HostLimits,
    crc32c: Crc32c,
    reading: Reading,
    initialized: bool,
    /// The last common header that passed its checks since then, and where the header of its PDU
    /// ends: nearly every PDU begins with the same as the one before.
    passed: Option<([u8; COMMON_BYTES], usize)>,
    digests: Digests,
    controller_alignment: u8,
    max_h2c_bytes: u32,
    in_capsule_bytes: u32,
    slots: SlotTable,
    /// What R2Ts have asked for, in their order.
    granted: VecDeque<Granted>,
    /// The last answer.
    entry: CompletionEntry,
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
    /// What lies between those and the data, or the next PDU: digest and padding, or the rest of
    /// ICResp.
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
            passed: None,
            digests: Digests::default(),
            controller_alignment: 0,
            max_h2c_bytes: MIN_MAX_H2C_BYTES,
            in_capsule_bytes: ADMIN_IN_CAPSULE_BYTES,
            slots: SlotTable::new(max_slots),
            granted: VecDeque::new(),
            entry: CompletionEntry::new(Status::SUCCESS, 0),
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

    /// The most in-capsule data of an I/O command, in bytes: IOCCSZ in bytes, less the 64 of the
    /// entry.
    ///
    /// Until this is called the connection is taken for an admin queue, with 8192. Fabrics commands
    /// have that much on every queue.
    pub fn set_in_capsule(&mut self, bytes: u32) {
        self.in_capsule_bytes = bytes;
    }

    /// Whether the controller has agreed and the connection is not over.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.initialized && !self.is_closed()
    }

    /// The digests in use; none before the controller has agreed.
    #[must_use]
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// The answer that was the last event, until the next bytes are handed over; made here
    /// (success, no result) when the data said SUCCESS.
    #[must_use]
    pub const fn entry(&self) -> &CompletionEntry {
        &self.entry
    }

    /// How many slots hold a command that is not answered.
    #[must_use]
    pub fn slots_in_use(&self) -> usize {
        self.slots.in_use()
    }

    /// Why the controller ended the connection, after `HostEvent::Terminated`.
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
}

impl Machine for Host {
    type Event = HostEvent;

    #[inline(always)]
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
                pass: self.digests.pass(),
            },
            Reading::Closed => Want::Closed,
        }
    }

    #[inline(always)]
    fn header<S: Sink>(
        &mut self,
        arrived: &[u8],
        _out: &mut S,
    ) -> Result<Consumed<HostEvent>, Violation> {
        match self.reading {
            Reading::Head => {
                let head = &arrived[..HEAD_BYTES];
                let event = self.head(head).map_err(|fault| {
                    self.reading = Reading::Closed;
                    fault.violation(head)
                })?;
                Ok(Consumed {
                    bytes: HEAD_BYTES,
                    event,
                })
            }
            Reading::Rest { bytes } => self.rest(&arrived[..bytes]),
            Reading::Data { .. } | Reading::Closed => Ok(Consumed {
                bytes: 0,
                event: None,
            }),
        }
    }

    #[inline(always)]
    fn payload<S: Sink>(
        &mut self,
        intact: bool,
        _out: &mut S,
    ) -> Result<Option<HostEvent>, Violation> {
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

    #[inline(always)]
    fn send_data<S: Sink>(&mut self, out: &mut S) -> u32 {
        if self.granted.is_empty() || self.is_closed() {
            return 0;
        }
        self.next_data(out)
    }

    fn terminate<S: Sink>(&mut self, violation: &Violation, out: &mut S) {
        self.reading = Reading::Closed;
        if !self.parted {
            self.parted = true;
            super::send_terminate(PduType::HOST_TERMINATE, violation, out);
        }
    }
}

/// All headers that a controller sends are this long, but for ICResp.
const HEAD_BYTES: usize = 24;
