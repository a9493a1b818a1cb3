//! Random bytes of the kernel.

use std::io;

/// Fills `bytes` with random bytes that nobody can guess.
///
/// # Errors
/// The kernel is older than Linux 3.17, or a seccomp filter forbids the call.
pub fn fill(mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: pointer and length are those of one slice, which is borrowed mutably during the
        // call. WHY UNSAFE: the standard library has no interface to the kernel's generator.
        let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match super::check_bytes(filled) {
            Ok(filled) => bytes = &mut bytes[filled..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
