//! Computes what machines ask for over payload while it moves.
//!
//! A machine names a [`Pass`], this module runs it. CRC32C serves the digests of NVMe/TCP and
//! iSCSI: Castagnoli, initial value all ones, final inversion.

use crc_fast::{CrcAlgorithm, Digest, checksum};
use fabrix_proto::Pass;

/// Bytes of the longest result.
const RESULT_BYTES: usize = 4;

/// The result of a pass, as it stands on the wire.
pub(crate) struct PassResult {
    bytes: [u8; RESULT_BYTES],
    length: usize,
}

impl PassResult {
    /// Runs `pass` over `payload` and the filling behind it, which lies elsewhere.
    #[inline(always)]
    pub(crate) fn of(pass: Pass, payload: &[u8], fill: &[u8]) -> Self {
        let bytes = match pass {
            Pass::None => [0; RESULT_BYTES],
            Pass::Crc32c => crc32c_of(payload, fill).to_le_bytes(),
        };
        Self {
            bytes,
            length: pass.trailer_bytes(),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// CRC32C of `bytes`, as a machine wants it (`fabrix_proto::Crc32c`) and as it stands on the wire
/// in little-endian.
///
/// Source: NVM Express TCP Transport Specification, "Digest"; RFC 7143, section 13.1.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    u32::try_from(checksum(CrcAlgorithm::Crc32Iscsi, bytes)).expect("a CRC32 has 32 bits")
}

/// CRC32C of `bytes` and what fills them up, which lies elsewhere and most often is nothing.
#[inline(never)]
fn crc32c_of(bytes: &[u8], fill: &[u8]) -> u32 {
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
