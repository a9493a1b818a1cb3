//! No connection with very many commands, and no very long command, keeps a shard from the others,
//! even if the disk answers at once.

use std::io::Read;

use fabrix_block::Operation;
use fabrix_proto::nvme::command::DatasetRange;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;
use zerocopy::IntoBytes;

use crate::common::disk::TestDisk;
use crate::common::host::{Data, Host};
use crate::common::{Plan, Stage, ram};
use crate::on_both_engines;

on_both_engines!(
    one_connection_does_not_keep_the_turn_for_itself,
    a_long_verify_lets_others_have_their_turn,
    a_long_write_zeroes_lets_others_have_their_turn,
    a_long_list_of_ranges_lets_others_have_their_turn,
);

/// The receive buffer holds thousands of commands of one connection when another connection's only
/// command arrives. This command must not be the last to reach the disk.
fn one_connection_does_not_keep_the_turn_for_itself(engine: Engine) {
    const COMMANDS: usize = 2000;
    let disk = TestDisk::new(1 << 20);
    let plan = Plan {
        shards: 1,
        ..Plan::of(disk.clone())
    };
    let stage = Stage::set(engine, plan);
    let (admin, mut flooding) = stage.admin_and_io();
    let mut other = stage.io(&admin, 2);
    let flush = flooding.capsule(SubmissionEntry::flush(1), 1, Data::None);
    let flood = flush.repeat(COMMANDS);
    let mut answers = vec![0; COMMANDS * 24];
    // The receive buffer grows as it is filled.
    for last in [false, false, false, true] {
        let before = disk.asked().len();
        let wake = stage.stop(0);
        flooding.send(&flood);
        let read = other.submit(SubmissionEntry::read(1, 0, 1), Data::Expect(512));
        drop(wake);
        assert_eq!(other.finish(read).status, Status::SUCCESS);
        flooding
            .stream
            .read_exact(&mut answers)
            .expect("every command is answered");
        let asked = disk.asked().split_off(before);
        assert_eq!(asked.len(), COMMANDS + 1);
        let position = asked
            .iter()
            .position(|operation| *operation == Operation::Read);
        let position = position.expect("it was asked");
        assert!(
            !last || position < COMMANDS / 2,
            "the other's command came as number {position}"
        );
    }
}

/// The disk answers at once. Without pauses the command would hold its shard until its end.
fn a_long_verify_lets_others_have_their_turn(engine: Engine) {
    let stage = Stage::set(engine, Plan::of(ram("long", 512, 32 << 20)));
    let (_admin, mut io) = stage.admin_and_io();
    is_overtaken(&mut io, SubmissionEntry::verify(1, 0, 65536));
}

/// Expects the answer of a short command before that of the long command in front of it.
fn is_overtaken(io: &mut Host, command: SubmissionEntry) {
    let (long, short) = (io.fresh_id(), io.fresh_id());
    let both = [
        io.capsule(command, long, Data::None),
        io.capsule(SubmissionEntry::flush(1), short, Data::None),
    ];
    for id in [long, short] {
        io.expect_answer(id, Data::None);
    }
    io.send(&both.concat());
    for id in [short, long] {
        let (answered, answer) = io.next_answer().expect("the connection stays");
        assert_eq!((answered, answer.status), (id, Status::SUCCESS));
    }
}

/// 32 MiB: more than a RAM disk zeroes at once.
fn a_long_write_zeroes_lets_others_have_their_turn(engine: Engine) {
    let stage = Stage::set(engine, Plan::of(ram("long", 512, 32 << 20)));
    let (_admin, mut io) = stage.admin_and_io();
    is_overtaken(
        &mut io,
        SubmissionEntry::write_zeroes(1, 0, 65536, false, false),
    );
}

/// Another connection's command reaches the disk between the ranges, with many ranges and with
/// large ones.
fn a_long_list_of_ranges_lets_others_have_their_turn(engine: Engine) {
    let disk = TestDisk::new(1 << 30);
    let plan = Plan {
        shards: 1,
        ..Plan::of(disk.clone())
    };
    let stage = Stage::set(engine, plan);
    let (admin, mut long) = stage.admin_and_io();
    let mut other = stage.io(&admin, 2);
    for (count, blocks) in [(256, 1), (32, 32768)] {
        let ranges = (0..u64::from(count)).map(|lba| DatasetRange::new(lba, blocks));
        let ranges: Vec<_> = ranges.collect();
        let trim = SubmissionEntry::dataset_management(1, count, true);
        let before = disk.asked().len();
        let wake = stage.stop(0);
        let trim = long.submit(trim, Data::Inline(ranges.as_bytes()));
        let flush = other.submit(SubmissionEntry::flush(1), Data::None);
        drop(wake);
        assert_eq!(other.finish(flush).status, Status::SUCCESS);
        assert_eq!(long.finish(trim).status, Status::SUCCESS);
        let asked = disk.asked().split_off(before);
        assert_eq!(asked.len(), ranges.len() + 1);
        let position = asked
            .iter()
            .position(|operation| *operation == Operation::Flush);
        let position = position.expect("it was asked");
        assert!(position < ranges.len(), "the other's command came last");
    }
}
