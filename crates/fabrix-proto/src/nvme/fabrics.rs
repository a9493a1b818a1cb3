//! Fabrics commands: Connect (`fabrics/connect.rs`), Property Get and Set, Disconnect; their
//! layouts, and the values they carry.
//!
//! Parsing gives exact errors: a refused Connect says which byte was wrong. Who may connect is not
//! decided here (`subsystem`), nor what a property does (`controller`); authentication commands are
//! recognised and not known.
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
        /// ATTRIB: bits 2:0, the property's size, zero is 4 bytes and one is 8.
        pub attributes @ 40: u8,
        reserved_41: [u8; 3],
        /// OFST: which property.
        pub offset @ 44: U32,
        /// VALUE, Property Set only.
        pub value @ 48: U64,
        reserved_56: [u8; 8],
    }
}

/// A property, by its offset.
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

    /// Bytes of the property: eight for CAP, four for all others we know.
    #[must_use]
    pub const fn bytes(self) -> u8 {
        if self.0 == Self::CAP.0 { 8 } else { 4 }
    }
}

/// A fabrics command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricsCommand {
    /// Connect; the whole of it is read by [`Connect::parse`], once its data are there.
    Connect,
    /// Read a property of so many bytes.
    PropertyGet {
        /// Which.
        property: Property,
        /// 4 or 8.
        bytes: u8,
    },
    /// Write a property of so many bytes.
    PropertySet {
        /// Which.
        property: Property,
        /// 4 or 8.
        bytes: u8,
        /// What.
        value: u64,
    },
    /// End this I/O queue.
    Disconnect,
}

impl FabricsCommand {
    /// Reads a fabrics command.
    ///
    /// # Errors
    /// The status to answer with: Invalid Field for a size or a record format that does not exist,
    /// Invalid Command Opcode for a type that we do not know.
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

    /// Property Get; the property's size goes with it.
    #[must_use]
    pub fn property_get(property: Property) -> Self {
        Self::property(FabricsType::PROPERTY_GET, property, 0)
    }

    /// Property Set; the property's size goes with it.
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

    /// Disconnect, which ends the I/O queue it is sent on.
    #[must_use]
    pub fn disconnect() -> Self {
        Self::fabrics(FabricsType::DISCONNECT)
    }
}
