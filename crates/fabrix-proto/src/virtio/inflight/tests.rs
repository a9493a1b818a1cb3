//! The record after a death between any two steps, and the record with arbitrary content.

use super::super::testing::Ram;
use super::*;

use alloc::vec;

const ENTRIES: u16 = 8;
const AT: u64 = 64;

fn ram() -> Ram {
    Ram::new(512)
}

fn open(ram: &Ram, used: u16) -> Result<(QueueRegion, Option<Vec<u16>>), Broken> {
    QueueRegion::open(ram, AT, ENTRIES, used)
}

/// Requests that have to be carried out again after a death.
fn left(ram: &Ram, used: u16) -> Vec<u16> {
    let (_, heads) = open(ram, used).expect("it is in order");
    heads.expect("it is not new")
}

fn new(ram: &Ram, used: u16) -> QueueRegion {
    let (region, heads) = open(ram, used).expect("there is room");
    assert_eq!(heads, None);
    region
}

#[test]
fn what_was_taken_and_not_given_back_is_found_in_the_order_of_taking() {
    let ram = ram();
    let mut region = new(&ram, 5);
    assert_eq!(left(&ram, 5), []);
    for head in [6, 2, 7, 0] {
        region.taken(&ram, head).expect("it is there");
    }
    region.giving(&ram, 2).expect("it is there");
    region.given(&ram, 2, 6).expect("it is there");
    assert_eq!(left(&ram, 6), [6, 7, 0]);
    // The next process numbers its requests after those that it has found.
    let (mut region, _) = open(&ram, 6).expect("it is in order");
    region.taken(&ram, 1).expect("it is there");
    assert_eq!(left(&ram, 6), [6, 7, 0, 1]);
}

#[test]
fn a_death_between_any_two_steps_of_giving_back_loses_nothing_and_repeats_nothing_that_was_answered()
 {
    let ram = ram();
    let mut region = new(&ram, u16::MAX);
    for head in [3, 4] {
        region.taken(&ram, head).expect("it is there");
    }
    region.giving(&ram, 4).expect("it is there");
    assert_eq!(
        left(&ram, u16::MAX),
        [3, 4],
        "the used ring does not say it"
    );
    assert_eq!(left(&ram, 0), [3], "the used ring says it");
    assert_eq!(left(&ram, 0), [3], "and it was noted");
    region.giving(&ram, 3).expect("it is there");
    region.given(&ram, 3, 1).expect("it is there");
    assert_eq!(left(&ram, 1), []);
}

#[test]
fn what_another_back_end_gave_back_in_one_step_is_no_more() {
    let ram = ram();
    let mut region = new(&ram, 0);
    for head in [1, 5, 3] {
        region.taken(&ram, head).expect("it is there");
    }
    region.giving(&ram, 5).expect("it is there");
    region.giving(&ram, 1).expect("it is there");
    assert_eq!(left(&ram, 2), [3]);
}

#[test]
fn a_queue_that_has_begun_anew_has_nothing_in_progress() {
    let ram = ram();
    let mut region = new(&ram, 40);
    assert_eq!(left(&ram, 0), []);
    region.taken(&ram, 1).expect("it is there");
    let refused = open(&ram, 40).map(drop);
    assert_eq!(
        refused,
        Err(Broken(
            "the record of requests in progress is of another queue"
        ))
    );
}

#[test]
fn what_lies_there_before_the_first_step_means_nothing() {
    let ram = ram();
    ram.write(AT, &[0xff; 400]);
    ram.store(AT + 8, 0);
    new(&ram, 3);
    assert_eq!(left(&ram, 3), []);
}

#[test]
fn nonsense_is_refused_or_comes_to_heads_that_are_there() {
    let sentence = |ram: &Ram, used| open(ram, used).map(drop).expect_err("nonsense").0;
    let ram = ram();
    new(&ram, 0);
    ram.store(AT + 12, ENTRIES);
    assert!(sentence(&ram, 1).contains("cannot be"));
    ram.store(AT + 10, ENTRIES + 1);
    assert!(sentence(&ram, 0).contains("another version or size"));
    ram.store(AT + 8, 2);
    assert!(sentence(&ram, 0).contains("another version or size"));
    assert!(QueueRegion::open(&ram, 512 - 8, ENTRIES, 0).is_err());
    // A list that is a loop, and entries with equal submission numbers.
    let ram = self::ram();
    ram.write(AT, &vec![1; 400]);
    for (field, value) in [(8, VERSION), (10, ENTRIES), (12, 0), (14, 0)] {
        ram.store(AT + field, value);
    }
    ram.store(AT + 16 + 6, 0);
    assert_eq!(left(&ram, ENTRIES), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_record_stays_with_its_disk() {
    let shape = Shape {
        queues: 1,
        entries: 8,
    };
    let (ram, one, other) = (ram(), [1; 52], [2; 52]);
    own(&ram, shape, &one).expect("it is nobody's");
    own(&ram, shape, &one).expect("it is its own");
    assert!(
        own(&ram, shape, &other)
            .expect_err("it is not")
            .0
            .contains("another disk")
    );
    // Another back end has left no room for the identity, so any disk may claim the record.
    own(&Ram::new(200), shape, &other).expect("it may be anybody's");
}

#[test]
fn every_queue_has_a_region_of_its_own() {
    let shape = Shape {
        queues: 3,
        entries: 8,
    };
    assert_eq!(shape.region(0), Some(0));
    assert_eq!(shape.region(2), Some(2 * 192));
    assert_eq!(shape.region(3), None);
    assert_eq!(shape.bytes(), 3 * 192);
}
