//! A disk opened without Linux's page cache, and the test blocks. A block's content depends only on
//! its address and its sequence number.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Block size in bytes. An LBA counts these blocks, independent of the disk's own block size.
pub(crate) const BLOCK: usize = 4096;
/// Blocks that a check reads at a time. The written range starts and ends at a MiB, so such a piece
/// never reaches beyond it.
pub(crate) const PIECE: usize = 32;
pub(crate) const BLOCKS_PER_MIB: u64 = (1 << 20) / BLOCK as u64;
/// `O_DIRECT` on x86 and most other architectures: I/O without the page cache.
const O_DIRECT: i32 = 0x4000;
/// First 8 bytes of every test block.
const MAGIC: u64 = u64::from_le_bytes(*b"ledger01");
/// Sequence number of a block that was never written.
pub(crate) const NEVER: u64 = 0;

/// A disk opened without the page cache.
pub(crate) struct Disk {
    file: File,
    name: String,
}

impl Disk {
    pub(crate) fn open(name: &str, writes: bool) -> Result<Self, String> {
        let file = OpenOptions::new()
            .read(true)
            .write(writes)
            .custom_flags(O_DIRECT)
            .open(name)
            .map_err(|error| format!("cannot open {name}: {error}"))?;
        let name = name.to_owned();
        Ok(Self { file, name })
    }

    pub(crate) fn write(&self, lba: u64, block: &[u8]) -> Result<(), String> {
        self.file
            .write_all_at(block, lba * BLOCK as u64)
            .map_err(|error| format!("{}: cannot write lba {lba}: {error}", self.name))
    }

    pub(crate) fn read(&self, lba: u64, blocks: &mut [u8]) -> Result<(), String> {
        self.file
            .read_exact_at(blocks, lba * BLOCK as u64)
            .map_err(|error| format!("{}: cannot read lba {lba}: {error}", self.name))
    }

    pub(crate) fn flush(&self) -> Result<(), String> {
        self.file
            .sync_data()
            .map_err(|error| format!("{}: cannot flush: {error}", self.name))
    }
}

/// Blocks in memory, aligned as `O_DIRECT` requires.
pub(crate) struct Memory {
    bytes: Vec<u8>,
    start: usize,
}

impl Memory {
    pub(crate) fn new(blocks: usize) -> Self {
        let bytes = vec![0; (blocks + 1) * BLOCK];
        let start = bytes.as_ptr().align_offset(BLOCK);
        Self { bytes, start }
    }

    pub(crate) fn blocks(&mut self) -> &mut [u8] {
        let end = self.bytes.len() - BLOCK + self.start;
        &mut self.bytes[self.start..end]
    }
}

/// Fills a block: magic, address, sequence number, and bytes derived from both.
pub(crate) fn fill(block: &mut [u8], lba: u64, sequence: u64) {
    let mut random = lba.rotate_left(32) ^ sequence;
    let words = [MAGIC, lba, sequence].into_iter();
    let words = words.chain(std::iter::repeat_with(|| next(&mut random)));
    for (bytes, word) in block.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

/// The sequence number of an intact test block of this address. `NEVER` if all bytes are zero. None
/// otherwise.
pub(crate) fn sequence_of(block: &[u8], lba: u64) -> Option<u64> {
    if block.iter().all(|&byte| byte == 0) {
        return Some(NEVER);
    }
    let sequence = u64::from_le_bytes(block[16..24].try_into().ok()?);
    let mut expected = vec![0; BLOCK];
    fill(&mut expected, lba, sequence);
    (block == expected).then_some(sequence)
}

/// The next pseudo-random number (SplitMix64).
pub(crate) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_known_only_at_its_own_address_and_whole() {
        let mut block = vec![0; BLOCK];
        assert_eq!(sequence_of(&block, 7), Some(NEVER));
        fill(&mut block, 7, 9);
        assert_eq!(sequence_of(&block, 7), Some(9));
        assert_eq!(sequence_of(&block, 8), None);
        block[BLOCK - 1] ^= 1;
        assert_eq!(sequence_of(&block, 7), None);
    }
}
