//! A disk as a file over FUSE, and as a loop device over that file.
//!
//! Mounting runs on a control thread, because the kernel sends requests to the shard meanwhile.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use fabrix_attach::EventHandler;
use fabrix_attach::fuse::{FuseFile, KernelRing};
use fabrix_block::Device;
use fabrix_rt::{Remote, process};
use sys_devices::loop_device::{LoopDevice, LoopOptions};
use sys_devices::mounts::{self, Unmount};

use super::in_use::not_ended;
use crate::args::FrontEnd;
use crate::failure::Failure;

/// Whether FUSE is available. For users other than root, a setuid helper opens the device, so they
/// need no permission on it.
pub(crate) fn has_fuse() -> io::Result<()> {
    match process::is_root() {
        true => mounts::open_fuse().map(drop),
        false => fs::metadata("/dev/fuse").map(drop),
    }
}

/// The error for missing FUSE, with a remedy.
pub(super) fn no_fuse(error: &io::Error) -> Failure {
    let fix = match error.kind() {
        ErrorKind::NotFound => {
            "load the module fuse, or hand the device into the container (--device /dev/fuse)"
        }
        ErrorKind::PermissionDenied => "it is not yours to open",
        _ => "the kernel has no FUSE",
    };
    Failure::usage(format!(
        "/dev/fuse: {error}: {fix}; --as nbd-socket works without it"
    ))
}

/// Whether the kernel would send this front end's requests over io_uring.
pub(super) fn asks_over_uring(kind: FrontEnd) -> bool {
    matches!(kind, FrontEnd::Fuse | FrontEnd::File) && KernelRing::look() == KernelRing::On
}

/// Serves the disk as a file, mounted at `place`.
pub(super) fn begin_file(
    place: &Path,
    remote: &Remote,
    disk: &Arc<dyn Device>,
    on_event: EventHandler,
) -> Result<FuseFile, Failure> {
    let cannot = Failure::at(place);
    let made = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(place);
    let made = made.and_then(|file| file.metadata()).map_err(cannot)?;
    let owner = (made.uid(), made.gid());
    let begin = |device: File| {
        let begun = FuseFile::begin(remote, Arc::clone(disk), device, owner, on_event);
        begun.inspect_err(|_| {
            let _stays_in_sight = mounts::unmount(place, Unmount::Lazily);
        })
    };
    if process::is_root() {
        let device = mounts::open_fuse().map_err(|error| no_fuse(&error))?;
        let mounted = mounts::mount_fuse_file(&device, place, "");
        mounted.map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => Failure::usage(
                "a file over FUSE is mounted, and that needs CAP_SYS_ADMIN; --as nbd-socket works without it",
            ),
            _ => cannot(error),
        })?;
        return Ok(begin(device)?);
    }
    let device = mounts::mount_fuse_file_by_helper(place, "").map_err(|error| {
        let fix = match error.kind() {
            ErrorKind::NotFound => "it comes with the package fuse3, and ",
            _ => "",
        };
        Failure::usage(format!(
            "fusermount3: {error}; {fix}--as nbd-socket works without it"
        ))
    })?;
    Ok(begin(device)?)
}

/// Creates a loop device over the file at `place`. Also returns the file opened with O_PATH, for
/// reading its size.
pub(super) fn begin_loop(
    name: &str,
    place: &Path,
    disk: &Arc<dyn Device>,
) -> Result<(LoopDevice, File), Failure> {
    let geometry = disk.geometry();
    let cannot = Failure::at(place);
    let file = OpenOptions::new()
        .read(true)
        .write(!geometry.read_only)
        .open(place)
        .map_err(cannot)?;
    let options = LoopOptions {
        block_bytes: geometry.block_bytes,
        read_only: geometry.read_only,
        name: loop_name(name),
    };
    let look = OpenOptions::new()
        .read(true)
        .custom_flags(O_PATH)
        .open(place)
        .map_err(cannot)?;
    let device = LoopDevice::attach(&file, &options).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::usage(format!(
            "there is no loop device here ({error}): load the module loop, or use --as file"
        )),
        ErrorKind::PermissionDenied => Failure::usage(format!(
            "a loop device is not to be had ({error}): in a container it must be allowed; --as file and \
             --as nbd-socket work without it"
        )),
        _ => Failure::io(format!("the loop driver says: {error}")),
    })?;
    Ok((device, look))
}

/// Detaches a loop device. Without `force` it fails if the device is claimed.
pub(super) fn end_loop(device: &LoopDevice, force: bool) -> Result<(), Failure> {
    let ended = if force {
        device.detach_by_force()
    } else {
        device.detach()
    };
    match ended {
        Ok(()) => Ok(()),
        // Another program has already detached it, which is the desired state.
        Err(error) if is_empty(&error) => Ok(()),
        Err(error) => Err(not_ended(device.path(), &error)),
    }
}

fn is_empty(error: &io::Error) -> bool {
    error.raw_os_error() == Some(fabrix_rt::errno::ENXIO)
}

/// Whether a loop device remains from a dead attachment of this name. The file of a dead FUSE
/// server has no readable name. Such a device is useless to everybody, so it counts too.
pub(super) fn is_left(device: &LoopDevice, name: &str) -> bool {
    let gone = [ErrorKind::NotConnected, ErrorKind::ConnectionAborted];
    match device.name() {
        Ok(found) => found == loop_name(name),
        Err(error) => gone.contains(&error.kind()),
    }
}

/// Name of an attachment's file in its loop device.
fn loop_name(name: &str) -> String {
    format!("fabrix:{name}")
}

/// O_PATH avoids a real open: closing a real one sends a request to the shard, which would block
/// when the shard is dead.
const O_PATH: i32 = fabrix_rt::errno::O_PATH;
