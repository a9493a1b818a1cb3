//! What a ublk server needs beside its ring: the control device, and pages that the kernel fills.
//!
//! This module knows how a control command travels and not what it means. The requests of a device
//! go over the ring of a shard (see [`Op::DeviceCommand`](fabrix_rt::Op::DeviceCommand)). A control
//! command may wait for that shard, so it belongs on another thread.

pub use crate::sys::ublk::{Control, DevicePages};

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

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
