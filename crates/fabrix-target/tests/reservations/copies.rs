//! Effects of other initiators on an EXTENDED COPY in progress. One logical unit gets the command,
//! and other units are read and written.

use std::sync::Arc;

use fabrix_block::Operation;
use fabrix_proto::nvme::reservation::AcquireAction;
use fabrix_proto::nvme::spec::Status;
use fabrix_proto::scsi::reservation::Kind;
use fabrix_rt::Engine;

use crate::abort::{TASK_ABORTED, is_not_answered};
use crate::common::disk::{Do, Kind as Requests, TestDisk};
use crate::common::{Plan, Stage, pattern, ram};
use crate::copying::{COPY_ABORTED, begin_copy, copy_list, copy_status, naa};
use crate::initiator::{FINAL, WRITE};
use crate::on_both_engines;
use crate::peers::{NvmeHost, Scsi, reserve_out};

on_both_engines!(
    a_reservation_stops_a_copy_before_its_next_piece,
    a_copy_goes_on_where_it_may,
    preempt_and_abort_ends_copies_to_its_disk_whoever_was_asked_for_them,
    a_host_preempts_and_aborts_a_copy,
    a_reset_of_its_destination_ends_a_copy,
    aborting_the_task_set_of_its_destination_leaves_a_copy_alone,
    a_disk_that_is_protected_meanwhile_is_written_no_more,
);

/// Length of one piece in bytes.
const PIECE: u32 = 256 << 10;

/// A disk that keeps requests as logical unit 0, a second disk, an initiator that copies between
/// them, and another initiator.
struct Scene {
    disk: Arc<TestDisk>,
    stage: Stage,
    copier: Scsi,
    other: Scsi,
    names: [[u8; 8]; 2],
}

impl Scene {
    fn new(engine: Engine) -> Self {
        let disk = TestDisk::new(8 << 20);
        let mut plan = Plan::of(disk.clone());
        plan.devices.push(ram("second", 512, 8 << 20));
        let stage = Stage::set(engine, plan);
        let (mut copier, mut other) = (Scsi::new(&stage, 1), Scsi::new(&stage, 2));
        let names = [naa(&mut copier.0, 0), naa(&mut copier.0, 1)];
        let _attention = naa(&mut other.0, 1);
        Self {
            disk,
            stage,
            copier,
            other,
            names,
        }
    }

    /// Begins a copy of two pieces with a command to the logical unit `asked`. Waits until the
    /// first piece has a read or a write at the disk that keeps requests.
    fn copy(&mut self, kept: Requests, asked: u8) {
        let [waiting, ready] = self.names.each_ref();
        let disks = match kept {
            Requests::Read => [waiting, ready],
            _ => [ready, waiting],
        };
        self.disk.when(kept, Do::Keep);
        self.copier.0.lun = asked;
        begin_copy(&mut self.copier.0, &copy_list(9, disks, 1024, 0));
        self.disk.until_kept(1);
    }

    fn release(&self, kept: Requests) {
        self.disk.when(kept, Do::Obey);
        self.disk.release();
    }

    fn writes(&self) -> usize {
        let asked = self.disk.asked();
        let is_write = |operation: &&Operation| matches!(operation, Operation::Write { .. });
        asked.iter().filter(is_write).count()
    }

    /// Expects that the copy has failed after `bytes` bytes.
    fn failed_after(&mut self, bytes: u32) {
        assert_eq!(self.copier.0.end(&[]).sense, COPY_ABORTED);
        assert_eq!(copy_status(&mut self.copier.0, 9), Some((2, 0, bytes)));
    }

    /// Checks that the other initiator's request is not answered while a piece is at the disk,
    /// although other commands are.
    fn other_waits(&mut self) {
        for _ in 0..100 {
            let inquiry = self.other.0.command(&[0x12, 0, 0, 0, 36, 0], 36);
            assert_eq!(inquiry.data.len(), 36, "answered too early");
        }
    }
}

fn a_reservation_stops_a_copy_before_its_next_piece(engine: Engine) {
    for (kept, kind, done) in [
        (Requests::Write, Kind::WriteExclusive, PIECE),
        (Requests::Read, Kind::ExclusiveAccess, 0),
    ] {
        let mut scene = Scene::new(engine);
        scene.copy(kept, 1);
        scene.other.register(2);
        assert_eq!(scene.other.reserve_out(1, 2, 0, kind), 0);
        scene.release(kept);
        scene.failed_after(done);
        let writes = usize::from(kept == Requests::Write);
        assert_eq!(scene.writes(), writes, "{kept:?}: another piece");
    }
}

fn a_copy_goes_on_where_it_may(engine: Engine) {
    let mut scene = Scene::new(engine);
    scene.copy(Requests::Read, 1);
    scene.other.register(2);
    // The reservation lets others read the source. The copier holds the destination.
    assert_eq!(scene.other.reserve_out(1, 2, 0, Kind::WriteExclusive), 0);
    scene.copier.register(1);
    let hold = scene.copier.reserve_out(1, 1, 0, Kind::ExclusiveAccess);
    assert_eq!(hold, 0);
    scene.release(Requests::Read);
    assert_eq!(scene.copier.0.end(&[]).status, 0);
    assert_eq!(copy_status(&mut scene.copier.0, 9), Some((1, 1, 2 * PIECE)));
}

fn preempt_and_abort_ends_copies_to_its_disk_whoever_was_asked_for_them(engine: Engine) {
    for asked in [0, 1] {
        let mut scene = Scene::new(engine);
        scene.copier.0.lun = 0;
        scene.copier.register(1);
        scene.other.register(2);
        let kind = Kind::WriteExclusiveRegistrants;
        assert_eq!(scene.copier.reserve_out(1, 1, 0, kind), 0);
        scene.copy(Requests::Write, asked);
        let (cdb, list) = reserve_out(5, 2, 1, kind);
        scene.other.0.begin(FINAL | WRITE, &cdb, 24, &list);
        scene.other_waits();
        scene.release(Requests::Write);
        assert_eq!(scene.other.0.end(&[]).status, 0);
        // The other initiator's write after this is not overwritten.
        let data = pattern(512, 9);
        let write = [0x2A, 0, 0, 0, 2, 0, 0, 0, 1, 0];
        assert_eq!(scene.other.0.write(&write, &data, 512, 0).status, 0);
        if asked == 0 {
            assert_eq!(scene.copier.0.end(&[]).status, TASK_ABORTED);
        } else {
            scene.failed_after(0);
        }
        assert_eq!(scene.writes(), 2, "a piece, and what the other wrote");
    }
}

fn a_host_preempts_and_aborts_a_copy(engine: Engine) {
    let mut scene = Scene::new(engine);
    let mut host = NvmeHost::new(&scene.stage, 1);
    scene.copier.0.lun = 0;
    scene.copier.register(1);
    host.register(2);
    let kind = Kind::WriteExclusiveRegistrants;
    assert_eq!(scene.copier.reserve_out(1, 1, 0, kind), 0);
    scene.copy(Requests::Write, 1);
    let preempt = AcquireAction::Preempt { abort: true };
    let id = host.begin_acquire(2, 1, preempt, kind);
    let r2t = host.io.receive().expect("an R2T");
    host.io.feed(&r2t);
    is_not_answered(&mut host);
    scene.release(Requests::Write);
    assert_eq!(host.io.finish(id).status, Status::SUCCESS);
    scene.failed_after(0);
    assert_eq!(scene.writes(), 1);
}

fn a_reset_of_its_destination_ends_a_copy(engine: Engine) {
    const CLEAR_TASK_SET: u8 = 4;
    const LOGICAL_UNIT_RESET: u8 = 5;
    for function in [CLEAR_TASK_SET, LOGICAL_UNIT_RESET] {
        let mut scene = Scene::new(engine);
        scene.copy(Requests::Write, 1);
        scene.other.0.lun = 0;
        scene.other.manage(function);
        scene.other_waits();
        scene.release(Requests::Write);
        assert_eq!(scene.other.managed(), 0);
        scene.failed_after(0);
        assert_eq!(scene.writes(), 1);
        // The copier requests the function itself, and gets both answers.
        scene.copy(Requests::Write, 1);
        scene.copier.manage(function);
        scene.release(Requests::Write);
        assert_eq!(scene.copier.0.end(&[]).sense, COPY_ABORTED);
        assert_eq!(scene.copier.managed(), 0);
        assert_eq!(scene.writes(), 2);
    }
}

fn aborting_the_task_set_of_its_destination_leaves_a_copy_alone(engine: Engine) {
    const ABORT_TASK_SET: u8 = 2;
    let mut scene = Scene::new(engine);
    scene.copy(Requests::Write, 1);
    scene.copier.manage(ABORT_TASK_SET);
    assert_eq!(scene.copier.managed(), 0);
    scene.release(Requests::Write);
    assert_eq!(scene.copier.0.end(&[]).status, 0);
    assert_eq!(scene.writes(), 2);
}

/// SWP of the Control mode page.
fn a_disk_that_is_protected_meanwhile_is_written_no_more(engine: Engine) {
    let mut scene = Scene::new(engine);
    scene.copy(Requests::Write, 1);
    scene.other.0.lun = 0;
    let sense = [0x1A, 8, 0x0A, 0, 64, 0];
    let mut page = scene.other.0.command(&sense, 64).data;
    // MODE SELECT reserves MODE DATA LENGTH, and the PS bit of the page.
    (page[0], page[4]) = (0, page[4] & 0x7F);
    page[2] = 0;
    page[8] |= 8;
    let length = u8::try_from(page.len()).expect("short");
    let select = [0x15, 0x10, 0, 0, length, 0];
    let selected = scene.other.0.write(&select, &page, page.len(), 0);
    assert_eq!(selected.status, 0, "{selected:?}");
    scene.release(Requests::Write);
    scene.failed_after(PIECE);
    assert_eq!(scene.writes(), 1);
    // The initiator that made the change gets no unit attention. Each other one gets one.
    scene.copier.0.lun = 0;
    assert_eq!(scene.other.status(&[0; 6]), 0);
    assert_eq!(scene.copier.sense(&[0; 6]), Some([6, 0x2A, 1]));
    assert_eq!(scene.copier.status(&[0; 6]), 0);
}
