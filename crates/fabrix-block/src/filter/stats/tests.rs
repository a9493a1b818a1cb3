//! Counters: the counted kinds, the sums over channels and shards, and the buckets of the
//! histogram.

use super::*;
use crate::Payload;
use crate::filter::fault::Fault;
use crate::spec::{Effect, Inject, On};
use crate::testing::{FrontEnd, compare_with_model, on_both_engines, ram_disk, steps};
use proptest::prelude::*;
use std::time::Duration;

#[test]
fn requests_errors_and_bytes_are_counted_by_kind() {
    on_both_engines(|front| {
        let fails = Inject {
            effect: Effect::ErrorNth(2),
            on: On::Write,
        };
        let stats = Stats::new(Fault::new(ram_disk(64), &[fails], 0));
        let (mut first, mut second) = (front.open(&stats), front.open(&stats));
        assert_eq!(front.write(&mut first, 0, &[1; 1024]), Status::Ok);
        assert_eq!(front.write(&mut second, 0, &[1; 1024]), Status::MediaWrite);
        front.read(&mut first, 0, 8).expect("a read");
        front.flush(&mut second);
        front.ask(&mut second, Operation::Deallocate, 0, 4, Payload::None);
        let sums = |kind| {
            let counts = stats.counts(kind);
            (counts.requests, counts.errors, counts.bytes)
        };
        assert_eq!(sums(Kind::Write), (2, 1, 1024));
        assert_eq!(sums(Kind::Read), (1, 0, 4096));
        assert_eq!(sums(Kind::Flush), (1, 0, 0));
        assert_eq!(sums(Kind::Zeroes), (1, 0, 2048));
        assert_eq!(sums(Kind::Compare), (0, 0, 0));
        drop((first, second));
        front.turns(2);
        assert_eq!(sums(Kind::Write).0, 2, "counts outlive their channels");
    });
}

#[test]
fn a_slow_disk_is_seen_to_be_slow() {
    let slow = Inject {
        effect: Effect::Delay(Duration::from_millis(3)),
        on: On::Read,
    };
    let stats = Stats::new(Fault::new(ram_disk(64), &[slow], 0));
    let mut front = FrontEnd::new();
    let mut channel = front.open(&stats);
    front.read(&mut channel, 0, 1).expect("a read");
    front.write(&mut channel, 0, &[0; 512]);
    assert!(stats.counts(Kind::Read).latency_ns(0.5) >= 3_000_000);
    assert!(stats.counts(Kind::Read).latency_ns_sum >= 3_000_000);
    assert_eq!(stats.counts(Kind::Write).latency_ns(1.0), 0);
    assert_eq!(stats.counts(Kind::Flush).latency_ns(0.5), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn a_counted_disk_is_the_same_disk(steps in steps(4096, 300)) {
        let mut front = FrontEnd::new();
        let stats: Arc<dyn Device> = Stats::new(ram_disk(4096));
        compare_with_model(&mut front, &stats, &steps);
    }
}

proptest! {
    #[test]
    fn a_bucket_ends_at_most_a_quarter_above_what_is_in_it(ns: u64, shift in 0u32..64) {
        let ns = ns >> shift;
        let end = end_of(bucket_of(ns));
        prop_assert!(end >= ns && end - ns <= ns / 4, "{} in a bucket up to {}", ns, end);
        prop_assert!(bucket_of(ns) < BUCKETS);
        prop_assert_eq!(bucket_of(end), bucket_of(ns));
    }
}
