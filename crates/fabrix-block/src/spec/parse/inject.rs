//! Parses faults to inject: errors and delays.

use std::time::Duration;

use super::number;
use crate::spec::text::DURATION_UNITS;
use crate::spec::{Effect, Inject, On};

pub(super) fn injected(text: &str) -> Result<Inject, String> {
    let wrong = || {
        format!(
            "`inject={text}`: write error:0.1% or error:5 (the fifth) or delay:5ms, then :read, \
             :write, :flush or :zeroes if not all are meant"
        )
    };
    let mut words = text.split(':');
    let effect = match (words.next(), words.next()) {
        (Some("error"), Some(error)) => match error.strip_suffix('%') {
            Some(rate) => Effect::ErrorRate {
                ppm: percent(rate).ok_or_else(wrong)?,
            },
            None => Effect::ErrorNth(number(error).filter(|nth| *nth > 0).ok_or_else(wrong)?),
        },
        (Some("delay"), Some(delay)) => Effect::Delay(duration(delay).ok_or_else(wrong)?),
        _ => return Err(wrong()),
    };
    let on = match words.next() {
        None => On::Any,
        Some("read") => On::Read,
        Some("write") => On::Write,
        Some("flush") => On::Flush,
        Some("zeroes") => On::Zeroes,
        Some(_) => return Err(wrong()),
    };
    if words.next().is_some() {
        Err(wrong())
    } else {
        Ok(Inject { effect, on })
    }
}

/// Parses a percentage up to 100 with up to four decimals, as parts per million.
fn percent(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if decimals.is_empty() || decimals.len() > 4 {
        return None;
    }
    let whole = number(whole).filter(|whole: &u32| *whole <= 100)?;
    let ppm = whole * 10_000 + number::<u32>(&format!("{decimals:0<4}"))?;
    (ppm <= 1_000_000).then_some(ppm)
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, name) = text.split_at(digits);
    let (nanos, _) = DURATION_UNITS.into_iter().find(|(_, unit)| *unit == name)?;
    let nanos = number::<u64>(count)?.checked_mul(nanos)?;
    (nanos <= DELAY_NANOS_MAX).then(|| Duration::from_nanos(nanos))
}

/// Longest delay in nanoseconds: one minute.
const DELAY_NANOS_MAX: u64 = 60_000_000_000;
