//! Operations of files as blocking system calls on the thread of the shard.
//!
//! epoll has no other way. The ring uses this for files in memory: they never wait for a device,
//! but io_uring would hand each of their operations to a worker thread.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use super::now::{count, errno};
use crate::Op;
use crate::sys::{fallocate, file};

/// Whether an operation only copies memory.
pub(super) fn is_a_copy(op: &Op) -> bool {
    match op {
        Op::Read { file, .. } | Op::Write { file, .. } => file.is_in_memory(),
        _ => false,
    }
}

/// Runs an operation of a file. Result: as of the operation.
pub(super) fn run_on_file(op: &mut Op) -> i32 {
    loop {
        let done = match op {
            Op::Read {
                file,
                buf,
                start,
                bytes,
                offset,
            } => {
                let target = &mut buf.bytes_mut()[*start..*start + *bytes];
                file.file().read_at(target, *offset)
            }
            Op::Write {
                file,
                buf,
                start,
                bytes,
                offset,
                durable,
            } => {
                let source = &buf.bytes()[*start..*start + *bytes];
                file::write_at(file.as_fd(), source, *offset, *durable)
            }
            Op::Sync { file } => file.file().sync_data().map(|()| 0),
            Op::Allocate {
                file,
                how,
                offset,
                bytes,
            } => fallocate::allocate(file.as_fd(), *how, *offset, *bytes).map(|()| 0),
            Op::GiveMessage { file, gather } => gather.wire().write(file.as_fd()),
            // Only a ring carries these.
            Op::ReadRegistered { .. }
            | Op::WriteRegistered { .. }
            | Op::DeviceCommand { .. }
            | Op::Exchange { .. } => return -libc::EOPNOTSUPP,
            _ => unreachable!("`side` names no descriptor for these five only"),
        };
        match done {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map_or_else(|error| errno(&error), count),
        }
    }
}
