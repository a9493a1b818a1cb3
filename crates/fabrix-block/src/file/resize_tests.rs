//! Resizing a file in use: the state shared by the old and the new disk, and the refused cases.

use std::fs;

use super::tests::{folder, options};
use super::*;
use crate::Status;
use crate::exclusive::Exclusive;
use crate::filter::fault::Fault;
use crate::filter::read_only::ReadOnly;
use crate::filter::stats::{Kind, Stats};
use crate::spec::{Effect, Inject, On};
use crate::testing::{FrontEnd, Kernel, null_disk, on_both_engines, ram_disk};

const MIB: u64 = 1 << 20;

/// A disk on a file of 2 MiB.
fn disk(folder: &tempfile::TempDir) -> Arc<FileDisk> {
    FileDisk::open(options(folder.path())).expect("a disk")
}

fn refusal(device: &dyn Device, bytes: Option<u64>) -> (OpenErrorKind, String) {
    match device.resize(bytes) {
        Ok(_) => panic!("{bytes:?} is refused"),
        Err(error) => (error.kind, error.sentence),
    }
}

#[test]
fn a_file_is_given_another_size_and_stays_the_same_disk() {
    on_both_engines(|front| {
        let folder = folder();
        let old = disk(&folder);
        let mut before = front.open(&old);
        assert_eq!(front.write(&mut before, 0, &[7; 4096]), Status::Ok);
        let new = old.resize(Some(4 * MIB)).expect("a larger one");
        assert_eq!(new.geometry().blocks, 4 * MIB / 512);
        assert_eq!(new.identity(), old.identity());
        assert_eq!(new.geometry().block_bytes, old.geometry().block_bytes);
        assert_eq!(old.geometry().blocks, 2 * MIB / 512, "it does not change");
        let path = folder.path().join("disk");
        assert_eq!(fs::metadata(&path).expect("the file").len(), 4 * MIB);
        let mut after = front.open(&new);
        assert_eq!(front.read(&mut after, 0, 8), Ok(vec![7; 4096]));
        let behind_the_old_end = 3 * MIB / 512;
        assert_eq!(
            front.write(&mut after, behind_the_old_end, &[8; 4096]),
            Status::Ok
        );
        assert_eq!(
            front.read(&mut before, 0, 8),
            Ok(vec![7; 4096]),
            "both are in use"
        );
        let small = new.resize(Some(512)).expect("one block");
        assert_eq!(small.geometry().blocks, 1);
        let mut channel = front.open(&small);
        assert_eq!(front.read(&mut channel, 0, 1), Ok(vec![7; 512]));
    });
}

#[test]
fn a_file_that_somebody_else_has_grown_is_measured_again() {
    let folder = folder();
    let disk = disk(&folder);
    let file = fs::OpenOptions::new()
        .write(true)
        .open(folder.path().join("disk"))
        .expect("the file");
    file.set_len(3 * MIB + 100).expect("a longer file");
    let grown = disk.resize(None).expect("the same disk");
    assert_eq!(grown.geometry().blocks, 3 * MIB / 512);
    assert!(
        grown.notes()[0].contains("the last 100 of"),
        "{:?}",
        grown.notes()
    );
    file.set_len(100).expect("a file without a block");
    let (kind, sentence) = refusal(&*disk, None);
    assert_eq!(kind, OpenErrorKind::Unsupported);
    assert!(sentence.contains("less than one block"), "{sentence}");
}

#[test]
fn sizes_that_cannot_be_are_refused_and_change_nothing() {
    let folder = folder();
    let path = folder.path().join("disk");
    let writable = disk(&folder);
    let (kind, sentence) = refusal(&*writable, Some(511));
    assert_eq!(kind, OpenErrorKind::Usage);
    assert!(
        sentence.contains("less than one block of 512"),
        "{sentence}"
    );
    let (_, sentence) = refusal(&*writable, Some(u64::MAX));
    assert!(sentence.contains("cannot be given"), "{sentence}");
    let filtered = ReadOnly::new(writable);
    assert!(refusal(&*filtered, Some(MIB)).1.contains("read-only"));
    drop(filtered);
    let read_only = FileDisk::open(FileOptions {
        read_only: true,
        ..options(folder.path())
    })
    .expect("a disk");
    let (kind, sentence) = refusal(&*read_only, Some(MIB));
    assert_eq!(kind, OpenErrorKind::Denied);
    assert!(sentence.contains("read-only"), "{sentence}");
    assert!(read_only.resize(None).is_ok(), "measuring changes nothing");
    assert_eq!(fs::metadata(path).expect("the file").len(), 2 * MIB);
}

#[test]
fn the_lock_is_held_until_the_last_of_both_is_gone() {
    let folder = folder();
    let old = disk(&folder);
    let new = old.resize(Some(4 * MIB)).expect("a larger one");
    drop(old);
    let again = FileOptions {
        create_bytes: None,
        ..options(folder.path())
    };
    let error = FileDisk::open(again.clone()).expect_err("locked");
    assert_eq!(error.kind, OpenErrorKind::InUse);
    drop(new);
    assert!(FileDisk::open(again).is_ok());
}

#[test]
fn a_degraded_disk_stays_degraded() {
    let folder = folder();
    let old = disk(&folder);
    let kernel = Kernel::default();
    let mut front = kernel.front_end();
    let mut channel = front.open(&old);
    let earlier = old.resize(None).expect("the same disk");
    kernel.script_results(&[-fabrix_rt::errno::EIO]);
    assert_eq!(front.flush(&mut channel), Status::Degraded);
    let later = old.resize(Some(4 * MIB)).expect("a larger one");
    for disk in [earlier, later] {
        let mut channel = front.open(&disk);
        assert_eq!(front.flush(&mut channel), Status::Degraded);
    }
}

#[test]
fn disks_whose_size_cannot_change_say_so() {
    for disk in [
        ram_disk(64),
        null_disk(64),
        Exclusive::new(ram_disk(64)) as Arc<dyn Device>,
    ] {
        for bytes in [None, Some(MIB)] {
            let (kind, sentence) = refusal(&*disk, bytes);
            assert_eq!(kind, OpenErrorKind::Unsupported);
            assert!(
                sentence.ends_with("only files and block devices can"),
                "{sentence}"
            );
        }
    }
}

#[test]
fn what_stands_in_front_of_a_file_stands_in_front_of_the_new_one() {
    let folder = folder();
    let mut front = FrontEnd::new();
    let second_write = Inject {
        effect: Effect::ErrorNth(2),
        on: On::Write,
    };
    let stats = Stats::new(Fault::new(disk(&folder), &[second_write], 0));
    let old = Exclusive::new(Arc::clone(&stats) as Arc<dyn Device>);
    let new = old.resize(Some(4 * MIB)).expect("a larger one");
    assert_eq!(new.geometry().blocks, 4 * MIB / 512);
    let (mut before, mut after) = (front.open(&old), front.open(&new));
    assert_eq!(front.write(&mut before, 0, &[1; 512]), Status::Ok);
    assert_eq!(
        front.write(&mut after, 0, &[1; 512]),
        Status::MediaWrite,
        "faults go on where they were"
    );
    assert_eq!(
        stats.counts(Kind::Write).requests,
        2,
        "counts are those of the disk"
    );
    let read_only = ReadOnly::new(new).resize(None).expect("the same disk");
    let mut channel = front.open(&read_only);
    assert_eq!(
        front.write(&mut channel, 0, &[1; 512]),
        Status::ReadOnly,
        "and so do refusals"
    );
}

#[test]
fn old_and_new_disk_compare_and_write_as_one() {
    on_both_engines(|front| {
        let folder = folder();
        let slow = Inject {
            effect: Effect::Delay(std::time::Duration::from_millis(20)),
            on: On::Write,
        };
        let old = Exclusive::new(Fault::new(disk(&folder), &[slow], 0));
        let new = old.resize(Some(4 * MIB)).expect("a larger one");
        let (mut before, mut after) = (front.open(&old), front.open(&new));
        let write = crate::Operation::Write { durable: false };
        let written = front
            .submit(
                &mut before,
                write,
                0,
                1,
                crate::Payload::Borrowed(&[9; 512]),
            )
            .expect_err("it takes its time");
        let both = [[0; 512], [1; 512]].concat();
        let compared = front.ask(
            &mut after,
            crate::Operation::CompareAndWrite { durable: false },
            0,
            1,
            crate::Payload::Borrowed(&both),
        );
        assert_eq!(front.wait(written).0, Status::Ok);
        assert_eq!(
            compared.0,
            Status::CompareFailed,
            "it waited for the write of the other"
        );
    });
}
