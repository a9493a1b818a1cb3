//! The layout of everything Identify returns, and the lists it returns them in.
//!
//! Layout only: `controller` decides what the fields say, the host side reads them. Every offset
//! that a peer depends on is locked beside its structure. Reserved bytes are private, so that they
//! stay zero. The structures of a controller are in `identify/controller.rs`, those of a namespace
//! in `identify/namespace.rs`, its identifiers in `identify/descriptor.rs`; here are the lists, and
//! text of fixed length.
//! Source: NVM Express Base Specification 2.x, "Identify command"; NVM Command Set Specification
//! 1.x, "Identify Namespace".

mod controller;
mod descriptor;
mod namespace;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use self::controller::*;
pub use self::descriptor::{Descriptor, Descriptors};
pub use self::namespace::*;

/// Bytes of every Identify data structure.
pub const IDENTIFY_BYTES: usize = 4096;

/// Namespace ids in one Identify list.
pub const LIST_ENTRIES: usize = 1024;

/// CNS: which structure Identify returns.
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

/// CSI of the NVM command set, the only one here.
pub const CSI_NVM: u8 = 0;

/// A list of namespace ids, ascending, ended by zero when it is not full (CNS 02h and 07h).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct NamespaceList {
    /// The ids.
    pub ids: [U32; LIST_ENTRIES],
}
const _: () = assert!(size_of::<NamespaceList>() == IDENTIFY_BYTES);

impl NamespaceList {
    /// The ids up to the first zero.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ids.iter().map(|id| id.get()).take_while(|id| *id != 0)
    }
}

/// The supported combinations of I/O command sets (CNS 1Ch): bit n of a vector is the command set
/// with CSI n.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct CommandSetVectors {
    /// The vectors; the first zero ends them.
    pub vectors: [U64; 512],
}
const _: () = assert!(size_of::<CommandSetVectors>() == IDENTIFY_BYTES);

/// Writes `text` into a fixed ASCII field: cut at its end, padded with spaces, and anything that is
/// not printable ASCII replaced by a question mark.
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

/// Reads a fixed ASCII field: without the padding at its end, and nothing when it is not printable
/// ASCII.
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
