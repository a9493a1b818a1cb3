//! Operations on the ublk control device: features, ownership and removal of devices.
//!
//! All functions wait for the driver.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Instant;

use fabrix_proto::ublk::spec::{self, DeviceInfo};
use fabrix_rt::errno;
use sys_devices::ublk::Control;

use super::{BLOCK_DEVICE, NEEDED, POLL_INTERVAL, TIMEOUT};
use crate::BeginError;

pub(super) fn control() -> Result<Control, BeginError> {
    Control::open(Path::new(spec::CONTROL_PATH)).map_err(|error| no_driver(&error))
}

pub(super) fn no_driver(error: &io::Error) -> BeginError {
    let fix = match error.kind() {
        ErrorKind::NotFound => {
            "load the module ublk_drv (Linux 6.5 or later with CONFIG_BLK_DEV_UBLK), or hand the device into the \
             container"
        }
        ErrorKind::PermissionDenied => "it takes root, with CAP_SYS_ADMIN",
        _ => "the kernel does not let us",
    };
    BeginError(format!("{}: {error}: {fix}", spec::CONTROL_PATH))
}

pub(super) fn features(control: &mut Control) -> Result<u64, BeginError> {
    let mut features = [0; size_of::<u64>()];
    let done = control.ask(spec::GET_FEATURES, 0, 0, &mut features);
    let features = u64::from_ne_bytes(features);
    match done {
        Ok(_) if features & NEEDED == NEEDED => Ok(features),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err(with_path(Path::new(spec::CONTROL_PATH), &error))
        }
        _ => Err(BeginError(
            "the ublk of this kernel is too old: that of Linux 6.5 is needed".to_owned(),
        )),
    }
}

/// The device at `path`, if it was created with this mark.
pub(super) fn find_own(
    control: &mut Control,
    path: &Path,
    mark: u64,
) -> Result<DeviceInfo, BeginError> {
    let number = path
        .to_str()
        .and_then(|path| path.strip_prefix(BLOCK_DEVICE));
    let number = number.and_then(|number| number.parse::<u32>().ok());
    let number = number.ok_or_else(|| BeginError("it is no ublk device".to_owned()))?;
    let mut bytes = [0; DeviceInfo::BYTES];
    let done = control.ask(spec::GET_DEV_INFO, number, 0, &mut bytes);
    done.map_err(|error| with_path(path, &error))?;
    let info = DeviceInfo::parse(bytes);
    if info.mark != mark {
        return Err(BeginError("it belongs to another program now".to_owned()));
    }
    Ok(info)
}

/// Stops and deletes a device. A device that is already gone counts as deleted. Older kernels
/// delete a device only after this process has closed it: `close` does so.
pub(super) fn remove(control: &mut Control, number: u32, close: impl FnOnce()) -> io::Result<()> {
    let gone = |error: &io::Error| error.raw_os_error() == Some(errno::ENODEV);
    let done = |result: io::Result<u32>| match result {
        Err(error) if !gone(&error) => Err(error),
        _ => Ok(()),
    };
    done(control.ask(spec::STOP_DEV, number, 0, &mut []))?;
    match control.ask(spec::DEL_DEV_ASYNC, number, 0, &mut []) {
        Err(error) if error.raw_os_error() == Some(errno::EOPNOTSUPP) => {
            close();
            done(control.ask(spec::DEL_DEV, number, 0, &mut []))
        }
        deleted => done(deleted),
    }
}

/// Waits until the kernel has cleaned up after a dead process, and starts the recovery.
pub(super) fn recover(
    control: &mut Control,
    info: &DeviceInfo,
    path: &Path,
) -> Result<(), BeginError> {
    let until = Instant::now() + TIMEOUT;
    loop {
        match control.ask(spec::START_USER_RECOVERY, info.number, 0, &mut []) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < until => {
                std::thread::sleep(POLL_INTERVAL);
            }
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                return Err(BeginError(format!(
                    "{} cannot be taken over: another process serves it",
                    path.display()
                )));
            }
            Err(error) => return Err(with_path(path, &error)),
        }
    }
}

pub(super) fn with_path(path: &Path, error: &io::Error) -> BeginError {
    BeginError(format!("{}: {error}", path.display()))
}
