//! Fabrics commands: Connect (`fabrics/connect.rs`), Property Get and Set, and Disconnect, with
//! their layouts and values.
//!
//! The parser reports exact errors: a refused Connect names the invalid byte. `subsystem` decides
//! which hosts may connect. `controller` executes property commands. Authentication commands are
//! not supported.
//! Source: NVM Express Base Specification 2.x, "Fabrics Command Set"; RDMA and TCP add nothing to
//! it.

mod connect;

use zerocopy::little_endian::{U16, U32, U64};

pub use self::connect::*;
use super::spec::{FABRICS_OPCODE, FabricsType, Status, SubmissionEntry};

wire! {
    /// Property Get and Property Set, 64 bytes.
    ///
    /// Source: NVM Express Base Specification 2.x, "Property Get Command", "Property Set Command".
    pub struct PropertyCommand: 64 bytes {
        /// [`FABRICS_OPCODE`].
        pub opcode: u8,
        /// PSDT.
        pub flags: u8,
        /// CID.
        pub command_id: U16,
        /// FCTYPE, 04h or 00h.
        pub fabrics_type: u8,
        reserved_5: [u8; 35],
        /// ATTRIB: size of the property in bits 2:0. 0: 4 bytes. 1: 8 bytes.
        pub attributes @ 40: u8,
        reserved_41: [u8; 3],
        /// OFST: offset of the property.
        pub offset @ 44: U32,
        /// VALUE, Property Set only.
        pub value @ 48: U64,
        reserved_56: [u8; 8],
    }
}

/// Offset of a property.
///
/// Source: NVM Express Base Specification 2.x, "Property Definition".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property(pub u32);

impl Property {
    /// CAP, 8 bytes.
    pub const CAP: Self = Self(0x00);
    /// VS, 4 bytes.
    pub const VS: Self = Self(0x08);
    /// CC, 4 bytes.
    pub const CC: Self = Self(0x14);
    /// CSTS, 4 bytes.
    pub const CSTS: Self = Self(0x1C);
    /// NSSR, 4 bytes.
    pub const NSSR: Self = Self(0x20);
    /// CRTO, 4 bytes.
    pub const CRTO: Self = Self(0x68);

    /// Length of the property in bytes: 8 for CAP, 4 for the others.
    #[must_use]
    pub const fn bytes(self) -> u8 {
        if self.0 == Self::CAP.0 { 8 } else { 4 }
    }
}

/// A fabrics command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricsCommand {
    /// Connect. [`Connect::parse`] parses it when its data has arrived.
    Connect,
    /// Property Get.
    PropertyGet {
        /// Property to access.
        property: Property,
        /// Length in bytes, 4 or 8.
        bytes: u8,
    },
    /// Property Set.
    PropertySet {
        /// Property to access.
        property: Property,
        /// Length in bytes, 4 or 8.
        bytes: u8,
        /// New value.
        value: u64,
    },
    /// Disconnect: ends the I/O queue.
    Disconnect,
}

impl FabricsCommand {
    /// Parses a fabrics command.
    ///
    /// # Errors
    /// The status of the answer: Invalid Field for an invalid size or record format, Invalid
    /// Command Opcode for an unknown type.
    pub fn parse(entry: &SubmissionEntry) -> Result<Self, Status> {
        if !entry.is_fabrics() {
            return Err(Status::INVALID_OPCODE);
        }
        match entry.fabrics_type() {
            FabricsType::CONNECT => Ok(Self::Connect),
            FabricsType::PROPERTY_GET => {
                let (property, bytes, _) = property(entry)?;
                Ok(Self::PropertyGet { property, bytes })
            }
            FabricsType::PROPERTY_SET => {
                let (property, bytes, value) = property(entry)?;
                Ok(Self::PropertySet {
                    property,
                    bytes,
                    value,
                })
            }
            FabricsType::DISCONNECT if entry.cdw10.get() & 0xFFFF == 0 => Ok(Self::Disconnect),
            FabricsType::DISCONNECT => Err(Status::CONNECT_INCOMPATIBLE_FORMAT),
            _ => Err(Status::INVALID_OPCODE),
        }
    }
}

fn property(entry: &SubmissionEntry) -> Result<(Property, u8, u64), Status> {
    let command: PropertyCommand = zerocopy::transmute!(*entry);
    let bytes = match command.attributes {
        0 => 4,
        1 => 8,
        _ => return Err(Status::INVALID_FIELD),
    };
    Ok((Property(command.offset.get()), bytes, command.value.get()))
}

impl SubmissionEntry {
    fn fabrics(kind: FabricsType) -> Self {
        let mut entry = Self::new(FABRICS_OPCODE);
        entry.nsid = U32::new(u32::from(kind.0));
        entry
    }

    /// Property Get, with the size of the property.
    #[must_use]
    pub fn property_get(property: Property) -> Self {
        Self::property(FabricsType::PROPERTY_GET, property, 0)
    }

    /// Property Set, with the size of the property.
    #[must_use]
    pub fn property_set(property: Property, value: u64) -> Self {
        Self::property(FabricsType::PROPERTY_SET, property, value)
    }

    fn property(kind: FabricsType, property: Property, value: u64) -> Self {
        let mut command: PropertyCommand = zerocopy::transmute!(Self::fabrics(kind));
        command.attributes = u8::from(property.bytes() == 8);
        command.offset = U32::new(property.0);
        command.value = U64::new(value);
        zerocopy::transmute!(command)
    }

    /// Disconnect. It ends the I/O queue on which it is sent.
    #[must_use]
    pub fn disconnect() -> Self {
        Self::fabrics(FabricsType::DISCONNECT)
    }
}
