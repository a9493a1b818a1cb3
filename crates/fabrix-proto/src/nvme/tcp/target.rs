//! Controller side of one NVMe/TCP connection: capsules, R2T, data in both directions, responses.
//!
//! The machine tracks PDUs, the slots of the commands in progress, and the requested data of each
//! write. Sockets and user data are outside: the machine names the destination (`want`) and the
//! source (`Sink`) of data. The owner of the connection interprets commands and checks permissions.
//! The machine answers only capsules that never become commands: a command id in use, or a transfer
//! above the limit.
//!
//! The life of a slot: `Command` hands the claim on the slot to the owner, which may call `fetch`
//! once for a write's data, and answers. A host frees its send buffer when the answer comes, so an
//! answer waits until outstanding data has arrived: `answer` then returns `false`, and `Released`
//! follows.
//!
//! In-capsule data comes in two ways. Up to 8 KiB is read in the receive buffer, and the command is
//! one event with its data. More data follows its event, `Fetch`, as if an R2T had requested it:
//! the owner provides the memory before the data arrives.
//!
//! `target/read.rs` parses PDUs, `target/command.rs` turns capsules into commands,
//! `target/capsule.rs` decides on their data movement, `target/data.rs` moves data,
//! `target/answer.rs` answers, and `target/slots.rs` is the table of commands. `host.rs` is the
//! mirror.
//!
//! Source: NVM Express TCP Transport Specification 1.1.

mod answer;
mod capsule;
mod command;
mod data;
mod read;
mod slots;

use zerocopy::FromZeros;

use self::slots::SlotTable;
use super::TerminateReason;
use super::pdu::{
    ADMIN_IN_CAPSULE_BYTES, COMMON_BYTES, CommonHeader, Digests, MIN_MAX_H2C_BYTES, PduType,
};
use crate::nvme::queue::ControllerEvent;
use crate::nvme::spec::SubmissionEntry;
use crate::nvme::sq_head::SqHead;
use crate::{Consumed, Crc32c, Machine, Sink, Slot, Violation, Want};

/// Limits of one connection. The owner sets them before the first byte arrives.
#[derive(Clone, Copy, Debug)]
pub struct TargetLimits {
    /// Maximum number of commands in progress: at least 1, and at least the queue's size. One more
    /// ends the connection.
    pub max_slots: u16,
    /// Maximum in-capsule data of an I/O command in bytes: IOCCSZ in bytes less the 64 of the
    /// entry. Up to 8 KiB must be received in one piece.
    pub in_capsule_bytes: u32,
    /// Maximum data length of one command in bytes (MDTS). A longer command is refused with Invalid
    /// Field.
    pub max_data_bytes: u32,
    /// Maximum data length of one H2CData in bytes (MAXH2CDATA). Rounded to a multiple of 4 of at
    /// least 4096.
    pub max_h2c_bytes: u32,
    /// Maximum data length of one R2T in bytes, at least 4096. A larger write has several R2Ts, one
    /// after the other.
    pub max_r2t_bytes: u32,
    /// Whether header digests are used when the host requests them.
    pub header_digest_allowed: bool,
    /// Whether data digests are used when the host requests them.
    pub data_digest_allowed: bool,
    /// Whether a read may end with the SUCCESS flag in its data instead of a CapsuleResp, where the
    /// standard allows it.
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

/// Controller side of one connection.
pub struct Target {
    limits: TargetLimits,
    crc32c: Crc32c,
    reading: Reading,
    initialized: bool,
    /// Last common header that passed its checks, and the end of its PDU's header. Nearly every PDU
    /// begins like the one before.
    passed: Option<([u8; COMMON_BYTES], usize)>,
    digests: Digests,
    host_alignment: u8,
    admin: bool,
    sq_head: SqHead,
    slots: SlotTable,
    /// Last submission entry. Its in-capsule data may still be arriving.
    entry: SubmissionEntry,
    goodbye: Option<TerminateReason>,
    /// True after one side has sent a terminate request. The other side then sends none.
    parted: bool,
}

/// Meaning of the next received bytes.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// A common header.
    Common,
    /// Rest of the PDU's header, its digest, and padding.
    Rest { common: CommonHeader, bytes: usize },
    /// In-capsule data.
    Capsule { slot: Slot, bytes: u32 },
    /// A piece of a write's data.
    Data { slot: Slot, offset: u32, bytes: u32 },
    /// In-capsule data to skip, with its digest.
    Unwanted { slot: Slot, bytes: u32 },
    /// Nothing. The connection is over.
    Closed,
}

impl Target {
    /// A connection without traffic.
    ///
    /// Limits that the standard does not allow are changed to the nearest allowed values.
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
            passed: None,
            digests: Digests::default(),
            host_alignment: 0,
            admin: true,
            sq_head: SqHead::new(),
            slots: SlotTable::new(limits.max_slots),
            entry: SubmissionEntry::new_zeroed(),
            goodbye: None,
            parted: false,
        }
    }

    /// Sets whether SQ flow control is used, from the Connect command's CATTR. Without flow control
    /// SQHD is 0xFFFF, and reads may end without a CapsuleResp.
    pub fn set_flow_control(&mut self, used: bool) {
        self.sq_head.set_used(used);
    }

    /// Sets kind and size of the queue, from the Connect command.
    ///
    /// Before the call the queue counts as an admin queue, whose in-capsule limit is that of the
    /// Connect command itself. `entries` is a plain count (SQSIZE + 1).
    pub fn set_queue(&mut self, admin: bool, entries: u32) {
        self.admin = admin;
        self.sq_head.set_entries(entries);
    }

    /// Whether the queue is an admin queue. True before Connect.
    #[must_use]
    pub const fn is_admin(&self) -> bool {
        self.admin
    }

    /// Submission entry of the command that was the last event, valid until the next bytes arrive.
    /// The entry is copied once, from the wire.
    #[must_use]
    pub const fn entry(&self) -> &SubmissionEntry {
        &self.entry
    }

    /// Number of slots in use: unanswered commands, and answered commands with outstanding data.
    #[must_use]
    pub fn slots_in_use(&self) -> usize {
        self.slots.in_use()
    }

    /// Digests in use. None before the host's ICReq.
    #[must_use]
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// Reason for the host's terminate request, after `ControllerEvent::Terminated`.
    #[must_use]
    pub fn goodbye(&self) -> Option<TerminateReason> {
        self.goodbye
    }

    fn is_closed(&self) -> bool {
        matches!(self.reading, Reading::Closed)
    }
}

impl Machine for Target {
    type Event = ControllerEvent;
    fn want(&self) -> Want {
        let pass = self.digests.pass();
        match self.reading {
            Reading::Common => Want::Header {
                bytes: COMMON_BYTES,
            },
            Reading::Rest { bytes, .. } => Want::Header { bytes },
            Reading::Capsule { slot, bytes } => Want::Payload {
                slot,
                offset: 0,
                bytes,
                pass,
            },
            Reading::Data {
                slot,
                offset,
                bytes,
            } => Want::Payload {
                slot,
                offset,
                bytes,
                pass,
            },
            Reading::Unwanted { bytes, .. } => Want::Header {
                bytes: bytes.min(SKIPPED_AT_ONCE) as usize,
            },
            Reading::Closed => Want::Closed,
        }
    }

    #[inline(always)]
    fn header<S: Sink>(
        &mut self,
        arrived: &[u8],
        out: &mut S,
    ) -> Result<Consumed<ControllerEvent>, Violation> {
        let (bytes, event) = match self.reading {
            Reading::Common => return self.start_of_header(arrived, out),
            Reading::Rest { common, bytes } => {
                (bytes, self.rest_of_header(common, &arrived[..bytes], out)?)
            }
            Reading::Unwanted { slot, bytes: left } => {
                let bytes = left.min(SKIPPED_AT_ONCE);
                (bytes as usize, self.skip(slot, left, bytes, out))
            }
            Reading::Capsule { .. } | Reading::Data { .. } | Reading::Closed => (0, None),
        };
        Ok(Consumed { bytes, event })
    }

    fn payload<S: Sink>(
        &mut self,
        intact: bool,
        out: &mut S,
    ) -> Result<Option<ControllerEvent>, Violation> {
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

/// Limit that leaves room in PLEN for header, padding and digests.
const MAX_DATA_BYTES: u32 = u32::MAX - 1023;
/// Length in bytes of the pieces in which skipped data is received.
const SKIPPED_AT_ONCE: u32 = 4096;
