//! Tests: when requests start.

use super::*;

fn arrivals(rate: Option<Rate>, bursts: Option<Bursts>) -> Arrivals {
    Arrivals::new(rate, [None; 2], bursts, None, 7)
}

fn starts(pacing: Pacing, iops: f64, until_ns: u64) -> Vec<u64> {
    let mut arrivals = arrivals(Some(Rate { iops, pacing }), None);
    arrivals.begin(0);
    std::iter::from_fn(|| Some(arrivals.due(until_ns)?.scheduled_ns)).collect()
}

#[test]
fn a_fixed_rate_neither_drifts_nor_bunches() {
    let starts = starts(Pacing::Fixed, 300_000.0, 999_999_999);
    assert!(
        (299_990..=300_010).contains(&starts.len()),
        "{}",
        starts.len()
    );
    assert!(
        starts
            .windows(2)
            .all(|pair| (3333..=3334).contains(&(pair[1] - pair[0])))
    );
}

#[test]
fn poisson_arrivals_have_the_mean_and_the_spread_of_their_name() {
    let starts = starts(Pacing::Poisson, 100_000.0, 1_000_000_000);
    let count = starts.len();
    assert!((98_500..=101_500).contains(&count), "{count}");
    let long = starts
        .windows(2)
        .filter(|pair| pair[1] - pair[0] > 10_000)
        .count();
    // A gap is longer than the mean with probability 1/e.
    assert!((36_000..=37_700).contains(&long), "{long}");
}

#[test]
fn a_request_that_is_not_due_has_to_wait() {
    let rate = Rate {
        iops: 1000.0,
        pacing: Pacing::Fixed,
    };
    let mut arrivals = arrivals(Some(rate), None);
    arrivals.begin(500);
    let start = Start {
        scheduled_ns: 500,
        write: None,
    };
    assert_eq!(arrivals.due(499), None);
    assert_eq!(arrivals.due(500), Some(start));
    assert_eq!(arrivals.due(500), None);
    assert_eq!(arrivals.next_ns(), Some(1_000_500));
}

#[test]
fn each_direction_has_its_rate_and_a_free_one_fills_the_time() {
    let rate = |iops| {
        let pacing = Pacing::Fixed;
        Some(Rate { iops, pacing })
    };
    for (side_rates, reads, writes) in [
        ([rate(3e8), rate(5e7)], 300, 50),
        ([rate(1e8), None], 100, 900),
        ([None, rate(2.5e8)], 750, 250),
    ] {
        let mut arrivals = Arrivals::new(None, side_rates, None, None, 7);
        arrivals.begin(0);
        let starts = (0..1000).filter_map(|now_ns| arrivals.due(now_ns));
        let written = starts.map(|start| start.write == Some(true));
        let written: Vec<bool> = written.collect();
        let count = written.iter().filter(|write| **write).count();
        assert_eq!((written.len() - count, count), (reads, writes));
    }
}

#[test]
fn a_burst_is_followed_by_its_pause() {
    let bursts = Bursts {
        ios: 3,
        time: None,
        pause: Duration::from_nanos(100),
        quiet: false,
    };
    let mut burst = arrivals(None, Some(bursts));
    burst.begin(50);
    let starts: Vec<u64> = (50..400).filter(|now| burst.due(*now).is_some()).collect();
    assert_eq!(
        starts,
        [50, 51, 52, 152, 153, 154, 254, 255, 256, 356, 357, 358]
    );
    assert_eq!(burst.next_ns(), Some(458));
}

#[test]
fn a_quiet_burst_ends_with_its_time_or_requests_and_pauses_after_its_answers() {
    let bursts = Bursts {
        ios: 5,
        time: Some(Duration::from_nanos(2)),
        pause: Duration::from_nanos(100),
        quiet: true,
    };
    let mut burst = arrivals(None, Some(bursts));
    burst.begin(0);
    let starts: Vec<u64> = (0..60).filter(|now| burst.due(*now).is_some()).collect();
    assert_eq!((starts, burst.next_ns()), (vec![0, 1], None));
    assert!(burst.answered(60) && !burst.answered(70));
    assert_eq!(burst.next_ns(), Some(160));
}
