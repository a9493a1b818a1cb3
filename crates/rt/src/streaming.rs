//! Whether copies past the caches are worth anything on this machine.
//!
//! They are on some processors and lose on others (for 4 KiB to memory that no cache holds, half of the time and 1.6
//! times as long were seen), so it is measured: once in a process, when somebody first asks.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use crate::{HugePages, Nanos, Region};

/// Whether [`Region::stream`] copies blocks faster than [`Region::write`] here. The first to ask waits some
/// milliseconds and needs 8 MiB of memory meanwhile; without them the answer is no.
pub fn streaming_pays() -> bool {
    static PAYS: OnceLock<bool> = OnceLock::new();
    *PAYS.get_or_init(|| measure().is_ok_and(|[plain, streamed]| streamed < plain))
}

/// The shortest time that a batch took in either way: what disturbs only makes it longer.
fn measure() -> io::Result<[Duration; 2]> {
    let region = Region::new(ROUNDS * 2 * BATCH * BLOCK_BYTES, HugePages::Try)?;
    region.populate()?;
    region.evict();
    let block = [1; BLOCK_BYTES];
    let ways: [fn(&Region, usize, &[u8]); 2] = [Region::write, Region::stream];
    let mut shortest = [Duration::MAX; 2];
    let mut places = (0..ROUNDS * 2 * BATCH).map(scattered);
    for _ in 0..ROUNDS {
        for (way, shortest) in ways.iter().zip(&mut shortest) {
            let began = Nanos::now();
            for place in places.by_ref().take(BATCH) {
                way(&region, place * BLOCK_BYTES, &block);
            }
            *shortest = (*shortest).min(Nanos::now() - began);
        }
    }
    Ok(shortest)
}

/// Every place once, none beside the one before.
fn scattered(index: usize) -> usize {
    index * STEP % (ROUNDS * 2 * BATCH)
}

const BLOCK_BYTES: usize = 4096;
const ROUNDS: usize = 16;
const BATCH: usize = 64;
/// Odd, so that it meets every one of 2048 places.
const STEP: usize = 1031;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_written_once() {
        let mut places: Vec<usize> = (0..ROUNDS * 2 * BATCH).map(scattered).collect();
        places.sort_unstable();
        assert!(places.iter().copied().eq(0..ROUNDS * 2 * BATCH));
    }

    #[test]
    fn the_answer_stays() {
        assert_eq!(streaming_pays(), streaming_pays());
    }
}
