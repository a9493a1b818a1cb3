//! Data verification in fio's format: written blocks have a header with their address, and a
//! checksum.
//!
//! A job that writes knows more than fio. It keeps the number of writes to each unit (the
//! generation), and every header has the generation and the id of the run. The check therefore
//! recognises stale, misdirected, unwritten and damaged blocks and names them. The generations are
//! kept in memory, so they survive a reconnection of the disk. The job keeps at most one request in
//! flight per unit, so every read has one correct result. A failed write is the exception: until
//! the next successful write of its unit, its generation and every older one down to the last
//! acknowledged one are correct.
//!
//! A job that only reads checks what an earlier job or fio has written. Each block has to be intact
//! and at its address. Which generation is the newest is not known.

mod block;
mod checksum;
mod options;

use crate::job::Region;
use crate::random::{fill, mix};
use crate::results::Verified;
pub use block::{Expected, Found, Pattern, Stamp, check_block, is_verified, seal_block};
pub use checksum::Checksum;
pub use options::{Method, Verify};

/// The expected contents of one job's region.
#[derive(Debug)]
pub(crate) struct Verifier {
    options: Verify,
    region: Region,
    disk_block_bytes: u32,
    /// Length of a verified block in bytes.
    block_bytes: usize,
    run: u64,
    /// Writes of a job. None for a job that only reads.
    writes: Option<Writes>,
    /// Copy of a block whose header is moved to its start (`verify_offset`).
    moved: Vec<u8>,
}

/// The writes of a job to its units.
#[derive(Debug)]
struct Writes {
    /// Last acknowledged generation per unit; 0 for none.
    acknowledged: Vec<u32>,
    /// Last attempted generation per unit; 0 for none.
    tried: Vec<u32>,
    /// One bit per unit: a request is in flight.
    in_flight: Vec<u64>,
    /// One bit per unit: the unit was written and is not read back.
    unread: Vec<u64>,
}

impl Writes {
    /// The correct generations of a unit. None while no write of it was acknowledged.
    fn expected(&self, unit: u64) -> Option<Expected> {
        let (oldest, newest) = (self.acknowledged[index(unit)], self.tried[index(unit)]);
        (oldest != 0).then_some(Expected { oldest, newest })
    }
}

impl Verifier {
    /// Allocates all memory for the region. `writes` tells whether the job writes.
    pub(crate) fn new(
        options: &Verify,
        region: Region,
        disk_block_bytes: u32,
        run: u64,
        writes: bool,
    ) -> Self {
        let known = || {
            let units = usize::try_from(region.units)
                .expect("the job was checked against VERIFY_UNITS_MAX");
            Writes {
                acknowledged: vec![0; units],
                tried: vec![0; units],
                in_flight: vec![0; units.div_ceil(64)],
                unread: vec![0; units.div_ceil(64)],
            }
        };
        let block_bytes = options.interval(region.blocks_per_unit * disk_block_bytes) as usize;
        Self {
            moved: vec![0; if options.offset == 0 { 0 } else { block_bytes }],
            options: options.clone(),
            region,
            disk_block_bytes,
            block_bytes,
            run,
            writes: writes.then(known),
        }
    }

    /// Whether written blocks are read back after the load.
    pub(crate) fn reads_back(&self) -> bool {
        self.options.read_back && self.writes.is_some()
    }

    /// Whether the first wrong block ends the job.
    pub(crate) fn is_fatal(&self) -> bool {
        self.options.fatal
    }

    /// Reserves a unit for one request. False: another request is in flight there.
    pub(crate) fn claim(&mut self, unit: u64) -> bool {
        let Some(writes) = &mut self.writes else {
            return true;
        };
        let (word, bit) = position(unit);
        let free = writes.in_flight[word] & bit == 0;
        writes.in_flight[word] |= bit;
        free
    }

    /// Releases a unit after its request.
    pub(crate) fn release(&mut self, unit: u64) {
        let Some(writes) = &mut self.writes else {
            return;
        };
        let (word, bit) = position(unit);
        debug_assert!(
            writes.in_flight[word] & bit != 0,
            "place {unit} has no request in flight"
        );
        writes.in_flight[word] &= !bit;
    }

    /// Fills a buffer with the next generation of a unit.
    pub(crate) fn stamp(&mut self, unit: u64, bytes: &mut [u8]) {
        let first = self.offset(unit);
        let writes = self.writes.as_mut().expect("the job writes");
        let generation = writes.tried[index(unit)].checked_add(1).unwrap_or(1);
        writes.tried[index(unit)] = generation;
        match &mut self.options.pattern {
            Some(pattern) => pattern.fill(first, bytes),
            None => fill(bytes, mix(first ^ self.run) ^ u64::from(generation)),
        }
        let Method::Header(checksum) = self.options.method else {
            return;
        };
        let blocks = bytes.chunks_exact_mut(self.block_bytes);
        for (offset, block) in (first..).step_by(self.block_bytes).zip(blocks) {
            let stamp = Stamp {
                offset,
                generation,
                run: self.run,
            };
            seal_block(block, checksum, stamp);
            move_header(block, checksum, self.options.offset as usize);
        }
    }

    /// Records that the last stamped generation of a unit is acknowledged.
    pub(crate) fn acknowledge(&mut self, unit: u64) {
        if let Some(writes) = &mut self.writes {
            writes.acknowledged[index(unit)] = writes.tried[index(unit)];
            let (word, bit) = position(unit);
            writes.unread[word] |= bit;
        }
    }

    /// Records that a unit was trimmed: its content is not known.
    pub(crate) fn forget(&mut self, unit: u64) {
        if let Some(writes) = &mut self.writes {
            writes.acknowledged[index(unit)] = 0;
        }
    }

    /// Checks the data read from a unit. A job that writes checks only what it has written.
    pub(crate) fn check(&mut self, unit: u64, bytes: &[u8], verified: &mut Verified) {
        let expected = self.writes.as_ref().map(|writes| writes.expected(unit));
        if expected == Some(None) || self.options.method == Method::Null {
            return;
        }
        let written = expected.flatten().map(|expected| (self.run, expected));
        let first = self.offset(unit);
        for (index, block) in bytes.chunks_exact(self.block_bytes).enumerate() {
            verified.blocks_checked += 1;
            let from = index * self.block_bytes;
            if let Err(found) = self.check_block(first, from, block, written) {
                verified.errors += 1;
                verified
                    .first_error
                    .get_or_insert_with(|| self.sentence(first + from as u64, written, found));
            }
        }
    }

    /// Checks a block `from` bytes behind the start of the request at `first`.
    fn check_block<'a>(
        &'a mut self,
        first: u64,
        from: usize,
        mut block: &'a [u8],
        written: Option<(u64, Expected)>,
    ) -> Result<(), Found> {
        let mut start = 0;
        if let Method::Header(checksum) = self.options.method {
            let offset = self.options.offset as usize;
            if offset > 0 {
                self.moved.copy_from_slice(block);
                move_header(&mut self.moved, checksum, offset);
                block = &self.moved;
            }
            check_block(block, checksum, first + from as u64, written)?;
            if !matches!(checksum, Checksum::Meta | Checksum::Pattern) {
                return Ok(());
            }
            start = block::HEADER_BYTES;
        }
        match &mut self.options.pattern {
            Some(pattern) => pattern.check(first, from + start, &block[start..]),
            None => Ok(()),
        }
    }

    /// Records an error: a read ended without returning its buffer, so its data cannot be checked.
    pub(crate) fn buffer_missing(&self, unit: u64, verified: &mut Verified) {
        verified.errors += 1;
        let lba = self.region.lba_of(unit);
        let sentence =
            || format!("LBA {lba}: the disk kept the buffer of a read, so nothing can be compared");
        verified.first_error.get_or_insert_with(sentence);
    }

    /// The first unit from `unit` on to read back: its content is known, and was written since it
    /// was read back last.
    pub(crate) fn next_known(&mut self, unit: u64) -> Option<u64> {
        let writes = self.writes.as_mut()?;
        (unit..self.region.units).find(|unit| {
            let (word, bit) = position(*unit);
            let is_unread = writes.unread[word] & bit != 0;
            writes.unread[word] &= !bit;
            is_unread && writes.expected(*unit).is_some()
        })
    }

    /// Byte offset of a unit on the disk.
    fn offset(&self, unit: u64) -> u64 {
        self.region.lba_of(unit) * u64::from(self.disk_block_bytes)
    }

    fn sentence(&self, offset: u64, written: Option<(u64, Expected)>, found: Found) -> String {
        let lba = offset / u64::from(self.disk_block_bytes);
        let expected = match (self.options.method, written) {
            (Method::Header(_), Some((_, expected))) => format!("{expected} of this run"),
            (Method::Header(checksum), None) => {
                format!("a block that was written with verify={}", checksum.name())
            }
            _ => "the pattern".into(),
        };
        format!("offset {offset} (LBA {lba}): expected {expected}, found {found}")
    }
}

/// Exchanges the header of a block with the bytes at `offset`, there and back.
fn move_header(block: &mut [u8], checksum: Checksum, offset: usize) {
    if offset > 0 {
        let header = block::HEADER_BYTES + checksum.bytes();
        let (front, back) = block.split_at_mut(offset);
        front[..header].swap_with_slice(&mut back[..header]);
    }
}

fn index(unit: u64) -> usize {
    usize::try_from(unit).expect("places were checked against VERIFY_UNITS_MAX")
}

fn position(unit: u64) -> (usize, u64) {
    (index(unit / 64), 1 << (unit % 64))
}

#[cfg(test)]
mod tests;
