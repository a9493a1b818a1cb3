//! Handling of kernel results. The kernel is scripted, and the file is only opened.

use std::sync::Arc;

use fabrix_rt::{Allocate, Loan, errno};

use super::REQUESTS_MAX;
use crate::file::FileDisk;
use crate::file::tests::{folder, options};
use crate::testing::{FrontEnd, Kernel, KernelCall};
use crate::{OpenErrorKind, Operation, Payload, Request, Status, Submit};

/// Runs a test with a disk on a scripted kernel.
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
        kernel.script_results(&[512, 700, -errno::EINTR, -errno::EAGAIN]);
        assert_eq!(front.write(&mut channel, 8, &bytes), Status::Ok);
        let write = |from: usize| KernelCall::Write {
            source: bytes[from..].to_vec(),
            offset: 4096 + from as u64,
            durable: false,
        };
        let expected = [write(0), write(512), write(1024), write(1024), write(1024)];
        assert_eq!(
            kernel.take_calls(),
            expected,
            "half a block is written again"
        );

        kernel.script_results(&[1024]);
        front
            .read(&mut channel, 8, 4)
            .expect("a read in two pieces");
        let read = |from: usize| KernelCall::Read {
            start: from,
            bytes: 2048 - from,
            offset: 4096 + from as u64,
        };
        assert_eq!(kernel.take_calls(), [read(0), read(1024)]);
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
            kernel.script_results(&[512, -errno]);
            assert_eq!(front.write(&mut channel, 0, &[1; 1024]), expected);
        }
        kernel.script_results(&[-errno::EIO]);
        assert_eq!(front.read(&mut channel, 0, 1), Err(Status::MediaRead));
        assert_eq!(front.flush(&mut channel), Status::Ok);
        assert!(!disk.degraded());
    });
}

#[test]
fn a_kernel_that_always_says_again_is_not_asked_for_ever() {
    scripted(|kernel, front, disk| {
        let mut channel = front.open(disk);
        kernel.script_results(&[-errno::EAGAIN; 101]);
        assert_eq!(front.read(&mut channel, 0, 1), Err(Status::NotReady));
    });
}

#[test]
fn a_failed_flush_is_final_for_every_channel_until_reopened() {
    scripted(|kernel, front, disk| {
        let mut first = front.open(disk);
        let mut second = front.open(disk);
        kernel.script_results(&[-errno::EIO]);
        assert_eq!(front.flush(&mut first), Status::Degraded);
        assert!(disk.degraded());
        kernel.take_calls();
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
        assert_eq!(kernel.take_calls(), [], "the kernel is not asked again");
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
        kernel.script_results(&[-errno::EIO, 0]);
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
        kernel.script_results(&[-errno::EIO]);
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
        let punch = KernelCall::Allocate {
            how: Allocate::PunchHole,
            offset: 4096,
            bytes: 8192,
        };
        assert_eq!(kernel.take_calls(), [punch, KernelCall::Sync]);
        assert_eq!(
            front
                .ask(&mut channel, Operation::Deallocate, 8, 16, Payload::None)
                .0,
            Status::Ok
        );
        assert_eq!(
            kernel.take_calls().len(),
            1,
            "a deallocation promises nothing"
        );
    });
}

#[test]
fn zeroes_are_written_where_the_file_system_cannot_make_them() {
    scripted(|kernel, front, disk| {
        let mut channel = front.open(disk);
        kernel.script_results(&[-errno::EOPNOTSUPP]);
        let zeroes = Operation::WriteZeroes {
            deallocate: false,
            durable: false,
        };
        assert_eq!(
            front.ask(&mut channel, zeroes, 0, 600, Payload::None).0,
            Status::Ok
        );
        let asked = kernel.take_calls();
        let written: usize = asked[1..]
            .iter()
            .map(|asked| match asked {
                KernelCall::Write { source, .. } if source.iter().all(|byte| *byte == 0) => {
                    source.len()
                }
                other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!(written, 600 * 512);
        assert_eq!(
            front.ask(&mut channel, zeroes, 0, 1, Payload::None).0,
            Status::Ok
        );
        let asked = kernel.take_calls();
        assert!(
            matches!(asked[..], [KernelCall::Write { .. }]),
            "it is not tried a second time: {asked:?}"
        );
    });
}

#[test]
fn a_full_channel_is_busy_and_takes_nothing() {
    scripted(|kernel, front, disk| {
        let mut channel = front.open(disk);
        kernel.hold_results(true);
        let mut slots = Vec::new();
        for _ in 0..REQUESTS_MAX {
            let flush = front.submit(&mut channel, Operation::Flush, 0, 0, Payload::None);
            slots.push(flush.expect_err("pending"));
        }
        let token = front.token();
        let payload = Payload::Borrowed(&[5; 512]);
        let request = Request {
            operation: Operation::Write { durable: false },
            lba: 3,
            blocks: 1,
            payload,
            token,
        };
        let Submit::Busy(request) = channel.submit(&mut front.shard, request) else {
            panic!("it should be busy")
        };
        assert_eq!((request.lba, request.token), (3, token));
        kernel.hold_results(false);
        for slot in slots {
            assert_eq!(front.wait(slot).0, Status::Ok);
        }
        assert!(matches!(
            channel.submit(&mut front.shard, request),
            Submit::Pending
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
        kernel.hold_results(true);
        let flush = front
            .submit(&mut channel, Operation::Flush, 0, 0, Payload::None)
            .expect_err("pending");
        let token = front.token();
        let request = Request {
            operation: Operation::Read,
            lba: 0,
            blocks: 8,
            payload: Payload::Lend,
            token,
        };
        assert!(matches!(
            channel.submit(&mut front.shard, request),
            Submit::Busy(_)
        ));
        kernel.hold_results(false);
        assert_eq!(front.wait(flush).0, Status::Ok);
        hoard.clear();
        assert!(front.read(&mut channel, 0, 8).is_ok());
    });
}

#[test]
fn an_owned_buffer_comes_back_with_an_error_too() {
    scripted(|kernel, front, disk| {
        let mut channel = front.open(disk);
        kernel.script_results(&[-errno::EIO]);
        let buf = front.buf(512, 1);
        let (status, loan) = front.ask(&mut channel, Operation::Read, 0, 1, Payload::Owned(buf));
        assert_eq!(status, Status::MediaRead);
        assert!(matches!(loan, Loan::Buf(_)));
        kernel.script_results(&[-errno::EIO]);
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
        kernel.hold_results(true);
        let slot = front
            .submit(&mut channel, Operation::Flush, 0, 0, Payload::None)
            .expect_err("pending");
        drop(channel);
        front.turns(3);
        assert!(!front.has_ended(slot));
        kernel.hold_results(false);
        assert_eq!(front.wait(slot).0, Status::Ok);
        front.turns(3);
        assert_eq!(
            Arc::strong_count(&disk.state),
            1,
            "the channel's task is gone"
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
    let expected = KernelCall::Write {
        source: vec![1; 1024],
        offset: 2048,
        durable: true,
    };
    assert_eq!(kernel.take_calls(), [expected]);
}

#[test]
fn a_file_stays_locked_until_the_last_request_of_a_dropped_disk_has_ended() {
    let folder = folder();
    let disk = FileDisk::open(options(folder.path())).expect("a disk");
    let kernel = Kernel::default();
    let mut front = kernel.front_end();
    let mut channel = front.open(&disk);
    kernel.hold_results(true);
    let payload = Payload::Borrowed(&[1; 512]);
    let slot = front
        .submit(
            &mut channel,
            Operation::Write { durable: false },
            0,
            1,
            payload,
        )
        .expect_err("pending");
    drop((channel, disk));
    front.turns(3);
    let early = FileDisk::open(options(folder.path()));
    assert_eq!(early.expect_err("a write").kind, OpenErrorKind::InUse);
    kernel.hold_results(false);
    front.wait(slot);
    front.turns(3);
    let mut channel = front.open(&FileDisk::open(options(folder.path())).expect("it is free"));
    assert_eq!(front.write(&mut channel, 0, &[2; 512]), Status::Ok);
    // A channel without requests in progress releases the lock at once.
    drop(channel);
    FileDisk::open(options(folder.path())).expect("it is free");
}
