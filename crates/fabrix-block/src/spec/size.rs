//! Sizes as users write them. `k`, `m`, `g`, `t` and `p` are powers of 1024, in upper or lower
//! case, with or without `i` or `iB`. A plain number counts bytes. `KB`, `MB` and `GB` are
//! rejected, because fio, nbdkit and the SI define them differently.

use std::fmt::{self, Display, Formatter};

/// A size in bytes, displayed in the largest unit that represents it exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// Parses a size in bytes.
///
/// Errors: a sentence that quotes the text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(format!("`{text}` is not a size; write 512M or 1G"));
    }
    let factor = factor(number, unit).map_err(|hint| format!("`{text}` {hint}"))?;
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| format!("`{text}` is more bytes than can be counted"))
}

/// Bytes per unit. The error is the rest of a sentence about the size.
fn factor(number: &str, unit: &str) -> Result<u64, String> {
    let lower = unit.to_ascii_lowercase();
    let mut letters = lower.chars();
    let Some(power) = letters.next() else {
        return Ok(1);
    };
    let exponent = "kmgtp".chars().position(|c| c == power);
    match (exponent, letters.as_str()) {
        (Some(exponent), "" | "i" | "ib") => Ok(1024 << (10 * exponent)),
        (Some(_), "b") => Err(format!(
            "could mean powers of 1000 or of 1024; write {number}{} for powers of 1024, or the bytes",
            power.to_ascii_uppercase()
        )),
        _ => Err("is not a size; write 512M or 1G".to_owned()),
    }
}

impl Display for Size {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let units = [(50, "P"), (40, "T"), (30, "G"), (20, "M"), (10, "k")];
        let exact = |shift: u32| self.0 != 0 && self.0.trailing_zeros() >= shift;
        match units.into_iter().find(|(shift, _)| exact(*shift)) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_powers_of_1024_in_every_spelling() {
        for text in [
            "1g",
            "1G",
            "1Gi",
            "1gi",
            "1GiB",
            "1gib",
            "1024M",
            "1048576k",
            "1073741824",
        ] {
            assert_eq!(parse_size(text), Ok(1 << 30), "{text}");
        }
        assert_eq!(parse_size("3T"), Ok(3 << 40));
    }

    #[test]
    fn refuses_units_that_mean_two_things_and_says_what_to_write() {
        for text in ["1KB", "1MB", "1GB", "1tb", "1Gb"] {
            let error = parse_size(text).expect_err(text);
            assert!(
                error.contains("1000") && error.contains(&text[..1]),
                "{error}"
            );
        }
        assert!(parse_size("5GB").expect_err("ambiguous").contains("5G"));
    }

    #[test]
    fn refuses_what_is_not_a_size() {
        for text in [
            "", "G", "1Q", "1.5G", "-1", "1 G", "1Gx", "0x10", "1GiBs", "１G",
        ] {
            let error = parse_size(text).expect_err(text);
            assert!(error.contains("is not a size"), "{error}");
        }
    }

    #[test]
    fn refuses_more_bytes_than_can_be_counted() {
        assert!(parse_size("16384P").is_err());
        assert!(parse_size("99999999999999999999").is_err());
        assert_eq!(parse_size("18446744073709551615"), Ok(u64::MAX));
    }

    proptest! {
        #[test]
        fn a_size_survives_its_text(bytes: u64, shift in 0u32..64) {
            let bytes = bytes >> shift << (shift / 2);
            prop_assert_eq!(parse_size(&Size(bytes).to_string()), Ok(bytes));
        }
        #[test]
        fn any_text_is_answered(text in ".*") {
            let _ = parse_size(&text);
        }
    }
}
