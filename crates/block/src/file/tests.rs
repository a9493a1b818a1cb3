//! Files as disks: what opens, what does not and why; what the kernel's answers become; what is found in the file.

use fabrix_rt::errno;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use fabrix_rt::{Allocate, Loan};
use proptest::prelude::*;

use super::*;
use crate::testing::{Asked, FrontEnd, Kernel, compare_with_model, on_both_engines, steps};
use crate::{Deallocate, Durability, Operation, Payload, Status};

const BLOCKS: u64 = 4096;

/// A file of 2 MiB, direct where the file system of the test can do it.
pub(super) fn options(folder: &Path) -> FileOptions {
    let mut options = FileOptions::new(folder.join("disk"));
    options.create_bytes = Some(BLOCKS * 512);
    options.block_bytes = Some(512);
    if let Err(error) = FileDisk::open(options.clone()) {
        eprintln!("without direct I/O: {error}");
        options.direct = false;
    }
    options
}

pub(super) fn folder() -> tempfile::TempDir {
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
    // A file that exists everywhere, on a file system without direct I/O.
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

#[test]
fn a_borrowed_payload_is_not_looked_at_after_submit() {
    let folder = folder();
    let disk = FileDisk::open(options(folder.path())).expect("a disk");
    let kernel = Kernel::default();
    let mut front = kernel.front_end();
    let mut channel = front.open(&disk);
    let mut payload = vec![1; 1024];
    let write = Operation::Write { durable: true };
    let slot = front
        .submit(&mut channel, write, 4, 2, Payload::Borrowed(&payload))
        .expect_err("pending");
    payload.fill(2);
    assert_eq!(front.wait(slot).0, Status::Ok);
    let expected = Asked::Write {
        source: vec![1; 1024],
        offset: 2048,
        durable: true,
    };
    assert_eq!(kernel.was_asked(), [expected]);
}

/// A disk whose kernel does what the test says.
fn scripted(test: impl Fn(&Kernel, &mut FrontEnd, &Arc<FileDisk>)) {
    let folder = folder();
    let disk = FileDisk::open(options(folder.path())).expect("a disk");
    let kernel = Kernel::default();
    let mut front = kernel.front_end();
    test(&kernel, &mut front, &disk);
}

#[test]
fn short_answers_are_continued_at_the_right_place() {
    scripted(|kernel, front, disk| {
        let mut channel = front.open(disk);
        let bytes: Vec<u8> = (0..4).flat_map(|block| [block; 512]).collect();
        kernel.will_answer(&[512, 700, -errno::EINTR, -errno::EAGAIN]);
        assert_eq!(front.write(&mut channel, 8, &bytes), Status::Ok);
        let write = |from: usize| Asked::Write {
            source: bytes[from..].to_vec(),
            offset: 4096 + from as u64,
            durable: false,
        };
        let expected = [write(0), write(512), write(1024), write(1024), write(1024)];
        assert_eq!(
            kernel.was_asked(),
            expected,
            "half a block is written again"
        );

        kernel.will_answer(&[1024]);
        front
            .read(&mut channel, 8, 4)
            .expect("a read in two pieces");
        let read = |from: usize| Asked::Read {
            start: from,
            bytes: 2048 - from,
            offset: 4096 + from as u64,
        };
        assert_eq!(kernel.was_asked(), [read(0), read(1024)]);
    });
}

#[test]
fn errors_of_the_medium_are_told_and_harm_nothing_else() {
    scripted(|kernel, front, disk| {
        let mut channel = front.open(disk);
        for (errno, expected) in [
            (errno::EIO, Status::MediaWrite),
            (errno::ENOSPC, Status::NoSpace),
        ] {
            kernel.will_answer(&[512, -errno]);
            assert_eq!(front.write(&mut channel, 0, &[1; 1024]), expected);
        }
        kernel.will_answer(&[-errno::EIO]);
        assert_eq!(front.read(&mut channel, 0, 1), Err(Status::MediaRead));
        assert_eq!(front.flush(&mut channel), Status::Ok);
        assert!(!disk.degraded());
    });
}

#[test]
fn a_kernel_that_always_says_again_is_not_asked_for_ever() {
    scripted(|kernel, front, disk| {
        let mut channel = front.open(disk);
        kernel.will_answer(&[-errno::EAGAIN; 101]);
        assert_eq!(front.read(&mut channel, 0, 1), Err(Status::NotReady));
    });
}

#[test]
fn a_failed_flush_is_final_for_every_channel_until_reopened() {
    scripted(|kernel, front, disk| {
        let mut first = front.open(disk);
        let mut second = front.open(disk);
        kernel.will_answer(&[-errno::EIO]);
        assert_eq!(front.flush(&mut first), Status::Degraded);
        assert!(disk.degraded());
        kernel.was_asked();
        for channel in [&mut first, &mut second] {
            assert_eq!(front.flush(channel), Status::Degraded);
            for operation in [
                Operation::Write { durable: true },
                Operation::WriteZeroes {
                    deallocate: false,
                    durable: true,
                },
            ] {
                let payload = match operation {
                    Operation::Write { .. } => Payload::Borrowed(&[0; 512]),
                    _ => Payload::None,
                };
                assert_eq!(
                    front.ask(channel, operation, 0, 1, payload).0,
                    Status::Degraded
                );
            }
        }
        assert_eq!(kernel.was_asked(), [], "the kernel is not asked again");
        assert_eq!(
            front.write(&mut second, 0, &[1; 512]),
            Status::Ok,
            "plain writes go on"
        );
    });
}

#[test]
fn a_flush_that_succeeds_after_another_has_failed_is_not_believed() {
    scripted(|kernel, front, disk| {
        let (mut first, mut second) = (front.open(disk), front.open(disk));
        kernel.will_answer(&[-errno::EIO, 0]);
        let fails = front
            .submit(&mut first, Operation::Flush, 0, 0, Payload::None)
            .expect_err("pending");
        let follows = front
            .submit(&mut second, Operation::Flush, 0, 0, Payload::None)
            .expect_err("pending");
        assert_eq!(front.wait(fails).0, Status::Degraded);
        assert_eq!(front.wait(follows).0, Status::Degraded);
    });
}

#[test]
fn a_durable_write_that_fails_may_have_hidden_an_earlier_loss() {
    scripted(|kernel, front, disk| {
        let mut channel = front.open(disk);
        kernel.will_answer(&[-errno::EIO]);
        let write = Operation::Write { durable: true };
        let (status, _) = front.ask(&mut channel, write, 0, 1, Payload::Borrowed(&[1; 512]));
        assert_eq!(status, Status::MediaWrite);
        assert_eq!(front.flush(&mut channel), Status::Degraded);
    });
}

#[test]
fn durable_zeroes_are_followed_by_a_flush() {
    scripted(|kernel, front, disk| {
        let mut channel = front.open(disk);
        let zeroes = Operation::WriteZeroes {
            deallocate: true,
            durable: true,
        };
        assert_eq!(
            front.ask(&mut channel, zeroes, 8, 16, Payload::None).0,
            Status::Ok
        );
        let punch = Asked::Allocate {
            how: Allocate::PunchHole,
            offset: 4096,
            bytes: 8192,
        };
        assert_eq!(kernel.was_asked(), [punch, Asked::Sync]);
        assert_eq!(
            front
                .ask(&mut channel, Operation::Deallocate, 8, 16, Payload::None)
                .0,
            Status::Ok
        );
        assert_eq!(
            kernel.was_asked().len(),
            1,
            "a deallocation promises nothing"
        );
    });
}

#[test]
fn zeroes_are_written_where_the_file_system_cannot_make_them() {
    scripted(|kernel, front, disk| {
        let mut channel = front.open(disk);
        kernel.will_answer(&[-errno::EOPNOTSUPP]);
        let zeroes = Operation::WriteZeroes {
            deallocate: false,
            durable: false,
        };
        assert_eq!(
            front.ask(&mut channel, zeroes, 0, 600, Payload::None).0,
            Status::Ok
        );
        let asked = kernel.was_asked();
        let written: usize = asked[1..]
            .iter()
            .map(|asked| match asked {
                Asked::Write { source, .. } if source.iter().all(|byte| *byte == 0) => source.len(),
                other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!(written, 600 * 512);
        assert_eq!(
            front.ask(&mut channel, zeroes, 0, 1, Payload::None).0,
            Status::Ok
        );
        let asked = kernel.was_asked();
        assert!(
            matches!(asked[..], [Asked::Write { .. }]),
            "it is not tried a second time: {asked:?}"
        );
    });
}

#[test]
fn a_full_channel_is_busy_and_takes_nothing() {
    scripted(|kernel, front, disk| {
        let mut channel = front.open(disk);
        kernel.be_silent(true);
        let mut slots = Vec::new();
        for _ in 0..channel::JOBS_MAX {
            let flush = front.submit(&mut channel, Operation::Flush, 0, 0, Payload::None);
            slots.push(flush.expect_err("pending"));
        }
        let token = front.token();
        let payload = Payload::Borrowed(&[5; 512]);
        let request = crate::Request {
            operation: Operation::Write { durable: false },
            lba: 3,
            blocks: 1,
            payload,
            token,
        };
        let crate::Submit::Busy(request) = channel.submit(&mut front.shard, request) else {
            panic!("it should be busy")
        };
        assert_eq!((request.lba, request.token), (3, token));
        kernel.be_silent(false);
        for slot in slots {
            assert_eq!(front.wait(slot).0, Status::Ok);
        }
        assert!(matches!(
            channel.submit(&mut front.shard, request),
            crate::Submit::Pending
        ));
        assert_eq!(front.wait(token.slot).0, Status::Ok);
    });
}

#[test]
fn without_memory_an_idle_channel_says_not_ready_and_a_working_one_busy() {
    scripted(|kernel, front, disk| {
        let mut channel = front.open(disk);
        let mut hoard = Vec::new();
        for bytes in [4 << 20, 1 << 20, 64 << 10, 4096, 512] {
            hoard.extend(std::iter::from_fn(|| front.shard.take_buf(bytes)));
        }
        assert_eq!(front.read(&mut channel, 0, 8), Err(Status::NotReady));
        kernel.be_silent(true);
        let flush = front
            .submit(&mut channel, Operation::Flush, 0, 0, Payload::None)
            .expect_err("pending");
        let token = front.token();
        let request = crate::Request {
            operation: Operation::Read,
            lba: 0,
            blocks: 8,
            payload: Payload::Lend,
            token,
        };
        assert!(matches!(
            channel.submit(&mut front.shard, request),
            crate::Submit::Busy(_)
        ));
        kernel.be_silent(false);
        assert_eq!(front.wait(flush).0, Status::Ok);
        hoard.clear();
        assert!(front.read(&mut channel, 0, 8).is_ok());
    });
}

#[test]
fn an_owned_buffer_comes_back_with_an_error_too() {
    scripted(|kernel, front, disk| {
        let mut channel = front.open(disk);
        kernel.will_answer(&[-errno::EIO]);
        let buf = front.buf(512, 1);
        let (status, loan) = front.ask(&mut channel, Operation::Read, 0, 1, Payload::Owned(buf));
        assert_eq!(status, Status::MediaRead);
        assert!(matches!(loan, Loan::Buf(_)));
        kernel.will_answer(&[-errno::EIO]);
        let (_, loan) = front.ask(&mut channel, Operation::Read, 0, 1, Payload::Lend);
        assert!(
            matches!(loan, Loan::None),
            "nobody sees what a failed read left in the buffer"
        );
    });
}

#[test]
fn a_dropped_channel_still_answers_and_then_leaves_the_shard() {
    scripted(|kernel, front, disk| {
        let mut channel = front.open(disk);
        kernel.be_silent(true);
        let slot = front
            .submit(&mut channel, Operation::Flush, 0, 0, Payload::None)
            .expect_err("pending");
        drop(channel);
        front.turns(3);
        assert!(!front.has_ended(slot));
        kernel.be_silent(false);
        assert_eq!(front.wait(slot).0, Status::Ok);
        front.turns(3);
        assert_eq!(
            Arc::strong_count(&disk.state),
            1,
            "the channel's task is gone"
        );
    });
}
