//! Binary values in text: hexadecimal after `0x`, base64 after `0b`.
//!
//! Source: RFC 7143, section 6.1, "binary-value"; RFC 4648, section 4.

use core::fmt::Write;

use alloc::string::String;
use alloc::vec::Vec;

/// Bytes of a binary value: at least one, at most `bytes_max`. `None` if the form or the length is
/// invalid.
#[must_use]
pub fn decode(value: &str, bytes_max: usize) -> Option<Vec<u8>> {
    let digits = value.get(2..)?.as_bytes();
    if digits.is_empty() || digits.len() > bytes_max.saturating_mul(2) {
        return None;
    }
    let bytes = match value.as_bytes() {
        [b'0', b'x' | b'X', ..] => decode_hex(digits),
        [b'0', b'b' | b'B', ..] => decode_base64(digits),
        _ => None,
    }?;
    (!bytes.is_empty() && bytes.len() <= bytes_max).then_some(bytes)
}

/// `bytes` in hexadecimal after `0x`, which every initiator accepts.
#[must_use]
pub fn encode_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + bytes.len() * 2);
    text.push_str("0x");
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Decodes hexadecimal digits. An odd number of digits begins with a half byte.
fn decode_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let (first, pairs) = digits.split_at(digits.len() % 2);
    let mut bytes = Vec::with_capacity(digits.len().div_ceil(2));
    for digit in first {
        bytes.push(hex_digit(*digit)?);
    }
    for pair in pairs.chunks_exact(2) {
        bytes.push(hex_digit(pair[0])? << 4 | hex_digit(pair[1])?);
    }
    Some(bytes)
}

fn hex_digit(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

/// Decodes groups of four digits, the last one padded with `=`. The unused bits before the padding
/// must be zero.
fn decode_base64(digits: &[u8]) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(4) {
        return None;
    }
    let filled = digits.iter().rposition(|digit| *digit != b'=')? + 1;
    if digits.len() - filled > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for digit in &digits[..filled] {
        bits = bits << 6 | u32::from(base64_digit(*digit)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count).ok()?);
            bits &= (1 << count) - 1;
        }
    }
    (bits == 0).then_some(bytes)
}

fn base64_digit(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_goes_both_ways() {
        assert_eq!(encode_hex(&[0, 0x1F, 0xFF]), "0x001fff");
        assert_eq!(decode("0X001fFF", 3), Some([0, 0x1F, 0xFF].to_vec()));
        assert_eq!(decode("0x1ff", 2), Some([1, 0xFF].to_vec()));
    }

    #[test]
    fn base64_agrees_with_the_vectors_of_rfc_4648() {
        let vectors = [
            ("0bZg==", "f"),
            ("0bZm8=", "fo"),
            ("0BZm9v", "foo"),
            ("0bZm9vYg==", "foob"),
        ];
        for (text, bytes) in vectors {
            assert_eq!(decode(text, 10).as_deref(), Some(bytes.as_bytes()));
        }
    }

    #[test]
    fn refuses_what_has_not_the_form_or_is_too_long() {
        let wrong = [
            "",
            "0",
            "0x",
            "0b",
            "1234",
            "0xg0",
            "0bZg=",
            "0bZ===",
            "0bZh==",
            "0b====",
            "0bZg==Zg==",
            "0x00\u{e9}",
        ];
        for value in wrong {
            assert_eq!(decode(value, 64), None, "{value}");
        }
        assert_eq!(decode("0x0000", 1), None);
        assert_eq!(decode("0bZm9v", 2), None);
    }
}
