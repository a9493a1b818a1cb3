//! Commands up to the limits that the Block Limits page announces, to the last block.

use fabrix_rt::Engine;

use crate::common::{Plan, Stage, ram};
use crate::initiator::Initiator;
use crate::{good, on_both_engines, rw, session};

on_both_engines!(
    the_longest_write_same_reaches_its_last_block,
    the_longest_unmap_reaches_its_last_block,
    the_longest_compare_and_write_is_carried_out,
);

/// Logical units by their block sizes.
const BLOCK_BYTES: [u32; 2] = [512, 4096];

/// Runs `check` with each logical unit, its block size, and its Block Limits page.
fn each_unit(
    engine: Engine,
    disk_blocks: u32,
    check: impl Fn(&mut Initiator, u32, &dyn Fn(usize) -> u32),
) {
    let disk = |bytes: u32| {
        let disk_bytes = u64::from(bytes) * u64::from(disk_blocks);
        ram(&bytes.to_string(), bytes, disk_bytes)
    };
    let devices = BLOCK_BYTES.into_iter().map(disk).collect();
    let plan = Plan {
        devices,
        ..Plan::default()
    };
    let stage = Stage::set(engine, plan);
    let mut initiator = session(&stage, 1, false);
    for (lun, block_bytes) in (0..).zip(BLOCK_BYTES) {
        initiator.lun = lun;
        initiator.command(&[0; 6], 0); // Each unit reports power-on once.
        let page = initiator.command(&[0x12, 1, 0xB0, 0, 64, 0], 64).data;
        let field = |at: usize| u32::from_be_bytes(page[at..at + 4].try_into().expect("four"));
        check(&mut initiator, block_bytes, &field);
    }
}

fn first_byte(initiator: &mut Initiator, lba: u32, block_bytes: u32) -> u8 {
    let read = initiator.command(&rw(0x28, lba, 1), block_bytes as usize);
    good(&read);
    read.data[0]
}

/// Marks around and within a range of `blocks` blocks from block 1.
fn marks(blocks: u32) -> impl Iterator<Item = u32> {
    let within = (0..blocks).step_by(4001).map(|lba| lba + 1);
    [0, blocks, blocks + 1].into_iter().chain(within)
}

fn put_marks(initiator: &mut Initiator, blocks: u32, block_bytes: u32) {
    let mark = vec![7; block_bytes as usize];
    for lba in marks(blocks) {
        good(&initiator.write(&rw(0x2A, lba, 1), &mark, 0, 0));
    }
}

fn check_marks(initiator: &mut Initiator, blocks: u32, block_bytes: u32) {
    for lba in marks(blocks) {
        let expected = if (1..=blocks).contains(&lba) { 0 } else { 7 };
        let found = first_byte(initiator, lba, block_bytes);
        assert_eq!(found, expected, "block {lba} of {block_bytes} bytes");
    }
}

fn the_longest_write_same_reaches_its_last_block(engine: Engine) {
    each_unit(engine, 70_000, |initiator, block_bytes, field| {
        let blocks = field(40);
        let block = vec![0; block_bytes as usize];
        let low = u16::try_from(blocks & 0xFFFF).expect("16 bits");
        for cdb in [rw(0x41, 1, low).to_vec(), long(0x93, 1, blocks).to_vec()] {
            put_marks(initiator, blocks, block_bytes);
            good(&initiator.write(&cdb, &block, 0, 0));
            check_marks(initiator, blocks, block_bytes);
        }
        // Non-zero blocks are written piece by piece. The test reads every block.
        let block = vec![9; block_bytes as usize];
        good(&initiator.write(&rw(0x41, 1, low), &block, 0, 0));
        let at_once = (1 << 20) / block_bytes;
        for lba in (1..=blocks).step_by(at_once as usize) {
            let count = at_once.min(blocks + 1 - lba);
            let bytes = (count * block_bytes) as usize;
            let count = u16::try_from(count).expect("16 bits");
            let read = initiator.command(&rw(0x28, lba, count), bytes);
            assert!(read.data.iter().all(|byte| *byte == 9), "from block {lba}");
        }
        assert_eq!(first_byte(initiator, blocks + 1, block_bytes), 7);
    });
}

fn the_longest_unmap_reaches_its_last_block(engine: Engine) {
    each_unit(engine, (1 << 20) + 8, |initiator, block_bytes, field| {
        let blocks = field(20);
        put_marks(initiator, blocks, block_bytes);
        let mut list = [0; 24];
        (list[1], list[3], list[15]) = (22, 16, 1);
        list[16..20].copy_from_slice(&blocks.to_be_bytes());
        let unmap = [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
        good(&initiator.write(&unmap, &list, 0, 0));
        check_marks(initiator, blocks, block_bytes);
    });
}

fn the_longest_compare_and_write_is_carried_out(engine: Engine) {
    each_unit(engine, 4096, |initiator, block_bytes, field| {
        let count = u8::try_from(field(4) >> 16 & 0xFF).expect("a byte");
        let bytes = usize::from(count) * block_bytes as usize;
        let both = [vec![0; bytes], vec![3; bytes]].concat();
        let mut cdb = long(0x89, 1, 0);
        cdb[13] = count;
        good(&initiator.write(&cdb, &both, 0, 0));
        let read = initiator.command(&rw(0x28, 1, count.into()), bytes);
        assert!(read.data.iter().all(|byte| *byte == 3), "{count} blocks");
    });
}

fn long(opcode: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}
