//! A disk as /dev/nbdN: sockets between this process and the kernel's NBD client.
//!
//! The other ends of the sockets are the kernel's alone, so our death is theirs: what is on its way
//! fails at once.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fabrix_attach::Tell;
use fabrix_attach::nbd::{NbdPeers, flags};
use fabrix_block::Device;
use fabrix_rt::{Remote, process};
use sys_devices::nbd_device::{NbdDevice, NbdOptions};

use crate::failure::Failure;

/// Makes a device of a disk whose requests wait no longer than `longest` for their target.
pub(super) fn begin(
    remote: &Remote,
    disk: &Arc<dyn Device>,
    longest: Duration,
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
        timeout: timeout(longest),
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

/// When the driver gives up a connection that owes it an answer. It must not before us, because it
/// never takes such a connection up again, and asks the same on another; so long behind, because a
/// request may live through two outages.
fn timeout(longest: Duration) -> Duration {
    longest.saturating_mul(2).clamp(TIMEOUT_LEAST, TIMEOUT_MOST)
}

const TIMEOUT_LEAST: Duration = Duration::from_secs(600);
/// The driver counts in ticks, a thousand a second at most, and has 31 bits for them.
const TIMEOUT_MOST: Duration = Duration::from_secs(14 * 24 * 3600);

/// The kernel has a queue for each connection; one core answers all of them.
fn connections() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores.min(CONNECTIONS_MAX)
}

const CONNECTIONS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_gives_up_long_after_us() {
        assert_eq!(timeout(Duration::from_secs(60)), TIMEOUT_LEAST);
        assert_eq!(
            timeout(Duration::from_secs(3600)),
            Duration::from_secs(7200)
        );
        assert_eq!(timeout(Duration::MAX), TIMEOUT_MOST);
    }
}
