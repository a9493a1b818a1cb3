//! fio's numbers: sizes and counts with units and arithmetic, times in seconds, percentages.
//!
//! `k`, `m`, `g`, `t` and `p` are powers of `kb_base`, with or without `b` or `i`. Only the full
//! forms `kib`, `mib` and so on are powers of the other base. Source: fio's documentation,
//! "Parameter types", and fio 3.33 itself, which accepts `4ki` as `4k`.

use std::time::Duration;

/// Parses a size in bytes, or an expression of sizes like `2*(4k+512)`. `kilo` is the value of
/// `kb_base`, 1000 or 1024.
///
/// Errors: a sentence about the text.
pub(super) fn size(text: &str, kilo: u64) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size; write 4k, 1m or 10g");
    let mut expression = Expression { rest: text, kilo };
    let value = expression.sum(0).ok_or_else(wrong)?;
    if !expression.rest.trim().is_empty() || value < 0 {
        return Err(wrong());
    }
    u64::try_from(value).map_err(|_| format!("`{text}` is more bytes than can be counted"))
}

/// Parser of an arithmetic expression.
struct Expression<'a> {
    /// Text that is not parsed yet.
    rest: &'a str,
    kilo: u64,
}

impl<'a> Expression<'a> {
    /// Parses products joined by `+` and `-`. `depth` counts the open parentheses.
    fn sum(&mut self, depth: u32) -> Option<i128> {
        let mut value = self.product(depth)?;
        while let Some(sign) = self.operator(&['+', '-']) {
            let next = self.product(depth)?;
            value = match sign {
                '+' => value.checked_add(next)?,
                _ => value.checked_sub(next)?,
            };
        }
        Some(value)
    }

    /// Parses values joined by `*` and `/`.
    fn product(&mut self, depth: u32) -> Option<i128> {
        let mut value = self.value(depth)?;
        while let Some(sign) = self.operator(&['*', '/']) {
            let next = self.value(depth)?;
            value = match sign {
                '*' => value.checked_mul(next)?,
                _ => value.checked_div(next)?,
            };
        }
        Some(value)
    }

    /// Parses a number with its unit, or an expression in parentheses.
    fn value(&mut self, depth: u32) -> Option<i128> {
        if self.operator(&['(']).is_some() {
            let value = (depth < DEPTH_MAX).then(|| self.sum(depth + 1))??;
            self.operator(&[')'])?;
            return Some(value);
        }
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric());
        let (number, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        quantity(&number.to_ascii_lowercase(), self.kilo)
    }

    /// Takes the next sign if it is one of `signs`.
    fn operator(&mut self, signs: &[char]) -> Option<char> {
        let rest: &'a str = self.rest.trim_start();
        let sign = rest.chars().next().filter(|sign| signs.contains(sign))?;
        self.rest = &rest[sign.len_utf8()..];
        Some(sign)
    }
}

/// A number with its unit, in lower case.
fn quantity(text: &str, kilo: u64) -> Option<i128> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(i128::from);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: i128 = number.parse().ok()?;
    let other = if kilo == 1024 { 1000 } else { 1024 };
    let (prefix, base) = match unit.strip_suffix("ib") {
        Some(prefix) => (prefix, other),
        None => (unit.trim_end_matches(['b', 'i']), kilo),
    };
    let power = match prefix {
        "" if matches!(unit, "" | "b") => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    let known = ["", "b", "i", "ib"].contains(&&unit[prefix.len()..]);
    number
        .checked_mul(i128::from(u64::pow(base, power)))
        .filter(|_| known)
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
        "" | "s" | "sec" | "secs" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(wrong()),
    };
    let number: f64 = text[..digits].parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

/// Parses a time. A number without a unit counts microseconds.
///
/// Errors: a sentence about the text.
pub(super) fn micros(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(number) => Ok(Duration::from_micros(number)),
        Err(_) => time(text),
    }
}

/// Parses a count of at least `least` that fits the type. fio's units for sizes apply to counts
/// too: `1k` is 1024.
pub(super) fn whole<T: TryFrom<u64>>(text: &str, least: u64, kilo: u64) -> Result<T, String> {
    let number = size(text, kilo).ok().filter(|number| *number >= least);
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("`{text}` is not a number that can be used"))
}

/// Parses a percentage from 0 to 100, with or without `%`.
pub(super) fn percent(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
    number
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| format!("`{text}` is not a percentage"))
}

/// Parses a switch: empty, 0 or 1.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(format!("`{text}` is neither 0 nor 1")),
    }
}

/// Parses one of several words.
pub(super) fn word<T: Copy>(value: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(name, _)| *name == value);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        format!("`{value}` is not one of {}", names.join(", "))
    })
}

/// Largest number of nested parentheses.
const DEPTH_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_full_form_of_a_unit_turns_with_the_base_as_in_fio() {
        for (text, of_1024, of_1000) in [
            ("4k", 4096, 4000),
            ("4K", 4096, 4000),
            ("4kb", 4096, 4000),
            ("4ki", 4096, 4000),
            ("4KiB", 4000, 4096),
            ("1mib", 1_000_000, 1 << 20),
            ("0x1000", 4096, 4096),
            ("512", 512, 512),
            ("512b", 512, 512),
        ] {
            assert_eq!(
                (size(text, 1024), size(text, 1000)),
                (Ok(of_1024), Ok(of_1000)),
                "{text}"
            );
        }
        for text in [
            "",
            "k",
            "4x",
            "4kx",
            "-4k",
            "4 k",
            "4.5k",
            "99999999999999999999",
            "20000000p",
            "i",
            "4ib",
            "4bb",
        ] {
            assert!(size(text, 1024).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_computed() {
        for (text, value) in [
            ("2*4k", 8192),
            ("10*1000*8", 80_000),
            ("(4k + 4k) * 2", 16384),
            ("1m/4", 1 << 18),
            ("64k-4k", 60 << 10),
        ] {
            assert_eq!(size(text, 1024), Ok(value), "{text}");
        }
        let deep = format!("{}1{}", "(".repeat(100), ")".repeat(100));
        for text in ["1/0", "2*", "(4k", "4k)", "1-2", "*", "9p*9p*9p*9p", &deep] {
            assert!(size(text, 1024).is_err(), "{text}");
        }
    }

    #[test]
    fn times_count_seconds() {
        assert_eq!(
            (time("60"), time("0.5"), time("500ms")),
            (Ok(Duration::from_secs(60)), time("500ms"), time("0.5s"))
        );
        assert_eq!(time("60sec"), Ok(Duration::from_secs(60)));
        assert_eq!(time("1d"), Ok(Duration::from_secs(86_400)));
        assert!(time("soon").is_err() && time("").is_err() && time("1e400").is_err());
    }
}
