//! Properties of a logical unit as a disk, read when the disk was opened.
//!
//! Every later session compares the logical unit with them. The disk's users rely on its geometry,
//! so a target that returns with worse properties is refused. Pure functions over the data of
//! `fabrix_proto::scsi::bringup`.

use fabrix_block::{Durability, Geometry, Identity};
use fabrix_proto::scsi::bringup::UnitFacts;

use crate::ConnectError;
use crate::sizes::{changed_disk, check_blocks, deallocate, hex, hint};

/// Properties of a logical unit.
#[derive(Clone)]
pub(crate) struct KnownDisk {
    pub(crate) geometry: Geometry,
    /// Whether the disk supports FUA.
    pub(crate) fua: bool,
    /// Whether unmapped blocks read as zeroes, so that WRITE SAME may unmap.
    pub(crate) zeroes_unmap: bool,
    /// Most blocks of one COMPARE AND WRITE. 0: not supported.
    pub(crate) compare_and_write_blocks: u32,
    /// Most blocks of one UNMAP. 0: not supported.
    pub(crate) unmap_blocks: u32,
    /// Most blocks of one WRITE SAME.
    pub(crate) write_same_blocks: u32,
    pub(crate) facts: UnitFacts,
}

impl KnownDisk {
    /// The properties that a bring-up has read.
    ///
    /// Errors: the block size is not supported.
    pub(crate) fn new(facts: &UnitFacts) -> Result<Self, ConnectError> {
        check_blocks(format_args!("LUN {}", facts.lun), facts.block_bytes)?;
        let geometry = geometry(facts);
        let write_same = u32::try_from(facts.write_same_blocks).unwrap_or(u32::MAX);
        Ok(Self {
            fua: facts.fua,
            zeroes_unmap: facts.write_same_unmaps && facts.unmapped_read_zeroes,
            compare_and_write_blocks: facts.compare_and_write_blocks.into(),
            unmap_blocks: if facts.unmaps { facts.unmap_blocks } else { 0 },
            write_same_blocks: match write_same {
                0 => DEFAULT_WRITE_SAME_BLOCKS,
                limit => limit.min(MOST_WRITE_SAME_BLOCKS),
            },
            geometry,
            facts: facts.clone(),
        })
    }

    /// The identity under which the disk is exported again or attached. It is derived from the
    /// disk's names, so every path yields the same identity. A disk without names is identified by
    /// `location`.
    pub(crate) fn identity(&self, name: &str, location: &str) -> Identity {
        let names = &self.facts.names;
        let seed = match (names.is_empty(), self.facts.serial.is_empty()) {
            (false, _) => format!(
                "{}/{}/{}",
                hex(&names.uuid),
                hex(&names.naa),
                hex(&names.eui64)
            ),
            (true, false) => format!("{}/{}", self.facts.model, self.facts.serial),
            (true, true) => location.to_owned(),
        };
        let derived = Identity::derive(name, &seed, &self.facts.model);
        let uuid = if names.uuid == [0; 16] {
            derived.uuid
        } else {
            names.uuid
        };
        let serial = match self.facts.serial.len() {
            1..=SERIAL_BYTES_MAX => self.facts.serial.clone(),
            _ => derived.serial,
        };
        Identity {
            uuid,
            serial,
            ..derived
        }
    }

    /// The properties of the same disk in its current size, which may be smaller.
    pub(crate) fn remeasured(&self, facts: &UnitFacts) -> Result<Self, ConnectError> {
        let now = Self::new(facts)?;
        self.check_properties(&now)?;
        // The limit at the answer tells how many blocks a command has covered. It must not exceed
        // the limit when the command was sent.
        Ok(Self {
            write_same_blocks: now.write_same_blocks.min(self.write_same_blocks),
            unmap_blocks: now.unmap_blocks.min(self.unmap_blocks),
            ..now
        })
    }

    /// Checks that the disk after a reconnection is the same, with equal or better properties,
    /// and not smaller.
    pub(crate) fn check(&self, facts: &UnitFacts) -> Result<(), ConnectError> {
        let now = self.remeasured(facts)?;
        if now.geometry.blocks < self.geometry.blocks {
            return Err(changed_disk("the disk is smaller than before"));
        }
        Ok(())
    }

    fn check_properties(&self, now: &Self) -> Result<(), ConnectError> {
        let (old, new) = (&self.geometry, &now.geometry);
        let sentence = if !self.is_same_disk(&now.facts) {
            "the LUN has another identity than the disk had: it is another disk"
        } else if old.block_bytes != new.block_bytes {
            "the disk has another block size than before"
        } else if new.max_transfer_bytes < old.max_transfer_bytes {
            "the target takes less data in a command than before"
        } else if new.volatile_cache && !old.volatile_cache {
            "the disk has a volatile write cache, which it had not before"
        } else if self.fua && !now.fua && old.volatile_cache {
            "the disk no longer obeys FUA"
        } else if new.deallocate < old.deallocate || now.unmap_blocks < self.unmap_blocks {
            "the disk promises less about unmapped blocks than before"
        } else if now.compare_and_write_blocks < self.compare_and_write_blocks {
            "the disk no longer compares and writes so much"
        } else {
            return Ok(());
        };
        Err(changed_disk(sentence))
    }

    fn is_same_disk(&self, facts: &UnitFacts) -> bool {
        let by_serial = !self.facts.names.is_empty() || self.facts.serial == facts.serial;
        self.facts.names == facts.names && by_serial
    }
}

fn geometry(facts: &UnitFacts) -> Geometry {
    let block_bytes = facts.block_bytes;
    let plain = Geometry::new(block_bytes, facts.blocks);
    let hint = |blocks| hint(blocks, block_bytes);
    let most = match facts.max_transfer_blocks {
        0 => plain.max_transfer_bytes,
        blocks => blocks
            .saturating_mul(block_bytes)
            .min(plain.max_transfer_bytes),
    };
    Geometry {
        physical_block_bytes: hint(facts.physical_blocks).unwrap_or(block_bytes),
        optimal_io_bytes: hint(facts.optimal_blocks).unwrap_or(0),
        max_transfer_bytes: most,
        volatile_cache: facts.write_cache,
        // The target executes flushes. Without a cache an answered write is on the medium. A target
        // without a persistent medium cannot report that.
        durability: Durability::Device,
        read_only: facts.read_only,
        deallocate: deallocate(
            facts.unmaps && facts.unmap_blocks > 0,
            facts.unmapped_read_zeroes,
        ),
        ..plain
    }
}

/// Longest serial number that NVMe can report.
const SERIAL_BYTES_MAX: usize = 20;
/// Most blocks of one WRITE SAME when the target reports no limit, as in Linux.
const DEFAULT_WRITE_SAME_BLOCKS: u32 = 0xFFFF;
/// 2^20 blocks: one command must not keep a target busy for long.
const MOST_WRITE_SAME_BLOCKS: u32 = 1 << 20;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use fabrix_proto::scsi::bringup::Names;

    pub(crate) fn disk(change: impl FnOnce(&mut UnitFacts)) -> KnownDisk {
        KnownDisk::new(&facts(change)).expect("a disk")
    }

    fn facts(change: impl FnOnce(&mut UnitFacts)) -> UnitFacts {
        let mut facts = UnitFacts {
            model: "a model".to_owned(),
            serial: "a serial".to_owned(),
            names: Names {
                naa: [7; 16],
                ..Names::default()
            },
            blocks: 1000,
            block_bytes: 512,
            physical_blocks: 8,
            max_transfer_blocks: 256,
            compare_and_write_blocks: 255,
            unmap_blocks: 64,
            unmaps: true,
            write_same_unmaps: true,
            unmapped_read_zeroes: true,
            ..UnitFacts::default()
        };
        change(&mut facts);
        facts
    }

    fn again(change: impl FnOnce(&mut UnitFacts)) -> Result<(), String> {
        let checked = disk(|_| {}).check(&facts(change));
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn the_same_disk_is_taken_again_and_may_have_grown() {
        assert_eq!(again(|_| {}), Ok(()));
        assert_eq!(again(|facts| facts.blocks = 2000), Ok(()));
        assert_eq!(again(|facts| facts.serial = "another".to_owned()), Ok(()));
    }

    #[test]
    fn a_disk_that_keeps_fewer_promises_is_refused_with_the_reason() {
        let check = |change: fn(&mut UnitFacts), word: &str| {
            let sentence = again(change).expect_err(word);
            assert!(sentence.contains(word), "{sentence}");
        };
        check(|facts| facts.names.naa = [8; 16], "identity");
        check(|facts| facts.block_bytes = 4096, "block size");
        check(|facts| facts.blocks = 999, "smaller");
        check(|facts| facts.max_transfer_blocks = 8, "less data");
        check(|facts| facts.write_cache = true, "cache");
        check(|facts| facts.unmapped_read_zeroes = false, "unmapped");
        check(|facts| facts.compare_and_write_blocks = 1, "compares");
    }

    #[test]
    fn a_limit_never_grows_while_commands_that_kept_it_are_in_progress() {
        let limits = |write_same_blocks, unmap_blocks| {
            facts(|facts| {
                facts.write_same_blocks = write_same_blocks;
                facts.unmap_blocks = unmap_blocks;
            })
        };
        let disk = KnownDisk::new(&limits(100, 64)).expect("a disk");
        let after = |write_same_blocks, unmap_blocks| {
            let now = disk.remeasured(&limits(write_same_blocks, unmap_blocks));
            let now = now.expect("the same disk");
            (now.write_same_blocks, now.unmap_blocks)
        };
        assert_eq!(after(200, 128), (100, 64));
        assert_eq!(after(50, 64), (50, 64));
    }

    #[test]
    fn a_disk_without_names_is_known_by_its_serial() {
        let nameless = |serial: &str| {
            facts(|facts| {
                facts.names = Names::default();
                facts.serial = serial.to_owned();
            })
        };
        let disk = KnownDisk::new(&nameless("one")).expect("a disk");
        assert!(disk.check(&nameless("one")).is_ok());
        assert!(disk.check(&nameless("two")).is_err());
    }

    #[test]
    fn absurd_hints_and_blocks_are_not_passed_on() {
        let disk = disk(|facts| {
            facts.optimal_blocks = u32::MAX;
            facts.max_transfer_blocks = u32::MAX;
            facts.write_same_blocks = u64::MAX;
        });
        assert_eq!(disk.geometry.optimal_io_bytes, 0);
        assert_eq!(disk.geometry.max_transfer_bytes, 1 << 20);
        assert_eq!(disk.write_same_blocks, MOST_WRITE_SAME_BLOCKS);
        let large = KnownDisk::new(&facts(|facts| facts.block_bytes = 65_536));
        let sentence = large.err().expect("64 KiB blocks").to_string();
        assert!(sentence.contains("65536"), "{sentence}");
    }
}
