//! Memory that another process shares with this one, for instance the memory of a virtual machine:
//! a range of a file whose descriptor it has sent.
//!
//! The other process may change every byte at any time, so bytes are copied out before they are
//! looked at. It must not shorten its file: the kernel ends a process that reaches for pages that
//! are gone (SIGBUS).

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

pub use crate::sys::shared_memory::SharedMemory;
use crate::sys::shared_memory::new_file;

impl SharedMemory {
    /// Maps `bytes` of a file from `offset` on.
    ///
    /// Errors: `InvalidInput` for a range that is empty or ends behind the file, and what mmap(2)
    /// says.
    pub fn map(file: &File, offset: u64, bytes: u64) -> io::Result<Self> {
        let invalid = |sentence| io::Error::new(io::ErrorKind::InvalidInput, sentence);
        let facts = file.metadata()?;
        let end = offset.checked_add(bytes);
        if bytes == 0 || end.is_none_or(|end| end > facts.len()) {
            return Err(invalid("it is not all in its file"));
        }
        // A file of huge pages is mapped in whole pages; its block size is their size.
        let page = match facts.blksize() {
            size if size.is_power_of_two() && size > PAGE_BYTES => size,
            _ => PAGE_BYTES,
        };
        let skip = offset % page;
        let whole = (skip + bytes).next_multiple_of(page) - skip;
        let in_memory = |bytes| usize::try_from(bytes).map_err(|_| invalid("it is too long"));
        // The mapping ends with its last page, the accessible range with `bytes`.
        let range = (in_memory(skip)?, in_memory(bytes)?, in_memory(whole)?);
        Self::map_pages(file, offset - skip, range)
    }

    /// A new file of zeroes, to be shared with another process. Nobody can change its length.
    ///
    /// Errors: no descriptor or no memory is left.
    pub fn new_file(bytes: u64) -> io::Result<File> {
        new_file(bytes)
    }
}

/// The smallest page of every machine we run on.
const PAGE_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use fabrix_rt::{HugePages, Region};

    use super::*;

    fn file(bytes: u64) -> File {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(bytes).expect("its length");
        file
    }

    #[test]
    fn what_one_side_writes_the_other_reads_wherever_it_begins() {
        let file = file(20_000);
        let memory = SharedMemory::map(&file, 5000, 10_000).expect("it lies in the file");
        assert_eq!(memory.len(), 10_000);
        memory.write(100, b"ours");
        file.write_all_at(b"theirs", 5200).expect("room");
        let mut out = [0; 6];
        memory.read(200, &mut out);
        assert_eq!(&out, b"theirs");
        file.read_exact_at(&mut out[..4], 5100)
            .expect("it is there");
        assert_eq!(&out[..4], b"ours");
        memory.store(8, 0x1234);
        assert_eq!(memory.load(8), 0x1234);
    }

    #[test]
    fn what_a_disk_lends_is_copied() {
        let memory = SharedMemory::map(&file(4096), 0, 4096).expect("a page");
        let region = Region::new(4096, HugePages::No).expect("a page");
        region.write(10, b"lent");
        memory.write_lent(4092, &Region::local(&region).lend(10, 4));
        let mut out = [0; 4];
        memory.read(4092, &mut out);
        assert_eq!(&out, b"lent");
    }

    #[test]
    fn a_new_file_is_all_zeroes_and_keeps_its_length() {
        let file = SharedMemory::new_file(5000).expect("a file");
        let memory = SharedMemory::map(&file, 0, 5000).expect("all of it");
        let mut out = [1; 8];
        memory.read(4992, &mut out);
        assert_eq!(out, [0; 8]);
        assert!(file.set_len(100).is_err() && file.set_len(9000).is_err());
    }

    #[test]
    fn a_range_that_is_not_in_the_file_is_refused() {
        for (offset, bytes) in [(0, 0), (0, 8193), (8192, 1), (u64::MAX, 2)] {
            let refused = SharedMemory::map(&file(8192), offset, bytes).map(drop);
            assert!(refused.is_err(), "{bytes} bytes from {offset}");
        }
    }

    #[test]
    #[should_panic(expected = "of 100 mapped ones")]
    fn the_rest_of_the_last_page_is_out_of_reach() {
        let memory = SharedMemory::map(&file(4096), 0, 100).expect("it lies in the file");
        memory.write(100, &[1]);
    }
}
