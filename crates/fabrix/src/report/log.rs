//! Readings over time as fio's log files: one line per reading and direction.
//!
//! Columns: milliseconds since the start of the job, value, direction (0 reads, 1 writes,
//! 2 trims), request size, and 0 for the priority. Source: fio's documentation, "Log File Formats".

use std::time::Duration;

use fabrix_bench::Results;
use fabrix_bench::series::{Moved, Point};

/// The logs with the suffixes of their names: bandwidth in KiB/s, requests per second, mean latency
/// in nanoseconds. The time of the submission is not measured apart, so there is no `slat`, and
/// `clat` equals `lat` unless requests wait for their moment. `delay` is the time from the start of
/// the readings to that of the job.
pub(crate) fn logs(results: &Results, delay: Duration) -> Vec<(&'static str, String)> {
    let bytes = results.job.block_bytes;
    let log = |value: fn(&Moved, f64) -> f64| {
        let mut text = String::new();
        for point in &results.series {
            let at = point.at.saturating_sub(delay);
            lines(&mut text, at, point, bytes, value);
        }
        text
    };
    let mut logs = vec![
        (
            "bw",
            log(|moved, seconds| moved.bytes as f64 / 1024.0 / seconds),
        ),
        ("iops", log(|moved, seconds| moved.ios as f64 / seconds)),
        ("lat", log(|moved, _| moved.mean_ns())),
    ];
    if !results.job.is_open_loop() {
        logs.push(("clat", logs[2].1.clone()));
    }
    logs
}

fn lines(
    text: &mut String,
    at: Duration,
    point: &Point,
    bytes: u32,
    value: fn(&Moved, f64) -> f64,
) {
    let seconds = point.span.as_secs_f64();
    if seconds <= 0.0 {
        return;
    }
    let moved = point
        .sides
        .iter()
        .enumerate()
        .filter(|(_, side)| side.ios > 0);
    for (direction, side) in moved {
        *text += &format!(
            "{}, {:.0}, {direction}, {bytes}, 0\n",
            at.as_millis(),
            value(side, seconds)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_reading_is_a_line_of_fios_columns() {
        let of_late = logs(&sample::results(), Duration::from_millis(900));
        assert!(of_late[0].1.starts_with("100, 367200,"), "{of_late:?}");
        let logs = logs(&sample::results(), Duration::ZERO);
        let [(_, bw), (_, iops), (_, lat), ("clat", clat)] = &logs[..] else {
            panic!("fio's logs in a closed loop");
        };
        assert_eq!(clat, lat);
        assert_eq!(bw.lines().next(), Some("1000, 367200, 0, 4096, 0"));
        assert_eq!(iops.lines().next(), Some("1000, 91800, 0, 4096, 0"));
        assert_eq!(lat.lines().next(), Some("1000, 81699, 0, 4096, 0"));
        assert_eq!(iops.lines().count(), 10);
    }
}
