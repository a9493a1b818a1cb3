//! Text: key=value pairs, read and written, with limits on all lengths that a peer chooses.
//!
//! This file knows the form of pairs, numbers, lists and binary values. Keys are unknown here. A
//! [`TextBuffer`] collects a text of several PDUs (the C bit).
//!
//! Source: RFC 7143, section 6.1 "Text Format", section 6.2 "Text Mode Negotiation".

pub mod binary;

use core::fmt::{self, Write};

use alloc::string::String;
use alloc::vec::Vec;

/// Maximum length of a key's name in bytes.
pub const KEY_BYTES_MAX: usize = 63;
/// Maximum length of a value in bytes: the longest are CHAP's 1024 bytes in hexadecimal.
pub const VALUE_BYTES_MAX: usize = 2 * 1024 + 2;
/// Maximum number of pairs in one text.
pub const PAIRS_MAX: usize = 64;
/// Maximum length of one text in bytes, over all its PDUs.
pub const TEXT_BYTES_MAX: usize = 16 << 10;
/// Maximum number of PDUs of one text.
pub const TEXT_PDUS_MAX: u8 = 16;
/// Maximum number of entries that are read of a list.
const LIST_MAX: usize = 32;

/// Error in the form of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextError {
    /// The last pair does not end with a zero byte.
    NotTerminated,
    /// A pair without `=`.
    NoEqualsSign,
    /// A key that is empty, longer than 63 bytes, or has bytes that are not graphic ASCII.
    Key,
    /// A value that is too long, or has control characters.
    Value,
    /// Too many pairs.
    TooManyPairs,
    /// Too many bytes or PDUs.
    TooLong,
}

impl TextError {
    /// Explanation for the log.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::NotTerminated => "a text that does not end with a zero byte",
            Self::NoEqualsSign => "a text with a pair without `=`",
            Self::Key => "a text with a key that is empty, too long or not printable",
            Self::Value => "a text with a value that is too long or not printable",
            Self::TooManyPairs => "a text with more pairs than are taken",
            Self::TooLong => "a text of more bytes or PDUs than are taken",
        }
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl core::error::Error for TextError {}

/// One key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The key: 1 to 63 graphic bytes.
    pub key: &'a str,
    /// The value: at most [`VALUE_BYTES_MAX`] bytes without control characters. May be empty.
    pub value: &'a str,
}

/// Iterator over the pairs of a complete text. Empty strings between zero bytes are skipped: some
/// initiators pad with them.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    rest: &'a [u8],
    left: usize,
}

/// The pairs of `text`, at most [`PAIRS_MAX`]. The iterator ends after the first error.
#[must_use]
pub const fn pairs(text: &[u8]) -> Pairs<'_> {
    pairs_of(text, PAIRS_MAX)
}

/// The pairs of `text`, at most `most`. The iterator ends after the first error.
#[must_use]
pub const fn pairs_of(text: &[u8], most: usize) -> Pairs<'_> {
    Pairs {
        rest: text,
        left: most,
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<Pair<'a>, TextError>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.rest.iter().position(|byte| *byte != 0)?;
        let text = &self.rest[start..];
        self.rest = &[];
        let Some(end) = text.iter().position(|byte| *byte == 0) else {
            return Some(Err(TextError::NotTerminated));
        };
        if self.left == 0 {
            return Some(Err(TextError::TooManyPairs));
        }
        let pair = parse_pair(&text[..end]);
        if pair.is_ok() {
            self.rest = &text[end + 1..];
            self.left -= 1;
        }
        Some(pair)
    }
}

fn parse_pair(bytes: &[u8]) -> Result<Pair<'_>, TextError> {
    let equals = bytes.iter().position(|byte| *byte == b'=');
    let equals = equals.ok_or(TextError::NoEqualsSign)?;
    let (key, value) = (&bytes[..equals], &bytes[equals + 1..]);
    if key.is_empty() || key.len() > KEY_BYTES_MAX || !key.iter().all(u8::is_ascii_graphic) {
        return Err(TextError::Key);
    }
    if value.len() > VALUE_BYTES_MAX || value.iter().any(u8::is_ascii_control) {
        return Err(TextError::Value);
    }
    Ok(Pair {
        key: core::str::from_utf8(key).map_err(|_| TextError::Key)?,
        value: core::str::from_utf8(value).map_err(|_| TextError::Value)?,
    })
}

/// A received text, perhaps incomplete.
#[derive(Clone, Debug)]
pub struct TextBuffer {
    bytes: Vec<u8>,
    pdus: u8,
    whole: bool,
    bytes_max: usize,
    pdus_max: u8,
}

impl Default for TextBuffer {
    fn default() -> Self {
        Self::with_limits(TEXT_BYTES_MAX, TEXT_PDUS_MAX)
    }
}

impl TextBuffer {
    /// A buffer for texts of at most this many bytes and PDUs. The default has the limits
    /// [`TEXT_BYTES_MAX`] and [`TEXT_PDUS_MAX`].
    #[must_use]
    pub const fn with_limits(bytes_max: usize, pdus_max: u8) -> Self {
        Self {
            bytes: Vec::new(),
            pdus: 0,
            whole: false,
            bytes_max,
            pdus_max,
        }
    }

    /// Adds the data segment of one PDU. `continues` is its C bit. True when the text is complete.
    ///
    /// # Errors
    /// [`TextError::TooLong`] if the text exceeds one of the limits.
    pub fn push(&mut self, segment: &[u8], continues: bool) -> Result<bool, TextError> {
        if self.whole {
            self.clear();
        }
        self.pdus += 1;
        if self.pdus > self.pdus_max || self.bytes.len() + segment.len() > self.bytes_max {
            return Err(TextError::TooLong);
        }
        self.bytes.extend_from_slice(segment);
        self.whole = !continues;
        Ok(self.whole)
    }

    /// Text received so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Discards the text.
    pub fn clear(&mut self) {
        *self = Self::with_limits(self.bytes_max, self.pdus_max);
    }
}

/// A text to send.
#[derive(Clone, Debug, Default)]
pub struct TextWriter {
    text: String,
}

impl TextWriter {
    /// Adds a pair.
    pub fn pair(&mut self, key: &str, value: impl fmt::Display) {
        debug_assert!(key.len() <= KEY_BYTES_MAX);
        // Writing to a string does not fail.
        let _ = write!(self.text, "{key}={value}\0");
    }

    /// Bytes of the text. Each pair ends with a zero byte.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.text.into_bytes()
    }
}

/// A number: decimal, or hexadecimal after `0x`.
///
/// Source: RFC 7143, section 6.1, "numerical-value".
#[must_use]
pub fn number(value: &str) -> Option<u32> {
    let (digits, radix) = match value.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&value[2..], 16),
        _ => (value, 10),
    };
    // `from_str_radix` would accept a sign.
    let all_digits = digits.chars().all(|digit| digit.is_digit(radix));
    (all_digits && digits.len() <= NUMBER_DIGITS_MAX)
        .then(|| u32::from_str_radix(digits, radix).ok())
        .flatten()
}

/// Parses exactly `Yes` or `No`.
#[must_use]
pub fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// `Yes` or `No`.
#[must_use]
pub const fn yes_no(value: bool) -> &'static str {
    if value { "Yes" } else { "No" }
}

/// The first 32 entries of a list, in the order of the sender's preference. The rest is ignored.
pub fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').take(LIST_MAX)
}

const NUMBER_DIGITS_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn first_error(text: &[u8]) -> Option<TextError> {
        pairs(text).find_map(Result::err)
    }

    #[test]
    fn reads_pairs_and_skips_padding() {
        let read: Vec<_> = pairs(b"A=1\0\0\0B=\0C==x,y\0\0").flatten().collect();
        let pair = |key, value| Pair { key, value };
        assert_eq!(read, [pair("A", "1"), pair("B", ""), pair("C", "=x,y")]);
        assert_eq!(pairs(b"").count() + pairs(b"\0\0\0").count(), 0);
    }

    #[test]
    fn refuses_what_has_not_the_form() {
        assert_eq!(first_error(b"A=1"), Some(TextError::NotTerminated));
        assert_eq!(first_error(b"A=1\0B\0"), Some(TextError::NoEqualsSign));
        assert_eq!(first_error(b"=1\0"), Some(TextError::Key));
        assert_eq!(first_error(b"A B=1\0"), Some(TextError::Key));
        assert_eq!(first_error(b"A=\x1b[31m\0"), Some(TextError::Value));
        assert_eq!(first_error(b"A=\xff\0"), Some(TextError::Value));
    }

    #[test]
    fn nothing_comes_after_an_error() {
        assert_eq!(pairs(b"A\0B=1\0C=1\0").count(), 1);
    }

    #[test]
    fn keys_values_and_pairs_have_their_limits() {
        let text = |key: usize, value: usize| {
            let mut text = vec![b'k'; key];
            text.push(b'=');
            text.resize(key + 1 + value, b'v');
            text.push(0);
            text
        };
        assert_eq!(first_error(&text(63, VALUE_BYTES_MAX)), None);
        assert_eq!(first_error(&text(64, 1)), Some(TextError::Key));
        assert_eq!(
            first_error(&text(1, VALUE_BYTES_MAX + 1)),
            Some(TextError::Value)
        );
        assert_eq!(first_error(&b"k=v\0".repeat(64)), None);
        assert_eq!(
            first_error(&b"k=v\0".repeat(65)),
            Some(TextError::TooManyPairs)
        );
    }

    #[test]
    fn a_text_over_many_pdus_ends_at_its_limits() {
        let mut buffer = TextBuffer::default();
        assert_eq!(buffer.push(b"A=", true), Ok(false));
        assert_eq!(buffer.push(b"1\0", false), Ok(true));
        assert_eq!(buffer.bytes(), b"A=1\0");
        assert_eq!(buffer.push(&[0; TEXT_BYTES_MAX], true), Ok(false));
        assert_eq!(buffer.push(&[0], true), Err(TextError::TooLong));
        let mut endless = TextBuffer::default();
        let taken = (0..100).take_while(|_| endless.push(b"", true).is_ok());
        assert_eq!(taken.count(), usize::from(TEXT_PDUS_MAX));
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal_and_have_no_sign() {
        let read = ["0", "262144", "0x40000", "0XfF", "4294967295"].map(number);
        let expected = [0, 262_144, 0x40000, 255, u32::MAX].map(Some);
        assert_eq!(read, expected);
        for wrong in [
            "",
            "0x",
            "+1",
            "-1",
            "4294967296",
            "1 ",
            "0b1",
            "00000000001",
        ] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }
}
