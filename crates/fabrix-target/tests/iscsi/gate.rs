//! Compare-and-write over both protocols: one gate stands in front of the disk for all exports.

use std::thread;

use fabrix_proto::nvme::command::Fuse;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;

use crate::common::Stage;
use crate::common::host::{Data, Host};
use crate::initiator::Initiator;
use crate::{good, on_both_engines, rw, session};

on_both_engines!(a_plain_disk_loses_no_update_of_either_protocol);

/// Successful updates of each side.
const ROUNDS: u64 = 200;
/// The block with the counter of both sides.
const LBA: u8 = 5;

/// A host and an initiator, on two shards, increment the number in the same block of a disk that
/// does not compare and write by itself.
fn a_plain_disk_loses_no_update_of_either_protocol(engine: Engine) {
    let stage = Stage::new(engine);
    assert!(
        !stage.exports()[0].device.compares_and_writes(),
        "the test's disk is a plain one"
    );
    let (_admin, mut io) = stage.admin_and_io();
    let mut initiator = session(&stage, 1, false);
    let host = thread::spawn(move || (0..ROUNDS).for_each(|_| count_as_host(&mut io)));
    (0..ROUNDS).for_each(|_| count_as_initiator(&mut initiator));
    host.join().expect("the host counts");
    let block = initiator.command(&rw(0x28, LBA.into(), 1), 512).data;
    assert_eq!(block[..8], (2 * ROUNDS).to_le_bytes(), "no update is lost");
}

/// The block with its number raised by one.
fn next(block: &[u8]) -> Vec<u8> {
    let value = u64::from_le_bytes(block[..8].try_into().expect("eight")) + 1;
    [&value.to_le_bytes(), &block[8..]].concat()
}

fn count_as_host(io: &mut Host) {
    loop {
        let old = io.read(1, LBA.into(), 1);
        let compare = SubmissionEntry::compare(1, LBA.into(), 1).fused(Fuse::First);
        let write = SubmissionEntry::write(1, LBA.into(), 1, false).fused(Fuse::Second);
        let first = io.submit(compare, Data::Inline(&old));
        let second = io.submit(write, Data::Inline(&next(&old)));
        let statuses = [io.finish(first).status, io.finish(second).status];
        if statuses == [Status::SUCCESS; 2] {
            return;
        }
        assert_eq!(
            statuses,
            [Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED]
        );
    }
}

fn count_as_initiator(initiator: &mut Initiator) {
    let compare_and_write = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, LBA, 0, 0, 0, 1, 0, 0];
    loop {
        let old = initiator.command(&rw(0x28, LBA.into(), 1), 512).data;
        let both = [old.clone(), next(&old)].concat();
        let ended = initiator.write(&compare_and_write, &both, 1024, 0);
        if ended.sense != Some([0xE, 0x1D, 0]) {
            return good(&ended);
        }
    }
}
