//! Commands up to the limits that a controller announces, to the last block, as Linux uses them.
//! The host converts a limit in bytes to a count of blocks, and puts the low bits of the count into
//! the field. Every block is read back.

use fabrix_proto::nvme::admin::Identify;
use fabrix_proto::nvme::command::{DatasetRange, Fuse};
use fabrix_proto::nvme::identify::{
    Cns, IdentifyController, IdentifyNamespace, IdentifyNvmController,
};
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::common::host::{Data, Host};
use crate::common::{Plan, Stage, pattern, ram};
use crate::on_both_engines;

on_both_engines!(
    the_longest_write_zeroes_reaches_its_last_block,
    the_longest_range_is_deallocated_to_its_last_block,
    the_longest_transfer_arrives_whole,
    the_longest_compare_and_write_is_carried_out,
);

/// Block sizes of the namespaces. Each namespace is longer than any command.
const BLOCK_BYTES: [u32; 2] = [512, 4096];
const DISK_BYTES: u32 = 40 << 20;
/// Page size in bytes, the unit of MDTS and WZSL.
const PAGE_BYTES: u64 = 4096;

fn stage(engine: Engine) -> Stage {
    let disk = |block_bytes: u32| ram(&block_bytes.to_string(), block_bytes, DISK_BYTES.into());
    let devices = BLOCK_BYTES.into_iter().map(disk).collect();
    let plan = Plan {
        devices,
        ..Plan::default()
    };
    Stage::set(engine, plan)
}

/// Runs `check` on an admin and an I/O queue, with each namespace and its block size.
fn each_namespace(stage: &Stage, mut check: impl FnMut(&mut Host, &mut Host, u32, u32)) {
    let (mut admin, mut io) = stage.admin_and_io();
    for (nsid, block_bytes) in (1..).zip(BLOCK_BYTES) {
        check(&mut admin, &mut io, nsid, block_bytes);
    }
}

fn identify<T: FromBytes + KnownLayout + Immutable>(admin: &mut Host, cns: Cns, nsid: u32) -> T {
    let entry = SubmissionEntry::identify(Identify::new(cns, nsid));
    let answer = admin.run(entry, Data::Expect(4096));
    T::read_from_bytes(&answer.data).expect("a page")
}

/// Number of blocks for a limit that is a power of two of pages, as a host computes it.
fn blocks_of(exponent: u8, block_bytes: u32) -> u32 {
    let bytes = PAGE_BYTES << exponent;
    u32::try_from(bytes / u64::from(block_bytes)).expect("a limit of 32 bits")
}

/// The command with a count of blocks, of which the field holds the low 16 bits.
fn counted(mut entry: SubmissionEntry, blocks: u32) -> SubmissionEntry {
    let flags = entry.cdw12.get() & !0xFFFF;
    entry.cdw12 = (flags | (blocks - 1) & 0xFFFF).into();
    entry
}

/// Reads a whole namespace, in the longest reads.
fn everything(io: &mut Host, nsid: u32, block_bytes: u32) -> Vec<u8> {
    const READ_BYTES: u32 = 1 << 20;
    let blocks = READ_BYTES / block_bytes;
    let starts = (0..DISK_BYTES / READ_BYTES).map(|index| u64::from(index * blocks));
    starts
        .flat_map(|lba| io.try_read(nsid, lba, blocks, block_bytes).data)
        .collect()
}

fn fill(io: &mut Host, nsid: u32, block_bytes: u32) {
    let full = vec![0xFF; 1 << 20];
    let blocks = (1 << 20) / block_bytes;
    for index in 0..DISK_BYTES >> 20 {
        let lba = u64::from(index * blocks);
        let answer = io.try_write(nsid, lba, &full, block_bytes as usize);
        assert_eq!(answer.status, Status::SUCCESS);
    }
}

/// Checks that `blocks` blocks from block 1 on are zeroes, and that all other blocks are unchanged.
fn check_zeroed(io: &mut Host, nsid: u32, block_bytes: u32, blocks: u32) {
    let found = everything(io, nsid, block_bytes);
    for (lba, block) in (0..).zip(found.chunks_exact(block_bytes as usize)) {
        let expected = if (1..=blocks).contains(&lba) { 0 } else { 0xFF };
        assert!(
            block.iter().all(|byte| *byte == expected),
            "block {lba} of {block_bytes} bytes, after {blocks} blocks were zeroed"
        );
    }
}

fn the_longest_write_zeroes_reaches_its_last_block(engine: Engine) {
    each_namespace(&stage(engine), |admin, io, nsid, block_bytes| {
        let limits: IdentifyNvmController = identify(admin, Cns::COMMAND_SET_CONTROLLER, 0);
        let blocks = blocks_of(limits.write_zeroes_limit, block_bytes);
        fill(io, nsid, block_bytes);
        let entry = SubmissionEntry::write_zeroes(nsid, 1, 1, false, false);
        let answer = io.run(counted(entry, blocks), Data::None);
        assert_eq!(answer.status, Status::SUCCESS);
        check_zeroed(io, nsid, block_bytes, blocks);
        if blocks < 1 << 16 {
            let more = io.run(counted(entry, blocks + 1), Data::None);
            assert_eq!(more.status, Status::INVALID_FIELD);
        }
    });
}

fn the_longest_range_is_deallocated_to_its_last_block(engine: Engine) {
    each_namespace(&stage(engine), |admin, io, nsid, block_bytes| {
        let limits: IdentifyNvmController = identify(admin, Cns::COMMAND_SET_CONTROLLER, 0);
        let unlimited = (
            limits.dataset_ranges,
            limits.dataset_range_blocks.get(),
            limits.dataset_blocks.get(),
        );
        assert_eq!(unlimited, (0, 0, 0), "DMRL, DMRSL, DMSL");
        fill(io, nsid, block_bytes);
        let blocks = DISK_BYTES / block_bytes - 2;
        let mut list = [DatasetRange::new(0, 0); 256];
        list[255] = DatasetRange::new(1, blocks);
        let entry = SubmissionEntry::dataset_management(nsid, 256, true);
        let answer = io.run(entry, Data::Inline(list.as_bytes()));
        assert_eq!(answer.status, Status::SUCCESS);
        check_zeroed(io, nsid, block_bytes, blocks);
    });
}

fn the_longest_transfer_arrives_whole(engine: Engine) {
    each_namespace(&stage(engine), |admin, io, nsid, block_bytes| {
        let controller: IdentifyController = identify(admin, Cns::CONTROLLER, 0);
        let blocks = blocks_of(controller.max_transfer, block_bytes);
        let data = pattern((blocks * block_bytes) as usize, 7);
        let write = counted(SubmissionEntry::write(nsid, 3, 1, false), blocks);
        assert_eq!(io.run(write, Data::Fetch(&data)).status, Status::SUCCESS);
        let read = counted(SubmissionEntry::read(nsid, 3, 1), blocks);
        let found = io.run(read, Data::Expect(blocks * block_bytes));
        assert!(found.data == data, "{blocks} blocks of {block_bytes} bytes");
    });
}

/// Also with an MDTS that is less than the usual limit of compared blocks.
fn the_longest_compare_and_write_is_carried_out(engine: Engine) {
    for max_transfer_bytes in [64 << 10, 1 << 20] {
        let mut plan = Plan {
            max_transfer_bytes,
            ..Plan::default()
        };
        plan.devices = vec![ram("small", 512, 4 << 20), ram("large", 4096, 4 << 20)];
        let stage = Stage::set(engine, plan);
        each_namespace(&stage, |admin, io, nsid, block_bytes| {
            let namespace: IdentifyNamespace = identify(admin, Cns::NAMESPACE, nsid);
            let blocks = u32::from(namespace.atomic_compare_and_write_unit.get()) + 1;
            let bytes = (blocks * block_bytes) as usize;
            let (old, new) = (vec![0; bytes], pattern(bytes, 5));
            let compare = SubmissionEntry::compare(nsid, 9, blocks).fused(Fuse::First);
            let write = SubmissionEntry::write(nsid, 9, blocks, false).fused(Fuse::Second);
            let first = io.submit(compare, Data::Fetch(&old));
            let second = io.submit(write, Data::Fetch(&new));
            let statuses = [io.finish(first).status, io.finish(second).status];
            assert_eq!(statuses, [Status::SUCCESS; 2], "{blocks} blocks");
            let found = io.try_read(nsid, 9, blocks, block_bytes);
            assert!(found.data == new, "{blocks} blocks of {block_bytes} bytes");
        });
    }
}
