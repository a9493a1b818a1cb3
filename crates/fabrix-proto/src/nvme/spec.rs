//! The layout of what every NVMe queue carries: 64-byte submission entries and 16-byte completions.
//!
//! Layout only: what a command means stands in `command.rs` and `fabrics.rs`. Numbers that a peer
//! may extend are open newtypes with constants: opcodes in `spec/opcode.rs`, status codes in
//! `spec/status.rs`; where data lies is said by the descriptors of `spec/sgl.rs`. Nothing here
//! checks anything.
//! Source: NVM Express Base Specification 2.x, "Submission Queue Entry", "Completion Queue Entry";
//! NVMe over Fabrics, "Capsules".

mod opcode;
mod sgl;
mod status;

use core::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use self::opcode::{AdminOpcode, FABRICS_OPCODE, FabricsType, Opcode};
pub use self::sgl::{KeyedSglDescriptor, SglDescriptor, SglKind};
pub use self::status::Status;

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
    /// An entry of zeroes with an opcode, the SGL bit every fabrics command carries, and an empty
    /// SGL.
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
    /// An answer with `status` and `result`; the transport fills in the command id and the queue
    /// head.
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

#[cfg(test)]
mod tests {
    use super::*;

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
