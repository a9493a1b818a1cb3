//! Commands that end by order of another peer: PREEMPT AND ABORT, and task management.

use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::nvme::reservation::AcquireAction;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::scsi::reservation::Kind;
use fabrix_rt::Engine;
use fabrix_target::Deadlines;

use crate::common::disk::{Do, Kind as Requests, TestDisk};
use crate::common::host::Data;
use crate::common::{Plan, Stage, pattern};
use crate::initiator::{FINAL, WRITE};
use crate::on_both_engines;
use crate::peers::{CONFLICT, NvmeHost, Scsi, WRITE_10, reserve_out};

on_both_engines!(
    a_host_preempts_and_aborts_commands_of_an_initiator,
    an_initiator_preempts_and_aborts_commands_of_a_host,
    who_never_sends_its_data_is_preempted_all_the_same,
    a_pair_of_a_preempted_host_ends_as_one,
    a_reset_ends_the_commands_of_all_sessions,
    a_reset_ends_reservations_of_spc_2,
    a_cold_reset_ends_all_sessions,
    clearing_the_task_set_is_told_to_those_who_lose_commands,
    aborting_the_task_set_leaves_others_alone,
    a_disk_that_does_not_answer_holds_nobody_who_fences,
    a_dead_host_whose_write_hangs_is_fenced,
);

const PREEMPT_AND_ABORT: AcquireAction = AcquireAction::Preempt { abort: true };
pub(crate) const TASK_ABORTED: u8 = 0x40;
const ABORT_TASK_SET: u8 = 2;

fn stage(engine: Engine) -> (Arc<TestDisk>, Stage) {
    let disk = TestDisk::new(16 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    (disk, stage)
}

/// Checks that a change is not answered before other commands, in many attempts.
pub(crate) fn is_not_answered(host: &mut NvmeHost) {
    for _ in 0..20 {
        let read = host
            .io
            .submit(SubmissionEntry::read(1, 64, 1), Data::Expect(512));
        let (id, _) = host.io.next_answer().expect("an answer");
        assert_eq!(
            id, read,
            "answered while the victim's command is at the disk"
        );
    }
}

fn a_host_preempts_and_aborts_commands_of_an_initiator(engine: Engine) {
    let (disk, stage) = stage(engine);
    let mut victim = Scsi::new(&stage, 1);
    let mut host = NvmeHost::new(&stage, 1);
    victim.register(1);
    host.register(2);
    assert_eq!(victim.reserve_out(1, 1, 0, Kind::WriteExclusive), 0);
    disk.when(Requests::Write, Do::Keep);
    victim
        .0
        .begin(FINAL | WRITE, &WRITE_10, 512, &pattern(512, 1));
    disk.until_kept(1);
    let id = host.begin_acquire(2, 1, PREEMPT_AND_ABORT, Kind::WriteExclusive);
    let r2t = host.io.receive().expect("an R2T");
    host.io.feed(&r2t);
    is_not_answered(&mut host);
    disk.when(Requests::Write, Do::Obey);
    disk.release();
    assert_eq!(host.io.finish(id).status, Status::SUCCESS);
    assert_eq!(victim.0.end(&[]).status, TASK_ABORTED);
    assert_eq!(
        victim.sense(&[0; 6]),
        Some([6, 0x2F, 0]),
        "commands cleared"
    );
    assert_eq!(
        victim.sense(&[0; 6]),
        Some([6, 0x2A, 5]),
        "registration gone"
    );
    assert_eq!(victim.may(), (true, false));
}

fn an_initiator_preempts_and_aborts_commands_of_a_host(engine: Engine) {
    let (disk, stage) = stage(engine);
    let mut host = NvmeHost::new(&stage, 1);
    // The host's I/O queue on one shard, the session on the other.
    let mut initiator = Scsi::new(&stage, 1);
    initiator.register(1);
    host.register(2);
    let acquire = AcquireAction::Acquire;
    assert_eq!(
        host.acquire(2, 0, acquire, Kind::WriteExclusive),
        Status::SUCCESS
    );
    disk.when(Requests::Write, Do::Keep);
    let write = SubmissionEntry::write(1, 0, 1, false);
    let write = host.io.submit(write, Data::Inline(&pattern(512, 3)));
    disk.until_kept(1);
    let (cdb, list) = reserve_out(5, 1, 2, Kind::ExclusiveAccess);
    initiator.0.begin(FINAL | WRITE, &cdb, 24, &list);
    // This answer shows that the target has taken the change, and has not answered it.
    let ended = initiator.0.command(&[0x12, 0, 0, 0, 36, 0], 36);
    assert_eq!(ended.data.len(), 36);
    disk.release();
    assert_eq!(initiator.0.end(&[]).status, 0);
    assert_eq!(host.io.finish(write).status, Status::ABORTED_PREEMPT);
    disk.when(Requests::Write, Do::Obey);
    assert_eq!(host.may(), (false, false));
    assert_eq!(initiator.may(), (true, true));
}

fn who_never_sends_its_data_is_preempted_all_the_same(engine: Engine) {
    let (_disk, stage) = stage(engine);
    let (mut dead, mut host) = (NvmeHost::new(&stage, 1), NvmeHost::new(&stage, 2));
    let mut silent = Scsi::new(&stage, 1);
    dead.register(1);
    silent.register(1);
    host.register(2);
    let kind = Kind::WriteExclusiveRegistrants;
    assert_eq!(
        dead.acquire(1, 0, AcquireAction::Acquire, kind),
        Status::SUCCESS
    );
    let (id, r2t) = dead.begin_write(16384);
    silent.0.begin(FINAL | WRITE, &WRITE_10, 512, &[]);
    assert_eq!(silent.0.receive().opcode(), 0x31);
    assert_eq!(host.acquire(2, 1, PREEMPT_AND_ABORT, kind), Status::SUCCESS);
    // The target drops the late data.
    dead.io.feed(&r2t);
    assert_eq!(dead.io.finish(id).status, Status::ABORTED_PREEMPT);
    assert_eq!(dead.may(), (true, false));
    assert_eq!(host.io.read(1, 0, 1), [0; 512]);
}

fn a_pair_of_a_preempted_host_ends_as_one(engine: Engine) {
    use fabrix_proto::nvme::command::Fuse;
    let (disk, stage) = stage(engine);
    let (mut victim, mut host) = (NvmeHost::new(&stage, 1), NvmeHost::new(&stage, 2));
    victim.register(1);
    host.register(2);
    let acquire = AcquireAction::Acquire;
    assert_eq!(
        victim.acquire(1, 0, acquire, Kind::WriteExclusive),
        Status::SUCCESS
    );
    disk.when(Requests::Write, Do::Keep);
    let compare = SubmissionEntry::compare(1, 0, 1).fused(Fuse::First);
    let write = SubmissionEntry::write(1, 0, 1, false).fused(Fuse::Second);
    let first = victim.io.submit(compare, Data::Inline(&[0; 512]));
    let second = victim.io.submit(write, Data::Inline(&pattern(512, 1)));
    disk.until_kept(1);
    let id = host.begin_acquire(2, 1, PREEMPT_AND_ABORT, Kind::WriteExclusive);
    let r2t = host.io.receive().expect("an R2T");
    host.io.feed(&r2t);
    is_not_answered(&mut host);
    disk.when(Requests::Write, Do::Obey);
    disk.release();
    assert_eq!(host.io.finish(id).status, Status::SUCCESS);
    assert_eq!(victim.io.finish(first).status, Status::ABORTED_PREEMPT);
    assert_eq!(victim.io.finish(second).status, Status::ABORTED_PREEMPT);
    assert_eq!(victim.may(), (true, false));
}

/// One session requests a task management function while another session's write is at the disk.
/// Returns the disk, the stage and both sessions.
fn managed_by_another(engine: Engine, function: u8) -> (Arc<TestDisk>, Stage, Scsi, Scsi) {
    let (disk, stage) = stage(engine);
    let (mut one, mut two) = (Scsi::new(&stage, 1), Scsi::new(&stage, 2));
    disk.when(Requests::Write, Do::Keep);
    two.0.begin(FINAL | WRITE, &WRITE_10, 512, &pattern(512, 1));
    disk.until_kept(1);
    one.manage(function);
    if function != ABORT_TASK_SET {
        // This answer shows that the target has taken the request, and has not answered it.
        let inquiry = one.0.command(&[0x12, 0, 0, 0, 36, 0], 36);
        assert_eq!(inquiry.data.len(), 36);
    }
    (disk, stage, one, two)
}

fn a_reset_ends_the_commands_of_all_sessions(engine: Engine) {
    for function in [5, 6] {
        let (disk, _stage, mut one, mut two) = managed_by_another(engine, function);
        disk.release();
        assert_eq!(one.managed(), 0);
        assert_eq!(two.0.end(&[]).status, TASK_ABORTED);
        assert_eq!(two.sense(&[0; 6]), Some([6, 0x29, 3]));
        assert_eq!(one.sense(&[0; 6]), Some([6, 0x29, 3]));
        assert_eq!(two.status(&[0; 6]), 0);
    }
}

fn a_reset_ends_reservations_of_spc_2(engine: Engine) {
    const RESERVE: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
    for function in [5, 6] {
        let stage = Stage::new(engine);
        let (mut one, mut two) = (Scsi::new(&stage, 1), Scsi::new(&stage, 2));
        assert_eq!(one.status(&RESERVE), 0);
        assert_eq!(two.write_status(), CONFLICT);
        two.manage(function);
        assert_eq!(two.managed(), 0);
        assert_eq!(two.sense(&[0; 6]), Some([6, 0x29, 3]));
        assert_eq!(two.write_status(), 0, "function {function}");
    }
}

/// RFC 7143, section 11.5.1: a cold reset is a power-on event and ends all connections of
/// initiators.
fn a_cold_reset_ends_all_sessions(engine: Engine) {
    let (disk, stage, mut one, mut two) = managed_by_another(engine, 7);
    let mut host = NvmeHost::new(&stage, 1);
    assert_eq!(stage.target.sessions(), 2, "before the command is quiet");
    disk.when(Requests::Write, Do::Obey);
    disk.release();
    assert_eq!(one.managed(), 0);
    assert!(one.0.is_closed());
    // The other session may get an answer to its command before its connection ends.
    two.until_closed();
    drop((one, two));
    stage.until("all sessions have ended", |stage| {
        stage.target.sessions() == 0
    });
    assert_eq!(host.may(), (true, true));
    assert_eq!(Scsi::new(&stage, 1).status(&[0; 6]), 0);
}

fn clearing_the_task_set_is_told_to_those_who_lose_commands(engine: Engine) {
    let (disk, _stage, mut one, mut two) = managed_by_another(engine, 4);
    disk.release();
    assert_eq!(one.managed(), 0);
    assert_eq!(two.0.end(&[]).status, TASK_ABORTED);
    assert_eq!(two.sense(&[0; 6]), Some([6, 0x2F, 0]));
    assert_eq!(one.status(&[0; 6]), 0, "who asked for it is not told");
}

fn aborting_the_task_set_leaves_others_alone(engine: Engine) {
    let (disk, _stage, mut one, mut two) = managed_by_another(engine, ABORT_TASK_SET);
    assert_eq!(one.managed(), 0);
    disk.release();
    assert_eq!(two.0.end(&[]).status, 0);
}

/// The same stage with a short deadline for aborted commands at the disk.
fn impatient_stage(engine: Engine) -> (Arc<TestDisk>, Stage) {
    let disk = TestDisk::new(16 << 20);
    let deadlines = Deadlines {
        quiet: Duration::from_millis(100),
        ..Deadlines::default()
    };
    let plan = Plan {
        deadlines,
        ..Plan::of(disk.clone())
    };
    (disk, Stage::set(engine, plan))
}

/// The fencing host's read reaches the disk only after the disk has ended the fenced host's write.
/// So the write does not take effect later.
fn the_fenced_write_is_not_seen_to_happen(disk: &TestDisk, host: &mut NvmeHost, written: u8) {
    let entry = SubmissionEntry::read(1, 0, 1);
    let read = host.io.submit(entry, Data::Expect(512));
    let asked = disk.asked().len();
    // This answer shows that the target has taken the read.
    let report = host
        .io
        .submit(SubmissionEntry::reservation_report(1, 64), Data::Expect(64));
    let (id, _) = host.io.next_answer().expect("an answer");
    assert_eq!(id, report, "the read waits");
    assert_eq!(disk.asked().len(), asked);
    disk.when(Requests::Write, Do::Obey);
    disk.release();
    assert_eq!(host.io.finish(read).data, pattern(512, written));
}

fn a_disk_that_does_not_answer_holds_nobody_who_fences(engine: Engine) {
    let (disk, stage) = impatient_stage(engine);
    let mut initiator = Scsi::new(&stage, 1);
    let (mut victim, mut host) = (NvmeHost::new(&stage, 1), NvmeHost::new(&stage, 2));
    initiator.register(1);
    victim.register(1);
    host.register(2);
    assert_eq!(
        initiator.reserve_out(1, 1, 0, Kind::WriteExclusiveRegistrants),
        0
    );
    disk.when(Requests::Write, Do::Keep);
    let write = pattern(512, 1);
    initiator.0.begin(FINAL | WRITE, &WRITE_10, 512, &write);
    let entry = SubmissionEntry::write(1, 0, 1, false);
    let write = victim.io.submit(entry, Data::Inline(&write));
    disk.until_kept(2);
    let kind = Kind::WriteExclusiveRegistrants;
    assert_eq!(host.acquire(2, 1, PREEMPT_AND_ABORT, kind), Status::SUCCESS);
    assert_eq!(initiator.0.end(&[]).status, TASK_ABORTED);
    assert_eq!(victim.io.finish(write).status, Status::ABORTED_PREEMPT);
    the_fenced_write_is_not_seen_to_happen(&disk, &mut host, 1);
    assert_eq!(victim.may(), (true, false));
}

fn a_dead_host_whose_write_hangs_is_fenced(engine: Engine) {
    let (disk, stage) = impatient_stage(engine);
    let (mut dead, mut host) = (NvmeHost::new(&stage, 1), NvmeHost::new(&stage, 2));
    dead.register(1);
    host.register(2);
    disk.when(Requests::Write, Do::Keep);
    let entry = SubmissionEntry::write(1, 0, 1, false);
    dead.io.submit(entry, Data::Inline(&pattern(512, 1)));
    disk.until_kept(1);
    drop(dead);
    let kind = Kind::WriteExclusive;
    assert_eq!(
        host.acquire(2, 0, AcquireAction::Acquire, kind),
        Status::SUCCESS
    );
    assert_eq!(host.acquire(2, 1, PREEMPT_AND_ABORT, kind), Status::SUCCESS);
    the_fenced_write_is_not_seen_to_happen(&disk, &mut host, 1);
}
