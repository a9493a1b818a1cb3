//! Statistics of a disk as JSON, written by the control sockets and read by `top` and `list`.
//!
//! These are sums since the start, with a latency histogram. Two readings give the activity between
//! them.

use std::collections::BTreeMap;
use std::time::Duration;

use fabrix_block::filter::stats::{Counts, Kind, Stats};
use serde_json::{Value, json};

/// Kinds of requests with their names.
const KINDS: [(&str, Kind); 5] = [
    ("read", Kind::Read),
    ("write", Kind::Write),
    ("flush", Kind::Flush),
    ("zeroes", Kind::Zeroes),
    ("compare", Kind::Compare),
];

/// Sums and latency percentiles per kind.
pub(crate) fn summary(stats: &Stats) -> impl Iterator<Item = (&'static str, Value)> + '_ {
    KINDS.into_iter().map(|(name, kind)| {
        let counts = stats.counts(kind);
        let summary = json!({
            "requests": counts.requests,
            "errors": counts.errors,
            "bytes": counts.bytes,
            "latency_ns": { "p50": counts.latency_ns(0.5), "p99": counts.latency_ns(0.99) },
        });
        (name, summary)
    })
}

/// Sums and latency histograms per kind. Each entry of `latency` is the upper end of a bucket in
/// nanoseconds and the number of requests in it.
pub(crate) fn detailed(stats: &Stats) -> Value {
    let detail = |counts: &Counts| {
        json!({
            "requests": counts.requests,
            "errors": counts.errors,
            "bytes": counts.bytes,
            "latency_ns_sum": counts.latency_ns_sum,
            "latency": counts.buckets().collect::<Vec<_>>(),
        })
    };
    KINDS
        .into_iter()
        .map(|(name, kind)| (name.to_owned(), detail(&stats.counts(kind))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Totals of a disk at one time, over all kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    reads: u64,
    writes: u64,
    requests: u64,
    errors: u64,
    read_bytes: u64,
    write_bytes: u64,
    latency_ns_sum: u64,
    /// Histogram: requests by the upper end of their bucket in nanoseconds.
    latency: BTreeMap<u64, u64>,
}

/// Activity of a disk in an interval.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rates {
    pub(crate) read_iops: f64,
    pub(crate) write_iops: f64,
    pub(crate) read_bytes_per_s: f64,
    pub(crate) write_bytes_per_s: f64,
    pub(crate) errors: u64,
    /// Average number of requests in progress: the sum of latencies divided by the interval
    /// (Little's law).
    pub(crate) queue_depth: f64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
}

impl Moment {
    /// Parses the output of [`detailed`]. Missing values are 0.
    pub(crate) fn read(counters: &Value) -> Self {
        let number = |kind: &str, key: &str| counters[kind][key].as_u64().unwrap_or(0);
        let mut moment = Self {
            reads: number("read", "requests"),
            writes: number("write", "requests"),
            read_bytes: number("read", "bytes"),
            write_bytes: number("write", "bytes"),
            ..Self::default()
        };
        for (kind, _) in KINDS {
            moment.requests += number(kind, "requests");
            moment.errors += number(kind, "errors");
            moment.latency_ns_sum += number(kind, "latency_ns_sum");
            let buckets = counters[kind]["latency"].as_array();
            for bucket in buckets.map_or(&[][..], Vec::as_slice) {
                if let (Some(end), Some(count)) = (bucket[0].as_u64(), bucket[1].as_u64()) {
                    *moment.latency.entry(end).or_default() += count;
                }
            }
        }
        moment
    }

    /// Activity since an earlier reading, `took` ago.
    pub(crate) fn since(&self, earlier: &Self, took: Duration) -> Rates {
        let seconds = took.as_secs_f64().max(1e-9);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        Rates {
            read_iops: rate(self.reads, earlier.reads),
            write_iops: rate(self.writes, earlier.writes),
            read_bytes_per_s: rate(self.read_bytes, earlier.read_bytes),
            write_bytes_per_s: rate(self.write_bytes, earlier.write_bytes),
            errors: self.errors.saturating_sub(earlier.errors),
            queue_depth: rate(self.latency_ns_sum, earlier.latency_ns_sum) / 1e9,
            p50_ns: self.latency_since(earlier, 0.5),
            p99_ns: self.latency_since(earlier, 0.99),
        }
    }

    /// The latency that the fraction `share` of the requests since then did not exceed, or 0
    /// without requests.
    fn latency_since(&self, earlier: &Self, share: f64) -> u64 {
        let fresh = self.latency.iter().map(|(end, count)| {
            let before = earlier.latency.get(end).copied().unwrap_or(0);
            (*end, count.saturating_sub(before))
        });
        let fresh: Vec<(u64, u64)> = fresh.filter(|(_, count)| *count > 0).collect();
        let all: u64 = fresh.iter().map(|(_, count)| count).sum();
        let mut below = 0;
        for (end, count) in fresh {
            below += count;
            if below as f64 >= share * all as f64 {
                return end;
            }
        }
        0
    }
}

impl Rates {
    pub(crate) fn json(&self) -> Value {
        json!({
            "read_iops": self.read_iops,
            "write_iops": self.write_iops,
            "read_bytes_per_s": self.read_bytes_per_s,
            "write_bytes_per_s": self.write_bytes_per_s,
            "errors": self.errors,
            "queue_depth": self.queue_depth,
            "latency_ns": { "p50": self.p50_ns, "p99": self.p99_ns },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_between_two_moments_is_told_and_nothing_before() {
        let told = |requests: u64, slow: u64| {
            let read = json!({
                "requests": requests, "errors": 0, "bytes": requests * 4096,
                "latency_ns_sum": requests * 1000, "latency": [[1000, requests - slow], [9000, slow]],
            });
            Moment::read(&json!({ "read": read }))
        };
        let rates = told(300, 150).since(&told(100, 0), Duration::from_secs(2));
        assert_eq!((rates.read_iops, rates.write_iops), (100.0, 0.0));
        assert_eq!(rates.read_bytes_per_s, 409_600.0);
        assert!((rates.queue_depth - 1e-4).abs() < 1e-9);
        assert_eq!((rates.p50_ns, rates.p99_ns), (9000, 9000));
        let idle = told(100, 0).since(&told(100, 0), Duration::from_secs(1));
        assert_eq!((idle.p50_ns, idle.read_iops), (0, 0.0));
    }
}
