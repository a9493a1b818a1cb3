//! fio's checksums of verified blocks: names, numbers on the medium, and bytes.
//!
//! The bytes are those of fio 3.33, including its deviations: CRC-32 is neither reflected nor
//! inverted, SHA-1 stores its words in little-endian order, and SHA-256 and SHA-512 store parts of
//! the data (see [`sha256`] and [`sha512`]).

use crc_fast::{CrcAlgorithm, checksum};
use md5::Md5;
use sha1::Sha1;
use sha2::Digest;
use sha2::block_api::compress256;
use sha3::{Sha3_224, Sha3_256, Sha3_384, Sha3_512};
use twox_hash::XxHash32;

/// A checksum of fio's `verify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// `meta`: the header only.
    Meta,
    /// `md5`.
    Md5,
    /// `crc64`.
    Crc64,
    /// `crc32`.
    Crc32,
    /// `crc32c` and `crc32c-intel`.
    Crc32c,
    /// `crc16`.
    Crc16,
    /// `crc7`.
    Crc7,
    /// `sha256`.
    Sha256,
    /// `sha512`.
    Sha512,
    /// `sha3-224`.
    Sha3x224,
    /// `sha3-256`.
    Sha3x256,
    /// `sha3-384`.
    Sha3x384,
    /// `sha3-512`.
    Sha3x512,
    /// `xxhash`.
    Xxhash,
    /// `sha1`.
    Sha1,
    /// `verify_pattern` without `verify`: a header, and a pattern that is compared.
    Pattern,
}

use Checksum as C;

/// fio's names, numbers in the header, and lengths of the checksum in bytes.
const ALL: [(&str, Checksum, u16, usize); 17] = [
    ("crc32c", C::Crc32c, 5, 4),
    ("crc32c-intel", C::Crc32c, 6, 4),
    ("meta", C::Meta, 1, 0),
    ("md5", C::Md5, 2, 16),
    ("crc64", C::Crc64, 3, 8),
    ("crc32", C::Crc32, 4, 4),
    ("crc16", C::Crc16, 7, 2),
    ("crc7", C::Crc7, 8, 1),
    ("sha256", C::Sha256, 9, 64),
    ("sha512", C::Sha512, 10, 128),
    ("sha3-224", C::Sha3x224, 11, 28),
    ("sha3-256", C::Sha3x256, 12, 32),
    ("sha3-384", C::Sha3x384, 13, 48),
    ("sha3-512", C::Sha3x512, 14, 64),
    ("xxhash", C::Xxhash, 15, 4),
    ("sha1", C::Sha1, 16, 20),
    // fio has no word for it.
    ("header and pattern", C::Pattern, 17, 0),
];

/// Length of the longest checksum in bytes.
pub(super) const CHECKSUM_BYTES_MAX: usize = 128;

impl Checksum {
    /// The checksum with a name of fio.
    pub fn parse(name: &str) -> Option<Self> {
        let found = ALL.iter().find(|(known, ..)| *known == name);
        found.map(|(_, checksum, ..)| *checksum)
    }

    fn row(self) -> &'static (&'static str, Self, u16, usize) {
        let found = ALL.iter().find(|(_, known, ..)| *known == self);
        found.expect("every checksum stands in ALL")
    }

    /// fio's name.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Number in the header.
    pub(super) fn number(self) -> u16 {
        self.row().2
    }

    /// The checksum with a number in a header.
    pub(super) fn of_number(number: u16) -> Option<Self> {
        let found = ALL.iter().find(|(_, _, known, _)| *known == number);
        found.map(|(_, checksum, ..)| *checksum)
    }

    /// Length of the checksum in bytes.
    pub(super) fn bytes(self) -> usize {
        self.row().3
    }

    /// Writes the checksum of `data`. `field` has [`Self::bytes`] bytes.
    pub(super) fn write(self, data: &[u8], field: &mut [u8]) {
        match self {
            Self::Meta | Self::Pattern => {}
            Self::Md5 => field.copy_from_slice(&Md5::digest(data)),
            Self::Crc64 => {
                field.copy_from_slice(&checksum(CrcAlgorithm::Crc64Redis, data).to_le_bytes())
            }
            Self::Crc32 => field
                .copy_from_slice(&(!half(checksum(CrcAlgorithm::Crc32Cksum, data))).to_le_bytes()),
            Self::Crc32c => field.copy_from_slice(&crc32c(data).to_le_bytes()),
            Self::Crc16 => {
                let crc = half(checksum(CrcAlgorithm::Crc16Arc, data)).to_le_bytes();
                field.copy_from_slice(&crc[..2]);
            }
            Self::Crc7 => field[0] = crc7(data),
            Self::Sha256 => field.copy_from_slice(&sha256(data)),
            Self::Sha512 => sha512(data, field),
            Self::Sha3x224 => field.copy_from_slice(&Sha3_224::digest(data)),
            Self::Sha3x256 => field.copy_from_slice(&Sha3_256::digest(data)),
            Self::Sha3x384 => field.copy_from_slice(&Sha3_384::digest(data)),
            Self::Sha3x512 => field.copy_from_slice(&Sha3_512::digest(data)),
            Self::Xxhash => field.copy_from_slice(&XxHash32::oneshot(1, data).to_le_bytes()),
            Self::Sha1 => {
                field.copy_from_slice(&Sha1::digest(data));
                field.chunks_exact_mut(4).for_each(<[u8]>::reverse);
            }
        }
    }
}

/// CRC32C without the final inversion, as fio stores it.
pub(super) fn crc32c(data: &[u8]) -> u32 {
    !half(checksum(CrcAlgorithm::Crc32Iscsi, data))
}

fn half(crc: u64) -> u32 {
    u32::try_from(crc).expect("the CRC has at most 32 bits")
}

/// CRC-7 of MultiMediaCard: polynomial x^7 + x^3 + 1, most significant bit first.
fn crc7(data: &[u8]) -> u8 {
    let shifted = data
        .iter()
        .fold(0, |crc: u8, byte| CRC7[usize::from(crc ^ byte)]);
    shifted >> 1
}

/// CRC-7 of each byte, shifted left by one bit.
const CRC7: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "the index is below 256")]
        let mut crc = byte as u8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x80 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ (0x09 << 1)
            };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// fio's SHA-256: the last padded block of the data, with the low bytes of the hash's eight words
/// over its first eight bytes. fio pads with the length in little-endian order.
fn sha256(data: &[u8]) -> [u8; 64] {
    let (blocks, tail) = data.as_chunks::<64>();
    let mut state = SHA256_START;
    compress256(&mut state, blocks);
    let mut last = [0; 64];
    last[..tail.len()].copy_from_slice(tail);
    last[tail.len()] = 0x80;
    if tail.len() >= 56 {
        compress256(&mut state, &[last]);
        last = [0; 64];
    }
    last[56..].copy_from_slice(&(data.len() as u64 * 8).to_le_bytes());
    compress256(&mut state, &[last]);
    for (byte, word) in last.iter_mut().zip(state) {
        *byte = word.to_le_bytes()[0];
    }
    last
}

/// Initial state of SHA-256 (FIPS 180-4, section 5.3.3).
const SHA256_START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// fio's SHA-512 stores no hash: the field is the first 128 bytes of the data, over which the last
/// incomplete block of 128 bytes is laid.
fn sha512(data: &[u8], field: &mut [u8]) {
    let first = data.len().min(field.len());
    field.fill(0);
    field[..first].copy_from_slice(&data[..first]);
    let tail = data.chunks_exact(128).remainder();
    field[..tail.len()].copy_from_slice(tail);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back_to_their_checksum() {
        for (name, checksum, number, bytes) in ALL {
            assert_eq!(Checksum::parse(name), Some(checksum));
            assert_eq!(Checksum::of_number(number), Some(checksum));
            assert!(bytes <= CHECKSUM_BYTES_MAX);
        }
        assert_eq!(Checksum::Crc32c.number(), 5);
        assert_eq!(
            (Checksum::parse("crc"), Checksum::of_number(99)),
            (None, None)
        );
    }

    #[test]
    fn known_values_come_out() {
        let of = |checksum: Checksum| {
            let mut field = vec![0; checksum.bytes()];
            checksum.write(b"123456789", &mut field);
            field
        };
        // Check values of the catalogue of parametrised CRC algorithms, without the final inversion
        // where fio leaves it out.
        assert_eq!(of(C::Crc32c), (!0xe306_9283_u32).to_le_bytes());
        assert_eq!(of(C::Crc16), 0xbb3d_u16.to_le_bytes());
        assert_eq!(of(C::Crc64), 0xe9c6_d914_c4b8_d9ca_u64.to_le_bytes());
        assert_eq!(of(C::Crc7), [0x75]);
        assert_eq!(of(C::Md5)[..4], [0x25, 0xf9, 0xe7, 0x94]);
        assert_eq!(of(C::Sha1)[..4], [0x1d, 0xbc, 0xc3, 0xf7]);
        assert_eq!(of(C::Meta), []);
    }
}
