//! Random bytes of the kernel, for what nobody may guess.

use std::io;

/// Fills `bytes` with random bytes; waits only while the machine starts and has gathered none yet.
pub(crate) fn fill(mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the pointer and the length are those of one slice that we borrow mutably for the
        // call.
        // WHY UNSAFE: the standard library has no interface to the kernel's generator.
        let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match super::check_bytes(filled) {
            Ok(filled) => bytes = &mut bytes[filled..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
