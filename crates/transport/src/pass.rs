//! What is computed over payload while it moves: CRC32C, for the digests of NVMe/TCP and iSCSI.
//!
//! The machines name the pass, this module runs it. Both protocols use CRC-32C (Castagnoli), initial value all
//! ones, final inversion.

use crc_fast::{CrcAlgorithm, checksum};

/// CRC32C of `bytes`, as a machine wants it (`fabrix_proto::Crc32c`) and as it stands on the wire in little-endian.
///
/// Source: NVM Express TCP Transport Specification, "Digest"; RFC 7143, section 13.1.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    u32::try_from(checksum(CrcAlgorithm::Crc32Iscsi, bytes)).expect("a CRC32 has 32 bits")
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn agrees_with_the_vectors_of_rfc_7143() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
