//! Notices for the operator about hosts that leave and disks that fail.

use fabrix_block::Status as DiskStatus;
use fabrix_proto::nvme::fabrics::{Connect, Property};
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_rt::Engine;
use fabrix_target::{End, Notice};

use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::host::{CC_SHUTDOWN, wish};
use crate::common::wire::Digests;
use crate::common::{HOST_NQN, Plan, Stage};
use crate::on_both_engines;

on_both_engines!(
    the_end_of_a_controller_has_its_reason,
    an_io_queue_that_breaks_the_protocol_is_told_with_its_host,
    who_is_refused_is_told_by_name_and_reason,
    a_failed_request_is_told_with_its_disk_and_blocks,
);

/// Waits for the end of a controller.
fn ended(stage: &Stage) -> End {
    let ended = stage.notice(|notice| matches!(notice, Notice::Disconnected { .. }));
    match ended {
        Notice::Disconnected { end, host, .. } if host == HOST_NQN => end,
        other => panic!("not this host: {other:?}"),
    }
}

fn the_end_of_a_controller_has_its_reason(engine: Engine) {
    let stage = Stage::new(engine);
    let check = |why: &str, is_orderly| {
        let end = ended(&stage);
        assert_eq!((end.why.as_str(), end.is_orderly), (why, is_orderly));
    };
    let mut polite = stage.admin();
    polite.property_set(Property::CC, CC_SHUTDOWN);
    drop(polite);
    check("it disconnected", true);
    drop(stage.admin());
    check("it closed the connection", true);
    let mut broken = stage.admin();
    broken.send(&[0x7F; 8]);
    let end = ended(&stage);
    assert!(end.why.starts_with("it broke the protocol: "), "{end:?}");
    assert!(!end.is_orderly);
    let _idle = stage.admin();
    stage.target.drain();
    check("the target is shutting down", true);
}

fn an_io_queue_that_breaks_the_protocol_is_told_with_its_host(engine: Engine) {
    let stage = Stage::new(engine);
    let (_admin, mut io) = stage.admin_and_io();
    io.send(&[0x7F; 8]);
    stage.notice(|notice| {
        matches!(notice, Notice::QueueLost { host: Some(host), qid: 1, why, .. }
            if host == HOST_NQN && why.starts_with("it broke the protocol: "))
    });
}

fn who_is_refused_is_told_by_name_and_reason(engine: Engine) {
    let stage = Stage::new(engine);
    let mut host = stage.dial();
    host.open(Digests::NONE);
    let elsewhere = Connect {
        subsystem: Nqn::new("nqn.2014-08.org.example:none").expect("an NQN"),
        ..wish()
    };
    host.connect(&elsewhere);
    let refused = stage.notice(|notice| matches!(notice, Notice::Refused { .. }));
    let said = refused.to_string();
    let expected = format!("refused {HOST_NQN} from 127.0.0.1:");
    assert!(said.starts_with(&expected), "{said}");
}

fn a_failed_request_is_told_with_its_disk_and_blocks(engine: Engine) {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let (_admin, mut io) = stage.admin_and_io();
    disk.when(Kind::Write, Do::AnswerLater(DiskStatus::NoSpace));
    io.try_write(1, 8, &[1; 1024], 512);
    let failed = stage.notice(|notice| matches!(notice, Notice::DiskFailed { .. }));
    let said = failed.to_string();
    let expected = "write of 2 blocks at block 8 failed: no space is left";
    assert!(
        said.starts_with("namespace 1 (") && said.contains(expected),
        "{said}"
    );
    // A fault of the host causes no notice.
    disk.when(Kind::Write, Do::Answer(DiskStatus::ReadOnly));
    io.try_write(1, 8, &[1; 512], 512);
    disk.when(Kind::Read, Do::Answer(DiskStatus::MediaRead));
    io.try_read(1, 16, 1, 512);
    let failed = stage.notice(|notice| matches!(notice, Notice::DiskFailed { .. }));
    assert!(failed.to_string().contains("read of 1 blocks at block 16"));
}
