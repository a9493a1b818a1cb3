//! A guest's memory: mapped regions, addressed by guest addresses.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use fabrix_proto::virtio::Memory;
use fabrix_proto::virtio::vhost_user::Region;
use fabrix_rt::Lent;
use sys_devices::SharedMemory;

pub(super) struct GuestMemory {
    regions: Vec<(u64, SharedMemory)>,
}

impl GuestMemory {
    /// Maps the regions. Each region has its own file.
    pub(super) fn map(regions: &[Region], files: Vec<OwnedFd>) -> io::Result<Self> {
        let mapped = regions.iter().zip(files).map(|(region, file)| {
            let memory = SharedMemory::map(&File::from(file), region.offset, region.bytes)?;
            Ok((region.guest, memory))
        });
        let regions = mapped.collect::<io::Result<_>>()?;
        Ok(Self { regions })
    }

    /// Copies lent disk data into guest memory. False: the range is not fully mapped.
    pub(super) fn write_lent(&self, address: u64, lent: &Lent) -> bool {
        self.each(address, lent.len(), |memory, offset, at, bytes| {
            memory.write_lent(offset, &lent.slice(at, bytes));
        })
    }

    /// Calls `part` for every region of a range, with the offset in the region, the offset in the
    /// range, and the length. False: the range is not fully mapped, and some parts may be done.
    fn each(
        &self,
        address: u64,
        bytes: usize,
        mut part: impl FnMut(&SharedMemory, usize, usize, usize),
    ) -> bool {
        let mut done = 0;
        while done < bytes {
            let here = address
                .checked_add(done as u64)
                .and_then(|at| self.find(at));
            let Some((memory, offset)) = here else {
                return false;
            };
            let long = (memory.len() - offset).min(bytes - done);
            part(memory, offset, done, long);
            done += long;
        }
        true
    }

    fn find(&self, address: u64) -> Option<(&SharedMemory, usize)> {
        self.regions.iter().find_map(|(start, memory)| {
            let offset = usize::try_from(address.checked_sub(*start)?).ok()?;
            (offset < memory.len()).then_some((memory, offset))
        })
    }

    /// The region and offset of an aligned 16-bit word.
    fn word(&self, address: u64) -> Option<(&SharedMemory, usize)> {
        let (memory, offset) = self.find(address)?;
        let inside = address.is_multiple_of(2) && offset.is_multiple_of(2);
        (inside && memory.len() - offset >= 2).then_some((memory, offset))
    }
}

impl Memory for GuestMemory {
    fn contains(&self, address: u64, bytes: u64) -> bool {
        usize::try_from(bytes).is_ok_and(|bytes| self.each(address, bytes, |_, _, _, _| {}))
    }

    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        self.each(address, out.len(), |memory, offset, at, bytes| {
            memory.read(offset, &mut out[at..at + bytes]);
        })
    }

    fn write(&self, address: u64, source: &[u8]) -> bool {
        self.each(address, source.len(), |memory, offset, at, bytes| {
            memory.write(offset, &source[at..at + bytes]);
        })
    }

    fn load(&self, address: u64) -> Option<u16> {
        let (memory, offset) = self.word(address)?;
        Some(memory.load(offset))
    }

    fn store(&self, address: u64, value: u16) -> bool {
        let place = self.word(address);
        if let Some((memory, offset)) = place {
            memory.store(offset, value);
        }
        place.is_some()
    }
}
