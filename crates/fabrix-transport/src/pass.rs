//! What is computed over payload while it moves: CRC32C, for the digests of NVMe/TCP and iSCSI.
//!
//! The machines name the pass, this module runs it. Both protocols use CRC-32C (Castagnoli),
//! initial value all ones, final inversion.

use crc_fast::{CrcAlgorithm, Digest, checksum};

/// CRC32C of `bytes`, as a machine wants it (`fabrix_proto::Crc32c`) and as it stands on the wire
/// in little-endian.
///
/// Source: NVM Express TCP Transport Specification, "Digest"; RFC 7143, section 13.1.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    u32::try_from(checksum(CrcAlgorithm::Crc32Iscsi, bytes)).expect("a CRC32 has 32 bits")
}

/// CRC32C of `bytes` and what fills them up, which lies elsewhere and most often is nothing.
pub(crate) fn crc32c_of(bytes: &[u8], fill: &[u8]) -> u32 {
    if fill.is_empty() {
        return crc32c(bytes);
    }
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(bytes);
    digest.update(fill);
    u32::try_from(digest.finalize()).expect("a CRC32 has 32 bits")
}

#[cfg(test)]
mod tests {
    use super::{crc32c, crc32c_of};

    #[test]
    fn a_fill_counts_as_if_it_lay_behind_the_bytes() {
        for bytes in 0..9 {
            let (payload, fill) = b"123456789".split_at(bytes);
            assert_eq!(crc32c_of(payload, fill), 0xe306_9283);
        }
    }

    #[test]
    fn agrees_with_the_vectors_of_rfc_7143() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
