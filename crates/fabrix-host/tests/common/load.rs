//! Random reads and writes at depth through a rig, with the expected data kept in memory.
//!
//! A block is in one request at a time, so its expected data is always known.

use std::collections::HashSet;

use fabrix_block::{Operation, Payload, Status};
use fabrix_rt::{Buf, Loan};

use super::pages::DISK_BLOCKS;
use super::rig::{Asked, Rig};

pub struct Load<'r> {
    pub rig: &'r mut Rig,
    random: u64,
    /// What each block holds, as the number its bytes are made from.
    truth: Vec<u32>,
    busy: HashSet<u64>,
    slots: Vec<Option<Doing>>,
    version: u32,
    /// Requests that ended.
    pub ended: usize,
}

struct Doing {
    write: Option<u32>,
    lba: u64,
    blocks: u32,
}

impl Rig {
    pub fn load(&mut self, seed: u64, depth: usize) -> Load<'_> {
        let blocks = usize::try_from(DISK_BLOCKS).expect("small");
        Load {
            rig: self,
            random: seed,
            truth: vec![0; blocks],
            busy: HashSet::new(),
            slots: (0..depth).map(|_| None).collect(),
            version: 0,
            ended: 0,
        }
    }
}

impl Load<'_> {
    /// Runs until so many requests have ended, and all that were begun.
    pub fn run(&mut self, requests: usize) {
        let until = self.ended + requests;
        while self.ended < until || self.slots.iter().any(Option::is_some) {
            if self.ended < until {
                self.fill();
            }
            let (slot, status, loan) = self.rig.next();
            self.finish(slot, status, loan);
        }
    }

    fn fill(&mut self) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_none() && !self.begin(slot) {
                return;
            }
        }
    }

    fn begin(&mut self, slot: usize) -> bool {
        let most = if self.draw(8) == 0 { 200 } else { 16 };
        let blocks = 1 + u32::try_from(self.draw(most)).expect("small");
        let lba = self.draw(DISK_BLOCKS - u64::from(blocks));
        if (lba..lba + u64::from(blocks)).any(|block| self.busy.contains(&block)) {
            return true; // another draw, next time
        }
        let write = (self.draw(2) == 0).then(|| {
            self.version += 1;
            self.version
        });
        let bytes = blocks as usize * 512;
        let mut buf = self.rig.buf(bytes, 0xDD);
        if let Some(version) = write {
            fill(&mut buf, lba, version);
        }
        let operation = if write.is_some() {
            Operation::Write { durable: false }
        } else {
            Operation::Read
        };
        let slot_number = u32::try_from(slot).expect("small");
        let payload = Payload::Owned(buf);
        match self.rig.ask(slot_number, operation, (lba, blocks), payload) {
            Asked::Pending => {}
            Asked::Busy(_) => return false,
            Asked::Done(status, _) => panic!("a request ended at once: {status:?}"),
        }
        self.busy.extend(lba..lba + u64::from(blocks));
        self.slots[slot] = Some(Doing { write, lba, blocks });
        true
    }

    fn finish(&mut self, slot: u32, status: Status, loan: Loan) {
        let doing = self.slots[slot as usize]
            .take()
            .expect("a request ends once");
        assert_eq!(
            status,
            Status::Ok,
            "{} blocks at {}",
            doing.blocks,
            doing.lba
        );
        let Loan::Buf(mut buf) = loan else {
            panic!("its buffer comes back")
        };
        for (block, place) in (doing.lba..).zip(buf.bytes_mut().chunks(512)) {
            let index = usize::try_from(block).expect("small");
            match doing.write {
                Some(version) => self.truth[index] = version,
                None => check(place, block, self.truth[index]),
            }
            self.busy.remove(&block);
        }
        self.ended += 1;
    }

    /// Reads every block of the disk.
    pub fn check_all(&mut self) {
        for lba in (0..DISK_BLOCKS).step_by(512) {
            let data = self.rig.read(lba, 512).expect("the disk reads");
            for (block, place) in (lba..).zip(data.chunks(512)) {
                check(
                    place,
                    block,
                    self.truth[usize::try_from(block).expect("small")],
                );
            }
        }
    }

    /// A number below `most`; splitmix64.
    fn draw(&mut self, most: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % most
    }
}

fn pattern(block: u64, version: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    if version > 0 {
        bytes[..8].copy_from_slice(&block.to_le_bytes());
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        bytes[12..].copy_from_slice(&(!version).to_le_bytes());
    }
    bytes
}

fn fill(buf: &mut Buf, lba: u64, version: u32) {
    for (block, place) in (lba..).zip(buf.bytes_mut().chunks_mut(512)) {
        place
            .chunks_mut(16)
            .for_each(|part| part.copy_from_slice(&pattern(block, version)));
    }
}

fn check(place: &[u8], block: u64, version: u32) {
    let pattern = pattern(block, version);
    let wrong = place.chunks(16).position(|part| part != pattern);
    assert_eq!(
        wrong,
        None,
        "block {block} does not hold version {version}: {:?}",
        &place[..16]
    );
}
