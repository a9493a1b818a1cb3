//! Bounded reader for data of variable length, and rounding for padding.
//!
//! Fixed layouts are zerocopy structures next to their parsers. The reader is for lists and
//! descriptors. It never reads past the end, and its only error tells where the bytes ended.

use core::fmt;

/// Error: the bytes end before the value does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// Start of the value, in bytes from the start of the input.
    pub offset: usize,
    /// Length of the value in bytes.
    pub wanted: usize,
}

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes were expected at offset {}, but the data ends there",
            self.wanted, self.offset
        )
    }
}

impl core::error::Error for Truncated {}

/// Reads values from the front of a slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// Number of unread bytes.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// [`Truncated`] when fewer remain; nothing is consumed then.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Truncated> {
        let truncated = Truncated {
            offset: self.offset,
            wanted: count,
        };
        let end = self.offset.checked_add(count).ok_or(truncated)?;
        let taken = self.bytes.get(self.offset..end).ok_or(truncated)?;
        self.offset = end;
        Ok(taken)
    }

    /// The next `N` bytes as an array.
    ///
    /// # Errors
    /// As for [`take`](Reader::take).
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// The next byte.
    ///
    /// # Errors
    /// As for [`take`](Reader::take).
    pub fn u8(&mut self) -> Result<u8, Truncated> {
        Ok(self.array::<1>()?[0])
    }
}

/// `bytes` rounded up to a multiple of `unit`, or `None` when that does not fit.
#[must_use]
pub const fn round_up(bytes: usize, unit: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_at_the_end_and_consumes_nothing_then() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(
            reader.take(3),
            Err(Truncated {
                offset: 1,
                wanted: 3
            })
        );
        assert_eq!(reader.take(usize::MAX).map_err(|e| e.offset), Err(1));
        assert_eq!(reader.array::<2>(), Ok([2, 3]));
        assert_eq!(reader.remaining(), 0);
    }

    #[test]
    fn rounds_up_to_the_unit_or_says_it_cannot() {
        assert_eq!(round_up(73, 8), Some(80));
        assert_eq!(round_up(80, 8), Some(80));
        assert_eq!(round_up(usize::MAX, 8), None);
        assert_eq!(round_up(1, 0), None);
    }
}
