//! Loop devices: a file as a block device of this machine.
//!
//! This module finds a free device and sets it up. It does not know what the file is. Every call
//! may wait for the file, so it belongs on a thread that does not serve the file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use crate::claim;
use crate::sys::loop_device as ioctl;

/// Settings of a new loop device.
#[derive(Clone, Debug)]
pub struct LoopOptions {
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// The device refuses writes.
    pub read_only: bool,
    /// Name of the file as `losetup` shows it, cut to 63 bytes.
    pub name: String,
}

/// A loop device with a file under it. Dropping this value leaves the device set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopDevice {
    path: PathBuf,
}

/// State of a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopStatus {
    /// Requests go to the file by direct I/O, past the page cache.
    pub direct: bool,
}

impl LoopDevice {
    /// Puts `file` under a free device. Direct I/O is used where the kernel can.
    ///
    /// Errors: `NotFound` without the loop driver, `PermissionDenied` without the right to use it,
    /// and what the driver says.
    pub fn attach(file: &File, options: &LoopOptions) -> io::Result<Self> {
        // The loop driver of Linux 6.1 and 6.12 uses the cached size of the file. For a file over
        // FUSE the cached size is 0 until somebody asks for the size.
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
                // Another process has taken this device: try the next free one.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// The loop device at a path. Another process may have set it up.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// Path of the device: /dev/loopN.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// State of the device.
    ///
    /// Errors: no file is under the device any more.
    pub fn status(&self) -> io::Result<LoopStatus> {
        let info = ioctl::status(open(&self.path, false)?.as_fd())?;
        Ok(LoopStatus {
            direct: info.flags & ioctl::LO_FLAGS_DIRECT_IO != 0,
        })
    }

    /// Name of the file under the device.
    ///
    /// Errors: no file is under the device. `NotConnected` or `ConnectionAborted`: the file is on a
    /// FUSE mount whose server has ended.
    pub fn name(&self) -> io::Result<String> {
        let info = ioctl::status(open(&self.path, false)?.as_fd())?;
        let end = info.file_name.iter().position(|byte| *byte == 0);
        let name = &info.file_name[..end.unwrap_or(info.file_name.len())];
        Ok(String::from_utf8_lossy(name).into_owned())
    }

    /// Writes back the cached data and takes the file away. The device must not be claimed by a
    /// mount, by swap or by another driver. If a program has the device open, the file goes when
    /// the program closes it.
    ///
    /// Errors: `ResourceBusy` for a claimed device, and what failed while writing back.
    pub fn detach(&self) -> io::Result<()> {
        ioctl::clear(claim(&self.path)?.as_fd())
    }

    /// Takes the file away without writing back: at once, or when the last user closes the device.
    ///
    /// Errors: what the loop driver says.
    pub fn detach_by_force(&self) -> io::Result<()> {
        ioctl::clear(open(&self.path, false)?.as_fd())
    }

    /// Sets the size of the device to the size of the file.
    ///
    /// Errors: what the loop driver says.
    pub fn take_over_size(&self) -> io::Result<()> {
        ioctl::set_capacity(open(&self.path, false)?.as_fd())
    }
}

fn open(path: &Path, write: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(write).open(path)
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
/// Attempts to get a free device. Another process may take a device between the two calls for it.
const TRIES: usize = 16;
