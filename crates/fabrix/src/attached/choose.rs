//! Which front end a disk gets: the one that was asked for, if it can be had here, or the best that can.
//!
//! Looks at this machine and at who asks; begins nothing.

use std::fs::{self, File};

use fabrix_attach::ublk;
use fabrix_rt::nbd_device::NbdDevice;
use fabrix_rt::{Engine, process};

use super::kernel_fuse::{has_fuse, no_fuse};
use super::kernel_nbd;
use crate::args::FrontEnd;
use crate::failure::Failure;

/// Which front end it will be, and why, where the user has not said.
pub(crate) fn choose(
    wanted: FrontEnd,
    socket: bool,
    engine: Engine,
) -> Result<(FrontEnd, Option<String>), Failure> {
    let takes_socket = matches!(
        wanted,
        FrontEnd::Auto | FrontEnd::NbdSocket | FrontEnd::VhostUser
    );
    if socket && !takes_socket {
        let sentence = "--socket is for --as nbd-socket and --as vhost-user";
        return Err(Failure::usage(sentence));
    }
    match wanted {
        FrontEnd::Auto if socket => Ok((FrontEnd::NbdSocket, None)),
        FrontEnd::Auto => Ok(best(engine)),
        FrontEnd::Ublk | FrontEnd::Nbd | FrontEnd::Fuse if !process::is_root() => {
            Err(Failure::usage(
                "a block device needs root; as this user, --as file gives a file and --as nbd-socket a socket",
            ))
        }
        FrontEnd::Ublk => match ublk::available(engine) {
            Err(why) => Err(Failure::usage(format!(
                "there is no ublk here: {why}; --as fuse gives a block device too"
            ))),
            Ok(()) => Ok((wanted, None)),
        },
        FrontEnd::Nbd => match NbdDevice::available() {
            Err(error) => Err(kernel_nbd::refused(&error)),
            Ok(()) => Ok((wanted, None)),
        },
        FrontEnd::Fuse | FrontEnd::File => match has_fuse() {
            Err(error) => Err(no_fuse(&error)),
            Ok(()) => Ok((wanted, None)),
        },
        FrontEnd::NbdSocket | FrontEnd::VhostUser => Ok((wanted, None)),
        FrontEnd::Kernel => Err(Failure::usage(
            "--as kernel leaves nothing running: leave out --foreground",
        )),
    }
}

/// The best that can be had; why, where that is no block device.
fn best(engine: Engine) -> (FrontEnd, Option<String>) {
    if ublk_is_here(engine) {
        return (FrontEnd::Ublk, None);
    }
    if kernel_nbd::is_here() {
        return (FrontEnd::Nbd, None);
    }
    if let Err(error) = has_fuse() {
        let why = format!("as an NBD socket, because /dev/fuse: {error}");
        return (FrontEnd::NbdSocket, Some(why));
    }
    if !process::is_root() {
        let why = "as a file, because a block device needs root".to_owned();
        return (FrontEnd::File, Some(why));
    }
    match File::open("/dev/loop-control") {
        Ok(_) => (FrontEnd::Fuse, None),
        Err(error) => {
            let why = format!("as a file, because /dev/loop-control: {error}");
            (FrontEnd::File, Some(why))
        }
    }
}

/// Whether devices of ublk can be had here, and seen: each is new, so /dev must be the kernel's own. In most containers
/// it is a copy.
fn ublk_is_here(engine: Engine) -> bool {
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    process::is_root() && ublk::available(engine).is_ok() && shows_new_devices(&mounts())
}

/// Whether devices that the kernel makes appear in /dev. `mounts`: /proc/self/mountinfo, see proc_pid_mountinfo(5).
fn shows_new_devices(mounts: &str) -> bool {
    let over_dev = |line: &&str| line.split(' ').nth(4) == Some("/dev");
    // The last one covers those before.
    let last = mounts.lines().rfind(over_dev);
    last.is_some_and(|line| line.contains(" - devtmpfs "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "24 1 0:22 / /dev rw,nosuid shared:2 - devtmpfs udev rw,size=4k\n";
    const COPY: &str = "90 80 0:51 / /dev rw,nosuid - tmpfs tmpfs rw,size=64k,mode=755\n";
    const BELOW: &str = "91 90 0:52 / /dev/pts rw - devpts devpts rw\n";

    #[test]
    fn new_devices_are_seen_where_dev_is_the_kernels() {
        assert!(shows_new_devices(&[OWN, BELOW].concat()));
        assert!(!shows_new_devices(&[COPY, BELOW].concat()));
        assert!(!shows_new_devices(&[OWN, COPY].concat()));
        assert!(!shows_new_devices(BELOW));
    }
}
