//! Which parts of a range hold something, as `base:allocation` tells it.
//!
//! Asks the disk; does not know who wants to know.

use fabrix_block::{Allocation, Deallocate, Run};
use fabrix_proto::nbd::server::{EXTENTS_MAX, Extent};
use fabrix_proto::nbd::spec::state;

use crate::lane::Lane;

/// The extents of one answer.
pub(super) struct Extents {
    list: [Extent; EXTENTS_MAX],
    count: usize,
}

impl Extents {
    /// Extents from block `lba` on. They cover `blocks`, or as many of them as one answer has room
    /// for; with `one` only the first extent is sought.
    pub(super) fn find(lane: &Lane, (lba, blocks): (u64, u64), one: bool) -> Self {
        let (block_bytes, reads_zeroes) = {
            let geometry = lane.geometry();
            let zeroes = geometry.deallocate == Deallocate::Zeroes;
            (u64::from(geometry.block_bytes), zeroes)
        };
        let mut extents = Self {
            list: [Extent::default(); EXTENTS_MAX],
            count: 0,
        };
        let most = if one { 1 } else { EXTENTS_MAX };
        let (mut at, end) = (lba, lba + blocks);
        for _ in 0..ASKED_MAX {
            if at >= end {
                break;
            }
            let run = lane.allocation(at).at_most(end - at);
            at += run.blocks;
            let bytes = run.blocks * block_bytes;
            if !extents.add(bytes, flags(run, reads_zeroes), most) {
                break;
            }
        }
        extents
    }

    pub(super) fn list(&self) -> &[Extent] {
        &self.list[..self.count]
    }

    /// Adds bytes behind what is there. False: there is no room for another extent.
    fn add(&mut self, bytes: u64, flags: u32, most: usize) -> bool {
        if let Some(last) = self.list[..self.count].last_mut()
            && last.flags == flags
        {
            last.bytes += bytes;
            return true;
        }
        if self.count == most {
            return false;
        }
        self.list[self.count] = Extent { bytes, flags };
        self.count += 1;
        true
    }
}

fn flags(run: Run, reads_zeroes: bool) -> u32 {
    match run.allocation {
        Allocation::Mapped => 0,
        Allocation::Deallocated if reads_zeroes => state::HOLE | state::ZERO,
        Allocation::Deallocated => state::HOLE,
    }
}

/// How often a disk is asked for one answer: an array may have to say the same of each of its
/// chunks.
const ASKED_MAX: usize = 1024;
