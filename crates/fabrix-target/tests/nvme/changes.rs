//! Exports that change while hosts are connected: the notices to hosts and their time, the
//! structures afterwards, and the commands in progress.

mod doors;
mod shards;
mod under_way;

use std::net::TcpListener;
use std::sync::Arc;

use fabrix_block::file::{FileDisk, FileOptions};
use fabrix_block::{Device, OpenErrorKind};
use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::log_page::LogId;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;
use fabrix_target::{Export, Listen, NAMESPACES_MAX, Notice};

use crate::bring_up::{page, read_log, u32_at, u64_at};
use crate::common::disk::TestDisk;
use crate::common::host::{Data, Host};
use crate::common::{Plan, Stage, pattern, ram};
use crate::on_both_engines;

on_both_engines!(
    a_host_is_told_of_namespaces_that_come_change_and_go,
    changes_are_told_once_until_their_log_is_read,
    changes_that_cannot_be_are_refused_with_a_sentence,
    a_host_that_was_told_of_no_cache_is_not_shown_one,
    a_file_grows_under_a_connected_host,
    controllers_end_whose_ids_the_target_has_no_more,
);

/// A notice (2) that a namespace attribute has changed (00h): read log page 04h.
pub(super) const NAMESPACE_CHANGED: u64 = 0x0004_0002;

fn export(nsid: u32, device: Arc<dyn Device>) -> Export {
    Export::new(nsid, device)
}

/// An admin queue with notices of changed namespaces enabled, and its first event request.
fn watching(stage: &Stage) -> (Host, u16) {
    let mut admin = stage.admin();
    let event = watch(&mut admin, 0x100);
    (admin, event)
}

pub(super) fn watch(admin: &mut Host, events: u32) -> u16 {
    let enable = SubmissionEntry::set_features(FeatureId::ASYNC_EVENT_CONFIGURATION, events);
    assert_eq!(admin.run(enable, Data::None).status, Status::SUCCESS);
    request_event(admin)
}

pub(super) fn request_event(admin: &mut Host) -> u16 {
    admin.submit(SubmissionEntry::async_event_request(), Data::None)
}

pub(super) fn expect_event(admin: &mut Host, request: u16, expected: u64) {
    let answer = admin.finish(request);
    assert_eq!(
        (answer.status, answer.result),
        (Status::SUCCESS, expected),
        "the event"
    );
}

/// Aborts an event request. The abort succeeds only if the request is still held.
pub(super) fn expect_no_event(admin: &mut Host, request: u16) {
    let aborted = admin.run(SubmissionEntry::abort(0, request), Data::None);
    assert_eq!((aborted.status, aborted.result), (Status::SUCCESS, 0));
    assert_eq!(admin.finish(request).status, Status::ABORT_REQUESTED);
}

/// Reads the list of changed namespaces, which clears the list.
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
    stage.add(second).expect("it is added");
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
    stage.replace(export(1, smaller)).expect("it is");
    expect_event(&mut admin, event, NAMESPACE_CHANGED);
    assert_eq!(changed(&mut admin), [1]);
    assert_eq!(blocks(&mut admin, 1), 16_384);
    assert_eq!(io.read(1, 16_383, 1), [0; 512]);
    let behind = io.try_read(1, 16_384, 1, 512);
    assert_eq!(behind.status, Status::LBA_OUT_OF_RANGE);

    let event = request_event(&mut admin);
    let removed = stage.remove(2).expect("it is there");
    assert_eq!(
        (removed.number, removed.device.identity().name.as_str()),
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
    let exported: Vec<_> = stage.exports().iter().map(|e| e.number).collect();
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
        let added = stage.add(export(nsid, ram(&name, 512, 1 << 20)));
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
        let refused = stage.add(export(nsid, disk())).expect_err("refused");
        assert!(refused.to_string().contains(why), "{refused}");
    }
    for (nsid, device, why) in [
        (1, disk(), "would become another disk"),
        (1, ram("first", 4096, 1 << 20), "blocks of 512 bytes"),
    ] {
        let refused = stage.replace(export(nsid, device));
        let refused = refused.expect_err("refused").to_string();
        assert!(refused.contains(why), "{refused}");
    }
    let names = Some(vec!["a name\nof two lines".to_owned()]);
    let refused = stage.set_hosts(names).expect_err("refused");
    assert!(refused.to_string().contains("is not an NQN"), "{refused}");
    let narrow = TestDisk::narrow(1 << 20, 4096);
    let refused = stage.add(export(2, narrow)).expect_err("refused");
    assert!(
        refused.to_string().contains("moves 4096 bytes at once"),
        "{refused}"
    );
    let twice = stage
        .open_port(Listen::nvme_tcp(stage.address))
        .expect_err("it listens there already");
    assert!(
        twice.to_string().contains("is listened on twice"),
        "{twice}"
    );
    let other = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let others = other.local_addr().expect("bound");
    let in_use = stage.open_port(Listen::nvme_tcp(others));
    let in_use = in_use.expect_err("in use");
    assert!(in_use.to_string().contains("is in use"), "{in_use}");
    let sizes = disk().resize(None).map(|_| ()).expect_err("refused");
    assert_eq!(sizes.kind, OpenErrorKind::Unsupported);
    expect_no_event(&mut admin, event);
    assert_eq!(changed(&mut admin), []);
    assert_eq!(active(&mut admin), [1]);
    assert_eq!(stage.target.addresses(), [stage.address]);
    stage.serves_a_fresh_host();
}

/// Hosts read once whether there is a volatile cache. A host that has read of none never flushes,
/// and would lose data on a new disk with a cache.
fn a_host_that_was_told_of_no_cache_is_not_shown_one(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut told, _) = watching(&stage);
    let id = page(&mut told, Cns::CONTROLLER, 0);
    assert_eq!(id[525] & 1, 0, "VWC: none of the disks has a cache");
    let mut io = stage.io(&told, 1);
    let cached = TestDisk::new(1 << 20);
    stage.add(export(2, cached)).expect("it is added");
    told.expect_close();
    io.expect_close();
    stage.notice(|notice| {
        matches!(notice, Notice::Disconnected { end, .. } if end.why.contains("volatile cache"))
    });
    let (mut again, event) = watching(&stage);
    let id = page(&mut again, Cns::CONTROLLER, 0);
    assert_eq!(id[525] & 1, 1, "VWC: one of the disks has a cache");
    stage.remove(2).expect("it is there");
    expect_event(&mut again, event, NAMESPACE_CHANGED);
    let cached = TestDisk::new(1 << 20);
    stage.add(export(3, cached)).expect("it is added");
    assert_eq!(changed(&mut again), [2, 3], "it knows, and stays");
}

fn a_file_grows_under_a_connected_host(engine: Engine) {
    let path = std::env::temp_dir().join(format!("fabrix-{}-{engine:?}", std::process::id()));
    let options = FileOptions {
        create_bytes: Some(1 << 20),
        direct: false,
        ..FileOptions::new(&path)
    };
    let file = FileDisk::open(options.clone()).expect("a file");
    let stage = Stage::set(engine, Plan::of(file.clone()));
    let (mut admin, event) = watching(&stage);
    let mut io = stage.io(&admin, 1);
    let data = pattern(64 << 10, 8);
    io.write(1, 0, &data);
    let larger = file.resize(Some(2 << 20)).expect("a larger file");
    stage.replace(export(1, larger)).expect("it is");
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
    stage.remove(1).map(drop).expect("it is there");
    let free = FileDisk::open(again);
    std::fs::remove_file(&path).expect("it is there");
    assert!(free.is_ok(), "nobody holds what was removed: {free:?}");
}

fn controllers_end_whose_ids_the_target_has_no_more(engine: Engine) {
    let stage = Stage::new(engine);
    let mut admin = stage.admin();
    let mut io = stage.io(&admin, 1);
    let ids = 3000..=3999;
    let changed = stage.target.change(|catalog| {
        catalog.gateways.controller_ids = ids.clone();
        Ok(())
    });
    changed.expect("it is changed");
    admin.expect_close();
    io.expect_close();
    let mut again = stage.admin();
    assert!(ids.contains(&again.controller), "{}", again.controller);
    let same = stage.target.change(|catalog| {
        catalog.gateways.shut_out = Some(Vec::new());
        Ok(())
    });
    same.expect("it is changed");
    let alive = again.run(SubmissionEntry::keep_alive(), Data::None).status;
    assert_eq!(alive, Status::SUCCESS);
}
