//! fio's numbers: sizes whose units depend on `kb_base`, and times in seconds.

use std::time::Duration;

/// Parses a size in bytes. `kilo` is the meaning of `k`, 1000 or 1024. `Ki` means the other one.
///
/// Errors: a sentence about the text.
pub(super) fn size(text: &str, kilo: u64) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size; write 4k, 1m or 10g");
    let lower = text.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).map_err(|_| wrong());
    }
    let digits = lower.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = lower.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = unit.strip_suffix('b').unwrap_or(unit);
    let (unit, base) = match unit.strip_suffix('i') {
        Some(unit) if !unit.is_empty() => (unit, if kilo == 1024 { 1000 } else { 1024 }),
        _ => (unit, kilo),
    };
    let power = match unit {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(u64::pow(base, power))
        .ok_or_else(|| format!("`{text}` is more bytes than can be counted"))
}

/// Parses a time. A number without a unit counts seconds.
///
/// Errors: a sentence about the text.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time; write 60, 500ms or 5m");
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let seconds = match &text[digits..] {
        "us" | "usec" => 1e-6,
        "ms" | "msec" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(wrong()),
    };
    let number: f64 = text[..digits].parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

/// Parses a whole number of at least `least` that fits the type.
pub(super) fn whole<T: TryFrom<u64>>(text: &str, least: u64) -> Result<T, String> {
    let number = text.parse::<u64>().ok().filter(|number| *number >= least);
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("`{text}` is not a number that can be used"))
}

/// Parses a switch: empty, 0 or 1.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(format!("`{text}` is neither 0 nor 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_turn_with_the_base_as_in_fio() {
        assert_eq!(
            (size("4k", 1024), size("4Ki", 1024), size("4KiB", 1024)),
            (Ok(4096), Ok(4000), Ok(4000))
        );
        assert_eq!((size("4k", 1000), size("4Ki", 1000)), (Ok(4000), Ok(4096)));
        assert_eq!(
            (size("0x1000", 1024), size("1G", 1024), size("512", 1024)),
            (Ok(4096), Ok(1 << 30), Ok(512))
        );
        for text in [
            "",
            "k",
            "4x",
            "-4k",
            "4 k",
            "99999999999999999999",
            "20000000p",
            "i",
        ] {
            assert!(size(text, 1024).is_err(), "{text}");
        }
    }

    #[test]
    fn times_count_seconds() {
        assert_eq!(
            (time("60"), time("0.5"), time("500ms")),
            (Ok(Duration::from_secs(60)), time("500ms"), time("0.5s"))
        );
        assert_eq!(time("1d"), Ok(Duration::from_secs(86_400)));
        assert!(time("soon").is_err() && time("").is_err() && time("1e400").is_err());
    }
}
