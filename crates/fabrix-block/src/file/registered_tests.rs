//! Registered memory: which disks accept it, and that kernel results mean the same as for a buffer.

use std::sync::Arc;

use fabrix_rt::{Loan, Registered, errno};

use super::tests::{folder, options};
use super::{FileDisk, FileOptions};
use crate::exclusive::Exclusive;
use crate::filter::fault::Fault;
use crate::filter::named::Named;
use crate::filter::read_only::ReadOnly;
use crate::filter::stats::{Kind, Stats};
use crate::raid0::Raid0;
use crate::testing::{FrontEnd, Kernel, KernelCall, identity, ram_disk};
use crate::{Channel, Device, Operation, Payload, Status};

const MEMORY: Registered = Registered {
    place: 7,
    bytes: 2048,
};
const WRITE: Operation = Operation::Write { durable: true };

fn file(folder: &tempfile::TempDir) -> Arc<FileDisk> {
    FileDisk::open(options(folder.path())).expect("a disk")
}

/// Submits a request for four blocks from block 8.
fn ask(front: &mut FrontEnd, channel: &mut Box<dyn Channel>, operation: Operation) -> Status {
    let (status, loan) = front.ask(channel, operation, 8, 4, Payload::Registered(MEMORY));
    assert!(matches!(loan, Loan::None), "nothing was given: {loan:?}");
    status
}

#[test]
fn the_file_is_asked_for_the_memory_of_the_request_and_once_more_when_it_was_disturbed() {
    let (folder, kernel) = (folder(), Kernel::default());
    let mut front = kernel.front_end();
    let mut channel = front.open(&file(&folder));
    kernel.script_results(&[-errno::EINTR, -errno::EAGAIN]);
    assert_eq!(ask(&mut front, &mut channel, WRITE), Status::Ok);
    let write = KernelCall::WriteRegistered {
        memory: MEMORY,
        offset: 4096,
        durable: true,
    };
    assert_eq!(kernel.take_calls(), [write.clone(), write.clone(), write]);
    assert_eq!(ask(&mut front, &mut channel, Operation::Read), Status::Ok);
    let read = KernelCall::ReadRegistered {
        memory: MEMORY,
        offset: 4096,
    };
    assert_eq!(kernel.take_calls(), [read]);
}

#[test]
fn what_the_kernel_cannot_move_whole_is_to_be_asked_again_with_a_buffer() {
    let (folder, kernel) = (folder(), Kernel::default());
    let mut front = kernel.front_end();
    let mut channel = front.open(&file(&folder));
    for operation in [Operation::Read, WRITE] {
        for answer in [512, 700, 2047, -errno::EINVAL, -errno::EFAULT] {
            kernel.script_results(&[answer]);
            let status = ask(&mut front, &mut channel, operation);
            assert_eq!(status, Status::Unsupported, "{answer}");
            assert_eq!(kernel.take_calls().len(), 1);
        }
    }
    assert_eq!(front.flush(&mut channel), Status::Ok, "nothing is lost");
}

#[test]
fn what_is_asked_again_with_a_buffer_is_counted_once() {
    let (folder, kernel) = (folder(), Kernel::default());
    let mut front = kernel.front_end();
    let stats = Stats::new(file(&folder));
    let mut channel = front.open(&stats);
    kernel.script_results(&[-errno::EINVAL]);
    let status = ask(&mut front, &mut channel, WRITE);
    assert_eq!(status, Status::Unsupported);
    assert_eq!(front.write(&mut channel, 8, &[7; 2048]), Status::Ok);
    assert_eq!(ask(&mut front, &mut channel, WRITE), Status::Ok);
    let counts = stats.counts(Kind::Write);
    let sums = (counts.requests, counts.errors, counts.bytes);
    assert_eq!(sums, (2, 0, 4096));
}

#[test]
fn errors_mean_what_they_mean_for_a_buffer() {
    let (folder, kernel) = (folder(), Kernel::default());
    let mut front = kernel.front_end();
    let mut channel = front.open(&file(&folder));
    let write = Operation::Write { durable: false };
    let answers = [
        (Operation::Read, -errno::EIO, Status::MediaRead),
        (Operation::Read, 0, Status::MediaRead),
        (write, -errno::EIO, Status::MediaWrite),
        (write, -errno::ENOSPC, Status::NoSpace),
    ];
    for (operation, answer, status) in answers {
        kernel.script_results(&[answer]);
        assert_eq!(ask(&mut front, &mut channel, operation), status, "{answer}");
    }
    kernel.script_results(&[-errno::EIO]);
    assert_eq!(ask(&mut front, &mut channel, WRITE), Status::MediaWrite);
    let flush = front.flush(&mut channel);
    assert_eq!(flush, Status::Degraded, "a durable write was lost");
}

#[test]
fn only_files_with_direct_io_take_it_and_what_passes_their_requests_on() {
    let folder = folder();
    let opened = options(folder.path());
    let cached = FileOptions {
        direct: false,
        path: folder.path().join("cached"),
        ..opened.clone()
    };
    let cached = FileDisk::open(cached).expect("a disk");
    assert!(!cached.takes_registered(), "through the page cache");
    if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
        let file = FileDisk::open(options(memory.path())).expect("a disk");
        assert!(!file.takes_registered(), "in memory");
    }
    let inner: Arc<dyn Device> = FileDisk::open(opened.clone()).expect("a disk");
    let takes = inner.takes_registered();
    if !takes {
        println!("SKIPPED: disks that take it: no direct I/O on the file system of the tests");
    }
    let identity = || identity("filtered");
    let filtered: [Arc<dyn Device>; 4] = [
        Named::new(Arc::clone(&inner), identity()),
        ReadOnly::new(Arc::clone(&inner)),
        Stats::new(Arc::clone(&inner)),
        Fault::new(Arc::clone(&inner), &[], 0),
    ];
    assert!(filtered.iter().all(|disk| disk.takes_registered() == takes));
    let members = vec![Arc::clone(&inner), Arc::clone(&inner)];
    let array = Raid0::new(4096, members, identity()).expect("an array");
    assert!(!array.takes_registered(), "what would have to be cut");
    assert!(!Exclusive::new(inner).takes_registered());
}

#[test]
#[cfg_attr(
    debug_assertions,
    should_panic(expected = "the payload does not match")
)]
fn who_does_not_take_it_refuses() {
    let mut front = FrontEnd::new();
    let mut channel = front.open(&ram_disk(64));
    assert_eq!(ask(&mut front, &mut channel, WRITE), Status::Internal);
}
