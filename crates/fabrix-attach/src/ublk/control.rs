//! The driver's control device: what it can do, whose a device is, and its end.
//!
//! Everything here waits for the driver.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Instant;

use fabrix_proto::ublk::spec::{self, DeviceInfo};
use fabrix_rt::errno;
use sys_devices::ublk::Control;

use super::{BLOCK_DEVICE, LOOK_EVERY, NEEDED, PATIENCE};
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
    let asked = control.ask(spec::GET_FEATURES, 0, 0, &mut features);
    let features = u64::from_ne_bytes(features);
    match asked {
        Ok(_) if features & NEEDED == NEEDED => Ok(features),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err(said(Path::new(spec::CONTROL_PATH), &error))
        }
        _ => Err(BeginError(
            "the ublk of this kernel is too old: that of Linux 6.5 is needed".to_owned(),
        )),
    }
}

/// The device at `path`, if it was made with this mark.
pub(super) fn ours(
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
    let asked = control.ask(spec::GET_DEV_INFO, number, 0, &mut bytes);
    asked.map_err(|error| said(path, &error))?;
    let info = DeviceInfo::parse(bytes);
    if info.mark != mark {
        return Err(BeginError("it belongs to another program now".to_owned()));
    }
    Ok(info)
}

/// Stops and deletes a device. What was deleted meanwhile is deleted. `close` lets go of what we
/// hold of it ourselves, for a kernel that cannot delete it before.
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

/// Waits until the kernel has cleared up after a dead process, and announces another one.
pub(super) fn recover(
    control: &mut Control,
    info: &DeviceInfo,
    path: &Path,
) -> Result<(), BeginError> {
    let until = Instant::now() + PATIENCE;
    loop {
        match control.ask(spec::START_USER_RECOVERY, info.number, 0, &mut []) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < until => {
                std::thread::sleep(LOOK_EVERY);
            }
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                return Err(BeginError(format!(
                    "{} cannot be taken over: another process serves it",
                    path.display()
                )));
            }
            Err(error) => return Err(said(path, &error)),
        }
    }
}

pub(super) fn said(path: &Path, error: &io::Error) -> BeginError {
    BeginError(format!("{}: {error}", path.display()))
}
