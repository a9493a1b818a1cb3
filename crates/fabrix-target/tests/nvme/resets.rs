//! Cross-Controller Reset: a host ends a controller that it has lost over another one.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::nvme::admin::Identify;
use fabrix_proto::nvme::fabrics::{Connect, Property};
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::instance::ControllerInstance;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;
use fabrix_target::{Deadlines, Notice};

use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::host::{CC_DISABLE, Data, Host, wish};
use crate::common::wire::Digests;
use crate::common::{Plan, Stage, pattern};
use crate::on_both_engines;

on_both_engines!(
    a_reset_is_answered_when_no_command_is_at_the_disk,
    a_controller_that_has_ended_is_reset_as_soon_as_its_commands_have_ended,
    what_is_no_lost_controller_of_the_host_is_refused,
    a_controller_of_another_gateway_is_reset_when_that_is_shut_out,
    a_controller_carries_out_four_resets_at_a_time,
    every_instance_has_another_name,
    the_time_to_quiesce_is_that_of_the_disks,
);

/// A stage over a disk that keeps writes. Commands at the disk are abandoned after 50 ms.
fn stage(engine: Engine) -> (Arc<TestDisk>, Stage) {
    let disk = TestDisk::new(4 << 20);
    let deadlines = Deadlines {
        quiet: Duration::from_millis(50),
        ..Deadlines::default()
    };
    let plan = Plan {
        deadlines,
        ..Plan::of(disk.clone())
    };
    let stage = Stage::set(engine, plan);
    disk.when(Kind::Write, Do::Keep);
    (disk, stage)
}

/// Identify Controller.
fn identify(admin: &mut Host) -> Vec<u8> {
    let entry = SubmissionEntry::identify(Identify::new(Cns::CONTROLLER, 0));
    admin.run(entry, Data::Expect(4096)).data
}

fn instance(admin: &mut Host) -> ControllerInstance {
    let page = identify(admin);
    let random: [u8; 8] = page[136..144].try_into().expect("eight bytes");
    ControllerInstance {
        controller_id: admin.controller,
        uniquifier: page[135],
        random: u64::from_le_bytes(random),
    }
}

/// Begins a write of the first block.
fn write(io: &mut Host, seed: u8) -> u16 {
    let entry = SubmissionEntry::write(1, 0, 1, false);
    io.submit(entry, Data::Inline(&pattern(512, seed)))
}

/// Resets a controller over another one. Returns the answer.
fn reset(admin: &mut Host, impacted: ControllerInstance) -> (Status, u64) {
    let entry = SubmissionEntry::cross_controller_reset(impacted);
    let answer = admin.run(entry, Data::None);
    (answer.status, answer.result)
}

/// Checks that no command but the next one is answered, and that shards have done all they could.
fn nothing_is_answered(stage: &Stage, admin: &mut Host) {
    for _ in 0..20 {
        stage.ask(0, |_| ());
        stage.ask(1, |_| ());
        let next = admin.submit(SubmissionEntry::keep_alive(), Data::None);
        let (id, _) = admin.next_answer().expect("an answer");
        assert_eq!(
            id, next,
            "the disk still has a command of the lost controller"
        );
    }
}

fn a_reset_is_answered_when_no_command_is_at_the_disk(engine: Engine) {
    let (disk, stage) = stage(engine);
    let (mut lost, mut io) = stage.admin_and_io();
    let mut second = stage.io(&lost, 2);
    let mut admin = stage.admin();
    let impacted = instance(&mut lost);
    write(&mut io, 1);
    write(&mut second, 2);
    disk.until_kept(2);
    let entry = SubmissionEntry::cross_controller_reset(impacted);
    let id = admin.submit(entry, Data::None);
    for mut queue in [lost, io, second] {
        queue.expect_close();
    }
    stage.notice(
        |notice| matches!(notice, Notice::Disconnected { end, .. } if end.why.contains("reset")),
    );
    // The commands are abandoned meanwhile: this does not end them at the disk.
    stage.notice(|notice| matches!(notice, Notice::Disk { .. }));
    nothing_is_answered(&stage, &mut admin);
    disk.when(Kind::Write, Do::Obey);
    disk.release();
    let answer = admin.finish(id);
    assert_eq!((answer.status, answer.result), (Status::SUCCESS, 1));
    assert_eq!(stage.target.connections(), 1);
    let mut io = stage.io(&admin, 1);
    io.write(1, 0, &pattern(512, 3));
    assert_eq!(io.read(1, 0, 1), pattern(512, 3));
}

fn a_controller_that_has_ended_is_reset_as_soon_as_its_commands_have_ended(engine: Engine) {
    let (disk, stage) = stage(engine);
    let (mut lost, mut io) = stage.admin_and_io();
    let mut admin = stage.admin();
    let impacted = instance(&mut lost);
    write(&mut io, 1);
    disk.until_kept(1);
    drop((lost, io));
    stage.until("the controller has ended", |stage| {
        stage.target.controllers() == 1
    });
    let entry = SubmissionEntry::cross_controller_reset(impacted);
    let id = admin.submit(entry, Data::None);
    nothing_is_answered(&stage, &mut admin);
    disk.release();
    let answer = admin.finish(id);
    assert_eq!((answer.status, answer.result), (Status::SUCCESS, 1));
    // Nothing is left of it, and the target still knows.
    assert_eq!(reset(&mut admin, impacted), (Status::SUCCESS, 1));
}

fn what_is_no_lost_controller_of_the_host_is_refused(engine: Engine) {
    let (_, stage) = stage(engine);
    let (mut lost, mut io) = stage.admin_and_io();
    let mut admin = stage.admin();
    let impacted = instance(&mut lost);
    let own = instance(&mut admin);
    let mut other = stage.dial();
    other.open(Digests::NONE);
    let connected = other.connect(&Connect {
        host_id: [8; 16],
        ..wish()
    });
    other.controller = u16::try_from(connected.result).expect("a controller id");
    other.enable();
    let of_other_host = instance(&mut other);
    for wrong in [
        own,
        of_other_host,
        ControllerInstance::default(),
        ControllerInstance {
            controller_id: 0xFFFF,
            ..impacted
        },
        ControllerInstance {
            uniquifier: impacted.uniquifier + 1,
            ..impacted
        },
        ControllerInstance {
            random: impacted.random ^ 1,
            ..impacted
        },
        ControllerInstance {
            random: 0,
            uniquifier: 0,
            ..impacted
        },
    ] {
        let answer = reset(&mut admin, wrong);
        assert_eq!(answer, (Status::INVALID_FIELD, 0), "{wrong:?}");
    }
    assert_eq!(reset(&mut other, impacted), (Status::INVALID_FIELD, 0));
    assert_eq!(stage.target.controllers(), 3);
    assert_eq!(io.read(1, 0, 1), vec![0; 512], "nothing was reset");
}

/// From now on these controllers of other gateways have ended.
fn shut_out(stage: &Stage, ids: &[RangeInclusive<u16>]) {
    let changed = stage.target.change(|catalog| {
        catalog.gateways.controller_ids = 1..=100;
        catalog.gateways.shut_out = Some(ids.to_vec());
        Ok(())
    });
    changed.expect("it is changed");
}

fn a_controller_of_another_gateway_is_reset_when_that_is_shut_out(engine: Engine) {
    let (_, stage) = stage(engine);
    let mut admin = stage.admin();
    let impacted = ControllerInstance {
        controller_id: 5000,
        uniquifier: 1,
        random: 77,
    };
    shut_out(&stage, &[]);
    let entry = SubmissionEntry::cross_controller_reset(impacted);
    let id = admin.submit(entry, Data::None);
    nothing_is_answered(&stage, &mut admin);
    shut_out(&stage, &[2000..=4000]);
    nothing_is_answered(&stage, &mut admin);
    shut_out(&stage, &[2000..=4000, 4500..=5000]);
    let answer = admin.finish(id);
    assert_eq!((answer.status, answer.result), (Status::SUCCESS, 1));
    assert_eq!(reset(&mut admin, impacted), (Status::SUCCESS, 1));
    // An unknown controller of this target is none of another gateway.
    let own = ControllerInstance {
        controller_id: 99,
        ..impacted
    };
    assert_eq!(reset(&mut admin, own), (Status::INVALID_FIELD, 0));
}

fn a_controller_carries_out_four_resets_at_a_time(engine: Engine) {
    let (disk, stage) = stage(engine);
    let mut admin = stage.admin();
    let mut second = stage.admin();
    let mut lost: Vec<_> = (0..5).map(|_| stage.admin_and_io()).collect();
    let named: Vec<_> = lost.iter_mut().map(|(it, _)| instance(it)).collect();
    for (_, io) in &mut lost {
        write(io, 1);
    }
    disk.until_kept(5);
    let ask = |impacted: &ControllerInstance| {
        let entry = SubmissionEntry::cross_controller_reset(*impacted);
        admin.submit(entry, Data::None)
    };
    let ids: Vec<_> = named.iter().map(ask).collect();
    let refused = admin.finish(ids[4]);
    assert_eq!(refused.status, Status::CROSS_RESET_LIMIT_EXCEEDED);
    disk.release();
    for id in &ids[..4] {
        let answer = admin.finish(*id);
        assert_eq!((answer.status, answer.result), (Status::SUCCESS, 1));
    }
    assert_eq!(reset(&mut second, named[4]), (Status::SUCCESS, 1));
}

fn every_instance_has_another_name(engine: Engine) {
    let (_, stage) = stage(engine);
    let mut names = Vec::new();
    let mut admin = stage.admin();
    for _ in 0..3 {
        names.push(instance(&mut admin));
        assert_eq!(
            admin.property_set(Property::CC, CC_DISABLE).status,
            Status::SUCCESS
        );
        stage.until("CSTS.RDY is 0", |_| admin.property(Property::CSTS) & 1 == 0);
        admin.enable();
    }
    names.push(instance(&mut stage.admin()));
    let randoms: std::collections::BTreeSet<_> = names.iter().map(|it| it.random).collect();
    assert_eq!(randoms.len(), 4, "{names:?}");
    for (one, next) in names.iter().zip(&names[1..3]) {
        assert_eq!(one.controller_id, next.controller_id);
        assert_ne!(one.uniquifier, next.uniquifier);
    }
    assert!(names.iter().all(|it| it.random != 0 && it.uniquifier != 0));
    // A reset of a former instance finds nothing to do, and does not touch the present one.
    let mut other = stage.admin();
    assert_eq!(reset(&mut other, names[0]), (Status::SUCCESS, 1));
    assert_eq!(admin.property(Property::CSTS) & 1, 1);
}

fn the_time_to_quiesce_is_that_of_the_disks(engine: Engine) {
    let (_, stage) = stage(engine);
    let page = identify(&mut stage.admin());
    assert_eq!(u16::from_le_bytes([page[386], page[387]]), 50);
}
