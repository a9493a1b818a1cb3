//! What an attachment leaves on this machine when its process has died, and what the kernel keeps
//! without one.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

use fabrix_attach::ublk::{self, Left};
use sys_devices::loop_device::LoopDevice;
use sys_devices::mounts::{self, Unmount};
use sys_devices::nbd_device::NbdDevice;

use super::Record;
use crate::attached::kernel_fuse::is_left;
use crate::machine::read;

/// Whether the record's process has left a device with waiting users.
pub(crate) fn waits(record: &Record) -> bool {
    record.front_end == FRONT_END
        && ublk::left(&record.device, ublk::mark(&record.name)) == Left::Waiting
}

/// Whether the record's controller still exists with the same subsystem.
pub(crate) fn lives(record: &Record) -> bool {
    let Some(controller) = &record.controller else {
        return false;
    };
    let nqn = read(Path::new(CONTROLLERS).join(controller).join("subsysnqn"));
    nqn.is_some() && nqn == record.subsystem
}

/// Removes the remains of a dead process: a device with waiting users, a loop device without file,
/// or a dead mount.
pub(crate) fn remove_leftovers(record: &Record, place: &Path) {
    if record.front_end == FRONT_END {
        let _somebody_else_did = ublk::remove_dead_device(&record.device, ublk::mark(&record.name));
    }
    let device = LoopDevice::at(&record.device);
    if record.front_end == "fuse" && is_left(&device, &record.name) {
        let _somebody_else_did = device.detach_by_force();
    }
    let nbd = NbdDevice::at(&record.device).filter(|nbd| nbd.owner() == Some(record.pid));
    if let Some(nbd) = nbd {
        let _somebody_else_did = nbd.disconnect_by_force();
    }
    let is_socket = matches!(record.front_end.as_str(), "nbd-socket" | "vhost-user");
    let is_file = record.device.is_absolute(); // a TCP port ends with its process
    if is_socket && is_file && UnixStream::connect(&record.device).is_err() {
        let _was_not_there = fs::remove_file(&record.device);
    }
    let _nothing_is_mounted = mounts::unmount(place, Unmount::Lazily);
}

/// Name of the front end ublk in records.
pub(crate) const FRONT_END: &str = "ublk";
/// Controllers of the kernel's NVMe host.
pub(crate) const CONTROLLERS: &str = "/sys/class/nvme";
