//! The two forms of a ring's entries: 64 bytes for what nearly every shard asks, 128 for commands
//! of drivers that say more.

use std::os::fd::AsRawFd;
use std::ptr;

use io_uring::{opcode, squeue, types};

use crate::Exchange;

/// Entries as most operations need them.
pub(crate) type Short = squeue::Entry;
/// Entries with room for the commands of all drivers.
pub(crate) type Long = squeue::Entry128;

/// Which entries a ring has.
pub(crate) trait Form: squeue::EntryMarker {
    /// The entry that gives an exchange to FUSE. Err: it has no room for that, or the exchange is a
    /// simulator's.
    fn exchange(exchange: &Exchange) -> Result<Self, i32>;
}

impl Form for Short {
    fn exchange(_exchange: &Exchange) -> Result<Self, i32> {
        Err(-libc::EOPNOTSUPP)
    }
}

impl Form for Long {
    fn exchange(exchange: &Exchange) -> Result<Self, i32> {
        let (opcode, area) = exchange.command().ok_or(-libc::EINVAL)?;
        let file = types::Fd(exchange.file().as_raw_fd());
        let command = opcode::UringCmd80::new(file, opcode).cmd(area);
        let Some(parts) = exchange.parts() else {
            return Ok(command.build());
        };
        let mut entry = command.addr(Some(parts.as_ptr() as u64)).build();
        // SAFETY: an entry is the kernel's `struct io_uring_sqe` and 64 bytes more, all plain
        // numbers without padding; its `len` is the four bytes from the 24th on, aligned as the
        // entry is to eight.
        // WHY UNSAFE: the crate sets no length for commands of drivers.
        unsafe {
            let length = ptr::from_mut(&mut entry).cast::<u32>().add(LENGTH_AT / 4);
            length.write(PARTS);
        }
        Ok(entry)
    }
}

/// Where `len` stands in `struct io_uring_sqe`.
const LENGTH_AT: usize = 24;
/// An exchange is a header and a payload.
const PARTS: u32 = 2;
