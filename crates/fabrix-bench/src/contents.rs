//! Contents of unverified writes, with fio's options for buffers.
//!
//! An array that compresses or deduplicates is much faster with repetitive data. Therefore every
//! slot has a buffer of its own random data, and each write changes eight bytes of every sector
//! (fio's `scramble_buffers`). No two written sectors are equal, at the cost of one store a sector.
//! The other options fill the buffer again for each write.
//!
//! This file computes bytes and touches no buffer of a disk. `worker/slot.rs` decides when a buffer
//! may be changed.

mod pattern;

use crate::random::{Random, fill};
pub use pattern::parse_pattern;

/// Contents of a job's writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// Data that a buffer is filled with.
    pub base: Base,
    /// Whether each write changes a part of every sector (`scramble_buffers`). None: only random
    /// data that no option has shaped.
    pub scramble: Option<bool>,
    /// Whether each write fills its buffer again (`refill_buffers`). None: only for
    /// `compress_percent` and `dedupe_percent`.
    pub refill: Option<bool>,
    /// Percentage of each chunk that is not random, so that it compresses
    /// (`buffer_compress_percentage`).
    pub compress_percent: u32,
    /// Length of a chunk in bytes (`buffer_compress_chunk`). 0: the shortest write.
    pub compress_chunk: u32,
    /// Percentage of the blocks that repeat the previous block (`dedupe_percentage`).
    pub dedupe_percent: u32,
}

/// Data that a buffer is filled with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// Incompressible data.
    Random,
    /// Zeroes (`zero_buffers`).
    Zeroes,
    /// A repeated pattern of at least one byte (`buffer_pattern`).
    Pattern(Vec<u8>),
}

impl Default for Contents {
    /// fio's default: random data, scrambled for each write.
    fn default() -> Self {
        Self {
            base: Base::Random,
            scramble: None,
            refill: None,
            compress_percent: 0,
            compress_chunk: 512,
            dedupe_percent: 0,
        }
    }
}

impl Contents {
    /// Checks the numbers. The error is the end of a sentence about the job.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (name, percent) in [
            ("buffer_compress_percentage", self.compress_percent),
            ("dedupe_percentage", self.dedupe_percent),
        ] {
            if percent > 100 {
                return Err(format!("{name}={percent} is not a percentage"));
            }
        }
        match &self.base {
            Base::Pattern(pattern) if pattern.is_empty() => {
                Err("buffer_pattern has no byte; write \"text\", 0xdeadface or a number".into())
            }
            _ => Ok(()),
        }
    }

    /// What each write does to its filled buffer.
    fn change(&self) -> Change {
        let is_shaped = self.compress_percent > 0 || self.dedupe_percent > 0;
        let has_random_part = match is_shaped {
            true => self.compress_percent < 100,
            false => self.base == Base::Random,
        };
        if has_random_part && self.refill.unwrap_or(is_shaped) {
            Change::Fill
        } else if self.scramble.unwrap_or(has_random_part && !is_shaped) {
            Change::Scramble
        } else {
            Change::None
        }
    }
}

/// Change of a filled buffer before a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Scramble,
    Fill,
}

/// Fills the buffers of one job's writes.
#[derive(Debug)]
pub(crate) struct Filler {
    contents: Contents,
    change: Change,
    /// Length in bytes of a block that is repeated as a whole: the shortest write.
    block_bytes: usize,
    /// Length in bytes of a chunk with a random and a fixed part.
    chunk_bytes: usize,
    random: Random,
    /// Seed of the last block.
    block_seed: u64,
    /// Word that the next scrambled sector gets.
    stamp: u64,
}

impl Filler {
    /// The contents of a job's writes, of which the shortest has `block_bytes`. They depend only on
    /// these and on `seed`.
    pub(crate) fn new(contents: Contents, block_bytes: u32, seed: u64) -> Self {
        let block_bytes = block_bytes.max(1) as usize;
        let chunk_bytes = match contents.compress_chunk as usize {
            0 => block_bytes,
            chunk => chunk.min(block_bytes),
        };
        let mut random = Random::new(seed);
        Self {
            change: contents.change(),
            contents,
            block_bytes,
            chunk_bytes,
            block_seed: random.next(),
            stamp: random.next(),
            random,
        }
    }

    /// Whether [`Self::next`] changes the buffer.
    #[inline]
    pub(crate) fn changes(&self) -> bool {
        self.change != Change::None
    }

    /// Changes a filled buffer for the next write.
    #[inline]
    pub(crate) fn next(&mut self, bytes: &mut [u8]) {
        match self.change {
            Change::None => {}
            Change::Scramble => self.scramble(bytes),
            Change::Fill => self.fill(bytes),
        }
    }

    /// Fills a buffer.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        let Contents {
            compress_percent,
            dedupe_percent,
            ..
        } = self.contents;
        if compress_percent == 0 && dedupe_percent == 0 {
            let seed = self.random.next();
            return match self.contents.base {
                Base::Random => fill(bytes, seed),
                _ => self.fill_fixed(bytes),
            };
        }
        for block in bytes.chunks_mut(self.block_bytes) {
            if self.random.below(100) >= u64::from(dedupe_percent) {
                self.block_seed = self.random.next();
            }
            self.fill_block(block);
        }
    }

    /// Fills a block with chunks of a random and a fixed part. Its contents depend on the block's
    /// seed.
    fn fill_block(&self, block: &mut [u8]) {
        let percent_random = 100 - self.contents.compress_percent as usize;
        let mut seeds = Random::new(self.block_seed);
        for chunk in block.chunks_mut(self.chunk_bytes) {
            let (random, fixed) = chunk.split_at_mut(chunk.len() * percent_random / 100);
            fill(random, seeds.next());
            self.fill_fixed(fixed);
        }
    }

    /// Fills bytes with the pattern, or with zeroes.
    fn fill_fixed(&self, bytes: &mut [u8]) {
        let Base::Pattern(pattern) = &self.contents.base else {
            return bytes.fill(0);
        };
        for part in bytes.chunks_mut(pattern.len()) {
            part.copy_from_slice(&pattern[..part.len()]);
        }
    }

    /// Writes a word into each sector that no other sector of the job has.
    #[inline]
    fn scramble(&mut self, bytes: &mut [u8]) {
        for sector in bytes.chunks_mut(SECTOR_BYTES) {
            self.stamp = self.stamp.wrapping_add(STAMP_STEP);
            if let Some(word) = sector.first_chunk_mut() {
                *word = self.stamp.to_le_bytes();
            }
        }
    }
}

/// Length of a scrambled sector in bytes: the smallest unit of deduplication, as in fio.
const SECTOR_BYTES: usize = 512;
/// Distance of two stamps: an odd number with random bits, so that 2^64 stamps are different.
const STAMP_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Contents of `writes` writes of 4 KiB from four buffers.
    fn written(contents: Contents, writes: usize) -> Vec<u8> {
        let mut filler = Filler::new(contents, 4096, 5);
        let mut buffers = vec![vec![0; 4096]; 4];
        buffers.iter_mut().for_each(|buffer| filler.fill(buffer));
        let mut all = Vec::new();
        for write in 0..writes {
            let buffer = &mut buffers[write % 4];
            filler.next(buffer);
            all.extend_from_slice(buffer);
        }
        all
    }

    /// Number of different parts of `bytes` bytes.
    fn different(data: &[u8], bytes: usize) -> usize {
        data.chunks(bytes).collect::<HashSet<_>>().len()
    }

    fn zeroes(data: &[u8]) -> usize {
        data.iter().filter(|byte| **byte == 0).count()
    }

    #[test]
    fn no_two_sectors_are_equal_by_default_or_when_refilled() {
        for refill in [false, true] {
            let contents = Contents {
                refill: Some(refill),
                ..Contents::default()
            };
            let data = written(contents, 256);
            assert_eq!(different(&data, 512), 2048);
            let zeroes = zeroes(&data);
            assert!(zeroes < 2 * data.len() / 256, "{zeroes} zeroes");
        }
    }

    #[test]
    fn without_scrambling_each_buffer_repeats() {
        let contents = Contents {
            scramble: Some(false),
            ..Contents::default()
        };
        assert_eq!(different(&written(contents, 256), 4096), 4);
    }

    #[test]
    fn zeroes_and_patterns_stay_what_they_are_unless_scrambled() {
        let mut contents = Contents {
            base: Base::Zeroes,
            ..Contents::default()
        };
        assert_eq!(zeroes(&written(contents.clone(), 8)), 8 * 4096);
        contents.base = Base::Pattern(vec![1, 2, 3]);
        let data = written(contents.clone(), 2);
        assert_eq!(
            (&data[..6], &data[4096..4099]),
            (&[1, 2, 3, 1, 2, 3][..], &[1, 2, 3][..])
        );
        contents.scramble = Some(true);
        assert_eq!(different(&written(contents, 8), 512), 64);
    }

    #[test]
    fn the_fixed_part_of_each_chunk_has_the_asked_share() {
        let mut contents = Contents {
            compress_percent: 25,
            ..Contents::default()
        };
        let data = written(contents.clone(), 16);
        assert!(data.chunks(512).all(|chunk| zeroes(&chunk[384..]) == 128));
        assert_eq!(different(&data, 4096), 16);
        contents.compress_chunk = 0;
        let data = written(contents.clone(), 16);
        assert!(
            data.chunks(4096)
                .all(|block| zeroes(&block[3072..]) == 1024)
        );
        contents.compress_percent = 100;
        assert_eq!(zeroes(&written(contents, 4)), 4 * 4096);
    }

    #[test]
    fn the_asked_share_of_blocks_repeats_the_block_before() {
        let blocks = |dedupe_percent| {
            let contents = Contents {
                dedupe_percent,
                ..Contents::default()
            };
            different(&written(contents, 1000), 4096)
        };
        assert_eq!(blocks(100), 1);
        let half = blocks(50);
        assert!((440..=560).contains(&half), "{half} different of 1000");
    }
}
