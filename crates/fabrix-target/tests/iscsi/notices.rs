//! Notices for the operator about initiators that leave and disks that fail.

use fabrix_block::Status as DiskStatus;
use fabrix_rt::Engine;
use fabrix_target::{End, Notice};

use super::common::disk::{Do, Kind, TestDisk};
use super::common::{Plan, Stage};
use super::initiator::FINAL;
use super::{on_both_engines, rw, session};

on_both_engines!(a_failed_request_is_told_with_its_disk_and_blocks,);

/// Waits for the end of a session.
fn ended(stage: &Stage) -> End {
    let ended = stage.notice(|notice| matches!(notice, Notice::LoggedOut { .. }));
    match ended {
        Notice::LoggedOut { end, initiator, .. } if initiator.contains("initiator") => end,
        other => panic!("no initiator: {other:?}"),
    }
}

#[test]
fn the_end_of_a_session_has_its_reason() {
    let stage = Stage::in_world(Plan::default());
    let check = |why: &str, is_orderly| {
        let end = ended(&stage);
        assert_eq!((end.why.as_str(), end.is_orderly), (why, is_orderly));
    };
    session(&stage, 1, false).log_out();
    check("it logged out", true);
    drop(session(&stage, 1, false));
    check("it closed the connection", true);
    let _older = session(&stage, 1, false);
    let mut newer = session(&stage, 1, false);
    check("it has logged in anew, which replaces this session", false);
    *newer.cmd_sn() += 3;
    newer.begin(FINAL, &[0; 6], 0, &[]);
    let _goodbye = newer.receive();
    let end = ended(&stage);
    assert!(end.why.starts_with("it broke the protocol: "), "{end:?}");
    let _idle = session(&stage, 1, false);
    stage.target.drain();
    check("the target is shutting down", true);
}

fn a_failed_request_is_told_with_its_disk_and_blocks(engine: Engine) {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let mut initiator = session(&stage, 1, false);
    for answer in [Do::Answer, Do::AnswerLater] {
        disk.when(Kind::Read, answer(DiskStatus::MediaRead));
        initiator.command(&rw(0x28, 8, 2), 1024);
        let failed = stage.notice(|notice| matches!(notice, Notice::DiskFailed { .. }));
        let said = failed.to_string();
        let expected = "read of 2 blocks at block 8 failed: the medium did not";
        assert!(
            said.starts_with("namespace 1 (") && said.contains(expected),
            "{said}"
        );
    }
}
