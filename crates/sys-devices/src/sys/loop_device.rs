//! The ioctls of the loop driver.
//!
//! Source: include/uapi/linux/loop.h of the Linux kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

/// `struct loop_config`, with `struct loop_info64` in its middle.
#[repr(C)]
pub(crate) struct Config {
    pub(crate) file: u32,
    pub(crate) block_bytes: u32,
    pub(crate) info: Info,
    pub(crate) reserved: [u64; 8],
}

/// `struct loop_info64`.
#[repr(C)]
pub(crate) struct Info {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) raw_device: u64,
    pub(crate) offset: u64,
    pub(crate) size_limit: u64,
    pub(crate) number: u32,
    pub(crate) encrypt_type: u32,
    pub(crate) encrypt_key_bytes: u32,
    pub(crate) flags: u32,
    pub(crate) file_name: [u8; 64],
    pub(crate) crypt_name: [u8; 64],
    pub(crate) encrypt_key: [u8; 32],
    pub(crate) init: [u64; 2],
}

const _: () = assert!(size_of::<Info>() == 232 && size_of::<Config>() == 304);

impl Info {
    /// All fields zero.
    pub(crate) const fn empty() -> Self {
        Self {
            device: 0,
            inode: 0,
            raw_device: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_bytes: 0,
            flags: 0,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        }
    }
}

/// Number of an unused device. The driver makes a new device if all are in use.
pub(crate) fn free_number(control: BorrowedFd<'_>) -> io::Result<u32> {
    let number = plain(control, LOOP_CTL_GET_FREE)?;
    Ok(number.cast_unsigned())
}

/// Puts a file under a device with all settings in one call.
pub(crate) fn configure(device: BorrowedFd<'_>, config: &Config) -> io::Result<()> {
    // SAFETY: the kernel reads one `struct loop_config`; `Config` has its layout.
    // WHY UNSAFE: std has no ioctl.
    check(unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            LOOP_CONFIGURE,
            std::ptr::from_ref(config),
        )
    })?;
    Ok(())
}

/// Settings and flags of a device. `ENXIO`: no file is under it.
pub(crate) fn status(device: BorrowedFd<'_>) -> io::Result<Info> {
    let mut info = Info::empty();
    // SAFETY: the kernel writes one `struct loop_info64`. `Info` has its layout, and every pattern
    // of bits is a valid `Info`. WHY UNSAFE: std has no ioctl.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) })?;
    Ok(info)
}

/// Takes the file away: at once, or when the last user closes the device.
pub(crate) fn clear(device: BorrowedFd<'_>) -> io::Result<()> {
    plain(device, LOOP_CLR_FD).map(drop)
}

/// Sets the size of the device to the size of its file.
pub(crate) fn set_capacity(device: BorrowedFd<'_>) -> io::Result<()> {
    plain(device, LOOP_SET_CAPACITY).map(drop)
}

/// Sends one of the three requests of this file that take no argument.
fn plain(device: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<libc::c_int> {
    // SAFETY: the request takes no argument.
    // WHY UNSAFE: std has no ioctl.
    check(unsafe { libc::ioctl(device.as_raw_fd(), request, 0) })
}

pub(crate) const LO_FLAGS_READ_ONLY: u32 = 1;
pub(crate) const LO_FLAGS_PARTSCAN: u32 = 8;
pub(crate) const LO_FLAGS_DIRECT_IO: u32 = 16;

const LOOP_CLR_FD: libc::Ioctl = 0x4c01;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
const LOOP_SET_CAPACITY: libc::Ioctl = 0x4c07;
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
