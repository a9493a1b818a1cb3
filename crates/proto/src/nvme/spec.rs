//! The layout of what every NVMe queue carries: 64-byte submission entries, 16-byte completions, their SGL
//! descriptor, opcodes and status codes.
//!
//! Layout only: what a command means stands in `command.rs` and `fabrics.rs`. Numbers that a peer may extend are
//! open newtypes with constants. Nothing here checks anything.
//! Source: NVM Express Base Specification 2.x, "Submission Queue Entry", "Completion Queue Entry"; NVMe over
//! Fabrics, "Capsules".

use core::fmt;
use core::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One command as it travels: 64 bytes, little-endian.
///
/// Source: NVM Express Base Specification 2.x, "Common Command Format".
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct SubmissionEntry {
    /// OPC: an [`Opcode`] on I/O queues, an [`AdminOpcode`] on the admin queue.
    pub opcode: u8,
    /// FUSE in bits 1:0, PSDT in bits 7:6, the rest reserved.
    pub flags: u8,
    /// CID: chosen by the host, echoed in the completion.
    pub command_id: U16,
    /// NSID.
    pub nsid: U32,
    /// Command dword 2.
    pub cdw2: U32,
    /// Command dword 3.
    pub cdw3: U32,
    /// MPTR: where metadata lies.
    pub metadata: U64,
    /// DPTR: where data lies; always one SGL descriptor over fabrics.
    pub sgl: SglDescriptor,
    /// Command dword 10.
    pub cdw10: U32,
    /// Command dword 11.
    pub cdw11: U32,
    /// Command dword 12.
    pub cdw12: U32,
    /// Command dword 13.
    pub cdw13: U32,
    /// Command dword 14.
    pub cdw14: U32,
    /// Command dword 15.
    pub cdw15: U32,
}
const _: () = assert!(
    size_of::<SubmissionEntry>() == 64
        && offset_of!(SubmissionEntry, command_id) == 2
        && offset_of!(SubmissionEntry, nsid) == 4
        && offset_of!(SubmissionEntry, metadata) == 16
        && offset_of!(SubmissionEntry, sgl) == 24
        && offset_of!(SubmissionEntry, cdw10) == 40
        && offset_of!(SubmissionEntry, cdw15) == 60
);

/// PSDT 01b in the place it has in the flags byte: SGLs are used, metadata is contiguous.
pub const PSDT_SGL: u8 = 0x40;

impl SubmissionEntry {
    /// An entry of zeroes with an opcode, the SGL bit every fabrics command carries, and an empty SGL.
    #[must_use]
    pub fn new(opcode: u8) -> Self {
        let mut entry = Self::new_zeroed();
        entry.opcode = opcode;
        entry.flags = PSDT_SGL;
        entry.sgl = SglDescriptor::transport(0);
        entry
    }

    /// The entry these 64 bytes hold.
    #[must_use]
    pub fn from_array(bytes: [u8; 64]) -> Self {
        zerocopy::transmute!(bytes)
    }

    /// The bytes that travel.
    #[must_use]
    pub fn to_array(self) -> [u8; 64] {
        zerocopy::transmute!(self)
    }

    /// The opcode of an I/O queue's command.
    #[must_use]
    pub const fn io_opcode(&self) -> Opcode {
        Opcode(self.opcode)
    }

    /// The opcode of an admin queue's command.
    #[must_use]
    pub const fn admin_opcode(&self) -> AdminOpcode {
        AdminOpcode(self.opcode)
    }

    /// Whether this is a fabrics command (on either queue).
    #[must_use]
    pub const fn is_fabrics(&self) -> bool {
        self.opcode == FABRICS_OPCODE
    }

    /// FCTYPE: what kind of fabrics command, when [`is_fabrics`](Self::is_fabrics).
    #[must_use]
    pub fn fabrics_type(&self) -> FabricsType {
        FabricsType(self.nsid.as_bytes()[0])
    }

    /// FUSE: bits 1:0 of the flags.
    #[must_use]
    pub const fn fuse_bits(&self) -> u8 {
        self.flags & 0b11
    }

    /// PSDT: bits 7:6 of the flags.
    #[must_use]
    pub const fn psdt(&self) -> u8 {
        self.flags >> 6
    }

    /// Which way the command's data go, as bits 1:0 of its opcode (or fabrics type) say.
    #[must_use]
    pub fn direction(&self) -> Direction {
        let code = if self.is_fabrics() {
            self.fabrics_type().0
        } else {
            self.opcode
        };
        match code & 0b11 {
            0 => Direction::None,
            1 => Direction::HostToController,
            2 => Direction::ControllerToHost,
            _ => Direction::Both,
        }
    }
}

/// Which way a command's data go.
///
/// Source: NVM Express Base Specification 2.x, opcode tables, "Data Transfer".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    None,
    /// From the host to the controller (a write).
    HostToController,
    /// From the controller to the host (a read).
    ControllerToHost,
    /// Both; no command we know does that.
    Both,
}

/// Where a command's data lie: 16 bytes, of which the last says how to read the others.
///
/// Source: NVM Express Base Specification 2.x, "Scatter Gather List (SGL)"; NVMe/TCP, "Transport SGL descriptor".
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct SglDescriptor {
    /// Address, or the offset into the capsule's data.
    pub address: U64,
    /// Length in bytes.
    pub length: U32,
    reserved: [u8; 3],
    /// Type in bits 7:4, subtype in bits 3:0.
    pub kind: SglKind,
}
const _: () = assert!(
    size_of::<SglDescriptor>() == 16
        && offset_of!(SglDescriptor, length) == 8
        && offset_of!(SglDescriptor, kind) == 15
);

impl SglDescriptor {
    /// Data in the capsule, at its very start (ICDOFF is zero here).
    #[must_use]
    pub const fn in_capsule(bytes: u32) -> Self {
        Self {
            address: U64::ZERO,
            length: U32::new(bytes),
            reserved: [0; 3],
            kind: SglKind::IN_CAPSULE,
        }
    }

    /// Data that the transport moves (R2T and H2CData, or C2HData); zero bytes means none.
    #[must_use]
    pub const fn transport(bytes: u32) -> Self {
        Self {
            address: U64::ZERO,
            length: U32::new(bytes),
            reserved: [0; 3],
            kind: SglKind::TRANSPORT,
        }
    }

    /// The same 16 bytes as a keyed descriptor.
    #[must_use]
    pub fn keyed(&self) -> KeyedSglDescriptor {
        zerocopy::transmute!(*self)
    }
}

/// A keyed descriptor of RDMA: the peer's address and the key to reach it.
///
/// Source: NVM Express Base Specification 2.x, "Keyed SGL Data Block descriptor".
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct KeyedSglDescriptor {
    /// Address in the host's memory.
    pub address: U64,
    /// Length in bytes, 24 bits.
    pub length: [u8; 3],
    /// The key that grants access.
    pub key: U32,
    /// Type in bits 7:4, subtype in bits 3:0.
    pub kind: SglKind,
}
const _: () = assert!(
    size_of::<KeyedSglDescriptor>() == 16
        && offset_of!(KeyedSglDescriptor, key) == 11
        && offset_of!(KeyedSglDescriptor, kind) == 15
);

impl KeyedSglDescriptor {
    /// The length in bytes.
    #[must_use]
    pub const fn length_bytes(&self) -> u32 {
        u32::from_le_bytes([self.length[0], self.length[1], self.length[2], 0])
    }
}

/// Type and subtype of an SGL descriptor.
#[repr(transparent)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct SglKind(pub u8);

impl SglKind {
    /// Data block, subtype address.
    pub const ADDRESS: Self = Self(0x00);
    /// Data block, subtype offset: in the capsule.
    pub const IN_CAPSULE: Self = Self(0x01);
    /// Keyed data block, subtype address.
    pub const KEYED: Self = Self(0x40);
    /// Keyed data block, the key to be invalidated by the answer.
    pub const KEYED_INVALIDATE: Self = Self(0x4F);
    /// Transport data block, subtype transport.
    pub const TRANSPORT: Self = Self(0x5A);
}

/// The answer to a command: 16 bytes, little-endian.
///
/// Source: NVM Express Base Specification 2.x, "Common Completion Queue Entry Layout".
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct CompletionEntry {
    /// Dwords 0 and 1: command specific.
    pub result: U64,
    /// SQHD: how far the controller has read the submission queue.
    pub sq_head: U16,
    /// SQID; reserved over fabrics.
    pub sq_id: U16,
    /// CID: whose answer this is.
    pub command_id: U16,
    /// Phase tag in bit 0 (zero over fabrics), the [`Status`] above it.
    pub status: U16,
}
const _: () = assert!(
    size_of::<CompletionEntry>() == 16
        && offset_of!(CompletionEntry, sq_head) == 8
        && offset_of!(CompletionEntry, command_id) == 12
        && offset_of!(CompletionEntry, status) == 14
);

impl CompletionEntry {
    /// An answer with `status` and `result`; the transport fills in the command id and the queue head.
    #[must_use]
    pub const fn new(status: Status, result: u64) -> Self {
        Self {
            result: U64::new(result),
            sq_head: U16::ZERO,
            sq_id: U16::ZERO,
            command_id: U16::ZERO,
            status: U16::new(status.to_field()),
        }
    }

    /// How the command ended.
    #[must_use]
    pub const fn status(&self) -> Status {
        Status::from_field(self.status.get())
    }

    /// Dword 0 of the result.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low half is what is asked for"
    )]
    pub const fn dword0(&self) -> u32 {
        self.result.get() as u32
    }

    /// The entry these 16 bytes hold.
    #[must_use]
    pub fn from_array(bytes: [u8; 16]) -> Self {
        zerocopy::transmute!(bytes)
    }

    /// The bytes that travel.
    #[must_use]
    pub fn to_array(self) -> [u8; 16] {
        zerocopy::transmute!(self)
    }
}

/// Opcode of the NVM command set, on I/O queues.
///
/// Source: NVM Command Set Specification 1.x, "Opcodes for NVM Commands".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode(pub u8);

impl Opcode {
    /// Flush.
    pub const FLUSH: Self = Self(0x00);
    /// Write.
    pub const WRITE: Self = Self(0x01);
    /// Read.
    pub const READ: Self = Self(0x02);
    /// Compare.
    pub const COMPARE: Self = Self(0x05);
    /// Write Zeroes.
    pub const WRITE_ZEROES: Self = Self(0x08);
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: Self = Self(0x09);
    /// Verify.
    pub const VERIFY: Self = Self(0x0C);
    /// Reservation Register.
    pub const RESERVATION_REGISTER: Self = Self(0x0D);
    /// Reservation Report.
    pub const RESERVATION_REPORT: Self = Self(0x0E);
    /// Reservation Acquire.
    pub const RESERVATION_ACQUIRE: Self = Self(0x11);
    /// Reservation Release.
    pub const RESERVATION_RELEASE: Self = Self(0x15);
}

/// Opcode of the admin command set.
///
/// Source: NVM Express Base Specification 2.x, "Opcodes for Admin Commands".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminOpcode(pub u8);

impl AdminOpcode {
    /// Get Log Page.
    pub const GET_LOG_PAGE: Self = Self(0x02);
    /// Identify.
    pub const IDENTIFY: Self = Self(0x06);
    /// Abort.
    pub const ABORT: Self = Self(0x08);
    /// Set Features.
    pub const SET_FEATURES: Self = Self(0x09);
    /// Get Features.
    pub const GET_FEATURES: Self = Self(0x0A);
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT_REQUEST: Self = Self(0x0C);
    /// Keep Alive.
    pub const KEEP_ALIVE: Self = Self(0x18);
}

/// The opcode all fabrics commands share.
pub const FABRICS_OPCODE: u8 = 0x7F;

/// FCTYPE: the kind of a fabrics command.
///
/// Source: NVM Express Base Specification 2.x, "Fabrics Commands".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricsType(pub u8);

impl FabricsType {
    /// Property Set.
    pub const PROPERTY_SET: Self = Self(0x00);
    /// Connect.
    pub const CONNECT: Self = Self(0x01);
    /// Property Get.
    pub const PROPERTY_GET: Self = Self(0x04);
    /// Authentication Send.
    pub const AUTHENTICATION_SEND: Self = Self(0x05);
    /// Authentication Receive.
    pub const AUTHENTICATION_RECEIVE: Self = Self(0x06);
    /// Disconnect.
    pub const DISCONNECT: Self = Self(0x08);
}

/// How a command ended: type, code, and whether trying again is pointless.
///
/// The constants carry the do-not-retry bit that belongs to them: set where the same command would fail again,
/// clear where the trouble may pass. [`is`](Status::is) compares without it.
/// Source: NVM Express Base Specification 2.x, "Status Field Definition".
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// SCT: status code type.
    pub sct: u8,
    /// SC: status code.
    pub sc: u8,
    /// DNR: do not retry.
    pub dnr: bool,
}

const fn generic(sc: u8) -> Status {
    Status {
        sct: 0,
        sc,
        dnr: true,
    }
}

const fn specific(sc: u8) -> Status {
    Status {
        sct: 1,
        sc,
        dnr: true,
    }
}

const fn media(sc: u8) -> Status {
    Status {
        sct: 2,
        sc,
        dnr: true,
    }
}

const fn path(sc: u8) -> Status {
    Status {
        sct: 3,
        sc,
        dnr: false,
    }
}

impl Status {
    /// Successful Completion.
    pub const SUCCESS: Self = generic(0x00).retry();
    /// Invalid Command Opcode.
    pub const INVALID_OPCODE: Self = generic(0x01);
    /// Invalid Field in Command.
    pub const INVALID_FIELD: Self = generic(0x02);
    /// Command ID Conflict.
    pub const COMMAND_ID_CONFLICT: Self = generic(0x03);
    /// Data Transfer Error.
    pub const DATA_TRANSFER_ERROR: Self = generic(0x04).retry();
    /// Internal Error.
    pub const INTERNAL_ERROR: Self = generic(0x06).retry();
    /// Command Abort Requested.
    pub const ABORT_REQUESTED: Self = generic(0x07);
    /// Command Aborted due to SQ Deletion.
    pub const ABORTED_SQ_DELETION: Self = generic(0x08).retry();
    /// Command Aborted due to Failed Fused Command.
    pub const ABORTED_FAILED_FUSED: Self = generic(0x09).retry();
    /// Command Aborted due to Missing Fused Command.
    pub const ABORTED_MISSING_FUSED: Self = generic(0x0A).retry();
    /// Invalid Namespace or Format.
    pub const INVALID_NAMESPACE: Self = generic(0x0B);
    /// Command Sequence Error.
    pub const COMMAND_SEQUENCE_ERROR: Self = generic(0x0C);
    /// Invalid SGL Segment Descriptor.
    pub const INVALID_SGL_SEGMENT: Self = generic(0x0D);
    /// Data SGL Length Invalid.
    pub const DATA_SGL_LENGTH_INVALID: Self = generic(0x0F);
    /// SGL Descriptor Type Invalid.
    pub const SGL_TYPE_INVALID: Self = generic(0x11);
    /// SGL Offset Invalid.
    pub const SGL_OFFSET_INVALID: Self = generic(0x16);
    /// Host Identifier Inconsistent Format: 64 bits were asked for where identifiers have 128.
    pub const HOST_ID_INCONSISTENT: Self = generic(0x18);
    /// Keep Alive Timeout Expired.
    pub const KEEP_ALIVE_EXPIRED: Self = generic(0x19).retry();
    /// Keep Alive Timeout Invalid.
    pub const KEEP_ALIVE_INVALID: Self = generic(0x1A);
    /// Command Aborted due to Preempt and Abort.
    pub const ABORTED_PREEMPT: Self = generic(0x1B);
    /// Namespace is Write Protected.
    pub const NAMESPACE_WRITE_PROTECTED: Self = generic(0x20);
    /// Command Interrupted: the controller could not finish it now.
    pub const COMMAND_INTERRUPTED: Self = generic(0x21).retry();
    /// Transient Transport Error: the data were damaged on the way.
    pub const TRANSIENT_TRANSPORT_ERROR: Self = generic(0x22).retry();
    /// LBA Out of Range.
    pub const LBA_OUT_OF_RANGE: Self = generic(0x80);
    /// Capacity Exceeded.
    pub const CAPACITY_EXCEEDED: Self = generic(0x81);
    /// Namespace Not Ready.
    pub const NAMESPACE_NOT_READY: Self = generic(0x82).retry();
    /// Reservation Conflict.
    pub const RESERVATION_CONFLICT: Self = generic(0x83);

    /// Abort Command Limit Exceeded.
    pub const ABORT_LIMIT_EXCEEDED: Self = specific(0x03);
    /// Asynchronous Event Request Limit Exceeded.
    pub const ASYNC_EVENT_LIMIT_EXCEEDED: Self = specific(0x05);
    /// Invalid Log Page.
    pub const INVALID_LOG_PAGE: Self = specific(0x09);
    /// Feature Identifier Not Saveable.
    pub const FEATURE_NOT_SAVEABLE: Self = specific(0x0D);
    /// Feature Not Changeable.
    pub const FEATURE_NOT_CHANGEABLE: Self = specific(0x0E);
    /// Feature Not Namespace Specific.
    pub const FEATURE_NOT_NAMESPACE_SPECIFIC: Self = specific(0x0F);

    /// Connect Incompatible Format.
    pub const CONNECT_INCOMPATIBLE_FORMAT: Self = specific(0x80);
    /// Connect Controller Busy.
    pub const CONNECT_CONTROLLER_BUSY: Self = specific(0x81).retry();
    /// Connect Invalid Parameters; dword 0 of the result says which.
    pub const CONNECT_INVALID_PARAMETERS: Self = specific(0x82);
    /// Connect Restart Discovery.
    pub const CONNECT_RESTART_DISCOVERY: Self = specific(0x83);
    /// Connect Invalid Host.
    pub const CONNECT_INVALID_HOST: Self = specific(0x84);
    /// Invalid Queue Type: Disconnect came on the admin queue.
    pub const INVALID_QUEUE_TYPE: Self = specific(0x85);
    /// Authentication Required.
    pub const AUTHENTICATION_REQUIRED: Self = specific(0x91);

    /// Write Fault.
    pub const WRITE_FAULT: Self = media(0x80);
    /// Unrecovered Read Error.
    pub const UNRECOVERED_READ_ERROR: Self = media(0x81);
    /// Compare Failure.
    pub const COMPARE_FAILURE: Self = media(0x85);

    /// Internal Path Error.
    pub const INTERNAL_PATH_ERROR: Self = path(0x00);
    /// Asymmetric Access Persistent Loss.
    pub const ANA_PERSISTENT_LOSS: Self = path(0x01);
    /// Asymmetric Access Inaccessible.
    pub const ANA_INACCESSIBLE: Self = path(0x02);
    /// Asymmetric Access Transition.
    pub const ANA_TRANSITION: Self = path(0x03);
    /// Host Pathing Error; never sent by a controller, made by a host for commands of a lost connection.
    pub const HOST_PATH_ERROR: Self = path(0x70);
    /// Command Aborted By Host; made by a host for commands it gave up.
    pub const HOST_ABORTED: Self = path(0x71);

    /// The same status, worth a retry.
    #[must_use]
    pub const fn retry(self) -> Self {
        Self { dnr: false, ..self }
    }

    /// The same status, not to be retried.
    #[must_use]
    pub const fn no_retry(self) -> Self {
        Self { dnr: true, ..self }
    }

    /// Whether the command succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.sct == 0 && self.sc == 0
    }

    /// Whether type and code are those of `other`, whatever is said about a retry.
    #[must_use]
    pub const fn is(self, other: Self) -> bool {
        self.sct == other.sct && self.sc == other.sc
    }

    /// Whether the path is at fault, not the command: try another path.
    #[must_use]
    pub const fn is_path_related(self) -> bool {
        self.sct == 3
    }

    /// The 16 bits of a completion: phase tag zero, code in bits 8:1, type in bits 11:9, DNR in bit 15.
    #[must_use]
    pub const fn to_field(self) -> u16 {
        (self.sc as u16) << 1 | ((self.sct & 0b111) as u16) << 9 | (self.dnr as u16) << 15
    }

    /// The status in the 16 bits of a completion; the phase tag, CRD and More are dropped.
    #[must_use]
    pub const fn from_field(field: u16) -> Self {
        Self {
            sct: (field >> 9 & 0b111) as u8,
            sc: (field >> 1 & 0xFF) as u8,
            dnr: field & 0x8000 != 0,
        }
    }

    /// The standard's name of this status, if it is one we know.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match (self.sct, self.sc) {
            (0, 0x00) => "Successful Completion",
            (0, 0x01) => "Invalid Command Opcode",
            (0, 0x02) => "Invalid Field in Command",
            (0, 0x03) => "Command ID Conflict",
            (0, 0x04) => "Data Transfer Error",
            (0, 0x06) => "Internal Error",
            (0, 0x07) => "Command Abort Requested",
            (0, 0x08) => "Command Aborted due to SQ Deletion",
            (0, 0x09) => "Command Aborted due to Failed Fused Command",
            (0, 0x0A) => "Command Aborted due to Missing Fused Command",
            (0, 0x0B) => "Invalid Namespace or Format",
            (0, 0x0C) => "Command Sequence Error",
            (0, 0x0D) => "Invalid SGL Segment Descriptor",
            (0, 0x0F) => "Data SGL Length Invalid",
            (0, 0x11) => "SGL Descriptor Type Invalid",
            (0, 0x16) => "SGL Offset Invalid",
            (0, 0x18) => "Host Identifier Inconsistent Format",
            (0, 0x19) => "Keep Alive Timeout Expired",
            (0, 0x1A) => "Keep Alive Timeout Invalid",
            (0, 0x1B) => "Command Aborted due to Preempt and Abort",
            (0, 0x20) => "Namespace is Write Protected",
            (0, 0x21) => "Command Interrupted",
            (0, 0x22) => "Transient Transport Error",
            (0, 0x80) => "LBA Out of Range",
            (0, 0x81) => "Capacity Exceeded",
            (0, 0x82) => "Namespace Not Ready",
            (0, 0x83) => "Reservation Conflict",
            (1, 0x03) => "Abort Command Limit Exceeded",
            (1, 0x05) => "Asynchronous Event Request Limit Exceeded",
            (1, 0x09) => "Invalid Log Page",
            (1, 0x0D) => "Feature Identifier Not Saveable",
            (1, 0x0E) => "Feature Not Changeable",
            (1, 0x0F) => "Feature Not Namespace Specific",
            (1, 0x80) => "Connect Incompatible Format",
            (1, 0x81) => "Connect Controller Busy",
            (1, 0x82) => "Connect Invalid Parameters",
            (1, 0x83) => "Connect Restart Discovery",
            (1, 0x84) => "Connect Invalid Host",
            (1, 0x85) => "Invalid Queue Type",
            (1, 0x91) => "Authentication Required",
            (2, 0x80) => "Write Fault",
            (2, 0x81) => "Unrecovered Read Error",
            (2, 0x85) => "Compare Failure",
            (3, 0x00) => "Internal Path Error",
            (3, 0x01) => "Asymmetric Access Persistent Loss",
            (3, 0x02) => "Asymmetric Access Inaccessible",
            (3, 0x03) => "Asymmetric Access Transition",
            (3, 0x70) => "Host Pathing Error",
            (3, 0x71) => "Command Aborted By Host",
            _ => return None,
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({:x}/{:02x}h",
            self.name().unwrap_or("unknown status"),
            self.sct,
            self.sc
        )?;
        f.write_str(if self.dnr { ", do not retry)" } else { ")" })
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn status_fields_go_both_ways() {
        for field in (0..=u16::MAX)
            .step_by(2)
            .filter(|field| field & 0x7000 == 0)
        {
            assert_eq!(Status::from_field(field).to_field(), field);
        }
        assert_eq!(Status::CONNECT_INVALID_PARAMETERS.to_field(), 0x8304);
        assert_eq!(Status::SUCCESS.to_field(), 0);
    }

    #[test]
    fn status_says_its_name_and_number() {
        assert_eq!(
            format!("{}", Status::LBA_OUT_OF_RANGE),
            "LBA Out of Range (0/80h, do not retry)"
        );
        assert_eq!(
            format!(
                "{}",
                Status {
                    sct: 7,
                    sc: 1,
                    dnr: false
                }
            ),
            "unknown status (7/01h)"
        );
    }

    #[test]
    fn direction_comes_from_the_opcode_or_the_fabrics_type() {
        let direction = |opcode, nsid| {
            let mut entry = SubmissionEntry::new(opcode);
            entry.nsid = U32::new(nsid);
            entry.direction()
        };
        assert_eq!(direction(Opcode::WRITE.0, 1), Direction::HostToController);
        assert_eq!(direction(Opcode::READ.0, 1), Direction::ControllerToHost);
        assert_eq!(direction(Opcode::FLUSH.0, 1), Direction::None);
        assert_eq!(
            direction(FABRICS_OPCODE, 0x0000_0001),
            Direction::HostToController
        );
        assert_eq!(
            direction(FABRICS_OPCODE, 0x0000_0006),
            Direction::ControllerToHost
        );
        assert_eq!(direction(FABRICS_OPCODE, 0x0000_0004), Direction::None);
    }
}
