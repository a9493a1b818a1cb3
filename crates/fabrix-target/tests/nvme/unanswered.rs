//! A disk that does not answer: what hosts can still do, and what they must not see.

use std::sync::Arc;
use std::time::Duration;

use fabrix_block::Operation;
use fabrix_proto::nvme::command::Fuse;
use fabrix_proto::nvme::fabrics::Property;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;
use fabrix_target::Deadlines;

use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::host::{CC_DISABLE, CC_SHUTDOWN, Data, Host};
use crate::common::{Plan, Stage, pattern, ram};
use crate::on_both_engines;

on_both_engines!(
    abort_says_at_once_that_it_has_not_aborted,
    a_reset_ends_in_time,
    a_shutdown_ends_in_time,
    a_host_comes_back_and_its_other_disks_go_on,
    coming_back_again_and_again_leaves_nothing_more_behind,
    a_pair_at_the_disk_does_not_hold_a_reset,
    a_disk_that_is_full_holds_its_own_commands_only,
);

/// A stage over a disk that keeps writes, as namespace 1, and a RAM disk as namespace 2.
fn stage(engine: Engine) -> (Arc<TestDisk>, Stage) {
    let disk = TestDisk::new(16 << 20);
    let devices = vec![disk.clone(), ram("other", 512, 1 << 20)];
    let deadlines = Deadlines {
        quiet: Duration::from_millis(100),
        ..Deadlines::default()
    };
    let plan = Plan {
        devices,
        deadlines,
        ..Plan::default()
    };
    let stage = Stage::set(engine, plan);
    disk.when(Kind::Write, Do::Keep);
    (disk, stage)
}

/// Begins a write of the first block.
fn write(io: &mut Host, seed: u8) -> u16 {
    let entry = SubmissionEntry::write(1, 0, 1, false);
    io.submit(entry, Data::Inline(&pattern(512, seed)))
}

/// Checks that namespace 2 reads and writes, and that no other answer comes meanwhile.
fn the_other_namespace_goes_on(io: &mut Host) {
    let entry = SubmissionEntry::write(2, 8, 1, false);
    let write = io.submit(entry, Data::Inline(&pattern(512, 9)));
    let (id, answer) = io.next_answer().expect("an answer");
    assert_eq!((id, answer.status), (write, Status::SUCCESS));
    assert_eq!(io.read(2, 8, 1), pattern(512, 9));
}

/// Checks that the new host's write waits for the old one, and reaches the disk after it.
fn nothing_new_overtakes(disk: &TestDisk, stage: &Stage, io: &mut Host) {
    disk.when(Kind::Write, Do::Obey);
    let new = write(io, 2);
    let read = io.submit(SubmissionEntry::read(1, 0, 1), Data::Expect(512));
    the_other_namespace_goes_on(io);
    assert_eq!(writes(disk), 1, "the new write waits");
    disk.release();
    assert_eq!(io.finish(new).status, Status::SUCCESS);
    io.finish(read);
    assert_eq!(
        io.read(1, 0, 1),
        pattern(512, 2),
        "the newer write is not lost"
    );
    stage.until("the old queue is gone", |stage| {
        stage.target.connections() == 2
    });
}

fn writes(disk: &TestDisk) -> usize {
    let asked = disk.asked().into_iter();
    asked.filter(|it| it.writes()).count()
}

fn abort_says_at_once_that_it_has_not_aborted(engine: Engine) {
    let (disk, stage) = stage(engine);
    let (mut admin, mut io) = stage.admin_and_io();
    let id = write(&mut io, 1);
    disk.until_kept(1);
    let answer = admin.run(SubmissionEntry::abort(1, id), Data::None);
    assert_eq!((answer.status, answer.result), (Status::SUCCESS, 1));
    disk.release();
    assert_eq!(io.finish(id).status, Status::SUCCESS);
}

fn a_reset_ends_in_time(engine: Engine) {
    let (disk, stage) = stage(engine);
    let (mut admin, mut io) = stage.admin_and_io();
    write(&mut io, 1);
    disk.until_kept(1);
    let reset = admin.property_set(Property::CC, CC_DISABLE);
    assert_eq!(reset.status, Status::SUCCESS);
    io.expect_close();
    stage.until("CSTS.RDY is 0", |_| admin.property(Property::CSTS) & 1 == 0);
    admin.enable();
    let mut io = stage.io(&admin, 1);
    nothing_new_overtakes(&disk, &stage, &mut io);
}

fn a_shutdown_ends_in_time(engine: Engine) {
    let (disk, stage) = stage(engine);
    let (mut admin, mut io) = stage.admin_and_io();
    write(&mut io, 1);
    disk.until_kept(1);
    let shutdown = admin.property_set(Property::CC, CC_SHUTDOWN);
    assert_eq!(shutdown.status, Status::SUCCESS);
    stage.until("SHST: complete", |_| {
        admin.property(Property::CSTS) >> 2 & 3 == 2
    });
    disk.release();
    drop((admin, io));
    stage.until_empty();
}

fn a_host_comes_back_and_its_other_disks_go_on(engine: Engine) {
    let (disk, stage) = stage(engine);
    let (admin, mut io) = stage.admin_and_io();
    write(&mut io, 1);
    disk.until_kept(1);
    drop((admin, io));
    stage.until("the controller is gone", |stage| {
        stage.target.controllers() == 0
    });
    stage.until("one queue is left", |stage| stage.target.connections() == 1);
    let (_admin, mut io) = stage.admin_and_io();
    nothing_new_overtakes(&disk, &stage, &mut io);
}

fn coming_back_again_and_again_leaves_nothing_more_behind(engine: Engine) {
    let (disk, stage) = stage(engine);
    let (admin, mut io) = stage.admin_and_io();
    write(&mut io, 1);
    disk.until_kept(1);
    drop((admin, io));
    stage.until("one queue is left", |stage| stage.target.connections() == 1);
    for _ in 0..20 {
        let (_admin, mut io) = stage.admin_and_io();
        write(&mut io, 2);
        io.submit(SubmissionEntry::read(1, 0, 1), Data::Expect(512));
        the_other_namespace_goes_on(&mut io);
    }
    assert_eq!(disk.asked(), [Operation::Write { durable: false }]);
    stage.until("the others are gone", |stage| {
        stage.target.connections() == 1
    });
    disk.release();
    stage.until_empty();
}

fn a_pair_at_the_disk_does_not_hold_a_reset(engine: Engine) {
    let (disk, stage) = stage(engine);
    let (mut admin, mut io) = stage.admin_and_io();
    let compare = SubmissionEntry::compare(1, 0, 1).fused(Fuse::First);
    let second = SubmissionEntry::write(1, 0, 1, false).fused(Fuse::Second);
    io.submit(compare, Data::Inline(&[0; 512]));
    io.submit(second, Data::Inline(&pattern(512, 1)));
    disk.until_kept(1);
    let reset = admin.property_set(Property::CC, CC_DISABLE);
    assert_eq!(reset.status, Status::SUCCESS);
    stage.until("CSTS.RDY is 0", |_| admin.property(Property::CSTS) & 1 == 0);
    disk.release();
    drop((admin, io));
    stage.until_empty();
}

fn a_disk_that_is_full_holds_its_own_commands_only(engine: Engine) {
    let (full, soon) = (TestDisk::new(1 << 20), TestDisk::narrow(1 << 20, 1 << 20));
    let plan = Plan {
        devices: vec![full.clone(), soon.clone()],
        ..Plan::default()
    };
    let stage = Stage::set(engine, plan);
    full.when(Kind::Write, Do::Busy);
    soon.when(Kind::Write, Do::Busy);
    let (_admin, mut io) = stage.admin_and_io();
    let held = write(&mut io, 1);
    full.until_refused();
    let entry = SubmissionEntry::write(2, 0, 1, false);
    let other = io.submit(entry, Data::Inline(&pattern(512, 2)));
    soon.until_refused();
    soon.when(Kind::Write, Do::Obey);
    assert_eq!(io.finish(other).status, Status::SUCCESS);
    full.when(Kind::Write, Do::Obey);
    assert_eq!(io.finish(held).status, Status::SUCCESS);
}
