//! What a ublk server shares with the kernel: commands to the control device, and pages of the
//! character device.
//!
//! Source: include/uapi/linux/ublk_cmd.h and include/uapi/linux/io_uring.h of the Linux kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::check;

/// A ring for control commands, with entries of 128 bytes.
pub(crate) struct ControlRing(IoUring<squeue::Entry128, cqueue::Entry>);

impl ControlRing {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(IoUring::builder().build(ENTRIES)?))
    }

    /// Sends one command about a device and waits for its result. The driver reads or writes
    /// `bytes`. Errors: `InvalidInput` for a command that may use other memory.
    pub(crate) fn ask(
        &mut self,
        control: BorrowedFd<'_>,
        opcode: u32,
        (device, data): (u32, u64),
        bytes: &mut [u8],
    ) -> io::Result<u32> {
        let length = u16::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        if opcode & NUMBER > LAST_KNOWN {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let command = area(device, length, bytes.as_mut_ptr() as u64, data);
        let entry = opcode::UringCmd80::new(types::Fd(control.as_raw_fd()), opcode)
            .cmd(command)
            .build();
        // SAFETY: every command up to LAST_KNOWN makes the driver read or write at most `length`
        // bytes at the address in `command`. Those bytes are `bytes`, which this function borrows
        // until it returns, and it returns only after the completion.
        // WHY UNSAFE: io_uring takes raw addresses; there is no safe form.
        let pushed = unsafe { self.0.submission().push(&entry) };
        pushed.expect("one command at a time");
        loop {
            let entered = self.0.submit_and_wait(1);
            if let Some(completion) = self.0.completion().next() {
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
pub(crate) struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

impl Pages {
    /// Maps `bytes` of a device, from `offset` on, for reading.
    pub(crate) fn map(device: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Self> {
        let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        // WHY UNSAFE: std cannot map memory.
        let start = unsafe {
            libc::mmap64(
                ptr::null_mut(),
                bytes,
                protection,
                flags,
                device.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes })
    }

    /// Copies out. Panics outside the mapping.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        let inside = offset
            .checked_add(out.len())
            .is_some_and(|end| end <= self.bytes);
        assert!(
            inside,
            "{} bytes from {offset} of {} mapped ones",
            out.len(),
            self.bytes
        );
        // SAFETY: the range was checked, and `out` is Rust's memory, so the two do not overlap. The
        // kernel may write during the copy: no reference into the mapping exists, and the copy is
        // taken for nothing but bytes.
        // WHY UNSAFE: a slice of memory that the kernel writes must not be formed.
        unsafe {
            let from = self.start.add(offset);
            ptr::copy_nonoverlapping(from.as_ptr(), out.as_mut_ptr(), out.len());
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this is the range that `map` has mapped, and its only owner gives it up.
        // WHY UNSAFE: munmap takes an address.
        let unmapped = check(unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) });
        debug_assert!(unmapped.is_ok(), "munmap of our own pages");
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
