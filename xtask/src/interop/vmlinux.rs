//! The kernel as it lies in memory, out of the compressed image that a package has.
//!
//! An emulated processor takes seconds to unpack a kernel, in every guest; here it is done once.
//! The layout of the image is in Linux's Documentation/arch/x86/boot.rst. QEMU starts such a kernel
//! at the entry that it names for virtual machines (PVH).

use crate::process::command;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

/// What unpacks it, from Debian's xz-utils.
pub(super) const PROGRAM: &str = "xz";

/// The number of sectors of the set-up code, one byte; one more sector, the first, is before them.
const SETUP_SECTORS_AT: usize = 0x1f1;
const SECTOR_BYTES: usize = 512;
/// Where the compressed kernel begins, behind the set-up code, and how long it is: 32 bits each.
const PAYLOAD_AT: usize = 0x248;
const PAYLOAD_BYTES_AT: usize = 0x24c;
/// What an xz stream begins with.
const XZ: &[u8] = b"\xfd7zXZ\0";

/// Writes the kernel of `image` to `unpacked`. Writes nothing where it is not compressed with xz:
/// then the guests unpack it.
///
/// # Errors
/// The image cannot be read, its stream is broken, or the kernel cannot be written.
pub(super) fn unpack(image: &Path, unpacked: &Path) -> Result<(), String> {
    let bytes = fs::read(image);
    let bytes = bytes.map_err(|error| format!("cannot read {}: {error}", image.display()))?;
    let Some(stream) = stream(&bytes) else {
        return Ok(());
    };
    // Nobody takes half a kernel for a kernel.
    let fresh = unpacked.with_extension("new");
    let cannot = |error| format!("cannot write {}: {error}", fresh.display());
    let file = File::create(&fresh).map_err(cannot)?;
    decompress(stream, file).map_err(|why| format!("{}: {why}", image.display()))?;
    fs::rename(&fresh, unpacked).map_err(cannot)
}

fn decompress(stream: &[u8], to: File) -> Result<(), String> {
    let mut xz = command(PROGRAM);
    // The length of the kernel stands behind the stream.
    xz.args(["--decompress", "--stdout", "--single-stream"]);
    let started = xz.stdin(Stdio::piped()).stdout(to).spawn();
    let mut xz = started.map_err(|error| format!("cannot start {PROGRAM}: {error}"))?;
    let mut input = xz.stdin.take().expect("it was asked for");
    // Where it does not read on, its status says so.
    let _fed = input.write_all(stream);
    drop(input);
    match xz.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{PROGRAM} ended with {status}")),
        Err(error) => Err(format!("cannot wait for {PROGRAM}: {error}")),
    }
}

/// The compressed kernel in an image, if it is compressed with xz.
fn stream(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let code = (usize::from(*image.get(SETUP_SECTORS_AT)?) + 1) * SECTOR_BYTES;
    let begin = code.checked_add(number(PAYLOAD_AT)?)?;
    let end = begin.checked_add(number(PAYLOAD_BYTES_AT)?)?;
    let stream = image.get(begin..end)?;
    stream.starts_with(XZ).then_some(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 3 * SECTOR_BYTES];
        image[SETUP_SECTORS_AT] = 1;
        image[PAYLOAD_AT] = 16;
        image[PAYLOAD_BYTES_AT] = u8::try_from(payload.len()).expect("short");
        image[2 * SECTOR_BYTES + 16..][..payload.len()].copy_from_slice(payload);
        image
    }

    #[test]
    fn a_kernel_is_where_the_header_of_its_image_says() {
        let payload = [XZ, b"kernel"].concat();
        assert_eq!(stream(&image(&payload)), Some(&payload[..]));
        let other = [b"\x28\xb5\x2f\xfd", &payload[..]].concat();
        assert_eq!(stream(&image(&other)), None);
        assert_eq!(stream(&image(&payload)[..2 * SECTOR_BYTES + 20]), None);
        assert_eq!(stream(b"MZ"), None);
    }
}
