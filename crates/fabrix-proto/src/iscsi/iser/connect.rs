//! Private data with which the connection manager makes the connection of a session.
//!
//! InfiniBand and RoCE append zeroes to private data, so a longer one is right, and data that is
//! all zero stands for none.
//!
//! Source: InfiniBand Architecture Specification, annex A12 "Support for iSCSI Extensions for RDMA
//! (iSER)".

use zerocopy::{FromBytes, FromZeros};

wire! {
    /// What either side says when the connection is made, 4 bytes.
    pub struct ConnectData: 4 bytes {
        flags: u8,
        reserved_1: [u8; 3],
    }
}

impl ConnectData {
    /// Reads the private data of the other side.
    #[must_use]
    pub fn parse(private_data: &[u8]) -> Self {
        let read = Self::read_from_prefix(private_data);
        read.map_or_else(|_| Self::new_zeroed(), |(data, _)| data)
    }

    /// The private data of a side that counts addresses as its memory does. `invalidates`: messages
    /// may invalidate a tag.
    #[must_use]
    pub const fn new(invalidates: bool) -> Self {
        let flags = match invalidates {
            true => NO_ZERO_BASED_ADDRESSES,
            false => NO_ZERO_BASED_ADDRESSES | NO_INVALIDATION,
        };
        Self {
            flags,
            reserved_1: [0; 3],
        }
    }

    /// Whether the other side takes messages that invalidate one of its tags. A side without
    /// private data has not said so.
    #[must_use]
    pub const fn takes_invalidation(&self) -> bool {
        self.flags & (NO_ZERO_BASED_ADDRESSES | NO_INVALIDATION) == NO_ZERO_BASED_ADDRESSES
    }
}

/// ZBVA is not supported: an address is one of the memory, and no offset in it.
const NO_ZERO_BASED_ADDRESSES: u8 = 0x80;
/// SEND with invalidate is not supported.
const NO_INVALIDATION: u8 = 0x40;

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    #[test]
    fn only_a_side_that_has_said_so_takes_invalidation() {
        let takes = |bytes: &[u8]| ConnectData::parse(bytes).takes_invalidation();
        assert!(takes(&[0x80, 0, 0, 0]), "Linux");
        assert!(takes(&[[0x80].as_slice(), &[0; 55]].concat()), "padded");
        assert!(!takes(&[0xC0, 0, 0, 0]), "libiscsi");
        assert!(!takes(&[0x40, 0, 0, 0]));
        assert!(!takes(&[0; 56]), "no private data, over InfiniBand");
        assert!(!takes(&[]) && !takes(&[0x80]), "no private data, over TCP");
    }

    #[test]
    fn the_answer_has_its_layout() {
        assert_eq!(ConnectData::new(true).as_bytes(), [0x80, 0, 0, 0]);
        assert_eq!(ConnectData::new(false).as_bytes(), [0xC0, 0, 0, 0]);
    }
}
