//! Fault injection: the affected requests, the time of the fault, and that other requests are not
//! affected.

use super::*;
use crate::Payload;
use crate::testing::{FrontEnd, compare_with_model, on_both_engines, ram_disk, steps};
use proptest::prelude::*;
use std::time::Instant;

fn faulty(effect: Effect, on: On) -> Arc<Fault> {
    Fault::new(ram_disk(4096), &[Inject { effect, on }], 7)
}

#[test]
fn exactly_the_nth_request_fails_whatever_channel_it_comes_by() {
    on_both_engines(|front| {
        let disk = faulty(Effect::ErrorNth(3), On::Write);
        let (mut first, mut second) = (front.open(&disk), front.open(&disk));
        front.read(&mut first, 0, 1).expect("reads are not meant");
        assert_eq!(front.write(&mut first, 0, &[1; 512]), Status::Ok);
        assert_eq!(front.write(&mut second, 0, &[2; 512]), Status::Ok);
        assert_eq!(front.write(&mut first, 0, &[3; 512]), Status::MediaWrite);
        assert_eq!(
            front.read(&mut second, 0, 1),
            Ok(vec![2; 512]),
            "it never reached the disk"
        );
        assert_eq!(front.write(&mut second, 0, &[4; 512]), Status::Ok);
    });
}

#[test]
fn a_share_of_the_requests_fails_and_the_same_ones_every_time() {
    let run = || {
        let mut front = FrontEnd::new();
        let mut channel = front.open(&faulty(Effect::ErrorRate { ppm: 100_000 }, On::Any));
        (0..2000)
            .map(|_| front.read(&mut channel, 0, 1).is_err())
            .collect::<Vec<_>>()
    };
    let first = run();
    let failed = first.iter().filter(|failed| **failed).count();
    assert!((120..280).contains(&failed), "{failed} of 2000 at 10 %");
    assert_eq!(first, run());
}

#[test]
fn every_operation_fails_with_a_status_of_its_own() {
    let mut front = FrontEnd::new();
    let mut channel = front.open(&faulty(Effect::ErrorRate { ppm: 1_000_000 }, On::Any));
    assert_eq!(front.read(&mut channel, 0, 1), Err(Status::MediaRead));
    assert_eq!(front.write(&mut channel, 0, &[0; 512]), Status::MediaWrite);
    assert_eq!(front.flush(&mut channel), Status::Degraded);
    let buf = front.buf(512, 0);
    let (_, loan) = front.ask(&mut channel, Operation::Read, 0, 1, Payload::Owned(buf));
    assert!(matches!(loan, Loan::Buf(_)), "the buffer comes back");
}

#[test]
fn a_late_answer_comes_no_earlier_and_brings_everything() {
    on_both_engines(|front| {
        let delay = Duration::from_millis(2);
        let mut channel = front.open(&faulty(Effect::Delay(delay), On::Read));
        assert_eq!(front.write(&mut channel, 0, &[5; 512]), Status::Ok);
        let begun = Instant::now();
        front.turns(1); // the turn reads the shard's clock
        let slot = front
            .submit(&mut channel, Operation::Read, 0, 1, Payload::Lend)
            .expect_err("later");
        let (status, loan) = front.wait(slot);
        assert!(begun.elapsed() >= delay, "{:?}", begun.elapsed());
        assert_eq!(
            (status, crate::testing::bytes_of(&loan, 512)),
            (Status::Ok, vec![5; 512])
        );
    });
}

#[test]
fn faults_add_up() {
    let faults = [
        Inject {
            effect: Effect::Delay(Duration::from_millis(1)),
            on: On::Any,
        },
        Inject {
            effect: Effect::ErrorNth(1),
            on: On::Flush,
        },
    ];
    let mut front = FrontEnd::new();
    let mut channel = front.open(&Fault::new(ram_disk(64), &faults, 0));
    let slot = front
        .submit(&mut channel, Operation::Flush, 0, 0, Payload::None)
        .expect_err("later");
    assert_eq!(front.wait(slot).0, Status::Degraded);
    assert_eq!(front.flush(&mut channel), Status::Ok);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn a_disk_that_is_only_late_is_the_same_disk(steps in steps(4096, 300)) {
        let mut front = FrontEnd::new();
        let disk: Arc<dyn Device> = faulty(Effect::Delay(Duration::from_micros(1)), On::Any);
        compare_with_model(&mut front, &disk, &steps);
    }
}
