//! A large bitmap that all shards read and change at once: which blocks of a RAM disk hold data.
//!
//! The kernel gives a page of it when a bit in the page is first set. Several bits are not changed
//! in one atomic step. A caller that needs an order between the bits and the data has to make it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::mmap::Words;

/// A bitmap, clear at the start.
#[derive(Debug)]
pub struct Bitmap {
    words: Words,
    bits: u64,
}

impl Bitmap {
    /// A bitmap of `bits` clear bits. Errors: no address space, with the size.
    pub fn new(bits: u64) -> io::Result<Arc<Self>> {
        let words = usize::try_from(bits.div_ceil(WORD_BITS)).map_err(io::Error::other)?;
        let words = Words::new(words)?;
        Ok(Arc::new(Self { words, bits }))
    }

    /// Sets bits. Words whose bits are set already are only read, so that shards that write the
    /// same blocks again do not take the cache line from each other.
    pub fn set(&self, first: u64, bits: u64) {
        self.each_word(first, bits, |word, mask| {
            if word.load(Ordering::Relaxed) & mask != mask {
                word.fetch_or(mask, Ordering::Release);
            }
        });
    }

    /// Clears bits. Pages that were never written stay unwritten.
    pub fn clear(&self, first: u64, bits: u64) {
        self.each_word(first, bits, |word, mask| {
            if word.load(Ordering::Relaxed) & mask != 0 {
                word.fetch_and(!mask, Ordering::Release);
            }
        });
    }

    /// Whether bit `first` is set, and the number of equal bits from there on, at least one. A run
    /// of more than about four million bits may be cut, so that no call takes long.
    ///
    /// Panics if there is no such bit.
    pub fn run(&self, first: u64) -> (bool, u64) {
        assert!(first < self.bits, "bit {first} of {}", self.bits);
        let set = self.word(first).load(Ordering::Acquire) >> (first % WORD_BITS) & 1 != 0;
        let mut at = first;
        while at < self.bits && at - first < RUN_BITS {
            let word = self.word(at).load(Ordering::Acquire);
            let unlike = if set { !word } else { word } >> (at % WORD_BITS);
            if unlike != 0 {
                at += u64::from(unlike.trailing_zeros());
                break;
            }
            at = (at / WORD_BITS + 1) * WORD_BITS;
        }
        (set, at.min(self.bits) - first)
    }

    fn word(&self, bit: u64) -> &AtomicU64 {
        self.words.get(Self::index(bit))
    }

    fn index(bit: u64) -> usize {
        usize::try_from(bit / WORD_BITS).expect("there are so many words")
    }

    fn each_word(&self, first: u64, bits: u64, mut change: impl FnMut(&AtomicU64, u64)) {
        let end = first.saturating_add(bits).min(self.bits);
        let mut at = first;
        while at < end {
            let (low, high) = (at % WORD_BITS, (end - at + at % WORD_BITS).min(WORD_BITS));
            let mask = (u64::MAX >> (WORD_BITS - (high - low))) << low;
            change(self.word(at), mask);
            at += high - low;
        }
    }
}

const WORD_BITS: u64 = u64::BITS as u64;
/// Bits that one call of [`Bitmap::run`] looks at: half a megabyte.
const RUN_BITS: u64 = 1 << 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_of_a_plain_list() {
        let bitmap = Bitmap::new(300).expect("memory");
        let mut plain = [false; 300];
        let changes = [
            (5, 200, true),
            (64, 64, false),
            (70, 1, true),
            (299, 9, true),
            (0, 6, false),
        ];
        for (first, bits, set) in changes {
            match set {
                true => bitmap.set(first as u64, bits as u64),
                false => bitmap.clear(first as u64, bits as u64),
            }
            plain[first..(first + bits).min(300)].fill(set);
            for at in 0..300 {
                let same = plain[at..].iter().take_while(|bit| **bit == plain[at]);
                assert_eq!(
                    bitmap.run(at as u64),
                    (plain[at], same.count() as u64),
                    "at {at}"
                );
            }
        }
    }

    #[test]
    fn a_question_about_a_huge_map_is_answered_in_parts() {
        let bitmap = Bitmap::new(1 << 40).expect("memory");
        assert_eq!(bitmap.run(64), (false, RUN_BITS));
        bitmap.set((1 << 40) - 1, 1);
        assert_eq!(bitmap.run((1 << 40) - 1), (true, 1));
    }
}
