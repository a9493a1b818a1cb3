//! ANA groups: the states at each listener, their events, refused commands, and the wait for those
//! that came before.

use std::net::SocketAddr;
use std::thread;

use fabrix_proto::nvme::command::{DatasetRange, Fuse};
use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::log_page::LogId;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;
use fabrix_target::{ANA_GROUPS_MAX, AnaState, Export, Listen, TargetError};
use zerocopy::IntoBytes;

use crate::bring_up::{page, read_log, u32_at, u64_at};
use crate::changes::{expect_event, expect_no_event, request_event, watch};
use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::host::{Data, Host};
use crate::common::{Plan, Stage, pattern, ram};
use crate::on_both_engines;

on_both_engines!(
    a_state_holds_at_its_listener_and_for_its_group_only,
    a_change_is_told_to_the_hosts_of_its_listener,
    a_group_that_does_not_serve_refuses_everything_but_administration,
    a_host_that_comes_later_finds_the_state,
    a_state_is_set_when_the_commands_before_it_have_ended,
    commands_that_have_not_reached_the_disk_are_refused,
    disks_that_are_given_up_end_their_connections_and_are_refused,
    changes_that_cannot_be_are_refused_with_a_sentence,
);

/// A notice (2) of an Asymmetric Namespace Access change (03h): read log page 0Ch.
const ANA_CHANGED: u64 = 0x000C_0302;
const ANA_EVENT: u32 = 1 << 11;

/// A stage with namespace 1 in group 1, namespace 2 in group 2, and a second listener.
fn stage(engine: Engine) -> (Stage, SocketAddr) {
    let stage = Stage::new(engine);
    let second = Export {
        ana_group: 2,
        ..Export::new(2, ram("second", 512, 1 << 20))
    };
    stage.add(second).expect("it is added");
    let other = with_listener(&stage);
    (stage, other)
}

fn with_listener(stage: &Stage) -> SocketAddr {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    stage.open_port(Listen::nvme_tcp(any)).expect("a port")
}

/// Accepts the listeners of an address, or all.
fn at(address: Option<SocketAddr>) -> impl Fn(&Listen) -> bool {
    move |listen| address.is_none_or(|address| listen.portal.address == address)
}

fn set(stage: &Stage, state: AnaState, address: Option<SocketAddr>) {
    let set = stage.target.set_ana_state(1, state, at(address));
    set.expect("the state is set");
}

/// Change count and state of a group in the log of a controller, whose groups have one namespace.
fn group(admin: &mut Host, group: u32) -> (u64, u8) {
    let log = read_log(admin, LogId::ANA, 0, 88);
    let at = 16 + 36 * (group as usize - 1);
    assert_eq!((u32_at(&log, at), u32_at(&log, at + 32)), (group, group));
    (u64_at(&log, at + 8), log[at + 16])
}

fn a_state_holds_at_its_listener_and_for_its_group_only(engine: Engine) {
    let (stage, other) = stage(engine);
    let (mut here, mut there) = (stage.admin(), Host::admin(other));
    let mut io = stage.io(&here, 1);
    let mut io_there = Host::io(other, there.controller, 1);
    set(&stage, AnaState::NonOptimized, Some(stage.address));
    assert_eq!((group(&mut here, 1).1, group(&mut there, 1).1), (2, 1));
    assert_eq!(io.try_read(1, 0, 1, 512).status, Status::SUCCESS);
    set(&stage, AnaState::Inaccessible, Some(stage.address));
    assert_eq!((group(&mut here, 1).1, group(&mut there, 1).1), (3, 1));
    assert_eq!(group(&mut here, 2).1, 1, "another group");
    let refused = io.try_read(1, 0, 1, 512).status;
    assert_eq!((refused, refused.dnr), (Status::ANA_INACCESSIBLE, false));
    assert_eq!(io.try_read(2, 0, 1, 512).status, Status::SUCCESS);
    assert_eq!(io_there.try_read(1, 0, 1, 512).status, Status::SUCCESS);
    set(&stage, AnaState::PersistentLoss, None);
    let lost = Status::ANA_PERSISTENT_LOSS;
    assert_eq!(io.try_read(1, 0, 1, 512).status, lost);
    assert_eq!(io_there.try_read(1, 0, 1, 512).status, lost);
    set(&stage, AnaState::Optimized, None);
    assert_eq!(io.try_read(1, 0, 1, 512).status, Status::SUCCESS);
    assert_eq!((group(&mut here, 1).1, group(&mut there, 1).1), (1, 1));
}

fn a_change_is_told_to_the_hosts_of_its_listener(engine: Engine) {
    let (stage, other) = stage(engine);
    let (mut here, mut there) = (stage.admin(), Host::admin(other));
    let event = watch(&mut here, ANA_EVENT);
    let event_there = watch(&mut there, ANA_EVENT);
    assert_eq!(group(&mut here, 1), (0, 1));
    set(&stage, AnaState::NonOptimized, Some(stage.address));
    expect_event(&mut here, event, ANA_CHANGED);
    let event = request_event(&mut here);
    set(&stage, AnaState::Optimized, Some(stage.address));
    expect_no_event(&mut here, event);
    expect_no_event(&mut there, event_there);
    assert_eq!(group(&mut here, 1), (2, 1), "two changes");
    assert_eq!(group(&mut here, 2), (0, 1), "none of the other group");
    assert_eq!(group(&mut there, 1), (0, 1), "none at the other listener");
    let event = request_event(&mut here);
    set(&stage, AnaState::NonOptimized, None);
    expect_event(&mut here, event, ANA_CHANGED);
    let mut deaf = stage.admin();
    let event = watch(&mut deaf, 0x100);
    set(&stage, AnaState::Optimized, None);
    expect_no_event(&mut deaf, event);
}

fn a_group_that_does_not_serve_refuses_everything_but_administration(engine: Engine) {
    let (stage, _) = stage(engine);
    let (mut admin, mut io) = stage.admin_and_io();
    set(&stage, AnaState::Inaccessible, None);
    let block = [0; 512];
    let range = [DatasetRange::new(0, 8)];
    let release = SubmissionEntry::reservation_release(1, None);
    let commands = [
        (SubmissionEntry::read(1, 0, 1), Data::Expect(512)),
        (SubmissionEntry::write(1, 0, 1, false), Data::Inline(&block)),
        (SubmissionEntry::write(1, 0, 1, false), Data::Fetch(&block)),
        (SubmissionEntry::flush(1), Data::None),
        (SubmissionEntry::compare(1, 0, 1), Data::Inline(&block)),
        (SubmissionEntry::verify(1, 0, 8), Data::None),
        (
            SubmissionEntry::write_zeroes(1, 0, 8, false, false),
            Data::None,
        ),
        (
            SubmissionEntry::dataset_management(1, 1, true),
            Data::Inline(range.as_bytes()),
        ),
        (release, Data::Inline(&[0; 8])),
        (
            SubmissionEntry::reservation_report(1, 4096),
            Data::Expect(4096),
        ),
    ];
    for (at, (entry, data)) in commands.into_iter().enumerate() {
        let status = io.run(entry, data).status;
        assert_eq!(status, Status::ANA_INACCESSIBLE, "command {at}");
    }
    let first = SubmissionEntry::compare(1, 0, 1).fused(Fuse::First);
    let first = io.submit(first, Data::Inline(&block));
    let second = SubmissionEntry::write(1, 0, 1, false).fused(Fuse::Second);
    let second = io.submit(second, Data::Inline(&block));
    assert_eq!(io.finish(first).status, Status::ANA_INACCESSIBLE);
    assert_eq!(io.finish(second).status, Status::ANA_INACCESSIBLE);
    let behind = io.try_read(1, u64::MAX - 8, 1, 512).status;
    assert_eq!(behind, Status::LBA_OUT_OF_RANGE, "a wrong command is wrong");
    assert_eq!(u64_at(&page(&mut admin, Cns::NAMESPACE, 1), 0), 32_768);
    let health = read_log(&mut admin, LogId::HEALTH, 0, 512);
    assert_eq!(health.len(), 512);
    let features = SubmissionEntry::get_features(FeatureId::NUMBER_OF_QUEUES, 0);
    assert_eq!(admin.run(features, Data::None).status, Status::SUCCESS);
}

fn a_host_that_comes_later_finds_the_state(engine: Engine) {
    let (stage, other) = stage(engine);
    set(&stage, AnaState::Inaccessible, Some(other));
    let mut there = Host::admin(other);
    let mut io_there = Host::io(other, there.controller, 1);
    assert_eq!(group(&mut there, 1), (0, 3));
    let refused = io_there.try_read(1, 0, 1, 512).status;
    assert_eq!(refused, Status::ANA_INACCESSIBLE);
    stage.serves_a_fresh_host();
    stage.close_port(other).expect("it is open");
    let refused = io_there.try_read(1, 0, 1, 512).status;
    assert_eq!(refused, Status::ANA_INACCESSIBLE, "the listener is closed");
}

fn a_state_is_set_when_the_commands_before_it_have_ended(engine: Engine) {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let other = with_listener(&stage);
    let (mut admin, mut io) = stage.admin_and_io();
    let admin_there = Host::admin(other);
    let mut io_there = Host::io(other, admin_there.controller, 1);
    disk.when(Kind::Write, Do::Keep);
    let data = pattern(4096, 3);
    let write = SubmissionEntry::write(1, 0, 8, false);
    let write = io.submit(write, Data::Inline(&data));
    disk.until_kept(1);
    thread::scope(|scope| {
        let change = scope.spawn(|| set(&stage, AnaState::Inaccessible, Some(stage.address)));
        until_state(&stage, &mut admin, 0xF);
        let refused = io.try_read(1, 0, 1, 512).status;
        assert_eq!((refused, refused.dnr), (Status::ANA_TRANSITION, false));
        assert_eq!(io_there.try_read(1, 0, 1, 512).status, Status::SUCCESS);
        assert!(!change.is_finished(), "the write is at the disk");
        disk.release();
        assert_eq!(io.finish(write).status, Status::SUCCESS);
        change.join().expect("it ends with the write");
    });
    assert_eq!(io.try_read(1, 0, 1, 512).status, Status::ANA_INACCESSIBLE);
    assert!(io_there.read(1, 0, 8) == data);
}

/// Waits until the only group has a state, by its code, in the log of a controller.
fn until_state(stage: &Stage, admin: &mut Host, code: u8) {
    stage.until("the state", |_| {
        read_log(admin, LogId::ANA, 0, 52)[32] == code
    });
}

fn commands_that_have_not_reached_the_disk_are_refused(engine: Engine) {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let (_admin, mut io) = stage.admin_and_io();
    let data = pattern(4096, 3);
    let write = |lba| SubmissionEntry::write(1, lba, 8, false);
    let fetching = io.submit(write(0), Data::Fetch(&data));
    let r2t = io.receive().expect("R2T");
    disk.when(Kind::Write, Do::Busy);
    let stalled = io.submit(write(8), Data::Inline(&data));
    disk.until_refused();
    set(&stage, AnaState::Inaccessible, None);
    io.feed(&r2t);
    // They may have been refused while the state changed.
    let refusals = [Status::ANA_TRANSITION, Status::ANA_INACCESSIBLE];
    for command in [stalled, fetching] {
        let status = io.finish(command).status;
        assert!(refusals.contains(&status), "{status}");
    }
    disk.when(Kind::Write, Do::Obey);
    set(&stage, AnaState::Optimized, None);
    assert!(io.read(1, 0, 16) == [0; 8192], "nothing was written");
}

#[test]
fn a_disk_that_does_not_answer_is_told_and_the_state_is_set() {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::in_world(Plan::of(disk.clone()));
    let (_admin, mut io) = stage.admin_and_io();
    disk.when(Kind::Read, Do::Keep);
    let read = io.submit(SubmissionEntry::read(1, 0, 8), Data::Expect(4096));
    disk.until_kept(1);
    let late = stage
        .target
        .set_ana_state(1, AnaState::PersistentLoss, at(None));
    assert!(matches!(late, Err(TargetError::NotDrained)), "{late:?}");
    let refused = io.try_read(1, 8, 1, 512).status;
    assert_eq!(refused, Status::ANA_PERSISTENT_LOSS);
    disk.release();
    assert_eq!(io.finish(read).status, Status::SUCCESS);
}

#[test]
fn abandoned_commands_are_waited_for_again_and_again() {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::in_world(Plan::of(disk.clone()));
    let (admin, mut io) = stage.admin_and_io();
    disk.when(Kind::Write, Do::Keep);
    let write = SubmissionEntry::write(1, 0, 8, false);
    io.submit(write, Data::Inline(&pattern(4096, 3)));
    disk.until_kept(1);
    drop((admin, io));
    stage.until("the controller is gone", |stage| {
        stage.target.controllers() == 0
    });
    for state in [AnaState::Inaccessible, AnaState::PersistentLoss] {
        let late = stage.target.set_ana_state(1, state, at(None));
        assert!(matches!(late, Err(TargetError::NotDrained)), "{late:?}");
    }
    disk.release();
    set(&stage, AnaState::Inaccessible, None);
}

/// A disk that does not end a write is given up all the same.
fn disks_that_are_given_up_end_their_connections_and_are_refused(engine: Engine) {
    let disk = TestDisk::new(1 << 20);
    disk.when(Kind::Write, Do::Keep);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let (admin, mut io) = stage.admin_and_io();
    let entry = SubmissionEntry::write(1, 0, 1, false);
    io.submit(entry, Data::Inline(&pattern(512, 1)));
    disk.until_kept(1);
    stage.target.give_up(&[1]).expect("they are given up");
    for mut queue in [admin, io] {
        queue.expect_close();
    }
    let (_admin, mut io) = stage.admin_and_io();
    let refused = io.try_read(1, 8, 1, 512).status;
    assert_eq!(refused, Status::ANA_INACCESSIBLE);
    disk.when(Kind::Write, Do::Obey);
    disk.release();
    set(&stage, AnaState::Optimized, None);
    assert_eq!(io.try_read(1, 8, 1, 512).status, Status::SUCCESS);
}

fn changes_that_cannot_be_are_refused_with_a_sentence(engine: Engine) {
    let (stage, _) = stage(engine);
    let nowhere = Some(SocketAddr::from(([127, 0, 0, 1], 1)));
    for (group, state, address, why) in [
        (1, AnaState::Change, None, "cannot be set"),
        (3, AnaState::Optimized, None, "no disk is in ANA group 3"),
        (
            1,
            AnaState::Inaccessible,
            nowhere,
            "no disk can be reached there",
        ),
    ] {
        let refused = stage.target.set_ana_state(group, state, at(address));
        let refused = refused.expect_err("refused").to_string();
        assert!(refused.contains(why), "{refused}");
    }
    let in_group = |nsid: u32, ana_group, name: &str| Export {
        ana_group,
        ..Export::new(nsid, ram(name, 512, 1 << 20))
    };
    for ana_group in [0, ANA_GROUPS_MAX + 1] {
        let refused = stage.add(in_group(3, ana_group, "third"));
        let refused = refused.expect_err("refused").to_string();
        assert!(refused.contains("between 1 and 16"), "{refused}");
    }
    let moved = stage.replace(in_group(2, 1, "second"));
    let moved = moved.expect_err("refused").to_string();
    assert!(moved.contains("namespace 2 is in ANA group 2"), "{moved}");
}
