//! A long command yields its shard to other commands, although its disk answers at once. It does
//! not pause either.

use std::time::{Duration, Instant};

use fabrix_block::Operation;
use fabrix_rt::Engine;

use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::{Plan, Stage, ram};
use crate::initiator::{FINAL, WRITE};
use crate::{good, on_both_engines, rw, session};

on_both_engines!(
    a_long_verify_goes_on_in_the_next_turn,
    a_long_write_of_zeroes_lets_others_have_their_turn,
    many_requests_of_one_command_let_others_have_their_turn,
    what_waits_for_room_does_not_wait_for_what_pauses,
);

/// Half a million requests, whose disk answers at once. A pause of a millisecond between two turns
/// would make this command longer than the test waits.
fn a_long_verify_goes_on_in_the_next_turn(engine: Engine) {
    let stage = Stage::set(engine, Plan::of(ram("long", 512, 64 << 30)));
    let mut initiator = session(&stage, 1, false);
    let began = Instant::now();
    initiator.begin(FINAL, &VERIFY_64G, 0, &[]);
    good(&initiator.end(&[]));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// WRITE SAME of zeroes, of more blocks than a RAM disk zeroes at once. The target answers a
/// following command first.
fn a_long_write_of_zeroes_lets_others_have_their_turn(engine: Engine) {
    let plan = Plan {
        shards: 1,
        ..Plan::of(ram("long", 512, 32 << 20))
    };
    let stage = Stage::set(engine, plan);
    let mut initiator = session(&stage, 1, false);
    let wake = stage.stop(0);
    let long = initiator.begin(WRITE | FINAL, &WRITE_SAME, 512, &[0; 512]);
    let short = initiator.begin(FINAL, &[0; 6], 0, &[]);
    drop(wake);
    for itt in [short, long] {
        let response = initiator.receive();
        assert_eq!((response.u32(16), response.bhs[3]), (itt, 0));
    }
}

/// UNMAP of many ranges, WRITE SAME of a pattern, VERIFY: another session's command reaches the
/// disk in between.
fn many_requests_of_one_command_let_others_have_their_turn(engine: Engine) {
    let disk = TestDisk::new(32 << 20);
    let plan = Plan {
        shards: 1,
        ..Plan::of(disk.clone())
    };
    let stage = Stage::set(engine, plan);
    let (mut long, mut other) = (session(&stage, 1, false), session(&stage, 2, false));
    let (unmap, list) = unmap(256);
    for (flags, cdb, data, requests) in [
        (WRITE | FINAL, &unmap[..], list, 256),
        (WRITE | FINAL, &WRITE_SAME[..], vec![7; 512], 512),
        (FINAL, &VERIFY_32M[..], vec![], 256),
    ] {
        let before = disk.asked().len();
        let wake = stage.stop(0);
        long.begin(flags, cdb, data.len(), &data);
        other.begin(FINAL, &SYNCHRONIZE_CACHE, 0, &[]);
        drop(wake);
        good(&other.end(&[]));
        good(&long.end(&[]));
        let asked = disk.asked().split_off(before);
        assert_eq!(asked.len(), requests + 1);
        let position = asked
            .iter()
            .position(|operation| *operation == Operation::Flush);
        assert!(
            position.expect("it was asked") < requests,
            "the other's command came last"
        );
    }
}

/// A command whose disk had no room continues when the disk has room, although others of its
/// session take many turns.
fn what_waits_for_room_does_not_wait_for_what_pauses(engine: Engine) {
    let disk = TestDisk::new(64 << 30);
    let plan = Plan {
        shards: 1,
        ..Plan::of(disk.clone())
    };
    let stage = Stage::set(engine, plan);
    let mut initiator = session(&stage, 1, false);
    // Half a million requests each, with a copy: longer than the test waits.
    disk.when(Kind::Read, Do::Copy);
    for _ in 0..2 {
        initiator.begin(FINAL, &VERIFY_64G, 0, &[]);
    }
    disk.when(Kind::Write, Do::Busy);
    let write = initiator.begin(WRITE | FINAL, &rw(0x2A, 0, 1), 512, &[7; 512]);
    disk.until_refused();
    disk.when(Kind::Write, Do::Obey);
    let response = initiator.receive();
    assert_eq!((response.u32(16), response.bhs[3]), (write, 0));
}

/// UNMAP, and its list of `ranges` single blocks.
fn unmap(ranges: u16) -> ([u8; 10], Vec<u8>) {
    let mut list = Vec::new();
    for bytes in [6 + ranges * 16, ranges * 16, 0, 0] {
        list.extend(bytes.to_be_bytes());
    }
    for lba in 0..u64::from(ranges) {
        list.extend(lba.to_be_bytes());
        list.extend([0, 0, 0, 1, 0, 0, 0, 0]);
    }
    let [high, low] = (8 + ranges * 16).to_be_bytes();
    ([0x42, 0, 0, 0, 0, 0, 0, high, low, 0], list)
}

/// WRITE SAME(16) of 65,535 blocks.
const WRITE_SAME: [u8; 16] = [0x93, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0];
/// VERIFY(16) of 65,536 blocks, and of 134,217,728.
const VERIFY_32M: [u8; 16] = [0x8F, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
const VERIFY_64G: [u8; 16] = [0x8F, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x08, 0, 0, 0, 0, 0];
const SYNCHRONIZE_CACHE: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];
