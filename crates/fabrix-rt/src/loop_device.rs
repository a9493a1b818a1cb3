//! Loop devices: a file as a block device of this machine.
//!
//! Knows how a free device is found and what its settings are; does not know what the file is.
//! Every call may wait for the file, so it belongs on a thread that the file does not need.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::sys::loop_device as ioctl;

/// How a loop device is set up.
#[derive(Clone, Debug)]
pub struct LoopOptions {
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// No writes.
    pub read_only: bool,
    /// What `losetup` calls the file; cut to 63 bytes.
    pub name: String,
}

/// A loop device with a file under it. Dropping this leaves the device as it is: it may be in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopDevice {
    path: PathBuf,
}

/// How a device stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopStatus {
    /// The kernel passes requests on as they come, past its page cache for files.
    pub direct: bool,
}

impl LoopDevice {
    /// Puts `file` under a free device. Direct I/O is used where the kernel can.
    ///
    /// Errors: there is no loop driver (`NotFound`), it is not ours to use (`PermissionDenied`),
    /// what it says.
    pub fn attach(file: &File, options: &LoopOptions) -> io::Result<Self> {
        // The loop driver of Linux 6.1 and 6.12 takes the size that the kernel remembers of the
        // file. Of a file over FUSE the kernel remembers 0 until somebody asks for its size.
        file.metadata()?;
        let control = open(Path::new(CONTROL), false)?;
        for _ in 0..TRIES {
            let number = ioctl::free_number(control.as_fd())?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = open(&path, !options.read_only)?;
            let mut configured = ioctl::configure(device.as_fd(), &config(file, options, true));
            if configured
                .as_ref()
                .is_err_and(|e| e.raw_os_error() == Some(libc::EINVAL))
            {
                configured = ioctl::configure(device.as_fd(), &config(file, options, false));
            }
            match configured {
                Ok(()) => return Ok(Self { path }),
                // Somebody else was faster: the next free one.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// The device at this path, whoever has made it.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// Where it is: /dev/loopN.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How it stands.
    ///
    /// Errors: there is no file under it any more.
    pub fn status(&self) -> io::Result<LoopStatus> {
        let info = ioctl::status(open(&self.path, false)?.as_fd())?;
        Ok(LoopStatus {
            direct: info.flags & ioctl::LO_FLAGS_DIRECT_IO != 0,
        })
    }

    /// What the file under it is called.
    ///
    /// Errors: there is none; or nobody answers for it any more, and the kernel does not even tell
    /// its name (`NotConnected`, `ConnectionAborted`).
    pub fn name(&self) -> io::Result<String> {
        let info = ioctl::status(open(&self.path, false)?.as_fd())?;
        let end = info.file_name.iter().position(|byte| *byte == 0);
        let name = &info.file_name[..end.unwrap_or(info.file_name.len())];
        Ok(String::from_utf8_lossy(name).into_owned())
    }

    /// Writes back what the kernel holds and takes the file away, if nobody has claimed the device:
    /// no mount, no swap, no other driver. While a program still has it open, it goes when that
    /// closes it.
    ///
    /// Errors: `ResourceBusy` when it is claimed; what was not written back.
    pub fn detach(&self) -> io::Result<()> {
        let claimed = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_EXCL | libc::O_CLOEXEC)
            .open(&self.path)?;
        claimed.sync_all()?;
        ioctl::clear(claimed.as_fd())
    }

    /// Takes the file away whatever is on its way to it: now, or when the last user lets go.
    ///
    /// Errors: what the loop driver says.
    pub fn detach_by_force(&self) -> io::Result<()> {
        ioctl::clear(open(&self.path, false)?.as_fd())
    }

    /// Takes over the size that the file has now.
    ///
    /// Errors: what the loop driver says.
    pub fn take_over_size(&self) -> io::Result<()> {
        ioctl::set_capacity(open(&self.path, false)?.as_fd())
    }
}

fn open(path: &Path, write: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(libc::O_CLOEXEC)
        .open(path)
}

fn config(file: &File, options: &LoopOptions, direct: bool) -> ioctl::Config {
    let mut info = ioctl::Info::empty();
    info.flags = ioctl::LO_FLAGS_PARTSCAN;
    if options.read_only {
        info.flags |= ioctl::LO_FLAGS_READ_ONLY;
    }
    if direct {
        info.flags |= ioctl::LO_FLAGS_DIRECT_IO;
    }
    let name = options.name.as_bytes();
    let bytes = name.len().min(info.file_name.len() - 1);
    info.file_name[..bytes].copy_from_slice(&name[..bytes]);
    ioctl::Config {
        file: file.as_raw_fd().cast_unsigned(),
        block_bytes: options.block_bytes,
        info,
        reserved: [0; 8],
    }
}

const CONTROL: &str = "/dev/loop-control";
/// Between asking for a free device and taking it, others may take it.
const TRIES: usize = 16;
