//! The size of a block device as shown by sysfs. The device itself is not opened: its disk may be
//! slow, and another program may use it.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use crate::failure::Failure;

/// Unit of sizes in sysfs, in bytes, independent of the device's block size. Source: the kernel's
/// Documentation/ABI/stable/sysfs-block.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Checks that a block device has the size of its disk.
///
/// # Errors
/// The size differs or is unknown.
pub(super) fn is(device: &Path, disk_bytes: u64) -> Result<(), Failure> {
    let bytes = of(device)?;
    if bytes == disk_bytes {
        return Ok(());
    }
    Err(Failure::io(format!(
        "the kernel gives {} a size of {bytes} bytes, and the disk has {disk_bytes}: try another front end (--as)",
        device.display()
    )))
}

/// Size of a block device in bytes.
///
/// # Errors
/// The size is unknown.
pub(super) fn of(device: &Path) -> Result<u64, Failure> {
    let name = device.file_name().unwrap_or_default();
    let file = Path::new("/sys/block").join(name).join("size");
    let unknown = |why: &dyn Display| {
        Failure::io(format!(
            "the size of {} is not known: {}: {why}",
            device.display(),
            file.display()
        ))
    };
    let text = fs::read_to_string(&file).map_err(|error| unknown(&error))?;
    let sectors: u64 = text.trim().parse().map_err(|error| unknown(&error))?;
    Ok(sectors * SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_the_kernel_does_not_have_has_no_size() {
        let failure = of(Path::new("/dev/no-such-device")).expect_err("there is none");
        let sentence = failure.to_string();
        assert!(
            sentence.contains("/sys/block/no-such-device/size"),
            "{sentence}"
        );
    }

    #[test]
    fn a_device_of_another_size_than_its_disk_is_an_error() {
        let devices = fs::read_dir("/sys/block").ok();
        let name = devices.and_then(|mut devices| Some(devices.next()?.ok()?.file_name()));
        let Some(name) = name else {
            return println!("SKIPPED: a_device_of_another_size: this machine has no block device");
        };
        let device = Path::new("/dev").join(name);
        let bytes = of(&device).expect("the kernel tells");
        is(&device, bytes).expect("it has its own size");
        let failure = is(&device, bytes + 512).expect_err("it has another size");
        for part in [&bytes, &(bytes + 512)].map(u64::to_string) {
            assert!(failure.to_string().contains(&part), "{failure}");
        }
    }
}
