//! Errors of opening a file: the kernel's error numbers as sentences that name the path and the
//! remedy.

use std::io;

use fabrix_rt::errno;

use crate::file::FileOptions;
use crate::{OpenError, OpenErrorKind};

/// Converts an error of the operating system into a sentence.
pub(super) fn refused(options: &FileOptions, is_block_device: bool, error: io::Error) -> OpenError {
    let hint = match error.raw_os_error() {
        Some(errno::EINVAL) if options.direct => return no_direct_io(options).caused_by(error),
        Some(errno::EBUSY) if is_block_device => {
            "is mounted or part of something else; unmount it, or add ro"
        }
        Some(errno::EROFS) => "lies on a read-only file system; add ro",
        Some(errno::EACCES | errno::EPERM) if !options.read_only => {
            "may not be opened for writing by this user; change its owner, or add ro"
        }
        Some(errno::EACCES | errno::EPERM) => "may not be read by this user",
        _ => "cannot be opened",
    };
    wrong(options, kind_of(&error), &format!("{hint}: {error}")).caused_by(error)
}

pub(super) fn no_direct_io(options: &FileOptions) -> OpenError {
    let sentence =
        "the file system does no direct I/O; add direct=off to go through the page cache";
    wrong(options, OpenErrorKind::Unsupported, sentence)
}

pub(super) fn kind_of(error: &io::Error) -> OpenErrorKind {
    match error.kind() {
        io::ErrorKind::NotFound => OpenErrorKind::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            OpenErrorKind::Denied
        }
        io::ErrorKind::ResourceBusy | io::ErrorKind::ExecutableFileBusy => OpenErrorKind::InUse,
        io::ErrorKind::OutOfMemory => OpenErrorKind::NoMemory,
        _ => OpenErrorKind::Io,
    }
}

pub(super) fn wrong(options: &FileOptions, kind: OpenErrorKind, sentence: &str) -> OpenError {
    OpenError::new(kind, format!("{}: {sentence}", options.path.display()))
}
