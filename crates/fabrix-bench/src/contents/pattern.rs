//! Parses fio's patterns: text in quotes, hexadecimal digits, decimal numbers, in any order.

/// Longest pattern in bytes, as in fio.
const PATTERN_BYTES_MAX: usize = 512;

/// Parses fio's `buffer_pattern`, for example `0xdeadface"abcd"-12`.
///
/// Hexadecimal digits become bytes in their order. A decimal number becomes its little-endian bytes
/// without leading zeroes. A negative number has four bytes.
///
/// Errors: a sentence about the wrong part.
pub fn parse_pattern(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        rest = next_part(rest, &mut bytes)?;
    }
    match bytes.len() {
        0 => Err("the pattern has no byte; write \"text\", 0xdeadface or a number".into()),
        1..=PATTERN_BYTES_MAX => Ok(bytes),
        more => Err(format!(
            "the pattern has {more} bytes, and the limit is {PATTERN_BYTES_MAX}"
        )),
    }
}

/// Parses the first part of `text` and returns the remainder.
fn next_part<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Result<&'a str, String> {
    if let Some(quoted) = text.strip_prefix('"') {
        let (word, rest) = quoted
            .split_once('"')
            .ok_or_else(|| format!("`{text}` has no closing quote"))?;
        bytes.extend_from_slice(word.as_bytes());
        return Ok(rest);
    }
    if text.starts_with('\'') {
        return Err(format!(
            "{text}: a pattern from a file is not supported; write \"text\", 0xdeadface or a number"
        ));
    }
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let (digits, rest) = split(digits, |digit| digit.is_ascii_hexdigit());
        if digits.is_empty() {
            return Err(wrong(text));
        }
        // An odd number of digits begins with half a byte.
        let padded = format!("{}{digits}", if digits.len() % 2 == 1 { "0" } else { "" });
        let byte = |at: usize| u8::from_str_radix(&padded[at..at + 2], 16).map_err(|_| wrong(text));
        for at in (0..padded.len()).step_by(2) {
            bytes.push(byte(at)?);
        }
        return Ok(rest);
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (digits, rest) = split(digits, |digit| digit.is_ascii_digit());
    let number: i64 = digits.parse().map_err(|_| wrong(text))?;
    bytes.extend(number_bytes(sign * number).ok_or_else(|| wrong(text))?);
    Ok(rest)
}

/// The bytes of a number of 32 bits. None if it has more.
fn number_bytes(number: i64) -> Option<Vec<u8>> {
    let word = match i32::try_from(number) {
        Ok(signed) => signed.to_le_bytes(),
        Err(_) => u32::try_from(number).ok()?.to_le_bytes(),
    };
    let used = word.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    Some(word[..=used].to_vec())
}

/// Splits a text after its leading characters of a kind. They have one byte each.
fn split(text: &str, is: fn(&char) -> bool) -> (&str, &str) {
    text.split_at(text.chars().take_while(is).count())
}

fn wrong(text: &str) -> String {
    format!("`{text}` is not a pattern; write \"text\", 0xdeadface or a number of 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_fio() {
        for (text, bytes) in [
            ("0xdeadface", &[0xde, 0xad, 0xfa, 0xce][..]),
            ("\"abcd\"-12", b"abcd\xf4\xff\xff\xff"),
            ("0xabc", &[0x0a, 0xbc]),
            ("1234567", &[0x87, 0xd6, 0x12]),
            ("256", &[0, 1]),
            ("0", &[0]),
            ("0x12345678901", &[0x01, 0x23, 0x45, 0x67, 0x89, 0x01]),
            ("0xde\"a b\"65", &[0xde, b'a', b' ', b'b', 65]),
            ("4294967295", &[0xff; 4]),
        ] {
            assert_eq!(parse_pattern(text).as_deref(), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_named() {
        for (text, part) in [
            ("", "no byte"),
            ("\"\"", "no byte"),
            ("abcd", "`abcd` is not a pattern"),
            ("0xgg", "`0xgg` is not a pattern"),
            ("4294967296", "32 bits"),
            ("99999999999999999999", "32 bits"),
            ("-", "`-` is not"),
            ("\"ab", "no closing quote"),
            ("'name'", "a file is not supported"),
            ("1é", "`é` is not a pattern"),
        ] {
            let error = parse_pattern(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        let long = format!("\"{}\"", "x".repeat(513));
        assert!(
            parse_pattern(&long)
                .expect_err("long")
                .contains("513 bytes")
        );
    }
}
