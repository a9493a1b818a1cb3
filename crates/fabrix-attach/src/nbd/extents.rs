//! Allocation state of a range for NBD's `base:allocation`, as reported by the disk.

use fabrix_block::{Allocation, Deallocate, Run};
use fabrix_proto::nbd::server::{EXTENTS_MAX, Extent};
use fabrix_proto::nbd::spec::state;

use crate::disk_channel::DiskChannel;

/// Extents of one answer.
pub(super) struct Extents {
    list: [Extent; EXTENTS_MAX],
    count: usize,
}

impl Extents {
    /// The extents of `blocks` blocks from `lba` on, as many as one answer holds. With `one`, only
    /// the first extent.
    pub(super) fn find(channel: &DiskChannel, (lba, blocks): (u64, u64), one: bool) -> Self {
        let (block_bytes, reads_zeroes) = {
            let geometry = channel.geometry();
            let zeroes = geometry.deallocate == Deallocate::Zeroes;
            (u64::from(geometry.block_bytes), zeroes)
        };
        let mut extents = Self {
            list: [Extent::default(); EXTENTS_MAX],
            count: 0,
        };
        let most = if one { 1 } else { EXTENTS_MAX };
        let (mut at, end) = (lba, lba + blocks);
        for _ in 0..QUERIES_MAX {
            if at >= end {
                break;
            }
            let run = channel.allocation(at).at_most(end - at);
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

    /// Appends an extent, or extends the last one. False: the answer is full.
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

/// Largest number of queries to the disk per answer. An array may report one run per chunk.
const QUERIES_MAX: usize = 1024;
