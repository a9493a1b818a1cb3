//! Numbers for people: few digits, grouped thousands, without units. The terminal and the page
//! share these functions, so that their numbers agree.

/// A rounded count with grouped thousands: `451,234`. A dash for infinities and NaN.
pub(crate) fn grouped(value: f64) -> String {
    if !value.is_finite() {
        return DASH.into();
    }
    let digits = format!("{:.0}", value.abs());
    let negative = value < 0.0 && digits != "0";
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if negative {
        text.push('-');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// About three significant digits: `0.63`, `52.4`, `1,234`.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        small if small < 9.995 => format!("{value:.2}"),
        small if small < 99.95 => format!("{value:.1}"),
        _ => grouped(value),
    }
}

/// A value as a label beside its mark.
pub(super) fn label_of(value: f64) -> String {
    match value {
        value if value >= 1e4 || value == 0.0 => grouped(value),
        value => short(value),
    }
}

/// A number with this many decimals and grouped thousands: `1,792.80`.
pub(super) fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.split_once('.') {
        Some((_, fraction)) if value.abs() >= 1e3 => {
            format!("{}.{fraction}", grouped(value.trunc()))
        }
        Some(_) => text,
        None => grouped(value),
    }
}

/// Bytes per second as MB/s (10^6).
pub(super) fn mb_per_s(bw_bytes: f64) -> String {
    short(bw_bytes / 1e6)
}

/// A ratio in percent: `71 %`. A dash for None.
pub(super) fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| DASH.into(), |ratio| format!("{:.0} %", ratio * 100.0))
}

/// Cores: `1.97`. A dash for None.
pub(super) fn cores(cores: Option<f64>) -> String {
    cores.map_or_else(|| DASH.into(), |cores| format!("{cores:.2}"))
}

/// A duration in nanoseconds, shown with a suitable unit: `640 ns`, `52.4 µs`, `1.20 ms`, `3.00 s`.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 999.5 => format!("{ns:.0} ns"),
        ns if ns < 999.5e3 => format!("{} µs", short(ns / 1e3)),
        ns if ns < 999.5e6 => format!("{} ms", short(ns / 1e6)),
        ns => format!("{} s", short(ns / 1e9)),
    }
}

/// A round duration in nanoseconds as the text of a tick: `50 µs`.
pub(super) fn round_time(ns: f64) -> String {
    let text = time(ns);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            let number = number.trim_end_matches('0').trim_end_matches('.');
            format!("{number} {unit}")
        }
        _ => text,
    }
}

/// Bytes in powers of 1000: `68.6 GB`.
pub(super) fn bytes(bytes: f64) -> String {
    let units = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    let unit = units.iter().find(|(_, size)| bytes >= *size);
    unit.map_or_else(
        || format!("{bytes:.0} B"),
        |(name, size)| format!("{} {name}", short(bytes / size)),
    )
}

/// A time in UTC in the form of C's `asctime`, which fio prints: `Sat Nov 21 04:05:06 2026`.
pub(super) fn asctime(timestamp: u64) -> String {
    let days = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (year, month, day) = date(timestamp / 86_400);
    let weekday = days[usize::try_from(timestamp / 86_400 % 7).unwrap_or(0)];
    let month = months[usize::try_from(month - 1).unwrap_or(0)];
    let [_, time] = date_and_time(timestamp);
    format!("{weekday} {month} {day:2} {time} {year}")
}

/// A time in UTC: `2026-11-21 04:05:06 UTC`.
pub(super) fn moment(timestamp: u64) -> String {
    let [date, time] = date_and_time(timestamp);
    format!("{date} {time} UTC")
}

/// The date and the time of day in UTC: `2026-11-21` and `04:05:06`.
pub(crate) fn date_and_time(timestamp: u64) -> [String; 2] {
    let (days, seconds) = (timestamp / 86_400, timestamp % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let date = format!("{year:04}-{month:02}-{day:02}");
    [date, format!("{hour:02}:{minute:02}:{second:02}")]
}

/// The Gregorian date of a day counted from 1970-01-01. Years start in March, so that the leap day
/// is the last day of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Text for a missing number.
pub(super) const DASH: &str = "-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_their_thousands_apart() {
        let texts = [0.0, 999.4, 999.5, 1234.0, 1_234_567.8, -4321.0].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "1,234", "1,234,568", "-4,321"]);
        assert_eq!(grouped(f64::NAN), "-");
    }

    #[test]
    fn about_three_digits_remain() {
        let texts = [0.0, 0.634, 9.994, 9.996, 99.94, 99.96, 4957.85].map(short);
        assert_eq!(
            texts,
            ["0.00", "0.63", "9.99", "10.0", "99.9", "100", "4,958"]
        );
    }

    #[test]
    fn decimals_are_fixed() {
        let texts = [0.0, 999.994, 1792.8, -2181.45].map(|value| fixed(value, 2));
        assert_eq!(texts, ["0.00", "999.99", "1,792.80", "-2,181.45"]);
        assert_eq!(fixed(1792.8, 0), "1,793");
    }

    #[test]
    fn times_and_bytes_choose_their_unit() {
        let times = [640.0, 52_430.0, 1_200_000.0, 3e9].map(time);
        assert_eq!(times, ["640 ns", "52.4 µs", "1.20 ms", "3.00 s"]);
        assert_eq!(bytes(68.6e9), "68.6 GB");
        assert_eq!(bytes(512.0), "512 B");
    }

    #[test]
    fn moments_are_right_across_leap_days() {
        assert_eq!(moment(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(asctime(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(asctime(1_795_762_415), "Fri Nov 27 06:53:35 2026");
        assert_eq!(moment(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(moment(1_709_251_199), "2024-02-29 23:59:59 UTC");
        assert_eq!(moment(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }
}
