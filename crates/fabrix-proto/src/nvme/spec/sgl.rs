//! SGL descriptors: location of the data of a command.

use zerocopy::little_endian::{U32, U64};

wire! {
    /// Location of the data of a command, 16 bytes. The last byte selects the interpretation of the
    /// others.
    ///
    /// Source: NVM Express Base Specification 2.x, "Scatter Gather List (SGL)"; NVMe/TCP,
    /// "Transport SGL descriptor".
    pub struct SglDescriptor: 16 bytes {
        /// Address, or the offset into the capsule's data.
        pub address: U64,
        /// Length in bytes.
        pub length @ 8: U32,
        reserved: [u8; 3],
        /// Type in bits 7:4, subtype in bits 3:0.
        pub kind @ 15: SglKind,
    }
}

impl SglDescriptor {
    /// Data in the capsule, directly behind the submission entry (ICDOFF is zero here).
    #[must_use]
    pub const fn in_capsule(bytes: u32) -> Self {
        Self {
            address: U64::ZERO,
            length: U32::new(bytes),
            reserved: [0; 3],
            kind: SglKind::IN_CAPSULE,
        }
    }

    /// Data that the transport moves by R2T and H2CData, or by C2HData. Zero bytes: no data.
    #[must_use]
    pub const fn transport(bytes: u32) -> Self {
        Self {
            address: U64::ZERO,
            length: U32::new(bytes),
            reserved: [0; 3],
            kind: SglKind::TRANSPORT,
        }
    }

    /// The same 16 bytes, interpreted as a keyed descriptor.
    #[must_use]
    pub fn keyed(&self) -> KeyedSglDescriptor {
        zerocopy::transmute!(*self)
    }
}

wire! {
    /// Keyed descriptor for RDMA: address in the host's memory, and the key for access to it.
    ///
    /// Source: NVM Express Base Specification 2.x, "Keyed SGL Data Block descriptor".
    pub struct KeyedSglDescriptor: 16 bytes {
        /// Address in the host's memory.
        pub address: U64,
        /// Length in bytes, 24 bits.
        pub length: [u8; 3],
        /// Remote key that grants access.
        pub key @ 11: U32,
        /// Type in bits 7:4, subtype in bits 3:0.
        pub kind @ 15: SglKind,
    }
}

impl KeyedSglDescriptor {
    /// Memory of the host from an address, below 16 MiB, that a key grants access to.
    #[must_use]
    pub const fn new(address: u64, bytes: u32, key: u32, kind: SglKind) -> Self {
        debug_assert!(bytes <= MAX_KEYED_BYTES, "the length has 24 bits");
        let [low, middle, high, _] = bytes.to_le_bytes();
        Self {
            address: U64::new(address),
            length: [low, middle, high],
            key: U32::new(key),
            kind,
        }
    }

    /// The same 16 bytes, as the descriptor of a submission entry.
    #[must_use]
    pub fn unkeyed(&self) -> SglDescriptor {
        zerocopy::transmute!(*self)
    }

    /// The length in bytes.
    #[must_use]
    pub const fn length_bytes(&self) -> u32 {
        u32::from_le_bytes([self.length[0], self.length[1], self.length[2], 0])
    }
}

/// Longest length of a keyed descriptor in bytes.
pub const MAX_KEYED_BYTES: u32 = (1 << 24) - 1;

wire! {
    /// Type and subtype of an SGL descriptor.
    pub struct SglKind(pub u8);
}

impl SglKind {
    /// Data block, subtype address.
    pub const ADDRESS: Self = Self(0x00);
    /// Data block, subtype offset: in the capsule.
    pub const IN_CAPSULE: Self = Self(0x01);
    /// Last segment, subtype offset: a list of descriptors in the capsule.
    pub const LAST_SEGMENT_IN_CAPSULE: Self = Self(0x31);
    /// Keyed data block, subtype address.
    pub const KEYED: Self = Self(0x40);
    /// Keyed data block. The answer invalidates the key.
    pub const KEYED_INVALIDATE: Self = Self(0x4F);
    /// Transport data block, subtype transport.
    pub const TRANSPORT: Self = Self(0x5A);
}
