//! A disk in this process's memory, shared by all shards. Writes copy data in. Reads lend the pages
//! themselves, so a front end sends from them directly.
//!
//! The contents end with the process, and the disk reports this. A flush is answered at once, the
//! cache is not reported as volatile, and the durability is `None`. A read that overlaps a write on
//! another shard may return bytes of both. The same holds for lent pages that are written before
//! they are sent.
//!
//! All requests are answered at once, except long ranges of zeroes (`ram/zeroing.rs`).

mod zeroing;

use std::sync::Arc;

use fabrix_rt::{Bitmap, HugePages, Loan, LocalRegion, Region, Shard};

use self::zeroing::Zeroing;
use crate::geometry::{Deallocate, Geometry};
use crate::task::TaskHandle;
use crate::{
    Allocation, Channel, Device, Identity, OpenError, OpenErrorKind, Operation, Payload, Request,
    Run, Status, Submit,
};

/// A disk in memory.
#[derive(Debug)]
pub struct RamDisk {
    geometry: Geometry,
    identity: Identity,
    region: Arc<Region>,
    /// Marks of the blocks that hold data. A write marks after it has stored data, and zeroing
    /// unmarks before it zeroes. Two shards that do both at once therefore never leave a block with
    /// data and no mark.
    written: Arc<Bitmap>,
}

impl RamDisk {
    /// A RAM disk of zeroes with the given sizes. The kernel allocates a page at its first write.
    ///
    /// Errors: `NoMemory` when the address space is not available.
    pub fn new(
        sizes: Geometry,
        huge_pages: HugePages,
        identity: Identity,
    ) -> Result<Arc<Self>, OpenError> {
        let mut geometry = sizes;
        geometry.deallocate = Deallocate::Zeroes;
        let region = usize::try_from(geometry.bytes())
            .map_err(std::io::Error::other)
            .and_then(|bytes| Region::new(bytes, huge_pages))
            .map_err(|error| no_memory(&identity.name, geometry.bytes(), error))?;
        let written = Bitmap::new(geometry.blocks)
            .map_err(|error| no_memory(&identity.name, geometry.bytes(), error))?;
        Ok(Arc::new(Self {
            geometry,
            identity,
            region,
            written,
        }))
    }
}

fn no_memory(name: &str, bytes: u64, error: std::io::Error) -> OpenError {
    let sentence =
        format!("{name}: {bytes} bytes of memory are not to be had ({error}); ask for less");
    OpenError::new(OpenErrorKind::NoMemory, sentence).caused_by(error)
}

impl Device for RamDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let memory = Memory {
            geometry: self.geometry.clone(),
            pages: shard.view(&self.region),
            written: Arc::clone(&self.written),
        };
        Ok(Box::new(RamChannel {
            zeroing: TaskHandle::new(shard, |id| Zeroing::new(id, memory.clone())),
            memory,
        }))
    }

    fn allocation(&self, lba: u64) -> Run {
        let (written, blocks) = self.written.run(lba);
        let allocation = match written {
            true => Allocation::Mapped,
            false => Allocation::Deallocated,
        };
        Run { allocation, blocks }
    }
}

struct RamChannel {
    memory: Memory,
    zeroing: TaskHandle<Zeroing>,
}

impl Channel for RamChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if let Some(status) = request.refusal(&self.memory.geometry) {
            return request.done(status);
        }
        match request.operation {
            Operation::Read => self.read(request),
            Operation::Write { .. } => self.write(request),
            Operation::Flush => request.done(Status::Ok),
            Operation::WriteZeroes { .. } | Operation::Deallocate => self.zero(shard, request),
            Operation::CompareAndWrite { .. } => request.done(Status::Unsupported),
        }
    }
}

impl RamChannel {
    fn read<'a>(&self, request: Request<'a>) -> Submit<'a> {
        let (offset, bytes) = self.memory.range(request.lba, request.blocks);
        let pages = &self.memory.pages;
        match request.payload {
            Payload::Owned(mut buf) => {
                pages.region().read(offset, &mut buf.bytes_mut()[..bytes]);
                Submit::Done(Status::Ok, Loan::Buf(buf))
            }
            _ => Submit::Done(Status::Ok, Loan::Lent(pages.lend(offset, bytes))),
        }
    }

    fn write<'a>(&self, request: Request<'a>) -> Submit<'a> {
        let (offset, bytes) = self.memory.range(request.lba, request.blocks);
        if let Some(source) = request.payload.source() {
            self.memory.pages.region().write(offset, &source[..bytes]);
            self.memory.written.set(request.lba, request.blocks.into());
        }
        request.done(Status::Ok)
    }

    fn zero<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if request.bytes(&self.memory.geometry) > zeroing::AT_ONCE_BYTES {
            return self.zeroing.submit(shard, request);
        }
        let deallocate = request.operation.deallocates();
        self.memory.zero(request.lba, request.blocks, deallocate);
        request.done(Status::Ok)
    }
}

/// The disk's memory as seen by one shard.
#[derive(Clone)]
struct Memory {
    geometry: Geometry,
    pages: LocalRegion,
    written: Arc<Bitmap>,
}

impl Memory {
    fn zero(&self, lba: u64, blocks: u32, deallocate: bool) {
        let (offset, bytes) = self.range(lba, blocks);
        if deallocate {
            self.written.clear(lba, blocks.into());
        }
        self.pages.region().zero(offset, bytes);
        if !deallocate {
            self.written.set(lba, blocks.into());
        }
    }

    /// Byte range of blocks in the region. The blocks were checked, and the size of the disk is a
    /// `usize`.
    fn range(&self, lba: u64, blocks: u32) -> (usize, usize) {
        let in_memory = |bytes: u64| usize::try_from(bytes).expect("the region is addressable");
        let bytes = u64::from(blocks) * u64::from(self.geometry.block_bytes);
        (in_memory(self.geometry.offset(lba)), in_memory(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        bytes_of, compare_with_model, identity, on_both_engines, ram_disk, steps,
    };
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_ram_disk_is_what_was_written_to_it(steps in steps(4096, 700)) {
            on_both_engines(|front| compare_with_model(front, &ram_disk(4096), &steps));
        }
    }

    #[test]
    fn all_shards_see_one_memory_and_reads_lend_it() {
        let disk = ram_disk(64);
        on_both_engines(|writer| {
            on_both_engines(|reader| {
                let (mut from, mut to) = (reader.open(&disk), writer.open(&disk));
                assert_eq!(writer.write(&mut to, 3, &[3; 512]), Status::Ok);
                let (status, loan) = reader
                    .submit(&mut from, Operation::Read, 3, 1, Payload::Lend)
                    .expect("done");
                assert!(status.is_ok() && matches!(loan, Loan::Lent(_)));
                assert_eq!(bytes_of(&loan, 512), [3; 512]);
                assert_eq!(writer.write(&mut to, 3, &[4; 512]), Status::Ok);
                assert_eq!(
                    bytes_of(&loan, 512),
                    [4; 512],
                    "these are the pages, not a copy"
                );
            });
        });
    }

    #[test]
    fn tells_which_blocks_hold_something() {
        let disk = ram_disk(1000);
        let run = |lba| {
            let run = disk.allocation(lba);
            (run.allocation, run.blocks)
        };
        on_both_engines(|front| {
            let mut channel = front.open(&disk);
            let zero = Operation::WriteZeroes {
                deallocate: false,
                durable: false,
            };
            assert_eq!(run(0), (Allocation::Deallocated, 1000));
            assert_eq!(front.write(&mut channel, 60, &[1; 512 * 100]), Status::Ok);
            assert_eq!(run(0), (Allocation::Deallocated, 60));
            assert_eq!(run(61), (Allocation::Mapped, 99));
            assert_eq!(run(160), (Allocation::Deallocated, 840));
            front.ask(&mut channel, Operation::Deallocate, 70, 1, Payload::None);
            assert_eq!(run(60), (Allocation::Mapped, 10));
            assert_eq!(run(70), (Allocation::Deallocated, 1));
            // Explicitly written zeroes are data.
            front.ask(&mut channel, zero, 70, 1, Payload::None);
            assert_eq!(run(60), (Allocation::Mapped, 100));
            front.ask(&mut channel, Operation::Deallocate, 0, 1000, Payload::None);
            assert_eq!(run(999), (Allocation::Deallocated, 1));
        });
    }

    #[test]
    fn says_that_nothing_outlives_the_process() {
        let disk = ram_disk(64);
        assert_eq!(disk.geometry().durability, crate::Durability::None);
        assert!(!disk.geometry().volatile_cache);
    }

    #[test]
    fn more_memory_than_there_can_be_is_an_error() {
        let error = RamDisk::new(Geometry::new(512, 1 << 54), HugePages::No, identity("huge"))
            .expect_err("refused");
        assert_eq!(error.kind, OpenErrorKind::NoMemory);
        assert!(
            error.sentence.contains("huge") && error.sentence.contains("ask for less"),
            "{error}"
        );
    }
}
