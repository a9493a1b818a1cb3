//! Layouts of all data that Identify returns. The lists and the fixed-length text fields are in
//! this file.
//!
//! `controller` fills the structures, and the host side reads them. A compile-time check next to
//! each structure fixes the offsets that peers depend on. Reserved bytes are private and stay zero.
//!
//! - `identify/controller.rs`: structures of a controller.
//! - `identify/namespace.rs`: structures of a namespace.
//! - `identify/descriptor.rs`: identifiers of a namespace.
//!
//! Source: NVM Express Base Specification 2.x, "Identify command"; NVM Command Set Specification
//! 1.x, "Identify Namespace".

mod controller;
mod descriptor;
mod namespace;

use zerocopy::little_endian::{U32, U64};

pub use self::controller::*;
pub use self::descriptor::{Descriptor, Descriptors};
pub use self::namespace::*;

/// Length in bytes of every Identify data structure.
pub const IDENTIFY_BYTES: usize = 4096;

/// Number of namespace ids in one Identify list.
pub const LIST_ENTRIES: usize = 1024;

/// CNS: data structure that Identify returns.
///
/// Source: NVM Express Base Specification 2.x, "Identify – CNS Values".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cns(pub u8);

impl Cns {
    /// Identify Namespace of the NVM command set.
    pub const NAMESPACE: Self = Self(0x00);
    /// Identify Controller.
    pub const CONTROLLER: Self = Self(0x01);
    /// Active Namespace ID list.
    pub const ACTIVE_NAMESPACES: Self = Self(0x02);
    /// Namespace Identification Descriptor list.
    pub const DESCRIPTORS: Self = Self(0x03);
    /// I/O command set specific Identify Namespace.
    pub const COMMAND_SET_NAMESPACE: Self = Self(0x05);
    /// I/O command set specific Identify Controller.
    pub const COMMAND_SET_CONTROLLER: Self = Self(0x06);
    /// I/O command set specific Active Namespace ID list.
    pub const COMMAND_SET_ACTIVE_NAMESPACES: Self = Self(0x07);
    /// I/O command set independent Identify Namespace.
    pub const INDEPENDENT_NAMESPACE: Self = Self(0x08);
    /// Identify I/O Command Set: the vectors of supported combinations.
    pub const COMMAND_SETS: Self = Self(0x1C);
}

/// CSI of the NVM command set, the only supported command set.
pub const CSI_NVM: u8 = 0;

wire! {
    /// List of namespace ids in ascending order. A zero ends the list if it is not full (CNS 02h
    /// and 07h).
    pub struct NamespaceList: IDENTIFY_BYTES bytes {
        /// The ids.
        pub ids: [U32; LIST_ENTRIES],
    }
}

impl NamespaceList {
    /// Ids up to the first zero.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ids.iter().map(|id| id.get()).take_while(|id| *id != 0)
    }
}

wire! {
    /// Supported combinations of I/O command sets (CNS 1Ch). Bit n of a vector stands for the
    /// command set with CSI n.
    pub struct CommandSetVectors: IDENTIFY_BYTES bytes {
        /// Vectors up to the first zero.
        pub vectors: [U64; 512],
    }
}

/// Writes `text` into a fixed-length ASCII field: truncated or padded with spaces. A question mark
/// replaces each character that is not printable ASCII.
pub fn fill_ascii(field: &mut [u8], text: &str) {
    field.fill(b' ');
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = if (0x20..0x7F).contains(&from) {
            from
        } else {
            b'?'
        };
    }
}

/// Reads a fixed-length ASCII field without its padding. Empty if the field is not printable ASCII.
#[must_use]
pub fn ascii(field: &[u8]) -> &str {
    let end = field
        .iter()
        .rposition(|byte| !matches!(byte, b' ' | 0))
        .map_or(0, |last| last + 1);
    let text = &field[..end];
    if text.iter().any(|byte| !(0x20..0x7F).contains(byte)) {
        return "";
    }
    core::str::from_utf8(text).unwrap_or_default()
}
