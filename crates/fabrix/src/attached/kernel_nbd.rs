//! A disk as /dev/nbdN: this process serves a socket of the kernel's NBD client.
//!
//! Only the kernel has the other end of the socket. If this process dies, it closes. New requests
//! fail at once, and those in progress when the device is disconnected.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fabrix_attach::EventHandler;
use fabrix_attach::nbd::{NbdPeer, flags};
use fabrix_block::Device;
use fabrix_rt::{Remote, process};
use sys_devices::nbd_device::{NbdDevice, NbdOptions};

use crate::failure::Failure;

/// Creates a device of a disk whose requests wait at most `longest` for the target.
pub(super) fn begin(
    remote: &Remote,
    disk: &Arc<dyn Device>,
    longest: Duration,
    on_event: EventHandler,
) -> Result<(NbdPeer, NbdDevice), Failure> {
    let pair = UnixStream::pair();
    let pair = pair.map_err(|error| Failure::io(format!("a socket for the kernel: {error}")))?;
    let (ours, theirs) = pair;
    let peer = NbdPeer::begin(remote, Arc::clone(disk), ours, on_event)?;
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
    Ok((peer, device))
}

/// Whether NBD devices are available and visible here.
pub(super) fn is_here() -> bool {
    process::is_root() && NbdDevice::available().is_ok() && Path::new("/dev/nbd0").exists()
}

/// The error for a missing driver, with a remedy.
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

/// The driver's timeout for an unanswered request. It must be longer than our own, because the
/// driver then gives the connection up, and with it the device. The factor 2 covers a request that
/// lives through two outages.
fn timeout(longest: Duration) -> Duration {
    longest.saturating_mul(2).clamp(TIMEOUT_LEAST, TIMEOUT_MOST)
}

const TIMEOUT_LEAST: Duration = Duration::from_secs(600);
/// The driver counts the timeout in up to 1000 ticks per second, in 31 bits.
const TIMEOUT_MOST: Duration = Duration::from_secs(14 * 24 * 3600);

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
