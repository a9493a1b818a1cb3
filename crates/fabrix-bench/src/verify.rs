//! Data verification: every written block contains its address and its age.
//!
//! A written block carries its byte offset, the number of writes to its unit (the generation), the
//! id of the run, contents derived from all three, and a checksum. The check therefore recognises
//! stale, misdirected, unwritten and damaged blocks and names them.
//!
//! The generations are kept in memory, so they survive a reconnection of the disk. The job keeps at
//! most one request in flight per unit, so every read has one correct result. A failed write is the
//! exception: until the next successful write of its unit, its generation and every older one down
//! to the last acknowledged one are correct.
//!
//! Layout of a block of `verify_bytes`, little-endian: magic (8 bytes), offset (8), run (8),
//! generation (4), length (4), pseudo-random contents, CRC32C of everything before it (4).

use std::fmt;

use crc_fast::{CrcAlgorithm, checksum};

use crate::job::Region;
use crate::random::{fill, mix};
use crate::results::Verified;

/// Largest block with one stamp, in bytes. Larger requests carry several stamps.
const VERIFY_BYTES_MAX: u32 = 4096;
const MAGIC: [u8; 8] = *b"FabrixV1";
const HEADER_BYTES: usize = 32;

/// The content found in a wrong block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// All bytes are zero.
    Zeroes,
    /// The right address with another generation.
    Generation(u32),
    /// An intact block of this run with another offset.
    Elsewhere {
        /// Offset in the block, in bytes.
        offset: u64,
        /// Generation in the block.
        generation: u32,
    },
    /// An intact block of another run: this run's write was lost.
    OtherRun,
    /// A block with our magic and a wrong checksum.
    Damaged,
    /// Data that this program did not write.
    Garbage,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zeroes => write!(f, "zeroes"),
            Self::Generation(generation) => write!(f, "generation {generation} (a stale block)"),
            Self::Elsewhere { offset, generation } => {
                write!(
                    f,
                    "generation {generation} of the block at offset {offset} (a misdirected block)"
                )
            }
            Self::OtherRun => write!(f, "a block of an earlier run (a lost write)"),
            Self::Damaged => write!(f, "a damaged block (its checksum is wrong)"),
            Self::Garbage => write!(f, "garbage (not a block of this program)"),
        }
    }
}

/// The correct generations of a unit. Generation 2^32 - 1 is followed by 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Last acknowledged generation.
    pub oldest: u32,
    /// Last attempted generation.
    pub newest: u32,
}

impl Expected {
    fn allows(self, generation: u32) -> bool {
        generation.wrapping_sub(self.oldest) <= self.newest.wrapping_sub(self.oldest)
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            return write!(f, "generation {}", self.newest);
        }
        write!(f, "generation {} to {}", self.oldest, self.newest)
    }
}

/// Bytes per stamp for requests of `block_bytes`: the largest power of two up to 4096 that divides
/// them.
pub fn verify_bytes(block_bytes: u32) -> u32 {
    1 << block_bytes
        .trailing_zeros()
        .min(VERIFY_BYTES_MAX.trailing_zeros())
}

/// Writes one block: stamp, contents and checksum.
///
/// `block` has at least 512 bytes. `offset` is its position on the disk in bytes.
pub fn write_block(block: &mut [u8], offset: u64, generation: u32, run: u64) {
    let length = u32::try_from(block.len()).expect("a block has at most 4096 bytes");
    let (body, check) = block.split_at_mut(block.len() - 4);
    fill(
        &mut body[HEADER_BYTES..],
        mix(offset ^ run) ^ u64::from(generation),
    );
    body[..8].copy_from_slice(&MAGIC);
    body[8..16].copy_from_slice(&offset.to_le_bytes());
    body[16..24].copy_from_slice(&run.to_le_bytes());
    body[24..28].copy_from_slice(&generation.to_le_bytes());
    body[28..32].copy_from_slice(&length.to_le_bytes());
    check.copy_from_slice(&crc(body).to_le_bytes());
}

/// Checks one block. The error is the content found instead.
pub fn check_block(block: &[u8], offset: u64, expected: Expected, run: u64) -> Result<(), Found> {
    let (body, check) = block.split_at(block.len() - 4);
    if body[..8] != MAGIC {
        let zeroes = block.iter().all(|byte| *byte == 0);
        return Err(if zeroes {
            Found::Zeroes
        } else {
            Found::Garbage
        });
    }
    let word = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes"));
    let half = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().expect("four bytes"));
    let generation = half(24);
    if crc(body).to_le_bytes() != check || usize::try_from(half(28)) != Ok(block.len()) {
        return Err(Found::Damaged);
    }
    match (
        word(16) == run,
        word(8) == offset,
        expected.allows(generation),
    ) {
        (false, ..) => Err(Found::OtherRun),
        (_, false, _) => Err(Found::Elsewhere {
            offset: word(8),
            generation,
        }),
        (_, _, false) => Err(Found::Generation(generation)),
        _ => Ok(()),
    }
}

fn crc(bytes: &[u8]) -> u32 {
    u32::try_from(checksum(CrcAlgorithm::Crc32Iscsi, bytes)).expect("a CRC32C has 32 bits")
}

/// The expected contents of one job's region.
#[derive(Debug)]
pub(crate) struct Verifier {
    region: Region,
    disk_block_bytes: u32,
    /// Length of a stamped block in bytes.
    stamp_bytes: usize,
    run: u64,
    /// Last acknowledged generation per unit; 0 for none.
    acknowledged: Vec<u32>,
    /// Last attempted generation per unit; 0 for none.
    tried: Vec<u32>,
    /// One bit per unit: a request is in flight.
    in_flight: Vec<u64>,
}

impl Verifier {
    /// Allocates all memory for the region.
    pub(crate) fn new(region: Region, disk_block_bytes: u32, run: u64) -> Self {
        let units =
            usize::try_from(region.units).expect("the job was checked against VERIFY_UNITS_MAX");
        let stamp_bytes = verify_bytes(region.blocks_per_unit * disk_block_bytes);
        Self {
            region,
            disk_block_bytes,
            stamp_bytes: stamp_bytes as usize,
            run,
            acknowledged: vec![0; units],
            tried: vec![0; units],
            in_flight: vec![0; units.div_ceil(64)],
        }
    }

    /// Reserves a unit for one request. False: another request is in flight there.
    pub(crate) fn claim(&mut self, unit: u64) -> bool {
        let (word, bit) = position(unit);
        let free = self.in_flight[word] & bit == 0;
        self.in_flight[word] |= bit;
        free
    }

    /// Releases a unit after its request.
    pub(crate) fn release(&mut self, unit: u64) {
        let (word, bit) = position(unit);
        debug_assert!(
            self.in_flight[word] & bit != 0,
            "place {unit} has no request in flight"
        );
        self.in_flight[word] &= !bit;
    }

    /// Fills a buffer with the next generation of a unit.
    pub(crate) fn stamp(&mut self, unit: u64, bytes: &mut [u8]) {
        let generation = self.tried[index(unit)].checked_add(1).unwrap_or(1);
        self.tried[index(unit)] = generation;
        for (offset, block) in self
            .offsets(unit)
            .zip(bytes.chunks_exact_mut(self.stamp_bytes))
        {
            write_block(block, offset, generation, self.run);
        }
    }

    /// Records that the last stamped generation of a unit is acknowledged.
    pub(crate) fn acknowledge(&mut self, unit: u64) {
        self.acknowledged[index(unit)] = self.tried[index(unit)];
    }

    /// Checks the data read from a unit, if this run has written it.
    pub(crate) fn check(&self, unit: u64, bytes: &[u8], verified: &mut Verified) {
        let Some(expected) = self.expected(unit) else {
            return;
        };
        for (offset, block) in self.offsets(unit).zip(bytes.chunks_exact(self.stamp_bytes)) {
            verified.blocks_checked += 1;
            if let Err(found) = check_block(block, offset, expected, self.run) {
                verified.errors += 1;
                verified
                    .first_error
                    .get_or_insert_with(|| self.sentence(offset, expected, found));
            }
        }
    }

    /// Records an error: a read ended without returning its buffer, so its data cannot be checked.
    pub(crate) fn buffer_missing(&self, unit: u64, verified: &mut Verified) {
        verified.errors += 1;
        let lba = self.region.lba_of(unit);
        let sentence =
            || format!("LBA {lba}: the disk kept the buffer of a read, so nothing can be compared");
        verified.first_error.get_or_insert_with(sentence);
    }

    /// The first unit from `unit` on with known content.
    pub(crate) fn next_known(&self, unit: u64) -> Option<u64> {
        (unit..self.region.units).find(|unit| self.expected(*unit).is_some())
    }

    /// The correct generations of a unit. None while no write of it was acknowledged.
    fn expected(&self, unit: u64) -> Option<Expected> {
        let (oldest, newest) = (self.acknowledged[index(unit)], self.tried[index(unit)]);
        (oldest != 0).then_some(Expected { oldest, newest })
    }

    /// Byte offsets of the stamped blocks of a unit.
    fn offsets(&self, unit: u64) -> impl Iterator<Item = u64> + use<> {
        let first = self.region.lba_of(unit) * u64::from(self.disk_block_bytes);
        (first..).step_by(self.stamp_bytes)
    }

    fn sentence(&self, offset: u64, expected: Expected, found: Found) -> String {
        let lba = offset / u64::from(self.disk_block_bytes);
        format!("offset {offset} (LBA {lba}): expected {expected} of this run, found {found}")
    }
}

fn index(unit: u64) -> usize {
    usize::try_from(unit).expect("places were checked against VERIFY_UNITS_MAX")
}

fn position(unit: u64) -> (usize, u64) {
    (index(unit / 64), 1 << (unit % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: u64 = 77;

    fn block(offset: u64, generation: u32) -> Vec<u8> {
        let mut block = vec![0; 4096];
        write_block(&mut block, offset, generation, RUN);
        block
    }

    fn check(block: &[u8], generation: u32) -> Result<(), Found> {
        check_block(
            block,
            8192,
            Expected {
                oldest: generation,
                newest: generation,
            },
            RUN,
        )
    }

    #[test]
    fn accepts_what_it_wrote() {
        assert_eq!(check(&block(8192, 3), 3), Ok(()));
    }

    #[test]
    fn tells_stale_misdirected_foreign_zeroed_and_unknown_blocks_apart() {
        assert_eq!(check(&block(8192, 2), 3), Err(Found::Generation(2)));
        let elsewhere = Found::Elsewhere {
            offset: 4096,
            generation: 3,
        };
        assert_eq!(check(&block(4096, 3), 3), Err(elsewhere));
        let mut other = vec![0; 4096];
        write_block(&mut other, 8192, 3, RUN + 1);
        assert_eq!(check(&other, 3), Err(Found::OtherRun));
        assert_eq!(check(&[0; 4096], 3), Err(Found::Zeroes));
        assert_eq!(check(&[0xA5; 4096], 3), Err(Found::Garbage));
    }

    #[test]
    fn sees_every_single_flipped_bit() {
        let mut block = block(8192, 3);
        for bit in 0..block.len() * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&block, 3).is_err(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn after_a_failed_write_old_and_new_are_right_until_the_next_success() {
        let region = Region {
            lba: 2,
            units: 8,
            blocks_per_unit: 1,
        };
        let mut verifier = Verifier::new(region, 4096, RUN);
        let mut writes = vec![vec![0; 4096]; 4];
        let seen = |verifier: &Verifier, bytes: &[u8]| {
            let mut verified = Verified::default();
            verifier.check(0, bytes, &mut verified);
            (verified.blocks_checked, verified.errors)
        };
        verifier.stamp(0, &mut writes[0]);
        assert_eq!(
            seen(&verifier, &writes[0]),
            (0, 0),
            "nothing is acknowledged yet"
        );
        verifier.acknowledge(0);
        verifier.stamp(0, &mut writes[1]);
        verifier.stamp(0, &mut writes[2]);
        assert!(
            writes[..3]
                .iter()
                .all(|bytes| seen(&verifier, bytes) == (1, 0))
        );
        verifier.stamp(0, &mut writes[3]);
        verifier.acknowledge(0);
        assert_eq!(seen(&verifier, &writes[3]), (1, 0));
        assert!(
            writes[..3]
                .iter()
                .all(|bytes| seen(&verifier, bytes) == (1, 1))
        );
    }

    #[test]
    fn large_requests_carry_one_stamp_per_4_kib_and_small_ones_one_each() {
        let sizes = [512, 1024, 4096, 4608, 65536, 6144].map(verify_bytes);
        assert_eq!(sizes, [512, 1024, 4096, 512, 4096, 2048]);
    }

    #[test]
    fn the_first_wrong_block_is_named_with_offset_lba_and_generations() {
        let region = Region {
            lba: 16,
            units: 8,
            blocks_per_unit: 16,
        };
        let mut verifier = Verifier::new(region, 512, RUN);
        let mut old = vec![0; 8192];
        verifier.stamp(1, &mut old);
        let mut new = old.clone();
        verifier.stamp(1, &mut new);
        verifier.acknowledge(1);
        new[4096..].copy_from_slice(&old[4096..]);
        let mut verified = Verified::default();
        verifier.check(1, &new, &mut verified);
        assert_eq!((verified.blocks_checked, verified.errors), (2, 1));
        assert_eq!(
            verified.first_error.as_deref(),
            Some(
                "offset 20480 (LBA 40): expected generation 2 of this run, found generation 1 (a stale block)"
            )
        );
    }

    #[test]
    fn a_place_is_claimed_once() {
        let region = Region {
            lba: 0,
            units: 70,
            blocks_per_unit: 1,
        };
        let mut verifier = Verifier::new(region, 4096, RUN);
        assert!(verifier.claim(69) && !verifier.claim(69) && verifier.claim(68));
        verifier.release(69);
        assert!(verifier.claim(69));
    }
}
