//! A disk as /dev/nbdN: sockets between this process and the kernel's NBD client.
//!
//! The other ends of the sockets are the kernel's alone, so our death is theirs: what is on its way fails at once.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use fabrix_attach::Tell;
use fabrix_attach::nbd::{NbdPeers, flags};
use fabrix_block::Device;
use fabrix_rt::nbd_device::{NbdDevice, NbdOptions};
use fabrix_rt::{Remote, process};

use crate::failure::Failure;

/// Makes a device of a disk.
pub(super) fn begin(
    remote: &Remote,
    disk: &Arc<dyn Device>,
    tell: Tell,
) -> Result<(NbdPeers, NbdDevice), Failure> {
    let pairs: Result<Vec<_>, _> = (0..connections()).map(|_| UnixStream::pair()).collect();
    let pairs = pairs.map_err(|error| Failure::io(format!("sockets for the kernel: {error}")))?;
    let (ours, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let peers = NbdPeers::begin(remote, Arc::clone(disk), ours, tell)?;
    let options = NbdOptions {
        bytes: disk.geometry().bytes(),
        block_bytes: disk.geometry().block_bytes,
        flags: flags(&**disk),
    };
    let device = NbdDevice::connect(&theirs, &options).map_err(|error| refused(&error))?;
    if !device.path().exists() {
        let _nothing_is_lost = device.disconnect_by_force();
        return Err(Failure::usage(format!(
            "{} is not to be seen here: in a container it must be handed in (--device)",
            device.path().display()
        )));
    }
    Ok((peers, device))
}

/// Whether devices of the driver can be had here, and seen.
pub(super) fn is_here() -> bool {
    process::is_root() && NbdDevice::available().is_ok() && Path::new("/dev/nbd0").exists()
}

/// Why there is no driver, and what helps.
pub(super) fn refused(error: &std::io::Error) -> Failure {
    let sentence = match error.kind() {
        ErrorKind::NotFound => "the kernel's NBD client is not here: load it (modprobe nbd)",
        ErrorKind::PermissionDenied => {
            "the kernel's NBD client is not ours to use: that needs CAP_SYS_ADMIN"
        }
        _ => return Failure::io(format!("the kernel's NBD client says: {error}")),
    };
    Failure::usage(format!(
        "{sentence}; --as fuse gives a block device without it"
    ))
}

/// The kernel has a queue for each connection; one core answers all of them.
fn connections() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores.min(CONNECTIONS_MAX)
}

const CONNECTIONS_MAX: usize = 4;
