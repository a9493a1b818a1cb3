//! What a ublk server shares with the kernel: commands to the control device, and pages of the
//! character device.
//!
//! Source: include/uapi/linux/ublk_cmd.h and include/uapi/linux/io_uring.h of the Linux kernel.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::mapping::Mapping;

/// The control device of ublk, and a ring for its commands, with entries of 128 bytes.
pub struct Control {
    device: File,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Control({:?})", self.device)
    }
}

impl Control {
    /// Opens the control device at `path`.
    ///
    /// Errors: `NotFound` without the driver, `PermissionDenied` without the right to use it, and
    /// what io_uring_setup(2) says.
    pub fn open(path: &Path) -> io::Result<Self> {
        let device = OpenOptions::new().read(true).write(true).open(path)?;
        let ring = IoUring::builder().build(ENTRIES)?;
        Ok(Self { device, ring })
    }

    /// Sends one command about the device with number `device` and waits for its result. `data` is
    /// the command's inline argument, `bytes` is what the driver reads or writes.
    ///
    /// Errors: `InvalidInput` for an unknown command, which may use other memory, and what the
    /// driver says.
    pub fn ask(
        &mut self,
        opcode: u32,
        device: u32,
        data: u64,
        bytes: &mut [u8],
    ) -> io::Result<u32> {
        let length = u16::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        if opcode & NUMBER > LAST_KNOWN {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let command = area(device, length, bytes.as_mut_ptr() as u64, data);
        let entry = opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), opcode)
            .cmd(command)
            .build();
        // SAFETY: every command up to LAST_KNOWN makes the driver read or write at most `length`
        // bytes at the address in `command`. Those bytes are `bytes`, which this function borrows
        // until it returns, and it returns only after the completion.
        // WHY UNSAFE: io_uring takes raw addresses; there is no safe form.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("one command at a time");
        loop {
            let entered = self.ring.submit_and_wait(1);
            if let Some(completion) = self.ring.completion().next() {
                let result = completion.result();
                return u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
            }
            match entered {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    // The kernel may have seen the command, so its memory must not be given back.
                    panic!("io_uring_enter refuses a control ring: {error}");
                }
                _ => {}
            }
        }
    }
}

/// `struct ublksrv_ctrl_cmd`, 32 bytes, and zeroes.
fn area(device: u32, length: u16, address: u64, data: u64) -> [u8; 80] {
    let mut area = [0; 80];
    let mut put = |at: usize, bytes: &[u8]| area[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &device.to_ne_bytes());
    put(4, &NO_QUEUE.to_ne_bytes());
    put(6, &length.to_ne_bytes());
    put(8, &address.to_ne_bytes());
    put(16, &data.to_ne_bytes());
    area
}

/// Pages of a device that the kernel writes and this process reads.
#[derive(Debug)]
pub struct DevicePages(Mapping);

impl DevicePages {
    /// Maps `bytes` of a device from `offset` on; both are multiples of a page.
    ///
    /// Errors: what the driver says.
    pub fn map(device: &File, offset: u64, bytes: usize) -> io::Result<Self> {
        let how = (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_POPULATE);
        Mapping::new(device.as_fd(), offset, (0, bytes), how).map(Self)
    }

    /// Copies out. Bytes that the kernel writes at the same time may be old or new. Panics outside
    /// the pages.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.0.read(offset, out);
    }
}

/// One command at a time.
const ENTRIES: u32 = 1;
/// The command is not about a queue.
const NO_QUEUE: u16 = u16::MAX;
/// The low byte of an opcode is the command's number.
const NUMBER: u32 = 0xff;
/// UBLK_CMD_TRY_STOP_DEV. The next one gives the driver memory to keep.
const LAST_KNOWN: u32 = 0x17;
