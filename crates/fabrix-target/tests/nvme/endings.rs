//! Ends of connections, controllers and the target. Requests at disks are not forgotten, and
//! commands in progress are answered while the peer is connected.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use fabrix_proto::nvme::fabrics::{Connect, Property};
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;
use fabrix_target::{Deadlines, Notice};

use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::host::{CC_DISABLE, CC_ENABLE, CC_SHUTDOWN, Data, Host, wish};
use crate::common::wire::Digests;
use crate::common::{Plan, Stage, pattern};
use crate::on_both_engines;

on_both_engines!(
    a_dropped_connection_stays_until_the_disk_has_answered,
    event_requests_end_unanswered_when_the_host_forgets_them_or_shuts_down,
    a_reset_waits_for_the_disk,
    a_shutdown_waits_for_the_disk,
    an_io_queue_that_disconnects_is_answered_and_closed,
    the_admin_queue_takes_its_io_queues_along,
    draining_answers_what_was_begun_and_then_closes,
    draining_does_not_wait_for_a_host_that_does_nothing,
    draining_an_idle_target_closes_everything,
);

/// A stage over a disk that keeps requests of this kind.
fn keeping(engine: Engine, kind: Kind) -> (std::sync::Arc<TestDisk>, Stage) {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    disk.when(kind, Do::Keep);
    (disk, stage)
}

fn a_dropped_connection_stays_until_the_disk_has_answered(engine: Engine) {
    let (disk, stage) = keeping(engine, Kind::Read);
    let admin = stage.admin();
    for (qid, digests) in [(1, Digests::NONE), (2, Digests::BOTH)] {
        let mut io = Host::io_with(stage.address, admin.controller, qid, digests);
        for _ in 0..3 {
            io.submit(SubmissionEntry::read(1, 0, 128), Data::Expect(64 << 10));
        }
        disk.until_kept(3);
        drop(io);
        for shard in 0..2 {
            stage.ask(shard, |_| ());
        }
        assert_eq!(stage.target.connections(), 2, "three reads are at the disk");
        disk.release();
        stage.until("the connection is gone", |stage| {
            stage.target.connections() == 1
        });
    }
    disk.when(Kind::Read, Do::Obey);
    drop(admin);
    stage.until_empty();
    stage.serves_a_fresh_host();
}

/// SPDK's host forgets its event requests, reuses their ids, and treats an answer to one as a
/// fault.
fn event_requests_end_unanswered_when_the_host_forgets_them_or_shuts_down(engine: Engine) {
    let stage = Stage::new(engine);
    let mut admin = stage.admin();
    let request = SubmissionEntry::async_event_request();
    let held = [(); 4].map(|()| admin.submit(request, Data::None));
    for id in held {
        admin.forget(id);
    }
    let keep_alive = admin.capsule(SubmissionEntry::keep_alive(), held[3], Data::None);
    admin.expect_answer(held[3], Data::None);
    admin.send(&keep_alive);
    assert_eq!(admin.finish(held[3]).status, Status::SUCCESS);
    let in_its_place = admin.submit(request, Data::None);
    admin.forget(in_its_place);
    assert_eq!(
        admin.property_set(Property::CC, CC_SHUTDOWN).status,
        Status::SUCCESS
    );
    stage.until("SHST: complete", |_| {
        admin.property(Property::CSTS) >> 2 & 3 == 2
    });
}

fn a_reset_waits_for_the_disk(engine: Engine) {
    let (disk, stage) = keeping(engine, Kind::Write);
    let (mut admin, mut io) = stage.admin_and_io();
    let mut second = stage.io(&admin, 2);
    let data = pattern(16 << 10, 1);
    let write = SubmissionEntry::write(1, 0, 32, false);
    io.submit(write, Data::Fetch(&data));
    let r2t = io.receive().expect("R2T");
    io.feed(&r2t);
    second.submit(
        SubmissionEntry::write(1, 64, 8, false),
        Data::Inline(&data[..4096]),
    );
    disk.until_kept(2);
    assert_eq!(
        admin.property_set(Property::CC, CC_DISABLE).status,
        Status::SUCCESS
    );
    io.expect_close();
    second.expect_close();
    for _ in 0..10 {
        assert_eq!(
            admin.property(Property::CSTS) & 1,
            1,
            "the disk still writes"
        );
    }
    let early = admin.property_set(Property::CC, CC_ENABLE);
    assert!(!early.status.is_success(), "not before the reset is over");
    disk.when(Kind::Write, Do::Obey);
    disk.release();
    stage.until("CSTS.RDY is 0", |_| admin.property(Property::CSTS) & 1 == 0);
    // An I/O connection leaves the count after it has reported its end to the controller.
    stage.until("one connection", |stage| stage.target.connections() == 1);
    admin.enable();
    let mut io = stage.io(&admin, 1);
    assert!(
        io.read(1, 0, 32) == data,
        "the write had been begun, and was not lost"
    );
}

fn a_shutdown_waits_for_the_disk(engine: Engine) {
    let (disk, stage) = keeping(engine, Kind::Write);
    let (mut admin, mut io) = stage.admin_and_io();
    io.submit(
        SubmissionEntry::write(1, 0, 1, false),
        Data::Inline(&[1; 512]),
    );
    disk.until_kept(1);
    assert_eq!(
        admin.property_set(Property::CC, CC_SHUTDOWN).status,
        Status::SUCCESS
    );
    assert_eq!(
        admin.property(Property::CSTS) >> 2 & 3,
        1,
        "SHST: occurring"
    );
    disk.release();
    stage.until("SHST: complete", |_| {
        admin.property(Property::CSTS) >> 2 & 3 == 2
    });
    io.expect_close();
}

fn an_io_queue_that_disconnects_is_answered_and_closed(engine: Engine) {
    let (disk, stage) = keeping(engine, Kind::Read);
    let (admin, mut io) = stage.admin_and_io();
    let read = io.submit(SubmissionEntry::read(1, 0, 8), Data::Expect(4096));
    disk.until_kept(1);
    let bye = io.run(SubmissionEntry::disconnect(), Data::None);
    assert_eq!(bye.status, Status::SUCCESS);
    disk.when(Kind::Read, Do::Obey);
    disk.release();
    assert_eq!(
        io.finish(read).data,
        [0; 4096],
        "what was begun before is answered"
    );
    io.expect_close();
    stage.until("the queue is free", |stage| stage.target.connections() == 1);
    let mut again = stage.io(&admin, 1);
    assert_eq!(again.read(1, 0, 8), [0; 4096]);
}

fn the_admin_queue_takes_its_io_queues_along(engine: Engine) {
    let stage = Stage::new(engine);
    let (admin, first) = stage.admin_and_io();
    let mut queues = vec![first];
    queues.extend((2..=8).map(|qid| stage.io(&admin, qid)));
    let (_others_admin, mut others) = stage.admin_and_io();
    drop(admin);
    for queue in &mut queues {
        assert!(queue.receive().is_err(), "its controller is gone");
    }
    others.write(1, 0, &[1; 512]);
    stage.until("only the other host is left", |stage| {
        stage.target.connections() == 2
    });
    assert_eq!(stage.target.controllers(), 1);
}

/// An admin queue with a keep-alive timeout of a second.
fn with_keep_alive(stage: &Stage) -> Host {
    let mut admin = stage.dial();
    admin.open(Digests::NONE);
    let connected = admin.connect(&Connect {
        keep_alive_ms: 1000,
        ..wish()
    });
    assert_eq!(connected.status, Status::SUCCESS);
    admin.controller = u16::try_from(connected.result).expect("an id");
    admin.enable();
    admin
}

#[test]
fn a_host_that_is_silent_for_too_long_loses_all_its_queues() {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::in_world(Plan::of(disk.clone()));
    disk.when(Kind::Write, Do::Keep);
    let mut admin = with_keep_alive(&stage);
    let mut busy = stage.io(&admin, 1);
    let mut idle = stage.io(&admin, 2);
    let began = stage.now();
    idle.submit(
        SubmissionEntry::write(1, 0, 1, false),
        Data::Inline(&[1; 512]),
    );
    disk.until_kept(1);
    // The controller stays alive as long as the host uses an I/O queue.
    let mut reads = 0;
    while stage.now() - began < Duration::from_millis(2500) {
        let read = busy.capsule(SubmissionEntry::read(1, 0, 1), reads, Data::Expect(512));
        busy.send_anyway(&read);
        assert!(busy.receive().is_ok(), "after {:?}", stage.now() - began);
        reads = reads.wrapping_add(1);
    }
    let silent = stage.now();
    busy.expect_close();
    let lived = stage.now() - silent;
    let once_or_twice = Duration::from_millis(900)..Duration::from_millis(2100);
    assert!(once_or_twice.contains(&lived), "silent for {lived:?}");
    admin.expect_close();
    idle.expect_close();
    stage.notice(
        |notice| matches!(notice, Notice::Disconnected { end, .. } if end.why.contains("keep-alive")),
    );
    assert_eq!(stage.target.controllers(), 0);
    stage.until("one is left", |stage| stage.target.connections() == 1);
    for shard in 0..2 {
        stage.ask(shard, |_| ());
    }
    assert_eq!(
        stage.target.connections(),
        1,
        "its write is still at the disk"
    );
    disk.release();
    stage.until_empty();
}

/// After a long standstill the shard finds the command before it finds that the keep-alive expired.
/// The shard of the lost I/O queue stands still, so it does not know of the loss.
#[test]
fn a_write_of_a_lost_connection_is_never_carried_out_behind_those_of_the_next() {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::in_world(Plan::of(disk.clone()));
    disk.when(Kind::Write, Do::Keep);
    let (admin, mut io) = stage.admin_and_io();
    let write = |data: u8| Data::Inline(if data == 1 { &[1; 512] } else { &[2; 512] });
    io.submit(SubmissionEntry::write(1, 0, 1, false), write(1));
    disk.until_kept(1);
    let stands_still = Duration::from_secs(3);
    stage.stop_for(1, stands_still);
    let lost = stage.now();
    drop((admin, io));
    let mut next = stage.admin();
    assert!(
        stage.now() - lost >= stands_still,
        "both shards know of the end"
    );
    disk.when(Kind::Write, Do::Obey);
    let mut io = stage.io(&next, 1);
    let newer = io.submit(SubmissionEntry::write(1, 0, 1, false), write(2));
    next.property(Property::CSTS);
    disk.release();
    assert_eq!(io.finish(newer).status, Status::SUCCESS);
    assert_eq!(io.read(1, 0, 1), [2; 512]);
}

#[test]
fn a_keep_alive_that_comes_too_late_ends_the_association() {
    let plan = Plan {
        shards: 1,
        ..Plan::default()
    };
    let stage = Stage::in_world(plan);
    let mut admin = with_keep_alive(&stage);
    let mut io = stage.io(&admin, 1);
    stage.stop_for(0, Duration::from_millis(1100)); // as a suspended process stands still
    let keep_alive = admin.capsule(SubmissionEntry::keep_alive(), 1, Data::None);
    admin.send(&keep_alive);
    io.expect_close();
    admin.expect_close();
    stage.until_empty();
}

fn draining_answers_what_was_begun_and_then_closes(engine: Engine) {
    let (disk, stage) = keeping(engine, Kind::Read);
    let (mut admin, mut first) = stage.admin_and_io();
    let mut second = stage.io(&admin, 2);
    let mut third = stage.io(&admin, 3);
    // These connections are the last ones on both shards, so they get the order to drain after all
    // others.
    let mut opened = [stage.dial(), stage.dial()];
    for host in &mut opened {
        host.open(Digests::NONE);
    }
    let data = pattern(64 << 10, 1);
    admin.submit(SubmissionEntry::async_event_request(), Data::None);
    let reads: Vec<_> = (0..8)
        .map(|lba| first.submit(SubmissionEntry::read(1, lba, 8), Data::Expect(4096)))
        .collect();
    let read = second.submit(SubmissionEntry::read(1, 0, 8), Data::Expect(4096));
    disk.until_kept(9);
    let write = third.submit(
        SubmissionEntry::write(1, 512, 128, false),
        Data::Fetch(&data),
    );
    let r2t = third.receive().expect("R2T");
    stage.target.drain();
    for host in &mut opened {
        assert!(
            host.receive().is_err(),
            "who has not said who it is has begun nothing"
        );
    }
    let late = second.run(SubmissionEntry::flush(1), Data::None);
    assert_eq!(
        late.status,
        Status::ABORTED_SQ_DELETION,
        "nothing more is begun"
    );
    assert!(!late.status.dnr, "elsewhere, or later, it may work");
    third.feed(&r2t);
    assert_eq!(
        third.finish(write).status,
        Status::SUCCESS,
        "its data was asked for"
    );
    assert!(third.receive().is_err(), "it has nothing left to do");
    disk.release();
    for id in reads {
        assert_eq!(first.finish(id).data, [0; 4096]);
    }
    assert_eq!(second.finish(read).data, [0; 4096]);
    for host in [&mut first, &mut second, &mut admin] {
        assert!(host.receive().is_err(), "and then it is closed");
    }
    stage.until_empty();
    assert!(
        TcpStream::connect(stage.address).is_err(),
        "nobody listens any more"
    );
}

fn draining_does_not_wait_for_a_host_that_does_nothing(engine: Engine) {
    let disk = TestDisk::new(4 << 20);
    let deadlines = Deadlines {
        parting: Duration::from_millis(100),
        ..Deadlines::default()
    };
    let plan = Plan {
        deadlines,
        ..Plan::of(disk.clone())
    };
    let stage = Stage::set(engine, plan);
    let (admin, mut fetching) = stage.admin_and_io();
    let mut greedy = stage.io(&admin, 2);
    let mut slow = stage.io(&admin, 3);
    let data = vec![0; 64 << 10];
    fetching.submit(SubmissionEntry::write(1, 0, 128, false), Data::Fetch(&data));
    assert!(fetching.receive().is_ok(), "R2T, and no data after it");
    for _ in 0..64 {
        greedy.submit(SubmissionEntry::read(1, 0, 2048), Data::Expect(1 << 20));
    }
    disk.when(Kind::Flush, Do::Keep);
    let flush = slow.submit(SubmissionEntry::flush(1), Data::None);
    disk.until_kept(1);
    stage.target.drain();
    stage.until("those who do nothing are gone", |stage| {
        stage.target.connections() == 2
    });
    let began = Instant::now();
    stage.until("some deadlines have passed", |_| {
        began.elapsed() > 3 * deadlines.parting
    });
    assert_eq!(
        stage.target.connections(),
        2,
        "a disk has the time it needs"
    );
    disk.release();
    assert_eq!(slow.finish(flush).status, Status::SUCCESS);
    stage.until_empty();
}

fn draining_an_idle_target_closes_everything(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut admin, mut io) = stage.admin_and_io();
    io.write(1, 0, &[1; 512]);
    stage.target.drain();
    assert!(io.receive().is_err() && admin.receive().is_err());
    stage.until_empty();
    stage.target.drain();
    assert!(
        TcpStream::connect(stage.address).is_err(),
        "nobody listens any more"
    );
}
