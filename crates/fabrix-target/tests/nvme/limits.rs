//! Limits of a peer's cost: time before authentication, connections, memory.

use std::time::{Duration, Instant};

use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;
use fabrix_target::{Deadlines, Notice};

use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::host::{Data, Host};
use crate::common::wire::{Digests, icreq};
use crate::common::{PATIENCE, Plan, Stage, pattern};
use crate::on_both_engines;

on_both_engines!(
    who_does_not_say_who_it_is_in_time_is_hung_up_on,
    more_connections_than_allowed_are_closed_and_later_there_is_room,
    a_host_that_never_reads_holds_little_memory_and_no_one_up,
    a_host_that_takes_all_buffers_costs_others_a_retry,
    a_shard_with_a_full_mailbox_is_told_later,
);

fn quick() -> Deadlines {
    Deadlines {
        connect: Duration::from_millis(150),
        ..Deadlines::default()
    }
}

fn who_does_not_say_who_it_is_in_time_is_hung_up_on(engine: Engine) {
    let plan = Plan {
        deadlines: quick(),
        ..Plan::default()
    };
    let stage = Stage::set(engine, plan);
    let (mut admin, mut io) = stage.admin_and_io();
    let began = Instant::now();
    let mut silent = stage.dial();
    let mut half = stage.dial();
    half.send(&icreq(Digests::NONE)[..100]);
    let mut opened = stage.dial();
    opened.open(Digests::NONE);
    let mut refused = stage.dial();
    refused.open(Digests::NONE);
    let answer = refused.run(SubmissionEntry::flush(1), Data::None);
    assert_eq!(answer.status, Status::COMMAND_SEQUENCE_ERROR);
    for host in [&mut silent, &mut half, &mut opened, &mut refused] {
        assert!(host.receive().is_err(), "hung up on without a word");
    }
    assert!(
        began.elapsed() >= quick().connect,
        "but not before the time"
    );
    for _ in 0..4 {
        stage.notice(|notice| matches!(notice, Notice::Refused { .. }));
    }
    io.write(1, 0, &[1; 512]);
    assert_eq!(
        admin.run(SubmissionEntry::keep_alive(), Data::None).status,
        Status::SUCCESS
    );
    assert_eq!(stage.target.connections(), 2, "who has said it stays");
}

fn more_connections_than_allowed_are_closed_and_later_there_is_room(engine: Engine) {
    let plan = Plan {
        max_connections: 16,
        deadlines: quick(),
        ..Plan::default()
    };
    let stage = Stage::set(engine, plan);
    let (_admin, mut io) = stage.admin_and_io();
    let mut flood: Vec<_> = (0..64).map(|_| stage.dial()).collect();
    stage.notice(|notice| matches!(notice, Notice::TooManyConnections));
    assert!(
        stage.target.connections() <= 16,
        "{}",
        stage.target.connections()
    );
    io.write(1, 0, &[1; 4096]);
    assert_eq!(
        io.read(1, 0, 8),
        [1; 4096],
        "who is there is served meanwhile"
    );
    for host in &mut flood {
        assert!(
            host.receive().is_err(),
            "closed at once, or when its time was over"
        );
    }
    stage.until("the flood has gone", |stage| {
        stage.target.connections() == 2
    });
    stage.serves_a_fresh_host();
}

fn a_host_that_never_reads_holds_little_memory_and_no_one_up(engine: Engine) {
    const READS: usize = 120;
    let disk = TestDisk::new(4 << 20);
    let plan = Plan {
        shards: 1,
        ..Plan::of(disk.clone())
    };
    let stage = Stage::set(engine, plan);
    let (admin, mut greedy) = stage.admin_and_io();
    let data = pattern(1 << 20, 3);
    greedy.write(1, 0, &data);
    disk.when(Kind::Read, Do::Copy);
    let read = SubmissionEntry::read(1, 0, 2048);
    let ids: Vec<_> = (0..READS)
        .map(|_| greedy.submit(read, Data::Expect(1 << 20)))
        .collect();
    stage.until("the reads have begun", |stage| {
        stage.buffer_bytes() > 4 << 20
    });
    let mut other = stage.io(&admin, 2);
    for round in 0..50 {
        other.write(1, 4096, &pattern(8192, round));
        assert_eq!(other.read(1, 4096, 16), pattern(8192, round));
        let held = stage.buffer_bytes();
        assert!(
            held < 20 << 20,
            "{held} bytes are held for one that does not read"
        );
    }
    for id in ids {
        assert!(
            greedy.finish(id).data == data,
            "when it reads, it gets everything"
        );
    }
    drop((admin, greedy, other));
    stage.until_empty();
}

/// Submits as many writes as the queue has room for, and sends no data for them.
fn hoard(io: &mut Host, bytes: usize) -> usize {
    let data = vec![0; bytes];
    let write = SubmissionEntry::write(1, 0, u32::try_from(bytes / 512).expect("small"), false);
    for count in 0..127 {
        io.submit(write, Data::Fetch(&data));
        let answer = io.receive().expect("R2T or CapsuleResp");
        if answer.kind == 5 {
            let status = Status::from_field(answer.u16(22));
            assert_eq!(status, Status::NAMESPACE_NOT_READY, "worth a retry");
            assert!(!status.dnr);
            return count;
        }
    }
    127
}

fn a_host_that_takes_all_buffers_costs_others_a_retry(engine: Engine) {
    let plan = Plan {
        shards: 1,
        arena_bytes: 2 << 20,
        ..Plan::default()
    };
    let stage = Stage::set(engine, plan);
    let (admin, mut hoarder) = stage.admin_and_io();
    let mut other = stage.io(&admin, 2);
    let count = hoard(&mut hoarder, 16 << 10);
    assert!(
        (100..127).contains(&count),
        "{count} buffers of 16 KiB in 2 MiB"
    );
    other.write(1, 0, &[1; 4096]);
    assert_eq!(
        other.read(1, 0, 8),
        [1; 4096],
        "what needs no buffer goes on"
    );
    let fetched = other.try_write(1, 0, &[1; 16 << 10], 512);
    assert_eq!(fetched.status, Status::NAMESPACE_NOT_READY);
    for _ in 0..3 {
        assert!(
            stage.dial().receive().is_err(),
            "there is no memory for one more"
        );
    }
    drop(hoarder);
    stage.until("its buffers are free", |stage| {
        stage.target.connections() == 2
    });
    other.write(1, 0, &[2; 16 << 10]);
    drop((other, admin));
    stage.until_empty();
    stage.serves_a_fresh_host();
}

fn a_shard_with_a_full_mailbox_is_told_later(engine: Engine) {
    let stage = Stage::new(engine);
    let (admin, mut io) = stage.admin_and_io();
    let wake = stage.stop(1);
    while stage.remote(1).run(Box::new(|_| ())).is_ok() {}
    drop(admin);
    let deadline = Instant::now() + PATIENCE;
    while stage.target.controllers() > 0 {
        assert!(Instant::now() < deadline, "the controller never ends");
        stage.ask(0, |_| ());
    }
    drop(wake);
    assert!(io.receive().is_err(), "no queue outlives its controller");
    stage.until_empty();
}
