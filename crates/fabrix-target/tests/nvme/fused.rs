//! Compare and Write: two commands in sequence that succeed or fail as one. VMFS locks its files
//! with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use fabrix_block::Status as DiskStatus;
use fabrix_block::file::{FileDisk, FileOptions};
use fabrix_proto::nvme::command::Fuse;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;
use fabrix_target::Export;

use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::host::{Answer, Data, Host, by_size};
use crate::common::wire::{Digests, R2T, h2c_data};
use crate::common::{Plan, Stage, pattern};
use crate::on_both_engines;

on_both_engines!(
    writes_only_what_compares,
    both_halves_may_come_by_r2t_in_any_order,
    a_refused_write_after_the_comparison_is_not_repeated_elsewhere,
    halves_without_each_other_are_aborted,
    a_damaged_half_fails_the_other,
    too_many_blocks_are_refused,
    two_hosts_that_compare_and_write_never_lose_an_update,
    a_disk_that_grows_meanwhile_loses_no_update,
);

fn halves(lba: u64, blocks: u32) -> (SubmissionEntry, SubmissionEntry) {
    (
        SubmissionEntry::compare(1, lba, blocks).fused(Fuse::First),
        SubmissionEntry::write(1, lba, blocks, false).fused(Fuse::Second),
    )
}

/// Sends both halves and waits for both answers.
fn compare_and_write(io: &mut Host, lba: u64, compare: Data<'_>, write: Data<'_>) -> [Answer; 2] {
    let bytes = match compare {
        Data::Inline(bytes) | Data::Fetch(bytes) => bytes.len(),
        _ => unreachable!("a compare has data"),
    };
    let (first, second) = halves(lba, u32::try_from(bytes / 512).expect("small"));
    let first = io.submit(first, compare);
    let second = io.submit(second, write);
    [io.finish(first), io.finish(second)]
}

fn statuses(answers: &[Answer; 2]) -> [Status; 2] {
    [answers[0].status, answers[1].status]
}

fn writes_only_what_compares(engine: Engine) {
    let stage = Stage::new(engine);
    let admin = stage.admin();
    for (qid, digests) in [(1, Digests::NONE), (2, Digests::BOTH)] {
        let mut io = Host::io_with(stage.address, admin.controller, qid, digests);
        for bytes in [512, 4096, 64 << 10] {
            let (old, new) = (pattern(bytes, 1), pattern(bytes, 2));
            let blocks = u32::try_from(bytes / 512).expect("small");
            io.write(1, 64, &old);
            let wrong = compare_and_write(&mut io, 64, by_size(&new), by_size(&new));
            let failed = [Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED];
            assert_eq!(statuses(&wrong), failed, "{bytes} bytes");
            assert!(io.read(1, 64, blocks) == old, "nothing was written");
            let right = compare_and_write(&mut io, 64, by_size(&old), by_size(&new));
            assert_eq!(statuses(&right), [Status::SUCCESS; 2], "{bytes} bytes");
            assert!(io.read(1, 64, blocks) == new);
        }
    }
}

/// The storage refuses the write of a pair because another gateway serves the disk. It may have
/// been carried out before. A host that repeated it elsewhere would compare with its own data, so
/// the answer is no path error.
fn a_refused_write_after_the_comparison_is_not_repeated_elsewhere(engine: Engine) {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let (_admin, mut io) = stage.admin_and_io();
    let (old, new) = (vec![0; 512], pattern(512, 2));
    let refused = Do::Answer(DiskStatus::Refused);
    disk.when(Kind::Write, refused);
    let unsure = compare_and_write(&mut io, 0, Data::Inline(&old), Data::Inline(&new));
    assert_eq!(unsure[0].status, Status::COMMAND_INTERRUPTED);
    disk.when(Kind::Read, refused);
    let not_begun = compare_and_write(&mut io, 0, Data::Inline(&old), Data::Inline(&new));
    assert_eq!(not_begun[0].status, Status::INTERNAL_PATH_ERROR);
}

fn both_halves_may_come_by_r2t_in_any_order(engine: Engine) {
    let stage = Stage::new(engine);
    let (_admin, mut io) = stage.admin_and_io();
    let (old, new) = (vec![0; 4096], pattern(4096, 6));
    let both = compare_and_write(&mut io, 0, Data::Fetch(&old), Data::Fetch(&new));
    assert_eq!(statuses(&both), [Status::SUCCESS; 2]);
    let mixed = compare_and_write(&mut io, 0, Data::Inline(&new), Data::Fetch(&old));
    assert_eq!(statuses(&mixed), [Status::SUCCESS; 2]);
    // The write's data first, the compare's last.
    let (first, second) = halves(0, 8);
    let first = io.submit(first, Data::Fetch(&old));
    let compare_r2t = io.receive().expect("R2T");
    assert_eq!(compare_r2t.kind, R2T);
    let second = io.submit(second, Data::Inline(&new));
    io.feed(&compare_r2t);
    let answers = [io.finish(first), io.finish(second)];
    assert_eq!(statuses(&answers), [Status::SUCCESS; 2]);
    assert!(io.read(1, 0, 8) == new);
}

fn halves_without_each_other_are_aborted(engine: Engine) {
    let stage = Stage::new(engine);
    let (_admin, mut io) = stage.admin_and_io();
    let data = vec![0; 512];
    let missing = Status::ABORTED_MISSING_FUSED;
    let (first, second) = halves(0, 1);
    let alone = io.run(second, Data::Inline(&data));
    assert_eq!(alone.status, missing, "a second half without a first");
    let waiting = io.submit(first, Data::Inline(&data));
    let between = io.run(SubmissionEntry::read(1, 0, 1), Data::Expect(512));
    assert_eq!(
        between.status,
        Status::SUCCESS,
        "what came instead is carried out"
    );
    assert_eq!(
        io.finish(waiting).status,
        missing,
        "a first half without a second"
    );
    let waiting = io.submit(first, Data::Inline(&data));
    let refused = io.run(SubmissionEntry::read(9, 0, 1), Data::Expect(512));
    assert_eq!(refused.status, Status::INVALID_NAMESPACE);
    assert_eq!(
        io.finish(waiting).status,
        missing,
        "even if that is refused"
    );
    for (what, (other, _), (_, wrong)) in [
        ("another block", halves(0, 1), halves(1, 1)),
        ("another length", halves(0, 1), halves(0, 2)),
    ] {
        let long = vec![0; 1024];
        let wrong_bytes = if what == "another length" {
            &long
        } else {
            &data
        };
        let first = io.submit(other, Data::Inline(&data));
        let second = io.submit(wrong, Data::Inline(wrong_bytes));
        assert_eq!(io.finish(first).status, missing, "{what}");
        assert_eq!(io.finish(second).status, missing, "{what}");
    }
    let earlier = io.submit(first, Data::Inline(&data));
    let both = compare_and_write(&mut io, 0, Data::Inline(&data), Data::Inline(&data));
    assert_eq!(
        statuses(&both),
        [Status::SUCCESS; 2],
        "two first halves: the later counts"
    );
    assert_eq!(io.finish(earlier).status, missing);
    let read = SubmissionEntry::read(1, 0, 1).fused(Fuse::First);
    let not_fusible = io.run(read, Data::Expect(512));
    assert_eq!(not_fusible.status, Status::INVALID_FIELD);
    // A first half that is aborted while its data is still arriving.
    let given_up = io.submit(first, Data::Fetch(&data));
    let r2t = io.receive().expect("R2T");
    let flush = io.submit(SubmissionEntry::flush(1), Data::None);
    assert_eq!(io.finish(flush).status, Status::SUCCESS);
    io.feed(&r2t);
    assert_eq!(
        io.finish(given_up).status,
        missing,
        "answered when its data has come"
    );
    stage.until("its buffer is free", |stage| {
        stage.buffer_bytes() <= 2 * (256 << 10)
    });
    io.write(1, 0, &data);
}

fn a_damaged_half_fails_the_other(engine: Engine) {
    let stage = Stage::new(engine);
    let admin = stage.admin();
    let mut io = Host::io_with(stage.address, admin.controller, 1, Digests::BOTH);
    let data = vec![0; 512];
    for damaged_first in [true, false] {
        let (first, second) = halves(0, 1);
        let first = io.submit(first, Data::Fetch(&data));
        let second = io.submit(second, Data::Fetch(&data));
        let r2ts = [io.receive().expect("R2T"), io.receive().expect("R2T")];
        for (r2t, damaged) in r2ts.iter().zip([damaged_first, !damaged_first]) {
            assert_eq!(r2t.kind, R2T);
            let mut bytes = h2c_data(r2t.u16(8), r2t.u16(10), 0, &data, 4, io.digests);
            if damaged {
                let end = bytes.len() - 1;
                bytes[end] ^= 1;
            }
            io.send(&bytes);
        }
        let answers = [io.finish(first).status, io.finish(second).status];
        let (damaged, other) = if damaged_first { (0, 1) } else { (1, 0) };
        assert_eq!(answers[damaged], Status::TRANSIENT_TRANSPORT_ERROR);
        assert_eq!(answers[other], Status::ABORTED_FAILED_FUSED);
    }
    let both = compare_and_write(&mut io, 0, Data::Inline(&data), Data::Inline(&data));
    assert_eq!(statuses(&both), [Status::SUCCESS; 2]);
}

fn too_many_blocks_are_refused(engine: Engine) {
    let stage = Stage::new(engine);
    let (_admin, mut io) = stage.admin_and_io();
    let most = vec![0; 128 * 512];
    let both = compare_and_write(&mut io, 0, Data::Fetch(&most), Data::Fetch(&most));
    assert_eq!(
        statuses(&both),
        [Status::SUCCESS; 2],
        "as many as Identify says"
    );
    let (first, second) = halves(0, 129);
    let data = vec![0; 129 * 512];
    let first = io.submit(first, Data::Fetch(&data));
    let second = io.submit(second, Data::Fetch(&data));
    assert_eq!(io.finish(first).status, Status::INVALID_FIELD);
    assert_eq!(io.finish(second).status, Status::ABORTED_MISSING_FUSED);
}

/// Two connections on two shards increment the number in the same block, each over its own queue. A
/// third connection writes elsewhere.
fn two_hosts_that_compare_and_write_never_lose_an_update(engine: Engine) {
    let stage = Stage::new(engine);
    let admin = stage.admin();
    let stop = Arc::new(AtomicBool::new(false));
    let mut noise = stage.io(&admin, 3);
    let stopped = Arc::clone(&stop);
    let noise = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            noise.write(1, 1000, &[1; 16384]);
        }
    });
    let counting = [count(stage.io(&admin, 1)), count(stage.io(&admin, 2))];
    for thread in counting {
        thread.join().expect("counts");
    }
    stop.store(true, Ordering::Relaxed);
    noise.join().expect("writes");
    assert_eq!(
        counted(&mut stage.io(&admin, 4)),
        2 * ROUNDS,
        "none is lost"
    );
}

/// Two connections on two shards increment the number in the same block, while the disk grows again
/// and again. The shards take over the larger disk one after the other.
fn a_disk_that_grows_meanwhile_loses_no_update(engine: Engine) {
    let name = format!("fabrix-grows-{}-{engine:?}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = FileDisk::open(FileOptions {
        create_bytes: Some(1 << 20),
        direct: false,
        ..FileOptions::new(&path)
    });
    let stage = Stage::set(engine, Plan::of(file.expect("a file")));
    let admin = stage.admin();
    let counting = [count(stage.io(&admin, 1)), count(stage.io(&admin, 2))];
    for mib in 2..34 {
        let device = stage.exports()[0].device.resize(Some(mib << 20));
        let device = device.expect("a larger file");
        let larger = Export::new(1, device);
        stage.replace(larger).expect("the same disk");
    }
    for thread in counting {
        thread.join().expect("counts");
    }
    assert_eq!(
        counted(&mut stage.io(&admin, 4)),
        2 * ROUNDS,
        "none is lost"
    );
    std::fs::remove_file(&path).expect("it is there");
}

/// Updates of each connection.
const ROUNDS: u64 = 200;

/// Increments the number in block 5.
fn count(mut io: Host) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for _ in 0..ROUNDS {
            loop {
                let old = io.read(1, 5, 1);
                let mut new = old.clone();
                let value = u64::from_le_bytes(old[..8].try_into().expect("eight")) + 1;
                new[..8].copy_from_slice(&value.to_le_bytes());
                let both = compare_and_write(&mut io, 5, Data::Inline(&old), Data::Inline(&new));
                if both[0].status.is_success() {
                    break;
                }
                assert_eq!(both[0].status, Status::COMPARE_FAILURE);
            }
        }
    })
}

/// The number in block 5.
fn counted(io: &mut Host) -> u64 {
    u64::from_le_bytes(io.read(1, 5, 1)[..8].try_into().expect("eight"))
}
