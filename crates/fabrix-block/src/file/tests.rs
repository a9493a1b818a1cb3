//! Files as disks: which paths open, the errors for those that do not, and the data in the file.
//! `channel/tests.rs` tests the handling of kernel results.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::testing::{FrontEnd, compare_with_model, on_both_engines, steps};
use crate::{Deallocate, Durability, Operation, Payload, Status};

const BLOCKS: u64 = 4096;

/// Options for a file of 2 MiB, with direct I/O where the test's file system supports it.
pub(in crate::file) fn options(folder: &Path) -> FileOptions {
    let mut options = FileOptions::new(folder.join("disk"));
    options.create_bytes = Some(BLOCKS * 512);
    options.block_bytes = Some(512);
    if let Err(error) = FileDisk::open(options.clone()) {
        eprintln!("without direct I/O: {error}");
        options.direct = false;
    }
    options
}

pub(in crate::file) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn refusal(options: &FileOptions) -> (OpenErrorKind, String) {
    let error = FileDisk::open(options.clone()).expect_err("refused");
    (error.kind, error.sentence)
}

#[test]
fn creates_a_sparse_file_once_and_finds_it_again() {
    let folder = folder();
    let options = options(folder.path());
    let disk = FileDisk::open(options.clone()).expect("a new file");
    assert_eq!(disk.geometry().blocks, BLOCKS);
    assert_eq!(disk.geometry().durability, Durability::Device);
    assert!(
        disk.geometry().volatile_cache,
        "a file is as volatile as what lies below"
    );
    assert_eq!(disk.geometry().deallocate, Deallocate::Zeroes);
    let identity = disk.identity().clone();
    drop(disk);
    let again = FileDisk::open(FileOptions {
        create_bytes: None,
        ..options
    })
    .expect("the same file");
    assert_eq!(again.identity(), &identity);
}

#[test]
fn tells_holes_from_what_was_written() {
    let folder = folder();
    let options = options(folder.path());
    let disk = FileDisk::open(options).expect("a new file");
    on_both_engines(|front| {
        let mut channel = front.open(&disk);
        front.ask(
            &mut channel,
            Operation::Deallocate,
            0,
            u32::try_from(BLOCKS).expect("few"),
            Payload::None,
        );
        let written = front.buf(8192, 1);
        let (status, _) = front.ask(
            &mut channel,
            Operation::Write { durable: true },
            1024,
            16,
            Payload::Owned(written),
        );
        assert_eq!(status, Status::Ok);
        let run = |lba| {
            let run = disk.allocation(lba);
            (run.allocation, run.blocks)
        };
        if run(0) == (Allocation::Mapped, BLOCKS) {
            println!("SKIPPED: tells_holes_from_what_was_written: no holes in this file system");
            return;
        }
        assert_eq!(run(8), (Allocation::Deallocated, 1016));
        assert_eq!(run(1024), (Allocation::Mapped, 16));
        assert_eq!(run(1039), (Allocation::Mapped, 1));
        assert_eq!(run(1040), (Allocation::Deallocated, BLOCKS - 1040));
    });
}

#[test]
fn refuses_a_file_of_another_size_and_leaves_it_alone() {
    let folder = folder();
    let path = folder.path().join("precious");
    fs::write(&path, vec![7; 8192]).expect("a file");
    let (kind, sentence) = refusal(&FileOptions {
        create_bytes: Some(1 << 20),
        ..FileOptions::new(&path)
    });
    assert_eq!(kind, OpenErrorKind::Usage);
    assert!(
        sentence.contains("8k") && sentence.contains("1M"),
        "{sentence}"
    );
    assert_eq!(fs::read(&path).expect("the file"), vec![7; 8192]);
}

#[test]
fn says_what_to_do_about_what_is_not_there_or_no_disk() {
    let folder = folder();
    let missing = refusal(&FileOptions::new(folder.path().join("missing")));
    assert_eq!(missing.0, OpenErrorKind::NotFound);
    assert!(missing.1.contains("size=1G"), "{}", missing.1);
    let not_a_disk = refusal(&FileOptions::new(folder.path()));
    assert!(
        not_a_disk.1.contains("neither a file nor a block device"),
        "{}",
        not_a_disk.1
    );
    fs::write(folder.path().join("tiny"), b"tiny").expect("a file");
    let tiny = FileOptions {
        direct: false,
        ..FileOptions::new(folder.path().join("tiny"))
    };
    assert!(refusal(&tiny).1.contains("less than one block"));
    let nowhere = FileOptions::new(folder.path().join("no/such/folder"));
    let nowhere = refusal(&FileOptions {
        create_bytes: Some(4096),
        ..nowhere
    });
    assert!(nowhere.1.contains("cannot be created"), "{}", nowhere.1);
}

#[test]
fn says_how_to_go_on_without_direct_io() {
    // A file that exists on every machine, on a file system without direct I/O.
    let path = Path::new("/proc/version");
    let (kind, sentence) = refusal(&FileOptions {
        read_only: true,
        ..FileOptions::new(path)
    });
    assert_eq!(kind, OpenErrorKind::Unsupported);
    assert!(sentence.contains("direct=off"), "{sentence}");
}

#[test]
fn a_size_that_is_no_whole_block_is_rounded_down_and_said_so() {
    let folder = folder();
    let path = folder.path().join("odd");
    fs::write(&path, vec![7; 10_000]).expect("a file");
    let disk = FileDisk::open(FileOptions {
        direct: false,
        ..FileOptions::new(path)
    })
    .expect("a disk");
    assert_eq!(disk.geometry().blocks, 19);
    assert!(
        disk.notes()[0].contains("272 of 10000"),
        "{:?}",
        disk.notes()
    );
}

#[test]
fn one_writer_or_many_readers() {
    let folder = folder();
    let options = options(folder.path());
    let readers = FileOptions {
        read_only: true,
        create_bytes: None,
        ..options.clone()
    };
    let writer = FileDisk::open(options.clone()).expect("the first writer");
    let (kind, sentence) = refusal(&options);
    assert_eq!(kind, OpenErrorKind::InUse);
    assert!(sentence.contains("open elsewhere"), "{sentence}");
    assert_eq!(refusal(&readers).0, OpenErrorKind::InUse);
    drop(writer);
    let first = FileDisk::open(readers.clone()).expect("a reader");
    let second = FileDisk::open(readers).expect("another reader");
    assert_eq!(refusal(&options).0, OpenErrorKind::InUse);
    assert!(first.geometry().read_only);
    drop((first, second));
    FileDisk::open(options).expect("the lock went with the disks");
}

#[test]
fn a_read_only_file_refuses_writes_and_reads_on() {
    let folder = folder();
    let options = options(folder.path());
    drop(FileDisk::open(options.clone()).expect("a new file"));
    let disk = FileDisk::open(FileOptions {
        read_only: true,
        ..options
    })
    .expect("a reader");
    let mut front = FrontEnd::new();
    let mut channel = front.open(&disk);
    assert_eq!(front.write(&mut channel, 0, &[1; 512]), Status::ReadOnly);
    assert_eq!(front.read(&mut channel, 0, 1), Ok(vec![0; 512]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn a_file_is_what_was_written_to_it(steps in steps(BLOCKS, 700)) {
        on_both_engines(|front| {
            let folder = folder();
            let disk: Arc<dyn Device> = FileDisk::open(options(folder.path())).expect("a disk");
            compare_with_model(front, &disk, &steps);
        });
    }

    #[test]
    fn a_file_on_a_file_system_that_zeroes_no_ranges_is_what_was_written_to_it(
        steps in steps(BLOCKS, 700)
    ) {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return Ok(()) };
        on_both_engines(|front| {
            let path = folder.path().join(format!("{:?}", front.shard.engine()));
            let disk = FileDisk::open(FileOptions { path, ..options(folder.path()) });
            compare_with_model(front, &(disk.expect("a disk") as Arc<dyn Device>), &steps);
        });
    }

    #[test]
    fn a_file_through_the_page_cache_is_what_was_written_to_it(steps in steps(BLOCKS, 700)) {
        on_both_engines(|front| {
            let folder = folder();
            let options = FileOptions { direct: false, ..options(folder.path()) };
            let disk: Arc<dyn Device> = FileDisk::open(options).expect("a disk");
            compare_with_model(front, &disk, &steps);
        });
    }
}

#[test]
fn reads_past_the_end_of_a_file_that_shrank_fail_and_are_not_zeroes() {
    on_both_engines(|front| {
        let folder = folder();
        let options = options(folder.path());
        let disk = FileDisk::open(options.clone()).expect("a disk");
        let mut channel = front.open(&disk);
        assert_eq!(front.write(&mut channel, 0, &[9; 8192]), Status::Ok);
        let file = fs::OpenOptions::new()
            .write(true)
            .open(&options.path)
            .expect("the file");
        file.set_len(4096).expect("a shorter file");
        assert_eq!(
            front.read(&mut channel, 8, 8),
            Err(Status::MediaRead),
            "wholly past the end"
        );
        assert_eq!(
            front.read(&mut channel, 0, 16),
            Err(Status::MediaRead),
            "partly past the end"
        );
        assert_eq!(front.read(&mut channel, 0, 8), Ok(vec![9; 4096]));
        file.set_len(4096 + 100).expect("an odd size");
        assert_eq!(
            front.read(&mut channel, 0, 16),
            Err(Status::MediaRead),
            "an end within a block"
        );
    });
}
