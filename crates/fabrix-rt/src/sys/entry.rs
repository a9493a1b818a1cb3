//! The two sizes of a ring's entries: 64 bytes for most operations, 128 bytes for long commands of
//! drivers.

use std::os::fd::AsRawFd;
use std::ptr;

use io_uring::{opcode, squeue, types};

use crate::Exchange;

/// An entry of 64 bytes.
pub(crate) type Short = squeue::Entry;
/// An entry of 128 bytes.
pub(crate) type Long = squeue::Entry128;

/// Size of the entries of a ring.
pub(crate) trait Form: squeue::EntryMarker {
    /// The entry for the next command of an exchange. Err: the entry is too short, or the exchange
    /// is a simulator's.
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
        // SAFETY: `Long` has the layout of the kernel's `struct io_uring_sqe` followed by 64 bytes.
        // All of it is numbers without padding. The field `len` is the u32 at offset 24, which is
        // aligned because the entry is aligned to eight bytes. WHY UNSAFE: the io-uring crate sets
        // no length for commands of drivers.
        unsafe {
            let length = ptr::from_mut(&mut entry).cast::<u32>().add(LENGTH_AT / 4);
            length.write(PARTS);
        }
        Ok(entry)
    }
}

/// Offset of `len` in `struct io_uring_sqe`.
const LENGTH_AT: usize = 24;
/// Parts of an exchange: header and payload.
const PARTS: u32 = 2;
