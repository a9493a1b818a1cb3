//! Mounting and unmounting.

use std::ffi::CStr;
use std::io;

use super::check;

/// mount(2) without a remount.
pub(crate) fn mount(
    source: &CStr,
    place: &CStr,
    kind: &CStr,
    flags: libc::c_ulong,
    options: &CStr,
) -> io::Result<()> {
    // SAFETY: four strings that end with a zero and live through the call; the kernel reads them
    // only.
    // WHY UNSAFE: std does not mount.
    check(unsafe {
        libc::mount(
            source.as_ptr(),
            place.as_ptr(),
            kind.as_ptr(),
            flags,
            options.as_ptr().cast(),
        )
    })?;
    Ok(())
}

/// umount2(2).
pub(crate) fn unmount(place: &CStr, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: a string that ends with a zero and lives through the call.
    // WHY UNSAFE: std does not unmount.
    check(unsafe { libc::umount2(place.as_ptr(), flags) })?;
    Ok(())
}
