//! Opcodes of I/O and admin commands, and types of fabrics commands.

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
    /// Cross-Controller Reset.
    pub const CROSS_CONTROLLER_RESET: Self = Self(0x38);
}

/// Opcode of all fabrics commands.
pub const FABRICS_OPCODE: u8 = 0x7F;

/// FCTYPE: type of a fabrics command.
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
