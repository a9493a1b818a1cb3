//! Host side of one NVMe/TCP connection: capsules, R2T, data in both directions, responses.
//!
//! The machine tracks PDUs, the slots of the commands in progress, and the moved data of each
//! command. Sockets and user data are outside: the machine names the destination (`want`) and the
//! source (`Sink`) of data. The owner of the connection chooses the slot of a command. The slot is
//! free again with `Completed`, or with the end of the connection.
//!
//! The controller is not trusted. The worst that it can do is end this connection. The machine
//! never writes outside the data of a read, sends outside the data of a write, or completes a
//! command twice. The number of R2Ts per command is limited.
//!
//! `host/command.rs` sends commands, `host/read.rs` parses PDUs and responses, `host/data.rs` moves
//! data, and `host/slots.rs` is the table of commands. `target.rs` is the mirror.
//!
//! Source: NVM Express TCP Transport Specification 1.1.

mod command;
mod data;
mod read;
mod slots;

use alloc::collections::VecDeque;

use zerocopy::IntoBytes;

use self::data::Granted;
use self::slots::SlotTable;
use super::TerminateReason;
use super::pdu::{
    ADMIN_IN_CAPSULE_BYTES, COMMON_BYTES, Digests, InitializeRequest, MIN_MAX_H2C_BYTES, PduType,
};
use crate::nvme::queue::HostEvent;
use crate::nvme::slot_ids::MAX_SLOTS;
use crate::nvme::spec::{CompletionEntry, Status};
use crate::{Consumed, Crc32c, Machine, Sink, Slot, Violation, Want};

/// Requirements of the host. The owner sets them before the first byte.
#[derive(Clone, Copy, Debug)]
pub struct HostLimits {
    /// Maximum number of commands in progress, 1 to 4096. The other bits of a command id
    /// distinguish generations of a slot.
    pub max_slots: u16,
    /// Maximum number of outstanding R2Ts of one command, as a plain count, at least 1.
    pub max_r2t: u32,
    /// Whether the host requests header digests.
    pub header_digest: bool,
    /// Whether the host requests data digests.
    pub data_digest: bool,
    /// Whether the host accepts a controller that refuses the requested digests.
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

/// Host side of one connection.
pub struct Host {
    limits: HostLimits,
    crc32c: Crc32c,
    reading: Reading,
    initialized: bool,
    /// Last common header that passed its checks, and the end of its PDU's header. Nearly every PDU
    /// begins like the one before.
    passed: Option<([u8; COMMON_BYTES], usize)>,
    digests: Digests,
    controller_alignment: u8,
    max_h2c_bytes: u32,
    in_capsule_bytes: u32,
    slots: SlotTable,
    /// Data that R2Ts have requested, in their order.
    granted: VecDeque<Granted>,
    /// Last completion.
    entry: CompletionEntry,
    /// Header whose digest or padding is outstanding.
    head: [u8; HEAD_BYTES],
    goodbye: Option<TerminateReason>,
    /// True after one side has sent a terminate request. The other side then sends none.
    parted: bool,
}

/// Meaning of the next received bytes.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// First 24 bytes of a PDU: the whole header, except for ICResp.
    Head,
    /// Bytes between the header and the data or the next PDU: digest and padding, or the rest of
    /// ICResp.
    Rest { bytes: usize },
    /// Piece of a read's data. `completes` if no CapsuleResp follows.
    Data {
        slot: Slot,
        offset: u32,
        bytes: u32,
        completes: bool,
    },
    /// Nothing. The connection is over.
    Closed,
}

impl Host {
    /// A connection without traffic. `start` sends the first PDU.
    ///
    /// Limits that are not possible are changed to the nearest possible values.
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

    /// Opens the connection with an ICReq.
    pub fn start<S: Sink>(&mut self, out: &mut S) {
        let request = InitializeRequest::new(0, self.wanted_digests(), self.limits.max_r2t);
        out.bytes(request.as_bytes());
    }

    /// Sets the maximum in-capsule data of an I/O command in bytes: IOCCSZ in bytes less the 64 of
    /// the entry.
    ///
    /// Before the call the queue counts as an admin queue with 8192 bytes. Fabrics commands have
    /// this limit on every queue.
    pub fn set_in_capsule(&mut self, bytes: u32) {
        self.in_capsule_bytes = bytes;
    }

    /// Whether ICResp has arrived and the connection is not over.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.initialized && !self.is_closed()
    }

    /// Digests in use. None before ICResp.
    #[must_use]
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// Completion of the last event, valid until the next bytes arrive. If the data had the SUCCESS
    /// flag, the machine builds the completion itself: success without a result.
    #[must_use]
    pub const fn entry(&self) -> &CompletionEntry {
        &self.entry
    }

    /// Number of slots with unanswered commands.
    #[must_use]
    pub fn slots_in_use(&self) -> usize {
        self.slots.in_use()
    }

    /// Reason for the controller's terminate request, after `HostEvent::Terminated`.
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

/// Length in bytes of all headers that a controller sends, except for ICResp.
const HEAD_BYTES: usize = 24;
