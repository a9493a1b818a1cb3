//! The region of a disk in which a job works, and the checks against that disk.

use fabrix_block::{Deallocate, Geometry};

use super::{Job, JobError, MAP_UNITS_MAX, VERIFY_UNITS_MAX};
use crate::words::Counted;

/// The region of one job: a row of equal units. Lengths and alignments of requests are multiples of
/// a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First LBA.
    pub lba: u64,
    /// Number of units.
    pub units: u64,
    /// Disk blocks per unit.
    pub blocks_per_unit: u32,
}

impl Region {
    /// The first LBA of a unit.
    #[inline]
    pub fn lba_of(&self, unit: u64) -> u64 {
        debug_assert!(unit < self.units, "unit {unit} of {}", self.units);
        self.lba + unit * u64::from(self.blocks_per_unit)
    }
}

impl Job {
    /// Checks the request sizes against the disk.
    fn check_block(&self, geometry: &Geometry) -> Result<(), JobError> {
        let block = geometry.block_bytes;
        if block == 0 || geometry.blocks == 0 {
            return self.refuse("the disk has no blocks");
        }
        for bs in self.all_sizes() {
            self.check_size(bs, geometry)?;
        }
        if let Some(align) = self
            .align
            .into_iter()
            .find(|align| !align.is_multiple_of(block))
        {
            return self.refuse(&format!(
                "blockalign={align} is not a multiple of the disk's block of {block} bytes"
            ));
        }
        if self.rw.trims() && geometry.deallocate == Deallocate::No {
            return self.refuse(&format!(
                "the disk does not deallocate blocks, and rw={} trims; write rw=write, or name another disk",
                self.rw
            ));
        }
        if self.percent_read() < 100 && geometry.read_only {
            return self.refuse(&format!("the disk is read-only, and rw={} writes", self.rw));
        }
        Ok(())
    }

    /// Checks one request size.
    fn check_size(&self, bs: u32, geometry: &Geometry) -> Result<(), JobError> {
        let block = geometry.block_bytes;
        if bs == 0 || !bs.is_multiple_of(block) {
            let fix = u64::from(bs.max(1)).div_ceil(u64::from(block)) * u64::from(block);
            return self.refuse(&format!(
                "bs={bs} is not a multiple of the disk's block of {block} bytes; bs={fix} would be"
            ));
        }
        Ok(())
    }

    /// Checks that no request of a copy has to be split.
    pub(crate) fn check_whole(&self, geometry: &Geometry) -> Result<(), JobError> {
        let most = geometry.max_transfer_bytes;
        match self.all_sizes().find(|bs| *bs > most) {
            Some(bs) => self.refuse(&format!(
                "bs={bs} is more than the disk takes in one request, {most} bytes, and a copy needs \
                 whole requests; lower bs"
            )),
            None => Ok(()),
        }
    }

    /// Checks whether a disk can do what the job demands.
    ///
    /// Errors: a sentence when the disk or the program cannot.
    pub fn check_on(&self, geometry: &Geometry) -> Result<(), JobError> {
        (0..self.numjobs.max(1)).try_for_each(|index| self.region(index, geometry).map(drop))
    }

    /// The region of job `index` (from 0) on a disk.
    ///
    /// Errors: a sentence when the disk or the program cannot do what the job demands.
    pub fn region(&self, index: u32, geometry: &Geometry) -> Result<Region, JobError> {
        self.check_numbers()?;
        self.check_block(geometry)?;
        let (start, bytes) = self.span(index, geometry)?;
        let zones = self.distribution.check_region(bytes);
        zones.or_else(|sentence| self.refuse(&sentence))?;
        let unit_bytes = self.unit_bytes();
        let region = Region {
            lba: start / u64::from(geometry.block_bytes),
            units: bytes / u64::from(unit_bytes),
            blocks_per_unit: unit_bytes / geometry.block_bytes,
        };
        let has_map = self.rw.is_random() && self.random_map && !self.has_one_size();
        if has_map && region.units > MAP_UNITS_MAX {
            return self.refuse(&format!(
                "the random map would have {}, and the limit is {MAP_UNITS_MAX}; lower size, raise bs, or \
                 draw addresses independently with norandommap",
                Counted(region.units, "place")
            ));
        }
        if self.verify.is_some() && self.percent_read() < 100 {
            self.slice(index, region)
        } else {
            Ok(region)
        }
    }

    /// First byte and length of the region in bytes, checked against the disk.
    fn span(&self, index: u32, geometry: &Geometry) -> Result<(u64, u64), JobError> {
        let block = u64::from(geometry.block_bytes);
        let disk = geometry.blocks.saturating_mul(block);
        let moved = self.offset_increment.checked_mul(u64::from(index));
        let start = moved
            .and_then(|moved| self.offset.checked_add(moved))
            .unwrap_or(u64::MAX);
        if !self.offset.is_multiple_of(block) || !self.offset_increment.is_multiple_of(block) {
            return self.refuse(&format!(
                "offset={} and offset_increment={} must be multiples of the disk's block of {block} bytes",
                self.offset, self.offset_increment
            ));
        }
        if start >= disk {
            return self.refuse(&format!(
                "offset {start} of job {index} is beyond the disk of {disk} bytes"
            ));
        }
        let bytes = self.size.unwrap_or(disk - start);
        if bytes > disk - start {
            return self.refuse(&format!(
                "size={bytes} from offset {start} ends beyond the disk of {disk} bytes; size={} is what is left",
                disk - start
            ));
        }
        let longest = self.all_sizes().max().unwrap_or(self.block_bytes);
        if bytes < u64::from(longest) {
            return self.refuse(&format!(
                "a region of {bytes} bytes has no room for bs={longest}"
            ));
        }
        Ok((start, bytes))
    }

    /// This job's own slice of the region, for `verify`. Regions that an increment separates are
    /// slices already.
    fn slice(&self, index: u32, region: Region) -> Result<Region, JobError> {
        let is_apart = self.offset_increment != 0;
        let apart = |size| size <= self.offset_increment;
        if is_apart && self.numjobs > 1 && !self.size.is_some_and(apart) {
            return self.refuse(&format!(
                "offset_increment={} leaves the jobs blocks in common, and verify needs blocks that no other job \
                 writes; write size= of at most that, or leave offset_increment out",
                self.offset_increment
            ));
        }
        let slices = if is_apart { 1 } else { self.numjobs };
        let units = region.units / u64::from(slices);
        if units < 2 * u64::from(self.iodepth) {
            return self.refuse(&format!(
                "verify gives each job {} of {} bytes, fewer than twice iodepth={}; enlarge size or lower numjobs \
                 or iodepth",
                Counted(units, "place"),
                self.block_bytes,
                self.iodepth
            ));
        }
        if region.units > VERIFY_UNITS_MAX {
            return self.refuse(&format!(
                "verify would have to remember {} places, and the limit is {VERIFY_UNITS_MAX}; \
                 lower size or raise bs",
                region.units
            ));
        }
        let index = if is_apart { 0 } else { index };
        let blocks = units * u64::from(index) * u64::from(region.blocks_per_unit);
        Ok(Region {
            lba: region.lba + blocks,
            units,
            ..region
        })
    }
}

#[cfg(test)]
mod tests;
