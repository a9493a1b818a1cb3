//! Layout of queue entries: 64-byte submission entries and 16-byte completions.
//!
//! The file has layouts only and checks nothing. `command.rs`, `admin.rs` and `fabrics.rs` parse
//! commands. Numbers that a peer may extend are newtypes with constants: opcodes in
//! `spec/opcode.rs`, status codes in `spec/status.rs`. `spec/sgl.rs` has the SGL descriptors.
//! Source: NVM Express Base Specification 2.x, "Submission Queue Entry", "Completion Queue Entry";
//! NVMe over Fabrics, "Capsules".

mod opcode;
mod sgl;
mod status;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

pub use self::opcode::{AdminOpcode, FABRICS_OPCODE, FabricsType, Opcode};
pub use self::sgl::{KeyedSglDescriptor, MAX_KEYED_BYTES, SglDescriptor, SglKind};
pub use self::status::Status;

wire! {
    /// A submission entry as on the wire: 64 bytes, little-endian.
    ///
    /// Source: NVM Express Base Specification 2.x, "Common Command Format".
    pub struct SubmissionEntry: 64 bytes {
        /// OPC: an [`Opcode`] on I/O queues, an [`AdminOpcode`] on the admin queue.
        pub opcode: u8,
        /// FUSE in bits 1:0, PSDT in bits 7:6. The other bits are reserved.
        pub flags: u8,
        /// CID: chosen by the host, echoed in the completion.
        pub command_id @ 2: U16,
        /// NSID.
        pub nsid @ 4: U32,
        /// Command dword 2.
        pub cdw2: U32,
        /// Command dword 3.
        pub cdw3: U32,
        /// MPTR: location of the metadata.
        pub metadata @ 16: U64,
        /// DPTR: location of the data. Over fabrics always one SGL descriptor.
        pub sgl @ 24: SglDescriptor,
        /// Command dword 10.
        pub cdw10 @ 40: U32,
        /// Command dword 11.
        pub cdw11: U32,
        /// Command dword 12.
        pub cdw12: U32,
        /// Command dword 13.
        pub cdw13: U32,
        /// Command dword 14.
        pub cdw14: U32,
        /// Command dword 15.
        pub cdw15 @ 60: U32,
    }
}

/// PSDT 01b in the flags byte: SGLs, contiguous metadata.
pub const PSDT_SGL: u8 = 0x40;

impl SubmissionEntry {
    /// An entry with `opcode`, the PSDT of fabrics, and an empty SGL. The rest is zero.
    #[must_use]
    pub fn new(opcode: u8) -> Self {
        let mut entry = Self::new_zeroed();
        entry.opcode = opcode;
        entry.flags = PSDT_SGL;
        entry.sgl = SglDescriptor::transport(0);
        entry
    }

    /// Converts 64 bytes from the wire to an entry.
    #[must_use]
    pub fn from_array(bytes: [u8; 64]) -> Self {
        zerocopy::transmute!(bytes)
    }

    /// Converts the entry to the bytes on the wire.
    #[must_use]
    pub fn to_array(self) -> [u8; 64] {
        zerocopy::transmute!(self)
    }

    /// Opcode of a command on an I/O queue.
    #[must_use]
    pub const fn io_opcode(&self) -> Opcode {
        Opcode(self.opcode)
    }

    /// Opcode of a command on the admin queue.
    #[must_use]
    pub const fn admin_opcode(&self) -> AdminOpcode {
        AdminOpcode(self.opcode)
    }

    /// Whether this is a fabrics command (on either queue).
    #[must_use]
    pub const fn is_fabrics(&self) -> bool {
        self.opcode == FABRICS_OPCODE
    }

    /// FCTYPE. Valid only if [`is_fabrics`](Self::is_fabrics) is true.
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

    /// Direction of the data, from bits 1:0 of the opcode or fabrics type.
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

/// Direction of a command's data.
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
    /// Both directions. No known command uses this value.
    Both,
}

wire! {
    /// A completion as on the wire: 16 bytes, little-endian.
    ///
    /// Source: NVM Express Base Specification 2.x, "Common Completion Queue Entry Layout".
    pub struct CompletionEntry: 16 bytes {
        /// Dwords 0 and 1: command specific.
        pub result: U64,
        /// SQHD: position up to which the controller has read the submission queue.
        pub sq_head @ 8: U16,
        /// SQID; reserved over fabrics.
        pub sq_id: U16,
        /// CID of the completed command.
        pub command_id @ 12: U16,
        /// Phase tag in bit 0 (zero over fabrics), the [`Status`] in the other bits.
        pub status @ 14: U16,
    }
}

impl CompletionEntry {
    /// A completion with `status` and `result`. The transport sets command id and queue head.
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

    /// Status of the command.
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

    /// Converts 16 bytes from the wire to a completion.
    #[must_use]
    pub fn from_array(bytes: [u8; 16]) -> Self {
        zerocopy::transmute!(bytes)
    }

    /// Converts the completion to the bytes on the wire.
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
