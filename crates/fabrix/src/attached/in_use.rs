//! Why a device or a socket cannot be detached without force.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::failure::Failure;

/// The reason why a block device is still there.
pub(super) fn not_ended(path: &Path, error: &io::Error) -> Failure {
    if error.kind() != ErrorKind::ResourceBusy {
        return Failure::io(format!(
            "{}: {error}: what was written there may not be on the disk (--force takes it away all the same)",
            path.display()
        ));
    }
    match &mounted_at(path)[..] {
        [] => in_use(
            path,
            "swap, another driver or a mount of another namespace has claimed it",
        ),
        [place, ..] => in_use(
            path,
            &format!("it is mounted at {place}; unmount that first"),
        ),
    }
}

pub(super) fn in_use(path: &Path, how: &str) -> Failure {
    Failure::io(format!(
        "{} is in use: {how} (--force takes it away all the same)",
        path.display()
    ))
}

/// Mount points of a block device and its partitions in this mount namespace.
fn mounted_at(device: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let device = device.display().to_string();
    let source = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let source = after.split(' ').nth(1)?;
        let rest = source.strip_prefix(&device)?;
        let is_ours = rest.is_empty() || rest.starts_with('p');
        let place = before.split(' ').nth(4)?;
        is_ours.then(|| place.replace("\\040", " "))
    };
    table.lines().filter_map(source).collect()
}
