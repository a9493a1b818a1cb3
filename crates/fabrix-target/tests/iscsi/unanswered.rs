//! A disk that does not answer: what initiators can still do, and what they must not see.

use std::sync::Arc;
use std::time::Duration;

use fabrix_block::Operation;
use fabrix_proto::nvme::spec::SubmissionEntry;
use fabrix_rt::Engine;
use fabrix_target::{Deadlines, Notice};

use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::host::Data;
use crate::common::{IQN, Plan, Stage, pattern, ram};
use crate::initiator::{FINAL, Initiator, READ, WRITE};
use crate::{good, on_both_engines, portal, rw, session};

on_both_engines!(
    task_management_is_answered_in_time,
    nothing_new_overtakes_a_write_that_was_aborted,
    a_session_is_replaced_and_its_other_disks_go_on,
    logging_in_again_and_again_leaves_nothing_more_behind,
    a_login_that_waits_for_too_long_is_told_to_come_again,
    a_logout_is_answered_in_time,
    a_task_that_waits_only_for_data_ends_with_a_reset_and_with_a_logout,
    a_disk_that_is_full_holds_its_own_commands_only,
);

const ABORT_TASK: u8 = 1;
const LOGICAL_UNIT_RESET: u8 = 5;
const QUICK: Deadlines = Deadlines {
    connect: Duration::from_secs(10),
    parting: Duration::from_secs(2),
    quiet: Duration::from_millis(100),
};

/// A stage over a disk that keeps writes, as logical unit 0, and a RAM disk as logical unit 1.
fn stage(engine: Engine, deadlines: Deadlines) -> (Arc<TestDisk>, Stage) {
    let (disk, plan) = plan(deadlines);
    (disk, Stage::set(engine, plan))
}

fn plan(deadlines: Deadlines) -> (Arc<TestDisk>, Plan) {
    let disk = TestDisk::new(16 << 20);
    disk.when(Kind::Write, Do::Keep);
    let devices = vec![disk.clone(), ram("other", 512, 1 << 20)];
    let plan = Plan {
        devices,
        deadlines,
        ..Plan::default()
    };
    (disk, plan)
}

/// A session whose write of the first block is at the disk, and the write's tag.
fn writing(disk: &TestDisk, stage: &Stage) -> (Initiator, u32) {
    let mut initiator = session(stage, 1, false);
    let kept = disk.kept();
    let itt = write(&mut initiator, 1);
    disk.until_kept(kept + 1);
    (initiator, itt)
}

/// Begins a write of the first block.
fn write(initiator: &mut Initiator, seed: u8) -> u32 {
    initiator.begin(FINAL | WRITE, &rw(0x2A, 0, 1), 512, &pattern(512, seed))
}

/// A task management request, and the response to it.
fn manage(initiator: &mut Initiator, function: u8, itt: u32) -> u8 {
    let mut bhs = [0; 48];
    (bhs[0], bhs[1], bhs[9], bhs[16]) = (0x42, FINAL | function, initiator.lun, 9);
    bhs[20..24].copy_from_slice(&itt.to_be_bytes());
    initiator.send(bhs, &[]);
    let answer = initiator.receive();
    assert_eq!(answer.opcode(), 0x22, "{answer:?}");
    answer.bhs[2]
}

/// Checks that logical unit 1 reads and writes, and that no other answer comes meanwhile.
fn the_other_unit_goes_on(initiator: &mut Initiator) {
    initiator.lun = 1;
    let written = initiator.begin(FINAL | WRITE, &rw(0x2A, 8, 1), 512, &pattern(512, 9));
    let mut answer = initiator.receive();
    if answer.bhs[3] == 2 {
        // The first answer is the unit attention for a new unit.
        assert_eq!(answer.u32(16), written, "{answer:?}");
        let written = initiator.begin(FINAL | WRITE, &rw(0x2A, 8, 1), 512, &pattern(512, 9));
        answer = initiator.receive();
        assert_eq!(answer.u32(16), written, "{answer:?}");
    }
    assert_eq!((answer.opcode(), answer.bhs[3]), (0x21, 0), "{answer:?}");
    assert_eq!(
        initiator.command(&rw(0x28, 8, 1), 512).data,
        pattern(512, 9)
    );
    initiator.lun = 0;
}

fn writes(disk: &TestDisk) -> usize {
    let asked = disk.asked().into_iter();
    asked
        .filter(|it| matches!(it, Operation::Write { .. }))
        .count()
}

fn task_management_is_answered_in_time(engine: Engine) {
    // ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET, TARGET WARM RESET.
    for function in [ABORT_TASK, 2, 4, LOGICAL_UNIT_RESET, 6] {
        let (disk, stage) = stage(engine, QUICK);
        let (mut initiator, itt) = writing(&disk, &stage);
        assert_eq!(
            manage(&mut initiator, function, itt),
            0,
            "function {function}"
        );
        stage.notice(|notice| {
            let said = notice.to_string();
            matches!(notice, Notice::Disk { nsid: 1, .. }) && said.contains("does not answer")
        });
        the_other_unit_goes_on(&mut initiator);
        disk.when(Kind::Write, Do::Obey);
        disk.release();
        // The command that was aborted is not answered, now or later.
        while initiator.command(&[0; 6], 0).status != 0 {}
        good(&initiator.write(&rw(0x2A, 0, 1), &pattern(512, 2), 512, 0));
        assert_eq!(
            initiator.command(&rw(0x28, 0, 1), 512).data,
            pattern(512, 2)
        );
        drop(initiator);
        stage.until_empty();
    }
}

fn nothing_new_overtakes_a_write_that_was_aborted(engine: Engine) {
    let (disk, stage) = stage(engine, QUICK);
    let (_admin, mut host) = stage.admin_and_io();
    let (mut initiator, itt) = writing(&disk, &stage);
    let mut other = session(&stage, 2, false);
    assert_eq!(manage(&mut initiator, ABORT_TASK, itt), 0);
    disk.when(Kind::Write, Do::Obey);
    write(&mut initiator, 2);
    the_other_unit_goes_on(&mut initiator);
    // Reads wait until the disk has ended the old write. Otherwise the blocks could change after a
    // read.
    other.begin(FINAL | READ, &rw(0x28, 0, 1), 512, &[]);
    the_other_unit_goes_on(&mut other);
    let read = host.submit(SubmissionEntry::read(1, 0, 1), Data::Expect(512));
    host.read(2, 0, 1);
    assert_eq!(writes(&disk), 1, "the new write waits");
    disk.release();
    good(&initiator.end(&[]));
    let seen = [other.end(&[]).data, host.finish(read).data];
    assert!(
        seen.iter()
            .all(|data| *data == pattern(512, 1) || *data == pattern(512, 2))
    );
    assert_eq!(
        host.read(1, 0, 1),
        pattern(512, 2),
        "the newer write is not lost"
    );
}

#[test]
fn a_slot_that_was_given_up_is_used_again() {
    let (disk, plan) = plan(QUICK);
    let stage = Stage::in_world(plan);
    let (mut initiator, itt) = writing(&disk, &stage);
    // The window is full of aborted commands, and the other unit can still use every slot.
    let more: Vec<_> = (1..127).map(|seed| write(&mut initiator, seed)).collect();
    disk.until_kept(127);
    for itt in [itt].into_iter().chain(more) {
        let mut bhs = [0; 48];
        (bhs[0], bhs[1], bhs[16]) = (0x42, FINAL | ABORT_TASK, 9);
        bhs[20..24].copy_from_slice(&itt.to_be_bytes());
        if itt % 4 == 0 {
            initiator.send(bhs, &[]);
            assert_eq!(initiator.receive().opcode(), 0x22);
        }
    }
    assert_eq!(manage(&mut initiator, 2, itt), 0);
    for _ in 0..200 {
        the_other_unit_goes_on(&mut initiator);
    }
    disk.when(Kind::Write, Do::Obey);
    disk.release();
    good(&initiator.write(&rw(0x2A, 0, 1), &pattern(512, 200), 512, 0));
    assert_eq!(
        initiator.command(&rw(0x28, 0, 1), 512).data,
        pattern(512, 200)
    );
    drop(initiator);
    stage.until_empty();
}

fn a_session_is_replaced_and_its_other_disks_go_on(engine: Engine) {
    let (disk, stage) = stage(engine, QUICK);
    let (mut older, _) = writing(&disk, &stage);
    let mut newer = session(&stage, 1, false);
    assert!(older.is_closed());
    disk.when(Kind::Write, Do::Obey);
    write(&mut newer, 2);
    the_other_unit_goes_on(&mut newer);
    assert_eq!(writes(&disk), 1, "the new write waits");
    assert_eq!(
        stage.target.connections(),
        2,
        "the old one stays until the disk has ended its write"
    );
    disk.release();
    good(&newer.end(&[]));
    assert_eq!(newer.command(&rw(0x28, 0, 1), 512).data, pattern(512, 2));
    stage.until("the old one is gone", |stage| {
        stage.target.connections() == 1
    });
}

fn logging_in_again_and_again_leaves_nothing_more_behind(engine: Engine) {
    let (disk, stage) = stage(engine, QUICK);
    let mut initiator = writing(&disk, &stage).0;
    for _ in 0..20 {
        let mut next = session(&stage, 1, false);
        assert!(initiator.is_closed());
        write(&mut next, 2);
        next.begin(FINAL | READ, &rw(0x28, 0, 1), 512, &[]);
        the_other_unit_goes_on(&mut next);
        initiator = next;
    }
    assert_eq!(
        writes(&disk),
        1,
        "only the first session has something at the disk"
    );
    stage.until("the others are gone", |stage| {
        stage.target.connections() == 2
    });
    assert_eq!(stage.target.sessions(), 1);
    disk.when(Kind::Write, Do::Obey);
    disk.release();
    drop(initiator);
    stage.until_empty();
}

fn a_login_that_waits_for_too_long_is_told_to_come_again(engine: Engine) {
    let deadlines = Deadlines {
        connect: Duration::from_millis(100),
        ..Deadlines::default()
    };
    let (disk, stage) = stage(engine, deadlines);
    let (mut older, _) = writing(&disk, &stage);
    let mut newer = Initiator::dial(portal(&stage));
    let name = "InitiatorName=iqn.2026-01.example:initiator1";
    let answer = newer.try_login(&[name, &format!("TargetName={IQN}")]);
    assert_eq!(
        answer.bhs[36..38],
        [3, 1],
        "the target's fault, and it may pass"
    );
    assert!(older.is_closed());
    disk.release();
}

fn a_logout_is_answered_in_time(engine: Engine) {
    let (disk, stage) = stage(engine, QUICK);
    let (mut initiator, _) = writing(&disk, &stage);
    initiator.log_out();
    let answer = initiator.receive();
    assert_eq!((answer.opcode(), answer.bhs[2]), (0x26, 0));
    assert!(initiator.is_closed());
    drop(initiator);
    let mut again = session(&stage, 1, false);
    the_other_unit_goes_on(&mut again);
    disk.release();
    drop(again);
    stage.until_empty();
}

fn a_task_that_waits_only_for_data_ends_with_a_reset_and_with_a_logout(engine: Engine) {
    let (_disk, stage) = stage(engine, QUICK);
    let (mut initiator, mut other) = (session(&stage, 1, false), session(&stage, 2, false));
    // TASK ABORTED of the write waits until the data has arrived that the R2T has requested.
    let mut cleared = |initiator: &mut Initiator| {
        while initiator.command(&[0; 6], 0).status != 0 {}
        let itt = initiator.begin(FINAL | WRITE, &rw(0x2A, 0, 1), 512, &[]);
        let r2t = initiator.receive();
        assert_eq!(r2t.opcode(), 0x31, "{r2t:?}");
        assert_eq!(manage(&mut other, 4, u32::MAX), 0, "CLEAR TASK SET");
        (itt, r2t.u32(20))
    };
    let (itt, ttt) = cleared(&mut initiator);
    assert_eq!(manage(&mut initiator, 5, u32::MAX), 0, "LOGICAL UNIT RESET");
    let mut bhs = [0; 48];
    (bhs[0], bhs[1]) = (0x05, FINAL);
    bhs[16..20].copy_from_slice(&itt.to_be_bytes());
    bhs[20..24].copy_from_slice(&ttt.to_be_bytes());
    initiator.send(bhs, &[0xEE; 512]);
    // The next response is that of the next command.
    cleared(&mut initiator);
    initiator.log_out();
    let answer = initiator.receive();
    assert_eq!((answer.opcode(), answer.bhs[2]), (0x26, 0), "{answer:?}");
    assert!(initiator.is_closed());
}

fn a_disk_that_is_full_holds_its_own_commands_only(engine: Engine) {
    let (full, soon) = (TestDisk::new(1 << 20), TestDisk::narrow(1 << 20, 1 << 20));
    let plan = Plan {
        devices: vec![full.clone(), soon.clone()],
        ..Plan::default()
    };
    let stage = Stage::set(engine, plan);
    full.when(Kind::Write, Do::Busy);
    soon.when(Kind::Write, Do::Busy);
    let mut initiator = session(&stage, 1, false);
    write(&mut initiator, 1);
    full.until_refused();
    initiator.lun = 1;
    assert_eq!(initiator.command(&[0; 6], 0).sense, Some([6, 0x29, 0]));
    write(&mut initiator, 2);
    soon.until_refused();
    soon.when(Kind::Write, Do::Obey);
    good(&initiator.end(&[]));
    full.when(Kind::Write, Do::Obey);
    good(&initiator.end(&[]));
}
