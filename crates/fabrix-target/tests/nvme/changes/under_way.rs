//! Commands in progress at a disk that changes or is removed.

use fabrix_block::Status as DiskStatus;
use fabrix_proto::nvme::command::{DatasetRange, Fuse};
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;
use zerocopy::IntoBytes;

use super::export;
use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::host::Data;
use crate::common::{Plan, Stage, pattern, ram};
use crate::on_both_engines;

on_both_engines!(
    what_is_at_a_removed_disk_is_answered_by_it,
    commands_under_way_find_that_the_disk_became_smaller,
    commands_under_way_find_that_the_namespace_is_gone,
    a_write_that_waits_for_its_data_does_not_land_on_another_disk,
    halves_of_a_pair_do_not_meet_before_and_after_a_removal,
);

fn what_is_at_a_removed_disk_is_answered_by_it(engine: Engine) {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let (_admin, mut io) = stage.admin_and_io();
    let data = pattern(4096, 9);
    io.write(1, 64, &data);
    disk.when(Kind::Read, Do::Keep);
    disk.when(Kind::Write, Do::Keep);
    let read = io.submit(SubmissionEntry::read(1, 64, 8), Data::Expect(4096));
    let write = io.submit(SubmissionEntry::write(1, 0, 8, false), Data::Inline(&data));
    disk.until_kept(2);
    stage.remove(1).expect("it is there");
    let later = io.try_read(1, 64, 8, 512).status;
    assert_eq!(later, Status::INVALID_NAMESPACE);
    disk.release();
    assert!(io.finish(read).data == data);
    assert_eq!(io.finish(write).status, Status::SUCCESS);
    disk.when(Kind::Read, Do::AnswerLater(DiskStatus::MediaRead));
    stage.add(export(1, disk)).expect("the id is free");
    let own = io.try_read(1, 64, 8, 512).status;
    assert_eq!(own, Status::UNRECOVERED_READ_ERROR, "it is open again");
    drop((_admin, io));
    stage.until_empty();
}

/// Starts commands that are at the disk, or wait for the disk or for data, while `change` happens.
/// `expected` is the status of all commands that go to a disk again after the change.
fn under_way(engine: Engine, change: impl FnOnce(&Stage), expected: Status) {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let (_admin, mut io) = stage.admin_and_io();
    for kind in [Kind::Read, Kind::Flush, Kind::Zeroes] {
        disk.when(kind, Do::Keep);
    }
    disk.when(Kind::Write, Do::Busy);
    let data = pattern(16 << 10, 4);
    let block = vec![0; 512];
    let fetching = io.submit(
        SubmissionEntry::write(1, 5000, 32, false),
        Data::Fetch(&data),
    );
    let first_r2t = io.receive().expect("R2T");
    let compare = SubmissionEntry::compare(1, 6000, 1).fused(Fuse::First);
    let compare = io.submit(compare, Data::Inline(&block));
    let write = SubmissionEntry::write(1, 6000, 1, false).fused(Fuse::Second);
    let write = io.submit(write, Data::Fetch(&block));
    let second_r2t = io.receive().expect("R2T");
    let mut durable = SubmissionEntry::read(1, 5000, 1);
    durable.cdw12 = (durable.cdw12.get() | 1 << 30).into();
    let mut ranges = [DatasetRange::new(0, 0); 256];
    ranges[0] = DatasetRange::new(3000, 8);
    ranges[1] = DatasetRange::new(5000, 8);
    let commands = [
        (durable, Data::Expect(512)),
        (SubmissionEntry::verify(1, 3840, 512), Data::None),
        (
            SubmissionEntry::dataset_management(1, 2, true),
            Data::Inline(ranges.as_bytes()),
        ),
        (
            SubmissionEntry::write(1, 7000, 1, false),
            Data::Inline(&block),
        ),
    ];
    let commands: Vec<_> = commands
        .into_iter()
        .map(|(entry, data)| io.submit(entry, data))
        .collect();
    let read = io.submit(SubmissionEntry::read(1, 5000, 1), Data::Expect(512));
    disk.until_kept(4);
    disk.until_refused();
    change(&stage);
    disk.release();
    io.feed(&first_r2t);
    io.feed(&second_r2t);
    assert_eq!(
        io.finish(read).status,
        Status::SUCCESS,
        "it was at the disk"
    );
    for id in commands.into_iter().chain([fetching, compare]) {
        assert_eq!(io.finish(id).status, expected);
    }
    assert_eq!(io.finish(write).status, Status::ABORTED_FAILED_FUSED);
    drop((_admin, io));
    stage.until_empty();
}

fn commands_under_way_find_that_the_disk_became_smaller(engine: Engine) {
    let smaller = TestDisk::new(2 << 20);
    let device = smaller.clone();
    let replace = move |stage: &Stage| stage.replace(export(1, device)).expect("it is");
    under_way(engine, replace, Status::LBA_OUT_OF_RANGE);
    assert_eq!(smaller.asked(), [], "nothing of them lies on it");
}

fn commands_under_way_find_that_the_namespace_is_gone(engine: Engine) {
    let remove = |stage: &Stage| {
        stage.remove(1).expect("it is there");
    };
    under_way(engine, remove, Status::INVALID_NAMESPACE);
    let exchange = move |stage: &Stage| {
        let removed = stage.remove(1).expect("it is there");
        stage.add(removed).expect("the id is free");
    };
    under_way(engine, exchange, Status::INVALID_NAMESPACE);
}

fn a_write_that_waits_for_its_data_does_not_land_on_another_disk(engine: Engine) {
    let stage = Stage::new(engine);
    let (_admin, mut io) = stage.admin_and_io();
    let data = pattern(64 << 10, 5);
    io.submit(SubmissionEntry::write(1, 0, 128, false), Data::Fetch(&data));
    io.receive().expect("R2T");
    stage.remove(1).expect("it is there");
    let other = ram("another", 512, 16 << 20);
    stage.add(export(1, other)).expect("the id is free");
    // The host knows the first disk: its connections end, and it reads the identity anew.
    io.expect_close();
    drop((_admin, io));
    stage.until_empty();
    let (_admin, mut io) = stage.admin_and_io();
    assert!(
        io.read(1, 0, 128) == vec![0; 64 << 10],
        "nothing was written"
    );
    io.write(1, 0, &data);
    assert!(io.read(1, 0, 128) == data, "what comes now is meant for it");
}

fn halves_of_a_pair_do_not_meet_before_and_after_a_removal(engine: Engine) {
    let stage = Stage::new(engine);
    let (_admin, mut io) = stage.admin_and_io();
    let first = SubmissionEntry::compare(1, 0, 2).fused(Fuse::First);
    let first = io.submit(first, Data::Fetch(&[0; 1024]));
    let r2t = io.receive().expect("R2T");
    let removed = stage.remove(1).expect("it is there");
    stage.add(removed).expect("the id is free");
    io.feed(&r2t);
    let second = SubmissionEntry::write(1, 0, 2, false).fused(Fuse::Second);
    let second = io.submit(second, Data::Inline(&[7; 1024]));
    assert_eq!(io.finish(first).status, Status::ABORTED_MISSING_FUSED);
    assert_eq!(io.finish(second).status, Status::ABORTED_MISSING_FUSED);
    assert!(io.read(1, 0, 2) == [0; 1024]);
}
