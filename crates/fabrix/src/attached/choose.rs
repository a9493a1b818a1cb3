//! Selects the front ends for a disk: the requested one, or all that this machine and user can
//! have, best first.
//!
//! Nothing is started here.

use std::fs::{self, File};

use fabrix_attach::ublk;
use fabrix_rt::{Engine, process};
use sys_devices::nbd_device::NbdDevice;

use super::kernel_fuse::{has_fuse, no_fuse};
use super::kernel_nbd;
use crate::args::FrontEnd;
use crate::failure::Failure;

/// A front end to try, or the reason why a better one is not available.
pub(crate) type Candidate = Result<FrontEnd, String>;

/// The front ends to try, in order.
pub(crate) fn choose(
    wanted: FrontEnd,
    (socket, listen): (bool, bool),
    engine: Engine,
) -> Result<Vec<Candidate>, Failure> {
    if wanted == FrontEnd::Auto && !socket && !listen {
        return Ok(best_first(engine));
    }
    one(wanted, (socket, listen), engine).map(|kind| vec![Ok(kind)])
}

/// Checks the requested front end.
fn one(
    wanted: FrontEnd,
    (socket, listen): (bool, bool),
    engine: Engine,
) -> Result<FrontEnd, Failure> {
    let takes_socket = matches!(
        wanted,
        FrontEnd::Auto | FrontEnd::NbdSocket | FrontEnd::VhostUser
    );
    if socket && !takes_socket {
        let sentence = "--socket is for --as nbd-socket and --as vhost-user";
        return Err(Failure::usage(sentence));
    }
    if listen && !matches!(wanted, FrontEnd::Auto | FrontEnd::NbdSocket) {
        return Err(Failure::usage("--listen is for --as nbd-socket"));
    }
    match wanted {
        FrontEnd::Auto => Ok(FrontEnd::NbdSocket),
        FrontEnd::Ublk | FrontEnd::Nbd | FrontEnd::Fuse if !process::is_root() => {
            Err(Failure::usage(
                "a block device needs root; as this user, --as file gives a file and --as nbd-socket a socket",
            ))
        }
        FrontEnd::Ublk => match ublk::available(engine) {
            Err(why) => Err(Failure::usage(format!(
                "there is no ublk here: {why}; --as fuse gives a block device too"
            ))),
            Ok(()) => Ok(wanted),
        },
        FrontEnd::Nbd => match NbdDevice::available() {
            Err(error) => Err(kernel_nbd::refused(&error)),
            Ok(()) => Ok(wanted),
        },
        FrontEnd::Fuse | FrontEnd::File => match has_fuse() {
            Err(error) => Err(no_fuse(&error)),
            Ok(()) => Ok(wanted),
        },
        FrontEnd::NbdSocket | FrontEnd::VhostUser => Ok(wanted),
        FrontEnd::Kernel => Err(Failure::usage(
            "--as kernel leaves nothing running: leave out --foreground",
        )),
    }
}

/// The front ends that seem available. Only starting one proves it.
fn best_first(engine: Engine) -> Vec<Candidate> {
    let mut all = Vec::new();
    if process::is_root() {
        let refused = |why| format!("ublk: {why}");
        all.push(check_ublk(engine).map(|()| FrontEnd::Ublk).map_err(refused));
        all.push(match kernel_nbd::is_here() {
            true => Ok(FrontEnd::Nbd),
            false => Err("nbd: the kernel's nbd module is not loaded (`modprobe nbd`)".to_owned()),
        });
    } else {
        all.push(Err("a block device needs root".to_owned()));
    }
    match has_fuse() {
        Err(error) => all.push(Err(format!("/dev/fuse: {error}"))),
        Ok(()) => {
            if process::is_root() {
                let control = File::open("/dev/loop-control");
                let why = |error| format!("/dev/loop-control: {error}");
                all.push(control.map(|_| FrontEnd::Fuse).map_err(why));
            }
            all.push(Ok(FrontEnd::File));
        }
    }
    all.push(Ok(FrontEnd::NbdSocket));
    all
}

/// Checks whether ublk devices are available and visible here. Every ublk device is new, so /dev
/// must be the kernel's devtmpfs. Most containers have a copy of it instead.
fn check_ublk(engine: Engine) -> Result<(), String> {
    ublk::available(engine).map_err(|why| why.to_string())?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    match shows_new_devices(&mounts) {
        true => Ok(()),
        false => Err("/dev is a copy that shows no new devices".to_owned()),
    }
}

/// Whether new kernel devices appear in /dev. `mounts` is the text of /proc/self/mountinfo, see
/// proc_pid_mountinfo(5).
fn shows_new_devices(mounts: &str) -> bool {
    let over_dev = |line: &&str| line.split(' ').nth(4) == Some("/dev");
    // The last mount covers the earlier ones.
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
