//! Mounting and unmounting a FUSE file system of one file.
//!
//! With the privilege to mount this module uses system calls, without it the helper `fusermount3`.
//! It does not know what the file holds.

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::sys;

/// Ways to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Only if nobody uses the mount.
    Unused,
    /// Detaches the mount now. The kernel ends it when nobody uses it any more (MNT_DETACH).
    Lazily,
}

/// Opens /dev/fuse in the nonblocking mode that [`Op::TakeMessage`](fabrix_rt::Op::TakeMessage)
/// needs.
///
/// Errors: `NotFound` without FUSE, `PermissionDenied` without the right to use it.
pub fn open_fuse() -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(FUSE)
}

/// Mounts the file system of `device`, an open /dev/fuse, over the regular file `place`. `options`
/// are mount options of the kernel beside those that this function sets itself.
///
/// Errors: `PermissionDenied` without the privilege to mount, and what mount(2) says.
pub fn mount_fuse_file(device: &std::fs::File, place: &Path, options: &str) -> io::Result<()> {
    let ids = std::fs::metadata("/proc/self")?;
    let (user, group) = {
        use std::os::unix::fs::MetadataExt;
        (ids.uid(), ids.gid())
    };
    let fixed = format!(
        "fd={},rootmode=100000,user_id={user},group_id={group}",
        device.as_raw_fd()
    );
    let all = if options.is_empty() {
        fixed
    } else {
        format!("{fixed},{options}")
    };
    sys::mount::mount(
        c"fabrix",
        &c_path(place)?,
        c"fuse.fabrix",
        libc::MS_NOSUID | libc::MS_NODEV,
        &CString::new(all)?,
    )
}

/// Mounts by the setuid helper `fusermount3`. The helper opens /dev/fuse and hands it over; this
/// function returns it.
///
/// Errors: `NotFound` without the helper, and what the helper says.
pub fn mount_fuse_file_by_helper(place: &Path, options: &str) -> io::Result<std::fs::File> {
    let (ours, theirs) = UnixStream::pair()?;
    sys::descriptors::inherit(theirs.as_fd())?;
    let mut helper = Command::new(HELPER);
    helper
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let named = format!("fsname=fabrix,subtype=fabrix,nosuid,nodev,{options}");
    helper.arg("-o").arg(named.trim_end_matches(','));
    let mut child = helper.arg("--").arg(place).spawn()?;
    drop(theirs);
    let received = crate::descriptors::receive_one(&ours);
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _unread = stderr.read_to_string(&mut said);
    }
    let status = child.wait()?;
    if !status.success() {
        return Err(io::Error::other(said.trim().to_owned()));
    }
    let device = std::fs::File::from(received?);
    sys::descriptors::set_nonblocking(device.as_fd())?;
    Ok(device)
}

/// Unmounts the file system at `place`, by the helper if this process has no privilege.
///
/// Errors: `ResourceBusy` for a mount in use, and what umount2(2) or the helper says.
pub fn unmount(place: &Path, how: Unmount) -> io::Result<()> {
    let flags = libc::UMOUNT_NOFOLLOW
        | match how {
            Unmount::Unused => 0,
            Unmount::Lazily => libc::MNT_DETACH,
        };
    match sys::mount::unmount(&c_path(place)?, flags) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => by_helper(place, how),
        done => done,
    }
}

fn by_helper(place: &Path, how: Unmount) -> io::Result<()> {
    let flags: &[&str] = match how {
        Unmount::Unused => &["-u"],
        Unmount::Lazily => &["-u", "-z"],
    };
    let ended = Command::new(HELPER)
        .args(flags)
        .arg("--")
        .arg(place)
        .output()?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
    let kind = if said.contains("busy") {
        io::ErrorKind::ResourceBusy
    } else {
        io::ErrorKind::Other
    };
    Err(io::Error::new(kind, said))
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

const FUSE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
