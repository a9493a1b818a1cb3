//! What the checker accepts and what it refuses.

use super::*;

fn read(checker: &mut Checker, value: Value) -> Result<(), Wrong> {
    let read = checker.read_begins(0..1);
    checker.read_ends(read, &[value])
}

#[test]
fn a_replaced_value_never_comes_back() {
    let mut checker = Checker::new(1);
    for value in [1, 2] {
        write(&mut checker, value, false);
    }
    assert_eq!(read(&mut checker, 2), Ok(()));
    assert!(read(&mut checker, 1).is_err());
    assert!(read(&mut checker, 0).is_err());
}

#[test]
fn writes_at_the_same_time_may_end_in_either_order_until_one_is_seen() {
    let mut checker = Checker::new(1);
    let one = checker.write_begins(1, 0..1);
    let two = checker.write_begins(2, 0..1);
    checker.write_ends(two, 0..1, false);
    checker.write_ends(one, 0..1, false);
    assert_eq!(read(&mut checker, 2), Ok(()));
    assert!(read(&mut checker, 1).is_err());
}

#[test]
fn a_failed_write_may_happen_once_and_again_if_its_host_repeats_it() {
    for repeats in [false, true] {
        let mut checker = Checker::new(1);
        let one = checker.write_begins(1, 0..1);
        checker.write_fails(one, 0..1, repeats);
        assert_eq!(read(&mut checker, 0), Ok(()));
        assert_eq!(read(&mut checker, 1), Ok(()));
        assert!(read(&mut checker, 0).is_err());
        write(&mut checker, 2, false);
        assert_eq!(read(&mut checker, 2), Ok(()));
        assert_eq!(read(&mut checker, 1).is_ok(), repeats);
    }
}

#[test]
fn a_read_may_return_what_was_replaced_while_it_ran() {
    let mut checker = Checker::new(1);
    let early = checker.read_begins(0..1);
    write(&mut checker, 1, false);
    assert_eq!(read(&mut checker, 1), Ok(()));
    assert_eq!(checker.read_ends(early, &[0]), Ok(()));
    assert_eq!(read(&mut checker, 1), Ok(()));
}

fn write(checker: &mut Checker, value: Value, durable: bool) {
    let write = checker.write_begins(value, 0..1);
    checker.write_ends(write, 0..1, durable);
}

fn flush(checker: &mut Checker) {
    let flush = checker.flush_begins();
    checker.flush_ends(flush);
}

#[test]
fn a_loss_of_power_leaves_any_write_since_the_last_flush_and_none_before() {
    for left in 0..5 {
        let mut checker = Checker::new(1);
        write(&mut checker, 1, false);
        write(&mut checker, 2, false);
        flush(&mut checker);
        write(&mut checker, 3, false);
        write(&mut checker, 4, false);
        assert_eq!(read(&mut checker, 4), Ok(()));
        checker.power_lost();
        assert_eq!(read(&mut checker, left).is_ok(), (2..=4).contains(&left));
    }
}

#[test]
fn what_was_seen_after_a_loss_of_power_stays_even_after_the_next() {
    let mut checker = Checker::new(1);
    write(&mut checker, 1, false);
    write(&mut checker, 2, false);
    checker.power_lost();
    assert_eq!(read(&mut checker, 1), Ok(()));
    assert!(read(&mut checker, 2).is_err());
    checker.power_lost();
    assert!(read(&mut checker, 2).is_err());
    assert_eq!(read(&mut checker, 1), Ok(()));
}

#[test]
fn a_flush_covers_what_was_acknowledged_before_it_began_and_no_more() {
    for left in [1, 2] {
        let mut checker = Checker::new(1);
        write(&mut checker, 1, false);
        let early = checker.flush_begins();
        write(&mut checker, 2, false);
        checker.flush_ends(early);
        checker.power_lost();
        assert_eq!(read(&mut checker, left), Ok(()));
    }
    let mut checker = Checker::new(1);
    write(&mut checker, 1, false);
    let failed = checker.flush_begins();
    checker.read_fails(failed);
    checker.power_lost();
    assert_eq!(read(&mut checker, 0), Ok(()));
}

#[test]
fn a_durable_write_is_left_unless_one_at_the_same_time_comes_later() {
    for (left, is_right) in [(0, false), (1, false), (2, true), (3, true)] {
        let mut checker = Checker::new(1);
        write(&mut checker, 1, false);
        let three = checker.write_begins(3, 0..1);
        write(&mut checker, 2, true);
        checker.write_ends(three, 0..1, false);
        checker.power_lost();
        assert_eq!(read(&mut checker, left).is_ok(), is_right, "{left}");
    }
}

#[test]
fn a_write_that_runs_may_be_lost_with_the_power_after_it_was_seen() {
    let mut checker = Checker::new(1);
    let one = checker.write_begins(1, 0..1);
    assert_eq!(read(&mut checker, 1), Ok(()));
    checker.power_lost();
    assert_eq!(read(&mut checker, 0), Ok(()));
    checker.write_ends(one, 0..1, false);
    assert_eq!(read(&mut checker, 1), Ok(()));
}

#[test]
fn a_comparison_may_find_again_what_another_has_replaced_before_the_power_was_lost() {
    let mut checker = Checker::new(1);
    write(&mut checker, 1, true);
    for value in [2, 3] {
        let read = checker.read_begins(0..1);
        let write = checker.write_begins(value, 0..1);
        let ended = checker.compare_ends(read, 1, write, false);
        assert_eq!(ended, Ok(()));
        checker.power_lost();
    }
}

#[test]
fn a_block_deallocated_without_a_promise_holds_what_was_first_read() {
    for (left, other) in [(0, 1), (1, 0)] {
        let mut checker = Checker::new(1);
        write(&mut checker, 1, false);
        let hint = checker.write_begins(0, 0..1);
        checker.may_have_changed(hint, 0..1);
        assert_eq!(read(&mut checker, left), Ok(()));
        assert!(read(&mut checker, other).is_err());
    }
}

#[test]
fn a_write_after_the_value_that_a_comparison_found_comes_after_the_comparison() {
    let mut checker = Checker::new(1);
    write(&mut checker, 1, false);
    let read_of_comparison = checker.read_begins(0..1);
    let compared = checker.write_begins(2, 0..1);
    write(&mut checker, 3, false);
    let ended = checker.compare_ends(read_of_comparison, 1, compared, false);
    assert_eq!(ended, Ok(()));
    assert!(read(&mut checker, 2).is_err());
    assert_eq!(read(&mut checker, 3), Ok(()));
}

#[test]
fn zeroes_that_several_writes_may_have_left_say_of_none_that_it_has_happened() {
    let mut checker = Checker::new(1);
    let zeroes = checker.write_begins(0, 0..1);
    assert_eq!(read(&mut checker, 0), Ok(()), "as before any write");
    write(&mut checker, 1, false);
    checker.write_fails(zeroes, 0..1, false);
    assert_eq!(read(&mut checker, 1), Ok(()));
    assert_eq!(read(&mut checker, 0), Ok(()), "they come late");
}

#[test]
fn a_write_that_was_seen_and_has_failed_comes_again_only_if_its_host_repeats_it() {
    for repeats in [false, true] {
        let mut checker = Checker::new(1);
        let one = checker.write_begins(1, 0..1);
        assert_eq!(read(&mut checker, 1), Ok(()));
        write(&mut checker, 2, false);
        checker.write_fails(one, 0..1, repeats);
        assert_eq!(read(&mut checker, 2), Ok(()));
        assert_eq!(read(&mut checker, 1).is_ok(), repeats);
    }
}
