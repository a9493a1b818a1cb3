//! What this process needs to be a driver of the kernel's: a way to a control device, and pages
//! that the kernel fills.
//!
//! Knows how a command travels; does not know what it means. Requests themselves go over the
//! shard's ring (see [`Op::DeviceCommand`](crate::Op::DeviceCommand)). A control command may wait
//! for the shard, so it belongs on another thread.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::sys::device::{ControlRing, Pages};

/// A control device, and a ring to reach it.
pub struct Control {
    device: File,
    ring: ControlRing,
}

impl Control {
    /// Opens the control device of ublk.
    ///
    /// Errors: there is none (`NotFound`), it is not ours to use (`PermissionDenied`), there is no
    /// io_uring.
    pub fn open(path: &Path) -> io::Result<Self> {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(path)?;
        let ring = ControlRing::new()?;
        Ok(Self { device, ring })
    }

    /// Says one command about the device of this number, with so much data, and waits for its end.
    /// What the command reads or writes is `bytes`.
    ///
    /// Errors: what the driver says; `InvalidInput`: no such command is known here.
    pub fn ask(
        &mut self,
        opcode: u32,
        device: u32,
        data: u64,
        bytes: &mut [u8],
    ) -> io::Result<u32> {
        self.ring
            .ask(self.device.as_fd(), opcode, (device, data), bytes)
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Control({:?})", self.device)
    }
}

/// Pages of a device: the kernel writes them, we read.
#[derive(Debug)]
pub struct DevicePages(Pages);

impl DevicePages {
    /// Maps `bytes` of a device, whole pages, from `offset` on.
    ///
    /// Errors: what the driver says.
    pub fn map(device: &File, offset: u64, bytes: usize) -> io::Result<Self> {
        Pages::map(device.as_fd(), offset, bytes).map(Self)
    }

    /// Copies out. What the kernel writes at the same time may or may not be there. Panics outside
    /// of the pages.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.0.read(offset, out);
    }
}

/// Bytes of a page of this machine's memory.
pub fn page_bytes() -> usize {
    crate::sys::process::page_bytes()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn pages_show_what_the_other_side_has_written_since() {
        let file = tempfile::tempfile().expect("a scratch file");
        file.set_len(8192).expect("room");
        let pages = DevicePages::map(&file, 4096, 4096).expect("a page");
        file.write_all_at(b"told later", 4096 + 24).expect("room");
        let mut out = [0; 10];
        pages.read(24, &mut out);
        assert_eq!(&out, b"told later");
    }

    #[test]
    #[should_panic(expected = "2 bytes from 4095 of 4096 mapped ones")]
    fn nothing_is_read_past_the_pages() {
        let file = tempfile::tempfile().expect("a scratch file");
        file.set_len(4096).expect("room");
        let pages = DevicePages::map(&file, 0, 4096).expect("a page");
        pages.read(4095, &mut [0; 2]);
    }

    #[test]
    fn a_machine_without_the_driver_says_that_there_is_none() {
        let error = Control::open(Path::new("/dev/no-such-control")).expect_err("there is none");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_device_that_takes_no_commands_refuses_them_and_commands_with_memory_of_their_own_are_not_sent()
     {
        let mut control = match Control::open(Path::new("/dev/full")) {
            Ok(control) => control,
            Err(error) => return println!("SKIPPED: control commands: {error}"),
        };
        let refused = control.ask(0x8020_7513, 0, 0, &mut [0; 8]);
        assert_eq!(
            refused.expect_err("/dev/full").raw_os_error(),
            Some(libc::EOPNOTSUPP)
        );
        let unsent = control.ask(0xc020_7518, 0, 0, &mut [0; 16]);
        assert_eq!(
            unsent.expect_err("unknown").kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
