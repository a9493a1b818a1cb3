//! The distributions of random addresses by fio's names.

use std::fmt::Write;

use fabrix_block::spec::parse_size;

/// Distribution of random addresses over the region (fio's `random_distribution`).
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// All units are equally likely.
    Uniform,
    /// A few units are drawn often: the probability of rank `k` is proportional to `1/k^theta`.
    /// Neighbouring ranks are far apart in the region.
    Zipf {
        /// The exponent.
        theta: f64,
        /// Place of the most frequent unit, as a share of the region. None: the seed decides.
        center: Option<f64>,
    },
    /// A few units are drawn often: of the requests, a share of `1 - power` goes to a share of
    /// `power` of the units. Neighbouring ranks are far apart in the region.
    Pareto {
        /// The share of the units, between 0 and 1.
        power: f64,
        /// Place of the most frequent unit, as a share of the region. None: the seed decides.
        center: Option<f64>,
    },
    /// The normal distribution as fio computes it. Neighbouring ranks are far apart in the region.
    Normal {
        /// fio's deviation, from 0 to 100.
        deviation: f64,
    },
    /// Zones with shares of the requests, from the start of the region: for reads and for writes.
    Zoned([Vec<Zone>; 2]),
}

/// A part of the region with its share of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Percentage of the requests.
    pub percent: u32,
    /// Length of the zone.
    pub size: ZoneSize,
}

/// Length of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneSize {
    /// Percentage of the region (`zoned`).
    Percent(u32),
    /// Bytes (`zoned_abs`).
    Bytes(u64),
    /// The rest of the region.
    Rest,
}

/// Allowed range of Zipf's exponent.
const THETA: std::ops::RangeInclusive<f64> = 0.01..=10.0;
/// Largest number of zones of a direction, as in fio.
const ZONES_MAX: usize = 256;
const KNOWN: &str = "there are random, zipf:THETA, pareto:POWER, normal:DEVIATION, zoned:PERCENT/PERCENT:... \
                     and zoned_abs:PERCENT/SIZE:...";

impl Distribution {
    /// Parses fio's words, for example `random`, `zipf:1.2`, `pareto:0.2`, `normal:10`,
    /// `zoned:60/10:40/90` and `zoned_abs:60/1g:40/3g`.
    ///
    /// Errors: a sentence that lists the known words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = match text.split_once(':') {
            None if text == "random" || text == "uniform" => Self::Uniform,
            Some(("zipf", numbers)) => {
                let (theta, center) = parse_numbers("zipf:1.2", numbers)?;
                Self::Zipf { theta, center }
            }
            Some(("pareto", numbers)) => {
                let (power, center) = parse_numbers("pareto:0.2", numbers)?;
                Self::Pareto { power, center }
            }
            // fio takes a center here too, and its formula has no use for it.
            Some(("normal", numbers)) => Self::Normal {
                deviation: parse_numbers("normal:10", numbers)?.0,
            },
            Some((word @ ("zoned" | "zoned_abs"), zones)) => {
                let (reads, writes) = zones.split_once(',').unwrap_or((zones, zones));
                Self::Zoned([
                    parse_zones(reads, word == "zoned_abs")?,
                    parse_zones(writes, word == "zoned_abs")?,
                ])
            }
            _ => return Err(format!("random_distribution={text} is not known; {KNOWN}")),
        };
        found.check()?;
        Ok(found)
    }

    /// Checks the numbers. The error is the end of a sentence about the job.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::Zipf {
                center: Some(center),
                ..
            }
            | Self::Pareto {
                center: Some(center),
                ..
            } if !(0.0..=1.0).contains(center) => Err(format!(
                "random_distribution: the center {center} is not a share of the region from 0 to 1"
            )),
            Self::Zipf { theta, .. } if !THETA.contains(theta) => Err(format!(
                "random_distribution=zipf:{theta}: the exponent is outside {} to {}",
                THETA.start(),
                THETA.end()
            )),
            Self::Pareto { power, .. } if !(*power > 0.0 && *power < 1.0) => Err(format!(
                "random_distribution=pareto:{power}: the power is not between 0 and 1"
            )),
            Self::Normal { deviation } if !(0.0..=100.0).contains(deviation) => Err(format!(
                "random_distribution=normal:{deviation}: the deviation is outside 0 to 100"
            )),
            _ => Ok(()),
        }
    }

    /// Checks absolute zones against a region of `bytes`. The error is the end of a sentence about
    /// the job.
    pub(crate) fn check_region(&self, bytes: u64) -> Result<(), String> {
        let Self::Zoned(sides) = self else {
            return Ok(());
        };
        for zones in sides {
            let ends = zones.iter().map(|zone| match zone.size {
                ZoneSize::Bytes(bytes) => bytes,
                ZoneSize::Percent(_) | ZoneSize::Rest => 0,
            });
            let end = ends.fold(0, u64::saturating_add);
            if end > bytes {
                return Err(format!(
                    "random_distribution: its zones have {end} bytes, and the region has {bytes}"
                ));
            }
        }
        Ok(())
    }

    /// The distribution in fio's words.
    pub fn text(&self) -> String {
        match self {
            Self::Uniform => "random".into(),
            Self::Zipf { theta, center } => format!("zipf:{theta}{}", center_text(*center)),
            Self::Pareto { power, center } => format!("pareto:{power}{}", center_text(*center)),
            Self::Normal { deviation } => format!("normal:{deviation}"),
            Self::Zoned([reads, writes]) if reads == writes => zones_text(reads),
            Self::Zoned([reads, writes]) => {
                let writes = zones_text(writes);
                let (_, writes) = writes.split_once(':').unwrap_or_default();
                format!("{},{writes}", zones_text(reads))
            }
        }
    }
}

/// Parses a number and, behind a colon, a center.
fn parse_numbers(word: &str, text: &str) -> Result<(f64, Option<f64>), String> {
    let number = |text: &str| {
        text.parse::<f64>()
            .map_err(|_| format!("random_distribution: `{text}` is not a number; write {word}"))
    };
    match text.split_once(':') {
        Some((first, center)) => Ok((number(first)?, Some(number(center)?))),
        None => Ok((number(text)?, None)),
    }
}

fn center_text(center: Option<f64>) -> String {
    center
        .map(|center| format!(":{center}"))
        .unwrap_or_default()
}

/// Parses the zones of a direction. Their shares of the requests add up to 100. Relative zones
/// without a size share what is left of the region. The last absolute zone without a size has all
/// that is left.
fn parse_zones(text: &str, absolute: bool) -> Result<Vec<Zone>, String> {
    let (mut zones, mut open) = (Vec::new(), Vec::new());
    for part in text.split(':') {
        let (share, size) = part.split_once('/').unwrap_or((part, ""));
        if size.is_empty() {
            open.push(zones.len());
        }
        let size = match size {
            "" if absolute => ZoneSize::Rest,
            "" => ZoneSize::Percent(0),
            size if absolute => ZoneSize::Bytes(parse_size(size)?),
            size => ZoneSize::Percent(percent(size)?),
        };
        zones.push(Zone {
            percent: percent(share)?,
            size,
        });
    }
    if zones.len() > ZONES_MAX {
        return Err(format!(
            "random_distribution: there are at most {ZONES_MAX} zones"
        ));
    }
    if absolute && open.iter().any(|index| index + 1 < zones.len()) {
        return Err(format!(
            "random_distribution: only the last zone of `{text}` may have no size; write 60/1g:40"
        ));
    }
    let wrong = || format!("random_distribution: the shares of `{text}` do not add up to 100 %");
    let sizes = zones.iter().map(|zone| match zone.size {
        ZoneSize::Percent(percent) => percent,
        ZoneSize::Bytes(_) | ZoneSize::Rest => 0,
    });
    let left = 100_u32.checked_sub(sizes.sum()).ok_or_else(wrong)?;
    let count = u32::try_from(open.len()).unwrap_or(u32::MAX);
    for (at, index) in (0..).zip(open.iter().filter(|_| !absolute)) {
        // The first zone without a size also gets the indivisible remainder.
        let more = if at == 0 { left % count } else { 0 };
        zones[*index].size = ZoneSize::Percent(left / count + more);
    }
    let is_short = !absolute && open.is_empty() && left > 0;
    if is_short || zones.iter().map(|zone| zone.percent).sum::<u32>() != 100 {
        return Err(wrong());
    }
    Ok(zones)
}

fn percent(text: &str) -> Result<u32, String> {
    let percent = text.parse::<u32>().ok().filter(|percent| *percent <= 100);
    percent.ok_or_else(|| {
        format!("random_distribution: `{text}` is not a percentage; write zoned:60/10:40/90")
    })
}

fn zones_text(zones: &[Zone]) -> String {
    let mut text = match zones.first().map(|zone| zone.size) {
        Some(ZoneSize::Bytes(_)) => "zoned_abs".to_owned(),
        _ => "zoned".to_owned(),
    };
    for Zone { percent, size } in zones {
        // Writing to a text cannot fail.
        let _ = match size {
            ZoneSize::Percent(size) => write!(text, ":{percent}/{size}"),
            ZoneSize::Bytes(size) => write!(text, ":{percent}/{size}"),
            ZoneSize::Rest => write!(text, ":{percent}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_distribution_are_fios() {
        for (text, found) in [
            ("random", Distribution::Uniform),
            (
                "zipf:1.2",
                Distribution::Zipf {
                    theta: 1.2,
                    center: None,
                },
            ),
            (
                "pareto:0.2:0.25",
                Distribution::Pareto {
                    power: 0.2,
                    center: Some(0.25),
                },
            ),
            ("normal:10", Distribution::Normal { deviation: 10.0 }),
        ] {
            assert_eq!(Distribution::parse(text), Ok(found.clone()));
            assert_eq!(found.text(), text);
        }
        for text in [
            "zoned:60/10:30/20:10/70",
            "zoned_abs:60/1048576:40/3145728",
            "zoned:60/10:40/90,50/50:50/50",
        ] {
            let found = Distribution::parse(text).expect(text);
            assert_eq!(found.text(), text);
        }
        assert_eq!(
            Distribution::parse("zoned:60/10:20:20").map(|found| found.text()),
            Ok("zoned:60/10:20/45:20/45".into())
        );
        for (text, same) in [
            ("zoned:50/5:30/15:20/", "zoned:50/5:30/15:20/80"),
            ("zoned_abs:60/1m:40/", "zoned_abs:60/1048576:40"),
            ("zoned_abs:60/1m:40", "zoned_abs:60/1048576:40"),
        ] {
            let found = Distribution::parse(text).map(|found| found.text());
            assert_eq!(found, Ok(same.into()));
        }
        for (text, part) in [
            ("zipf", "is not known"),
            ("gauss:1", "there are random, zipf:THETA"),
            ("zipf:x", "`x` is not a number"),
            ("zipf:0", "outside 0.01 to 10"),
            ("zipf:NaN", "outside 0.01 to 10"),
            ("pareto:1", "not between 0 and 1"),
            ("pareto:0.5:2", "the center 2"),
            ("normal:101", "outside 0 to 100"),
            ("normal:-1", "outside 0 to 100"),
            ("zoned:60/10", "add up to 100 %"),
            ("zoned:60/10:40/80", "add up to 100 %"),
            ("zoned_abs:60:40/1m", "only the last zone"),
            ("zoned_abs:100/x", "x"),
        ] {
            let error = Distribution::parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
