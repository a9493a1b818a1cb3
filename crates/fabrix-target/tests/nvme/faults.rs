//! Disks that fail, answer late or have no room. Each command gets the right status, and its
//! connection stays.

use std::time::Duration;

use fabrix_block::filter::fault::Fault;
use fabrix_block::spec::{Effect, Inject, On};
use fabrix_block::{Operation, Status as DiskStatus};
use fabrix_proto::nvme::command::DatasetRange;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;
use zerocopy::IntoBytes;

use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::host::{Data, Host};
use crate::common::wire::Digests;
use crate::common::{Plan, Stage, pattern, ram};
use crate::on_both_engines;

on_both_engines!(
    each_status_of_a_disk_has_its_nvme_status,
    a_failed_flush_is_a_write_fault_that_no_retry_mends,
    what_a_busy_disk_refuses_is_tried_again,
    forced_unit_access_reaches_the_disk,
    commands_in_several_steps_stop_at_the_first_error,
    a_verify_goes_on_where_its_disk_had_no_room,
    a_deallocation_goes_on_where_its_disk_had_no_room,
    late_answers_meet_their_own_commands,
);

/// Expected NVMe status for each disk status, with Do Not Retry.
fn expected() -> [(DiskStatus, (u8, u8, bool)); 13] {
    use DiskStatus as D;
    [
        (D::Ok, (0, 0x00, false)),
        (D::OutOfRange, (0, 0x80, true)),
        (D::Unsupported, (0, 0x01, true)),
        (D::ReadOnly, (0, 0x20, true)),
        (D::MediaRead, (2, 0x81, true)),
        (D::MediaWrite, (2, 0x80, true)),
        (D::NoSpace, (0, 0x81, true)),
        (D::CompareFailed, (2, 0x85, true)),
        (D::NotReady, (0, 0x82, false)),
        (D::Aborted, (0, 0x21, false)),
        (D::Refused, (3, 0x00, false)),
        (D::Degraded, (2, 0x80, true)),
        (D::Internal, (0, 0x06, false)),
    ]
}

fn numbers(status: Status) -> (u8, u8, bool) {
    (status.sct, status.sc, status.dnr)
}

fn each_status_of_a_disk_has_its_nvme_status(engine: Engine) {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let admin = stage.admin();
    let (small, large) = (pattern(4096, 1), pattern(64 << 10, 2));
    for (qid, digests) in [(1, Digests::NONE), (2, Digests::BOTH)] {
        let mut io = Host::io_with(stage.address, admin.controller, qid, digests);
        for (status, wanted) in expected() {
            for way in [Do::Answer(status), Do::AnswerLater(status)] {
                for kind in [Kind::Write, Kind::Flush, Kind::Zeroes] {
                    disk.when(kind, way);
                }
                let write = |blocks| SubmissionEntry::write(1, 0, blocks, false);
                let zeroes = SubmissionEntry::write_zeroes(1, 0, 8, true, false);
                for (entry, data) in [
                    (write(8), Data::Inline(&small[..])),
                    (write(128), Data::Fetch(&large)),
                    (SubmissionEntry::flush(1), Data::None),
                    (zeroes, Data::None),
                ] {
                    let answer = io.run(entry, data);
                    assert_eq!(numbers(answer.status), wanted, "{way:?} to {entry:?}");
                }
                if status.is_ok() {
                    continue; // a disk gives no successful read without data
                }
                disk.when(Kind::Read, way);
                let read = SubmissionEntry::read(1, 0, 8);
                let answer = io.run_anyway(read, Data::Expect(4096));
                assert_eq!(numbers(answer.status), wanted, "{way:?} to a read");
                assert!(answer.data.is_empty(), "no data with an error");
                for (entry, data) in [
                    (SubmissionEntry::compare(1, 0, 8), Data::Inline(&small[..])),
                    (SubmissionEntry::verify(1, 0, 8), Data::None),
                ] {
                    let answer = io.run(entry, data);
                    assert_eq!(numbers(answer.status), wanted, "{way:?} to {entry:?}");
                }
            }
        }
        for kind in [Kind::Read, Kind::Write, Kind::Flush, Kind::Zeroes] {
            disk.when(kind, Do::Obey);
        }
        io.write(1, 0, &large);
        assert!(
            io.read(1, 0, 128) == large,
            "the connection is as good as new"
        );
    }
    drop(admin);
    stage.until_empty();
}

fn a_failed_flush_is_a_write_fault_that_no_retry_mends(engine: Engine) {
    let nth = |on| Inject {
        effect: Effect::ErrorNth(2),
        on,
    };
    let disk = Fault::new(
        ram("flawed", 512, 1 << 20),
        &[nth(On::Flush), nth(On::Read)],
        1,
    );
    let stage = Stage::set(engine, Plan::of(disk));
    let (_admin, mut io) = stage.admin_and_io();
    let flush = SubmissionEntry::flush(1);
    assert_eq!(io.run(flush, Data::None).status, Status::SUCCESS);
    let failed = io.run(flush, Data::None).status;
    assert_eq!(
        numbers(failed),
        (2, 0x80, true),
        "Write Fault, and no use in trying again"
    );
    assert_eq!(io.read(1, 0, 8), [0; 4096]);
    assert_eq!(
        io.try_read(1, 0, 8, 512).status,
        Status::UNRECOVERED_READ_ERROR
    );
    assert_eq!(io.read(1, 0, 8), [0; 4096], "the connection stays");
}

fn what_a_busy_disk_refuses_is_tried_again(engine: Engine) {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let (_admin, mut io) = stage.admin_and_io();
    let (small, large) = (pattern(4096, 1), pattern(64 << 10, 2));
    io.write(1, 512, &large);
    for kind in [Kind::Read, Kind::Write, Kind::Flush, Kind::Zeroes] {
        disk.when(kind, Do::Busy);
    }
    let commands = [
        (
            SubmissionEntry::write(1, 0, 8, false),
            Data::Inline(&small[..]),
        ),
        (
            SubmissionEntry::write(1, 8, 128, false),
            Data::Fetch(&large),
        ),
        (SubmissionEntry::read(1, 512, 128), Data::Expect(64 << 10)),
        (
            SubmissionEntry::compare(1, 512, 8),
            Data::Inline(&large[..4096]),
        ),
        (SubmissionEntry::compare(1, 512, 128), Data::Fetch(&large)),
        (SubmissionEntry::verify(1, 0, 8192), Data::None),
        (SubmissionEntry::flush(1), Data::None),
        (
            SubmissionEntry::write_zeroes(1, 1024, 8, false, false),
            Data::None,
        ),
    ];
    let mut ids = Vec::new();
    for (entry, data) in commands {
        ids.push(io.submit(entry, data));
        if let Data::Fetch(_) = data {
            let r2t = io.receive().expect("R2T");
            io.feed(&r2t);
        }
    }
    disk.until_refused();
    // Other data overwrites the capsules' data in the receive buffer meanwhile.
    let noise = vec![0xee; 8192];
    for _ in 0..8 {
        let wrong = io.run(
            SubmissionEntry::write(9, 0, 16, false),
            Data::Inline(&noise),
        );
        assert_eq!(wrong.status, Status::INVALID_NAMESPACE);
    }
    for kind in [Kind::Read, Kind::Flush, Kind::Zeroes, Kind::Write] {
        disk.when(kind, Do::Obey);
    }
    for id in ids {
        let answer = io.finish(id);
        assert_eq!(answer.status, Status::SUCCESS, "command {id:#x}");
        assert!(answer.data.is_empty() || answer.data == large);
    }
    assert!(io.read(1, 0, 8) == small && io.read(1, 8, 128) == large);
    stage.until("nothing of them is kept", |stage| {
        stage.buffer_bytes() <= 4 * (256 << 10)
    });
}

fn forced_unit_access_reaches_the_disk(engine: Engine) {
    let disk = TestDisk::new(1 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let (_admin, mut io) = stage.admin_and_io();
    let write = SubmissionEntry::write(1, 0, 1, true);
    assert_eq!(
        io.run(write, Data::Inline(&[1; 512])).status,
        Status::SUCCESS
    );
    let zeroes = SubmissionEntry::write_zeroes(1, 0, 1, true, true);
    assert_eq!(io.run(zeroes, Data::None).status, Status::SUCCESS);
    let mut read = SubmissionEntry::read(1, 0, 1);
    read.cdw12.set(1 << 30);
    assert_eq!(io.run(read, Data::Expect(512)).data, [0; 512]);
    let zeroes = Operation::WriteZeroes {
        deallocate: true,
        durable: true,
    };
    let write = Operation::Write { durable: true };
    let asked = [write, zeroes, Operation::Flush, Operation::Read];
    assert_eq!(disk.asked(), asked, "a forced read flushes first");
    disk.when(Kind::Flush, Do::AnswerLater(DiskStatus::Degraded));
    let failed = io.run_anyway(read, Data::Expect(512));
    assert_eq!(
        failed.status,
        Status::WRITE_FAULT,
        "and does not read what may be lost"
    );
    disk.when(Kind::Flush, Do::AnswerLater(DiskStatus::Ok));
    assert_eq!(io.run(read, Data::Expect(512)).status, Status::SUCCESS);
}

fn commands_in_several_steps_stop_at_the_first_error(engine: Engine) {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let (_admin, mut io) = stage.admin_and_io();
    let ranges: Vec<_> = (0..5)
        .map(|index| DatasetRange::new(index * 100, 10))
        .collect();
    let trim = SubmissionEntry::dataset_management(1, 5, true);
    for (way, status, steps) in [
        (Do::Obey, Status::SUCCESS, 5),
        (Do::AnswerLater(DiskStatus::Ok), Status::SUCCESS, 5),
        (Do::Answer(DiskStatus::MediaWrite), Status::WRITE_FAULT, 1),
        (
            Do::AnswerLater(DiskStatus::MediaWrite),
            Status::WRITE_FAULT,
            1,
        ),
        (Do::Answer(DiskStatus::Unsupported), Status::SUCCESS, 5),
        (Do::AnswerLater(DiskStatus::Unsupported), Status::SUCCESS, 5),
    ] {
        disk.when(Kind::Zeroes, way);
        let before = disk.asked().len();
        let answer = io.run(trim, Data::Inline(ranges.as_bytes()));
        assert_eq!(answer.status, status, "{way:?}");
        assert_eq!(disk.asked().len() - before, steps, "{way:?}");
    }
    let verify = SubmissionEntry::verify(1, 0, 8192);
    for (way, status, steps) in [
        (Do::Obey, Status::SUCCESS, 32),
        (Do::AnswerLater(DiskStatus::Ok), Status::SUCCESS, 32),
        (
            Do::AnswerLater(DiskStatus::MediaRead),
            Status::UNRECOVERED_READ_ERROR,
            1,
        ),
    ] {
        disk.when(Kind::Read, way);
        let before = disk.asked().len();
        assert_eq!(io.run(verify, Data::None).status, status, "{way:?}");
        assert_eq!(
            disk.asked().len() - before,
            steps,
            "{way:?}, in pieces of 128 KiB"
        );
    }
}

/// A Verify that restarted at a busy disk would read the same pieces again and again.
fn a_verify_goes_on_where_its_disk_had_no_room(engine: Engine) {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let (_admin, mut io) = stage.admin_and_io();
    disk.when(Kind::Read, Do::Keep);
    let verify = io.submit(SubmissionEntry::verify(1, 0, 8192), Data::None);
    disk.until_kept(1);
    disk.when(Kind::Read, Do::Busy);
    disk.release();
    disk.until_refused();
    disk.when(Kind::Read, Do::Obey);
    assert_eq!(io.finish(verify).status, Status::SUCCESS);
    let read = disk.asked().len() - disk.refused();
    assert_eq!(read, 32, "each piece of 128 KiB once");
}

/// A busy disk drops no range.
fn a_deallocation_goes_on_where_its_disk_had_no_room(engine: Engine) {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let (_admin, mut io) = stage.admin_and_io();
    io.write(1, 0, &pattern(2048, 1));
    disk.when(Kind::Zeroes, Do::Keep);
    let ranges = [DatasetRange::new(0, 1), DatasetRange::new(2, 1)];
    let list = SubmissionEntry::dataset_management(1, 2, true);
    let deallocation = io.submit(list, Data::Inline(ranges.as_bytes()));
    disk.until_kept(1);
    disk.when(Kind::Zeroes, Do::Busy);
    disk.release();
    disk.until_refused();
    disk.when(Kind::Zeroes, Do::Obey);
    assert_eq!(io.finish(deallocation).status, Status::SUCCESS);
    let mut expected = pattern(2048, 1);
    expected[..512].fill(0);
    expected[1024..1536].fill(0);
    assert_eq!(io.read(1, 0, 4), expected);
    let asked = disk.asked().into_iter();
    let deallocated = asked.filter(|it| *it == Operation::Deallocate).count();
    assert_eq!(deallocated - disk.refused(), 2, "each range once");
}

/// Answers that come late and out of order, on a disk with a delay for writes only.
fn late_answers_meet_their_own_commands(engine: Engine) {
    let delay = Inject {
        effect: Effect::Delay(Duration::from_millis(5)),
        on: On::Write,
    };
    let disk = Fault::new(ram("slow", 512, 4 << 20), &[delay], 1);
    let stage = Stage::set(engine, Plan::of(disk));
    let (_admin, mut io) = stage.admin_and_io();
    let data: Vec<_> = (0..32).map(|seed| pattern(4096, seed)).collect();
    let mut writes = Vec::new();
    for (lba, data) in (0..).step_by(8).zip(&data) {
        writes.push(io.submit(SubmissionEntry::write(1, lba, 8, false), Data::Inline(data)));
        let early = io.run(SubmissionEntry::read(1, 4096, 8), Data::Expect(4096));
        assert_eq!(early.data, [0; 4096], "reads overtake");
    }
    for id in writes.into_iter().rev() {
        assert_eq!(io.finish(id).status, Status::SUCCESS);
    }
    for (lba, data) in (0..).step_by(8).zip(&data) {
        assert!(io.read(1, lba, 8) == *data);
    }
}
