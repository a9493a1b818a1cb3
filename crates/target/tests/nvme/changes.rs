//! Exports that change while hosts are connected: what hosts are told and when, what they find then, and what becomes
//! of the commands that were under way.

use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use fabrix_block::exclusive::Exclusive;
use fabrix_block::file::{FileDisk, FileOptions};
use fabrix_block::{Device, OpenErrorKind, Status as DiskStatus};
use fabrix_proto::nvme::command::{DatasetRange, Fuse};
use fabrix_proto::nvme::fabrics::Connect;
use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::log_page::LogId;
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;
use fabrix_target::{Export, Listen, NAMESPACES_MAX, Notice};
use zerocopy::IntoBytes;

use crate::bring_up::{page, read_log, u32_at, u64_at};
use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::host::{Data, Host, wish};
use crate::common::wire::Digests;
use crate::common::{HOST_NQN, PATIENCE, Plan, Stage, pattern, ram};
use crate::on_both_engines;

on_both_engines!(
    a_host_is_told_of_namespaces_that_come_change_and_go,
    changes_are_told_once_until_their_log_is_read,
    changes_that_cannot_be_are_refused_with_a_sentence,
    what_is_at_a_removed_disk_is_answered_by_it,
    commands_under_way_find_that_the_disk_became_smaller,
    commands_under_way_find_that_the_namespace_is_gone,
    a_write_that_waits_for_its_data_does_not_land_on_another_disk,
    halves_of_a_pair_do_not_meet_over_two_disks,
    controllers_on_all_shards_are_told,
    no_host_is_told_before_every_shard_serves_the_change,
    a_full_mailbox_delays_a_change_and_does_not_lose_it,
    a_change_that_a_shard_does_not_answer_is_an_error_and_not_lost,
    who_connects_during_a_change_sees_what_came_of_it,
    ports_come_and_go_and_discovery_is_told,
    hosts_that_may_no_more_lose_their_controllers,
    a_host_that_was_told_of_no_cache_is_not_shown_one,
    a_file_grows_under_a_connected_host,
);

/// A notice (2) that a namespace attribute has changed (00h): read log page 04h.
const NAMESPACE_CHANGED: u64 = 0x0004_0002;
/// A notice (2) that the discovery log has changed (F0h): read log page 70h.
const DISCOVERY_CHANGED: u64 = 0x0070_F002;

fn export(nsid: u32, device: Arc<dyn Device>) -> Export {
    Export { nsid, device }
}

/// An admin queue whose host wants to know of changed namespaces, and its first event request.
fn watching(stage: &Stage) -> (Host, u16) {
    let mut admin = stage.admin();
    let event = watch(&mut admin, 0x100);
    (admin, event)
}

fn watch(admin: &mut Host, events: u32) -> u16 {
    let enable = SubmissionEntry::set_features(FeatureId::ASYNC_EVENT_CONFIGURATION, events);
    assert_eq!(admin.run(enable, Data::None).status, Status::SUCCESS);
    request_event(admin)
}

fn request_event(admin: &mut Host) -> u16 {
    admin.submit(SubmissionEntry::async_event_request(), Data::None)
}

fn expect_event(admin: &mut Host, request: u16, expected: u64) {
    let answer = admin.finish(request);
    assert_eq!(
        (answer.status, answer.result),
        (Status::SUCCESS, expected),
        "the event"
    );
}

/// An event request that is still held can be aborted; one that was answered cannot.
fn expect_no_event(admin: &mut Host, request: u16) {
    let aborted = admin.run(SubmissionEntry::abort(0, request), Data::None);
    assert_eq!((aborted.status, aborted.result), (Status::SUCCESS, 0));
    assert_eq!(admin.finish(request).status, Status::ABORT_REQUESTED);
}

/// The changed namespaces; reading them clears them.
fn changed(admin: &mut Host) -> Vec<u32> {
    list(&read_log(admin, LogId::CHANGED_NAMESPACES, 0, 4096))
}

fn active(admin: &mut Host) -> Vec<u32> {
    list(&page(admin, Cns::ACTIVE_NAMESPACES, 0))
}

fn list(page: &[u8]) -> Vec<u32> {
    let ids = (0..1024).map(|index| u32_at(page, index * 4));
    ids.take_while(|nsid| *nsid != 0).collect()
}

/// NSZE.
fn blocks(admin: &mut Host, nsid: u32) -> u64 {
    u64_at(&page(admin, Cns::NAMESPACE, nsid), 0)
}

fn a_host_is_told_of_namespaces_that_come_change_and_go(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut admin, event) = watching(&stage);
    let mut io = stage.io(&admin, 1);
    let numbers = |admin: &mut Host| {
        let id = page(admin, Cns::CONTROLLER, 0);
        (u32_at(&id, 516), u32_at(&id, 540))
    };
    assert_eq!(numbers(&mut admin), (NAMESPACES_MAX, NAMESPACES_MAX));

    let second = export(2, ram("second", 4096, 8 << 20));
    stage.target.add(second).expect("it is added");
    expect_event(&mut admin, event, NAMESPACE_CHANGED);
    assert_eq!(changed(&mut admin), [2]);
    assert_eq!(changed(&mut admin), [], "read once, it is cleared");
    assert_eq!(active(&mut admin), [1, 2]);
    assert_eq!(blocks(&mut admin, 2), 2048);
    let data = pattern(8192, 3);
    assert_eq!(io.try_write(2, 0, &data, 4096).status, Status::SUCCESS);
    assert!(io.try_read(2, 0, 2, 4096).data == data);

    let event = request_event(&mut admin);
    let smaller = ram("first", 512, 8 << 20);
    stage.target.replace(export(1, smaller)).expect("it is");
    expect_event(&mut admin, event, NAMESPACE_CHANGED);
    assert_eq!(changed(&mut admin), [1]);
    assert_eq!(blocks(&mut admin, 1), 16_384);
    assert_eq!(io.read(1, 16_383, 1), [0; 512]);
    let behind = io.try_read(1, 16_384, 1, 512);
    assert_eq!(behind.status, Status::LBA_OUT_OF_RANGE);

    let event = request_event(&mut admin);
    let removed = stage.target.remove(2).expect("it is there");
    assert_eq!(
        (removed.nsid, removed.device.identity().name.as_str()),
        (2, "second")
    );
    expect_event(&mut admin, event, NAMESPACE_CHANGED);
    assert_eq!(changed(&mut admin), [2]);
    assert_eq!(active(&mut admin), [1]);
    assert_eq!(blocks(&mut admin, 2), 0, "an id without a namespace");
    let gone = io.try_read(2, 0, 1, 4096).status;
    assert_eq!(gone, Status::INVALID_NAMESPACE);
    assert!(gone.dnr, "there is no use in trying again");

    assert_eq!(numbers(&mut admin), (NAMESPACES_MAX, NAMESPACES_MAX));
    let exported: Vec<_> = stage.target.exports().iter().map(|e| e.nsid).collect();
    assert_eq!(exported, [1]);
    drop((admin, io));
    stage.until_empty();
}

fn changes_are_told_once_until_their_log_is_read(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut admin, first) = watching(&stage);
    let second = request_event(&mut admin);
    let add = |nsid| {
        let name = format!("disk {nsid}");
        let added = stage.target.add(export(nsid, ram(&name, 512, 1 << 20)));
        added.expect("it is added");
    };
    add(7);
    expect_event(&mut admin, first, NAMESPACE_CHANGED);
    add(NAMESPACES_MAX);
    expect_no_event(&mut admin, second);
    assert_eq!(changed(&mut admin), [7, NAMESPACES_MAX], "both in one log");
    assert_eq!(active(&mut admin), [1, 7, NAMESPACES_MAX]);
    let third = request_event(&mut admin);
    add(5);
    expect_event(&mut admin, third, NAMESPACE_CHANGED);
    assert_eq!(changed(&mut admin), [5]);
    let mut deaf = stage.admin();
    let event = request_event(&mut deaf);
    add(6);
    expect_no_event(&mut deaf, event);
    assert_eq!(
        active(&mut deaf),
        [1, 5, 6, 7, NAMESPACES_MAX],
        "who does not want to be told sees it all the same"
    );
}

fn changes_that_cannot_be_are_refused_with_a_sentence(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut admin, event) = watching(&stage);
    let disk = || ram("other", 512, 1 << 20);
    for (nsid, why) in [
        (1, "namespace 1 is exported already"),
        (0, "between 1 and 1024"),
        (NAMESPACES_MAX + 1, "between 1 and 1024"),
        (u32::MAX, "between 1 and 1024"),
    ] {
        let refused = stage.target.add(export(nsid, disk())).expect_err("refused");
        assert!(refused.to_string().contains(why), "{refused}");
    }
    let refused = stage.target.remove(9).map(|_| ()).expect_err("refused");
    assert_eq!(refused.to_string(), "there is no namespace 9");
    for (nsid, device, why) in [
        (9, disk(), "there is no namespace 9"),
        (1, disk(), "would become another disk"),
        (1, ram("first", 4096, 1 << 20), "blocks of 512 bytes"),
    ] {
        let refused = stage.target.replace(export(nsid, device));
        let refused = refused.expect_err("refused").to_string();
        assert!(refused.contains(why), "{refused}");
    }
    let names = Some(vec!["a name\nof two lines".to_owned()]);
    let refused = stage.target.set_hosts(names).expect_err("refused");
    assert!(refused.to_string().contains("is not an NQN"), "{refused}");
    let narrow = TestDisk::narrow(1 << 20, 4096);
    let refused = stage.target.add(export(2, narrow)).expect_err("refused");
    assert!(
        refused.to_string().contains("moves 4096 bytes at once"),
        "{refused}"
    );
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let refused = stage.target.close_port(nowhere).expect_err("refused");
    assert!(
        refused
            .to_string()
            .contains("does not listen on 127.0.0.1:1"),
        "{refused}"
    );
    let in_use = stage
        .target
        .open_port(Listen::nvme_tcp(stage.address))
        .expect_err("in use");
    assert!(in_use.to_string().contains("is in use"), "{in_use}");
    let sizes = disk().remeasure(None).map(|_| ()).expect_err("refused");
    assert_eq!(sizes.kind, OpenErrorKind::Unsupported);
    expect_no_event(&mut admin, event);
    assert_eq!(changed(&mut admin), []);
    assert_eq!(active(&mut admin), [1]);
    assert_eq!(stage.target.addresses(), [stage.address]);
    stage.serves_a_fresh_host();
}

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
    stage.target.remove(1).expect("it is there");
    let later = io.try_read(1, 64, 8, 512).status;
    assert_eq!(later, Status::INVALID_NAMESPACE);
    disk.release();
    assert!(io.finish(read).data == data);
    assert_eq!(io.finish(write).status, Status::SUCCESS);
    disk.when(Kind::Read, Do::AnswerLater(DiskStatus::MediaRead));
    stage.target.add(export(1, disk)).expect("the id is free");
    let own = io.try_read(1, 64, 8, 512).status;
    assert_eq!(own, Status::UNRECOVERED_READ_ERROR, "it is open again");
    drop((_admin, io));
    stage.until_empty();
}

/// Commands that are at the disk, or wait for it or for their data, while `change` comes; how all of them end that go
/// to a disk again after it.
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
    let replace = move |stage: &Stage| stage.target.replace(export(1, device)).expect("it is");
    under_way(engine, replace, Status::LBA_OUT_OF_RANGE);
    assert_eq!(smaller.asked(), [], "nothing of them lies on it");
}

fn commands_under_way_find_that_the_namespace_is_gone(engine: Engine) {
    let remove = |stage: &Stage| {
        stage.target.remove(1).expect("it is there");
    };
    under_way(engine, remove, Status::INVALID_NAMESPACE);
    let other = TestDisk::new(4 << 20);
    let device = other.clone();
    let exchange = move |stage: &Stage| {
        stage.target.remove(1).expect("it is there");
        stage.target.add(export(1, device)).expect("the id is free");
    };
    under_way(engine, exchange, Status::INVALID_NAMESPACE);
    assert_eq!(other.asked(), [], "another disk is not meant");
}

fn a_write_that_waits_for_its_data_does_not_land_on_another_disk(engine: Engine) {
    let stage = Stage::new(engine);
    let (_admin, mut io) = stage.admin_and_io();
    let data = pattern(64 << 10, 5);
    let write = io.submit(SubmissionEntry::write(1, 0, 128, false), Data::Fetch(&data));
    let r2t = io.receive().expect("R2T");
    stage.target.remove(1).expect("it is there");
    let other = ram("another", 512, 16 << 20);
    stage.target.add(export(1, other)).expect("the id is free");
    io.feed(&r2t);
    assert_eq!(io.finish(write).status, Status::INVALID_NAMESPACE);
    assert!(
        io.read(1, 0, 128) == vec![0; 64 << 10],
        "nothing was written"
    );
    io.write(1, 0, &data);
    assert!(io.read(1, 0, 128) == data, "what comes now is meant for it");
}

fn halves_of_a_pair_do_not_meet_over_two_disks(engine: Engine) {
    let stage = Stage::new(engine);
    let (_admin, mut io) = stage.admin_and_io();
    let first = SubmissionEntry::compare(1, 0, 2).fused(Fuse::First);
    let first = io.submit(first, Data::Fetch(&[0; 1024]));
    let r2t = io.receive().expect("R2T");
    stage.target.remove(1).expect("it is there");
    let larger_blocks = ram("another", 4096, 16 << 20);
    let added = stage.target.add(export(1, larger_blocks));
    added.expect("the id is free");
    io.feed(&r2t);
    let second = SubmissionEntry::write(1, 0, 2, false).fused(Fuse::Second);
    let second = io.submit(second, Data::Inline(&[7; 8192]));
    assert_eq!(io.finish(first).status, Status::ABORTED_MISSING_FUSED);
    assert_eq!(io.finish(second).status, Status::ABORTED_MISSING_FUSED);
    assert!(io.try_read(1, 0, 2, 4096).data == [0; 8192]);
}

fn controllers_on_all_shards_are_told(engine: Engine) {
    let stage = Stage::new(engine);
    // Connections are kept by the shards in turn.
    let mut hosts = [watching(&stage), watching(&stage)];
    for shard in 0..2 {
        let bytes = stage.ask(shard, |shard| shard.buffer_bytes_in_use());
        assert!(bytes > 0, "shard {shard} keeps one of them");
    }
    let mut queues: Vec<_> = hosts.iter().map(|(admin, _)| stage.io(admin, 1)).collect();
    let second = export(2, ram("second", 512, 1 << 20));
    stage.target.add(second).expect("it is added");
    for (admin, event) in &mut hosts {
        expect_event(admin, *event, NAMESPACE_CHANGED);
        assert_eq!(changed(admin), [2]);
        assert_eq!(active(admin), [1, 2]);
    }
    queues[0].write(2, 0, &[6; 512]);
    assert_eq!(queues[1].read(2, 0, 1), [6; 512], "one disk for both");
}

/// Asks again and again; other than [`Stage::until`] it needs no shard.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::yield_now();
    }
}

/// Holds a shard until told.
fn stand_still(stage: &Stage, shard: usize) -> mpsc::Sender<()> {
    let (go_on, wait) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let stand = move |_: &mut fabrix_rt::Shard| {
        let _listens = tell.send(());
        let _go_on = wait.recv();
    };
    stage.remote(shard).run(Box::new(stand)).expect("room");
    told.recv().expect("it stands");
    go_on
}

fn no_host_is_told_before_every_shard_serves_the_change(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut admin, event) = watching(&stage); // on shard 0
    let _on_shard_1 = stage.dial();
    let mut io = stage.io(&admin, 1); // on shard 0
    let go_on = stand_still(&stage, 1);
    thread::scope(|scope| {
        let second = export(2, ram("second", 512, 1 << 20));
        let adding = scope.spawn(|| stage.target.add(second));
        until("shard 0 serves it", || {
            io.try_read(2, 0, 1, 512).status == Status::SUCCESS
        });
        assert_eq!(active(&mut admin), [1], "shard 1 does not serve it yet");
        expect_no_event(&mut admin, event);
        let event = request_event(&mut admin);
        let _on_shard_1 = stage.dial();
        let (mut late, lates_event) = watching(&stage); // on shard 0
        assert_eq!(active(&mut late), [1], "nor has who connects now been told");
        go_on.send(()).expect("it waits");
        for (host, event) in [(&mut admin, event), (&mut late, lates_event)] {
            expect_event(host, event, NAMESPACE_CHANGED);
            assert_eq!(active(host), [1, 2]);
        }
        adding.join().expect("no panic").expect("it is added");
    });
}

fn a_full_mailbox_delays_a_change_and_does_not_lose_it(engine: Engine) {
    let stage = Stage::new(engine);
    let (_first, _) = watching(&stage);
    let (mut admin, event) = watching(&stage); // on shard 1
    let go_on = stand_still(&stage, 1);
    while stage.remote(1).run(Box::new(|_| ())).is_ok() {}
    thread::scope(|scope| {
        let second = export(2, ram("second", 512, 1 << 20));
        let adding = scope.spawn(|| stage.target.add(second));
        until("the change is made", || stage.target.exports().len() == 2);
        go_on.send(()).expect("it waits");
        adding.join().expect("no panic").expect("it is added");
    });
    expect_event(&mut admin, event, NAMESPACE_CHANGED);
    assert_eq!(active(&mut admin), [1, 2]);
}

fn a_change_that_a_shard_does_not_answer_is_an_error_and_not_lost(engine: Engine) {
    let stage = Stage::new(engine);
    let mut hosts = [watching(&stage), watching(&stage)];
    let go_on = stand_still(&stage, 1);
    let second = export(2, ram("second", 512, 1 << 20));
    let late = stage.target.add(second).expect_err("shard 1 stands still");
    assert!(late.to_string().contains("has not answered"), "{late}");
    assert_eq!(stage.target.exports().len(), 2, "the change holds");
    go_on.send(()).expect("it waits");
    for (admin, event) in &mut hosts {
        expect_event(admin, *event, NAMESPACE_CHANGED);
        assert_eq!(active(admin), [1, 2]);
    }
}

fn who_connects_during_a_change_sees_what_came_of_it(engine: Engine) {
    let stage = Stage::new(engine);
    let disk = ram("second", 512, 1 << 20);
    for _ in 0..20 {
        let (mut admin, mut io) = thread::scope(|scope| {
            let add = || stage.target.add(export(2, Arc::clone(&disk)));
            let adding = scope.spawn(add);
            let queues = stage.admin_and_io();
            adding.join().expect("no panic").expect("it is added");
            queues
        });
        assert_eq!(active(&mut admin), [1, 2]);
        assert_eq!(io.read(2, 0, 1), [0; 512]);
        stage.target.remove(2).expect("it is there");
        assert_eq!(active(&mut admin), [1]);
        let gone = io.try_read(2, 0, 1, 512).status;
        assert_eq!(gone, Status::INVALID_NAMESPACE);
    }
}

/// A discovery controller that wants to know when its log changes: only one with a keep-alive may.
fn discovery(stage: &Stage) -> (Host, u16) {
    let mut host = stage.dial();
    host.open(Digests::NONE);
    let connected = host.connect(&Connect {
        subsystem: Nqn::discovery(),
        keep_alive_ms: 60_000,
        ..wish()
    });
    assert_eq!(connected.status, Status::SUCCESS);
    host.enable();
    let event = watch(&mut host, 1 << 31);
    (host, event)
}

/// GENCTR and NUMREC.
fn discovery_log(host: &mut Host) -> (u64, u64) {
    let header = read_log(host, LogId::DISCOVERY, 0, 1024);
    (u64_at(&header, 0), u64_at(&header, 8))
}

fn ports_come_and_go_and_discovery_is_told(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut host, event) = discovery(&stage);
    let (generation, records) = discovery_log(&mut host);
    assert_eq!(records, 1);
    let second = export(2, ram("second", 512, 1 << 20));
    stage.target.add(second).expect("it is added");
    assert_eq!(
        discovery_log(&mut host),
        (generation, 1),
        "it does not show namespaces"
    );
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let port = stage
        .target
        .open_port(Listen::nvme_tcp(any))
        .expect("a port");
    expect_event(&mut host, event, DISCOVERY_CHANGED);
    assert_eq!(discovery_log(&mut host), (generation + 1, 2));
    assert_eq!(stage.target.addresses(), [stage.address, port]);
    let admin = Host::admin(port);
    let mut io = Host::io(port, admin.controller, 1);
    io.write(1, 0, &[3; 512]);

    let event = request_event(&mut host);
    stage.target.close_port(port).expect("it listens");
    expect_event(&mut host, event, DISCOVERY_CHANGED);
    assert_eq!(discovery_log(&mut host), (generation + 2, 1));
    assert_eq!(stage.target.addresses(), [stage.address]);
    assert!(TcpStream::connect(port).is_err(), "nobody listens there");
    assert_eq!(io.read(1, 0, 1), [3; 512], "who is connected stays");
    let again = stage
        .target
        .open_port(Listen::nvme_tcp(port))
        .expect("it is free again");
    assert_eq!(again, port);
    drop(Host::admin(port));
    stage.target.drain();
    let refused = stage
        .target
        .open_port(Listen::nvme_tcp(any))
        .expect_err("it drains");
    assert!(refused.to_string().contains("takes no more"), "{refused}");
}

fn hosts_that_may_no_more_lose_their_controllers(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut watcher, event) = discovery(&stage);
    let (generation, _) = discovery_log(&mut watcher);
    let (mut admin, mut io) = stage.admin_and_io();
    let other = || Connect {
        host: Nqn::new("nqn.2014-08.org.example:somebody-else").expect("an NQN"),
        ..wish()
    };
    let dial = || {
        let mut host = stage.dial();
        host.open(Digests::NONE);
        host
    };
    let mut others = dial();
    let connected = others.connect(&other());
    assert_eq!(connected.status, Status::SUCCESS);
    others.enable();
    let mut others_io = dial();
    let joined = others_io.connect(&Connect {
        controller_id: u16::try_from(connected.result).expect("an id"),
        queue_id: 1,
        ..other()
    });
    assert_eq!(joined.status, Status::SUCCESS);
    let only = Some(vec![HOST_NQN.to_owned()]);
    stage.target.set_hosts(only).expect("a name");
    others.expect_close();
    others_io.expect_close();
    stage.notice(|notice| {
        matches!(notice, Notice::Disconnected { host, why, .. }
            if host.contains("somebody-else") && why.contains("does not name this host"))
    });
    let refused = dial().connect(&other());
    assert_eq!(refused.status, Status::CONNECT_INVALID_HOST);
    io.write(1, 0, &[4; 512]);
    assert_eq!(active(&mut admin), [1], "the others live");
    expect_event(&mut watcher, event, DISCOVERY_CHANGED);
    assert_eq!(discovery_log(&mut watcher), (generation + 1, 1));
    stage.target.set_hosts(None).expect("no names");
    assert_eq!(dial().connect(&other()).status, Status::SUCCESS);
}

/// Hosts read once whether there is a volatile cache; who was told that there is none would lose what it does not
/// flush.
fn a_host_that_was_told_of_no_cache_is_not_shown_one(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut told, _) = watching(&stage);
    let id = page(&mut told, Cns::CONTROLLER, 0);
    assert_eq!(id[525] & 1, 0, "VWC: none of the disks has a cache");
    let mut io = stage.io(&told, 1);
    let cached = TestDisk::new(1 << 20);
    stage.target.add(export(2, cached)).expect("it is added");
    told.expect_close();
    io.expect_close();
    stage.notice(|notice| {
        matches!(notice, Notice::Disconnected { why, .. } if why.contains("volatile cache"))
    });
    let (mut again, event) = watching(&stage);
    let id = page(&mut again, Cns::CONTROLLER, 0);
    assert_eq!(id[525] & 1, 1, "VWC: one of the disks has a cache");
    stage.target.remove(2).expect("it is there");
    expect_event(&mut again, event, NAMESPACE_CHANGED);
    let cached = TestDisk::new(1 << 20);
    stage.target.add(export(3, cached)).expect("it is added");
    assert_eq!(changed(&mut again), [2, 3], "it knows, and stays");
}

fn a_file_grows_under_a_connected_host(engine: Engine) {
    let path = std::env::temp_dir().join(format!("fabrix-{}-{engine:?}", std::process::id()));
    let options = FileOptions {
        create_bytes: Some(1 << 20),
        direct: false,
        ..FileOptions::new(&path)
    };
    let file = Exclusive::wrap(FileDisk::open(options.clone()).expect("a file"));
    let stage = Stage::set(engine, Plan::of(Arc::clone(&file)));
    let (mut admin, event) = watching(&stage);
    let mut io = stage.io(&admin, 1);
    let data = pattern(64 << 10, 8);
    io.write(1, 0, &data);
    let larger = file.remeasure(Some(2 << 20)).expect("a larger file");
    stage.target.replace(export(1, larger)).expect("it is");
    expect_event(&mut admin, event, NAMESPACE_CHANGED);
    assert_eq!(changed(&mut admin), [1]);
    assert_eq!(blocks(&mut admin, 1), 4096);
    io.write(1, 4096 - 128, &data);
    assert!(io.read(1, 4096 - 128, 128) == data);
    assert!(io.read(1, 0, 128) == data, "what was there stays");
    let again = FileOptions {
        create_bytes: Some(2 << 20),
        ..options
    };
    let in_use = FileDisk::open(again.clone()).expect_err("it is served");
    assert_eq!(in_use.kind, OpenErrorKind::InUse);
    drop(file);
    stage.target.remove(1).map(drop).expect("it is there");
    let free = FileDisk::open(again);
    std::fs::remove_file(&path).expect("it is there");
    assert!(free.is_ok(), "nobody holds what was removed: {free:?}");
}
