//! The ways a disk can look on this machine: a block device, a file, a socket. Begins them and ends them.
//!
//! Everything here runs on a control thread and may wait for the kernel; the shard that answers the kernel is another.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fabrix_attach::fuse::FuseFile;
use fabrix_attach::nbd::{NbdPeers, NbdSocket};
use fabrix_attach::ublk::{self, UblkDisk};
use fabrix_attach::vhost::VhostSocket;
use fabrix_attach::{BeginError, Tell};
use fabrix_block::Device;
use fabrix_rt::loop_device::{LoopDevice, LoopOptions};
use fabrix_rt::mounts::{self, Unmount};
use fabrix_rt::nbd_device::NbdDevice;
use fabrix_rt::{Engine, Remote, process};

use super::kernel_nbd;
use super::records::{Claim, Record};
use super::takeover::FRONT_END;
use crate::api::bind;
use crate::args::{AttachArgs, FrontEnd};
use crate::failure::{Failure, Kind};

/// A disk that can be seen.
pub(crate) enum Front {
    /// A device of the kernel's ublk driver.
    Ublk(UblkDisk),
    /// A loop device over a file that nobody else sees.
    Loop {
        file: FuseFile,
        device: LoopDevice,
        /// The file, not opened: to look at its size. It keeps the mount, so it has to go when the device is gone.
        look: Mutex<Option<File>>,
    },
    /// A file.
    File { file: FuseFile, place: PathBuf },
    /// A device of the kernel's NBD client.
    Nbd { peers: NbdPeers, device: NbdDevice },
    /// A socket.
    NbdSocket { socket: NbdSocket, path: PathBuf },
    /// A socket for virtual machines.
    Vhost { socket: VhostSocket, path: PathBuf },
}

/// Which front end it will be, and why, where the user has not said.
pub(crate) fn choose(
    wanted: FrontEnd,
    socket: bool,
    engine: Engine,
) -> Result<(FrontEnd, Option<String>), Failure> {
    let takes_socket = matches!(
        wanted,
        FrontEnd::Auto | FrontEnd::NbdSocket | FrontEnd::VhostUser
    );
    if socket && !takes_socket {
        let sentence = "--socket is for --as nbd-socket and --as vhost-user";
        return Err(Failure::usage(sentence));
    }
    match wanted {
        FrontEnd::Auto if socket => Ok((FrontEnd::NbdSocket, None)),
        FrontEnd::Auto => Ok(best(engine)),
        FrontEnd::Nbd | FrontEnd::Fuse if !process::is_root() => Err(Failure::usage(
            "a block device needs root; as this user, --as file gives a file and --as nbd-socket a socket",
        )),
        FrontEnd::Ublk => match ublk::available(engine) {
            Err(why) => Err(Failure::usage(format!(
                "there is no ublk here: {why}; --as fuse gives a block device too"
            ))),
            Ok(()) => Ok((wanted, None)),
        },
        FrontEnd::Nbd => match NbdDevice::available() {
            Err(error) => Err(kernel_nbd::refused(&error)),
            Ok(()) => Ok((wanted, None)),
        },
        FrontEnd::Fuse | FrontEnd::File => match has_fuse() {
            Err(error) => Err(no_fuse(&error)),
            Ok(()) => Ok((wanted, None)),
        },
        FrontEnd::NbdSocket | FrontEnd::VhostUser => Ok((wanted, None)),
        FrontEnd::Kernel => Err(Failure::usage(
            "--as kernel leaves nothing running: leave out --foreground",
        )),
    }
}

/// Whether there is FUSE. Who is not root asks a helper that is, so it need not be his to open.
fn has_fuse() -> io::Result<()> {
    match process::is_root() {
        true => mounts::open_fuse().map(drop),
        false => fs::metadata("/dev/fuse").map(drop),
    }
}

/// The best that can be had; why, where that is no block device.
fn best(engine: Engine) -> (FrontEnd, Option<String>) {
    if ublk_is_here(engine) {
        return (FrontEnd::Ublk, None);
    }
    if kernel_nbd::is_here() {
        return (FrontEnd::Nbd, None);
    }
    if let Err(error) = has_fuse() {
        let why = format!("as an NBD socket, because /dev/fuse: {error}");
        return (FrontEnd::NbdSocket, Some(why));
    }
    if !process::is_root() {
        let why = "as a file, because a block device needs root".to_owned();
        return (FrontEnd::File, Some(why));
    }
    match File::open("/dev/loop-control") {
        Ok(_) => (FrontEnd::Fuse, None),
        Err(error) => {
            let why = format!("as a file, because /dev/loop-control: {error}");
            (FrontEnd::File, Some(why))
        }
    }
}

/// Whether devices of ublk can be had here, and seen: each is new, so /dev must be the kernel's own. In most containers
/// it is a copy.
fn ublk_is_here(engine: Engine) -> bool {
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    process::is_root() && ublk::available(engine).is_ok() && shows_new_devices(&mounts())
}

/// Whether devices that the kernel makes appear in /dev. `mounts`: /proc/self/mountinfo, see proc_pid_mountinfo(5).
fn shows_new_devices(mounts: &str) -> bool {
    let over_dev = |line: &&str| line.split(' ').nth(4) == Some("/dev");
    // The last one covers those before.
    let last = mounts.lines().rfind(over_dev);
    last.is_some_and(|line| line.contains(" - devtmpfs "))
}

fn no_fuse(error: &io::Error) -> Failure {
    let fix = match error.kind() {
        ErrorKind::NotFound => {
            "load the module fuse, or hand the device into the container (--device /dev/fuse)"
        }
        ErrorKind::PermissionDenied => "it is not yours to open",
        _ => "the kernel has no FUSE",
    };
    Failure::usage(format!(
        "/dev/fuse: {error}: {fix}; --as nbd-socket works without it"
    ))
}

impl Front {
    /// Begins, on the shard of `remote`.
    pub(crate) fn begin(
        kind: FrontEnd,
        claim: &Claim,
        (args, left): (&AttachArgs, Option<&Record>),
        (remote, disk): (&Remote, &Arc<dyn Device>),
        tell: Tell,
    ) -> Result<Self, Failure> {
        if kind == FrontEnd::Ublk {
            let mark = ublk::mark(&claim.name);
            return Ok(Self::Ublk(match left {
                Some(left) => UblkDisk::take_over(remote, disk, (&left.device, mark), tell)?,
                None => UblkDisk::begin(remote, disk, mark, tell)?,
            }));
        }
        if kind == FrontEnd::Nbd {
            let (peers, device) =
                kernel_nbd::begin(remote, disk, args.remote.fast_io_fail_tmo, tell)?;
            return Ok(Self::Nbd { peers, device });
        }
        if kind == FrontEnd::NbdSocket {
            let (listener, path) = listen(claim, args.socket.as_deref(), "nbd")?;
            let socket = NbdSocket::begin(remote, Arc::clone(disk), listener, tell)?;
            return Ok(Self::NbdSocket { socket, path });
        }
        if kind == FrontEnd::VhostUser {
            let (listener, path) = listen(claim, args.socket.as_deref(), "vhost")?;
            let socket = VhostSocket::begin(remote, Arc::clone(disk), listener, tell)?;
            return Ok(Self::Vhost { socket, path });
        }
        let place = claim.path("disk");
        let file = begin_file(&place, remote, disk, tell)?;
        if kind == FrontEnd::File {
            return Ok(Self::File { file, place });
        }
        let made = begin_loop(&claim.name, &place, disk);
        // The loop device holds what it needs of it; so nothing is left to see, or to clear away, when we die.
        let _stays_in_sight = mounts::unmount(&place, Unmount::Lazily);
        let (device, look) = made?;
        let look = Mutex::new(Some(look));
        Ok(Self::Loop { file, device, look })
    }

    /// What users open.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Ublk(device) => device.path(),
            Self::Loop { device, .. } => device.path(),
            Self::File { place, .. } => place,
            Self::Nbd { device, .. } => device.path(),
            Self::NbdSocket { path, .. } | Self::Vhost { path, .. } => path,
        }
    }

    /// Something that the user should know about how it works here.
    pub(crate) fn note(&self) -> Option<String> {
        match self {
            Self::Loop { device, .. } => match device.status() {
                Ok(status) if status.direct => None,
                _ => Some(format!(
                    "{} caches what is written twice: this kernel's loop driver has no direct I/O for it",
                    device.path().display()
                )),
            },
            _ => None,
        }
    }

    /// Goes on with the same disk in another size.
    pub(crate) fn resized(&self, disk: &Arc<dyn Device>) -> Result<(), Failure> {
        match self {
            Self::Ublk(device) => Ok(device.resized(disk)?),
            Self::Loop { file, device, look } => {
                file.resized(Arc::clone(disk));
                let look = look.lock().unwrap_or_else(PoisonError::into_inner);
                let look = look
                    .as_ref()
                    .ok_or_else(|| Failure::usage("it is being detached"))?;
                // The kernel learns of a size by looking.
                let taken = look.metadata().and_then(|_| device.take_over_size());
                taken.map_err(|error| Failure::io(format!("{}: {error}", device.path().display())))
            }
            Self::File { file, .. } => {
                file.resized(Arc::clone(disk));
                Ok(())
            }
            Self::Nbd { peers, device } => {
                // First who answers, then who asks; a disk that has become smaller the same: what is behind its end
                // fails either way.
                peers.resized(Arc::clone(disk));
                let taken = device.resize(disk.geometry().bytes());
                taken.map_err(|error| Failure::io(format!("{}: {error}", device.path().display())))
            }
            Self::NbdSocket { socket, .. } => {
                socket.resized(Arc::clone(disk));
                Ok(())
            }
            Self::Vhost { socket, .. } => Ok(socket.resized(Arc::clone(disk))?),
        }
    }

    /// Ends: politely only when nobody uses it, by force in any case. What tells that it is over comes later.
    pub(crate) fn end(&self, force: bool) -> Result<(), Failure> {
        match self {
            Self::Ublk(device) => {
                let ended = if force {
                    device.detach_by_force()
                } else {
                    device.detach()
                };
                ended.map_err(|error| not_ended(device.path(), &error))
            }
            Self::Loop { file, device, look } => {
                if force {
                    file.fail();
                }
                end_loop(device, force)?;
                drop(look.lock().unwrap_or_else(PoisonError::into_inner).take());
                Ok(())
            }
            Self::File { file, place } => {
                if force {
                    file.fail();
                }
                let how = if force {
                    Unmount::Lazily
                } else {
                    Unmount::Unused
                };
                mounts::unmount(place, how).map_err(|error| match error.kind() {
                    ErrorKind::ResourceBusy => in_use(place, "a program has it open"),
                    _ => Failure::io(format!("{}: {error}", place.display())),
                })
            }
            Self::Nbd { device, .. } => {
                let ended = if force {
                    device.disconnect_by_force()
                } else {
                    device.disconnect()
                };
                ended.map_err(|error| not_ended(device.path(), &error))
            }
            Self::NbdSocket { socket, path } => {
                let clients = socket.clients();
                if clients > 0 && !force {
                    return Err(in_use(path, &format!("{clients} connected")));
                }
                let _somebody_removed_it = fs::remove_file(path);
                socket.close();
                Ok(())
            }
            Self::Vhost { socket, path } => {
                if socket.is_connected() && !force {
                    return Err(in_use(path, "a virtual machine has it"));
                }
                let _somebody_removed_it = fs::remove_file(path);
                socket.close();
                Ok(())
            }
        }
    }
}

impl Front {
    /// It is over without our having ended it: somebody else has stopped the device. What is left of it goes too.
    pub(crate) fn over(&self) {
        if let Self::Ublk(device) = self {
            let _gone_already = device.detach_by_force();
        }
    }
}

/// Listens where the user has said, or beside the record.
fn listen(
    claim: &Claim,
    socket: Option<&Path>,
    extension: &str,
) -> Result<(UnixListener, PathBuf), Failure> {
    let path = socket.map_or_else(|| claim.path(extension), Path::to_owned);
    let listener = bind(&path).map_err(|error| {
        Failure::usage(format!(
            "--socket {}: {error}; choose a path in a folder that is yours",
            path.display()
        ))
    })?;
    Ok((listener, path))
}

/// Serves the disk as a file, mounted at `place`.
fn begin_file(
    place: &Path,
    remote: &Remote,
    disk: &Arc<dyn Device>,
    tell: Tell,
) -> Result<FuseFile, Failure> {
    let cannot = |error: io::Error| Failure::io(format!("{}: {error}", place.display()));
    let made = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(place);
    let made = made.and_then(|file| file.metadata()).map_err(cannot)?;
    let owner = (made.uid(), made.gid());
    let begin = |device: File| {
        let begun = FuseFile::begin(remote, Arc::clone(disk), device, owner, tell);
        begun.inspect_err(|_| {
            let _stays_in_sight = mounts::unmount(place, Unmount::Lazily);
        })
    };
    if process::is_root() {
        let device = mounts::open_fuse().map_err(|error| no_fuse(&error))?;
        let mounted = mounts::mount_fuse_file(&device, place, "");
        mounted.map_err(|error| {
            Failure::io(format!(
                "mounting at {}: {error}; that needs CAP_SYS_ADMIN",
                place.display()
            ))
        })?;
        return Ok(begin(device)?);
    }
    let device = mounts::mount_fuse_file_by_helper(place, "").map_err(|error| {
        let sentence = format!(
            "fusermount3: {error}; it comes with the package fuse3, and --as nbd-socket works without it"
        );
        Failure::usage(sentence)
    })?;
    Ok(begin(device)?)
}

/// Puts the file at `place` under a loop device.
fn begin_loop(
    name: &str,
    place: &Path,
    disk: &Arc<dyn Device>,
) -> Result<(LoopDevice, File), Failure> {
    let geometry = disk.geometry();
    let file = OpenOptions::new()
        .read(true)
        .write(!geometry.read_only)
        .open(place)
        .map_err(|error| Failure::io(format!("{}: {error}", place.display())))?;
    let options = LoopOptions {
        block_bytes: geometry.block_bytes,
        read_only: geometry.read_only,
        name: loop_name(name),
    };
    let device = LoopDevice::attach(&file, &options).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::usage(format!(
            "there is no loop device here ({error}): load the module loop, or use --as file"
        )),
        ErrorKind::PermissionDenied => Failure::usage(format!(
            "a loop device is not to be had ({error}): in a container it must be allowed; --as file and \
             --as nbd-socket work without it"
        )),
        _ => Failure::io(format!("the loop driver says: {error}")),
    })?;
    let look = OpenOptions::new()
        .read(true)
        .custom_flags(O_PATH)
        .open(place)
        .map_err(|error| Failure::io(format!("{}: {error}", place.display())))?;
    Ok((device, look))
}

fn end_loop(device: &LoopDevice, force: bool) -> Result<(), Failure> {
    let ended = if force {
        device.detach_by_force()
    } else {
        device.detach()
    };
    match ended {
        Ok(()) => Ok(()),
        // Somebody else has taken the file from under it: that is what was wanted.
        Err(error) if is_empty(&error) => Ok(()),
        Err(error) => Err(not_ended(device.path(), &error)),
    }
}

/// Why a block device is still there.
fn not_ended(path: &Path, error: &io::Error) -> Failure {
    if error.kind() != ErrorKind::ResourceBusy {
        return Failure::io(format!("{}: {error}", path.display()));
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

fn is_empty(error: &io::Error) -> bool {
    error.raw_os_error() == Some(fabrix_rt::errno::ENXIO)
}

pub(super) fn in_use(path: &Path, how: &str) -> Failure {
    Failure::new(
        Kind::Io,
        format!(
            "{} is in use: {how} (--force takes it away all the same)",
            path.display()
        ),
    )
}

/// Where a block device, or a partition of it, is mounted in this namespace.
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

/// What a dead process has left: a device whose users wait, a loop device over nothing, a mount of nothing.
pub(crate) fn clear_away(record: &Record, place: &Path) {
    if record.front_end == FRONT_END {
        let _somebody_else_did = ublk::clear_away(&record.device, ublk::mark(&record.name));
    }
    let device = LoopDevice::at(&record.device);
    if record.front_end == "fuse" && device.name() == Some(loop_name(&record.name)) {
        let _somebody_else_did = device.detach_by_force();
    }
    let nbd = NbdDevice::at(&record.device).filter(|nbd| nbd.owner() == Some(record.pid));
    if let Some(nbd) = nbd {
        let _somebody_else_did = nbd.disconnect_by_force();
    }
    let is_socket = matches!(record.front_end.as_str(), "nbd-socket" | "vhost-user");
    if is_socket && UnixStream::connect(&record.device).is_err() {
        let _was_not_there = fs::remove_file(&record.device);
    }
    let _nothing_is_mounted = mounts::unmount(place, Unmount::Lazily);
}

fn loop_name(name: &str) -> String {
    format!("fabrix:{name}")
}

impl From<BeginError> for Failure {
    fn from(error: BeginError) -> Self {
        Self::io(error)
    }
}

/// Not opened: closing it would ask the shard, and nobody closes politely who is killed.
const O_PATH: i32 = fabrix_rt::errno::O_PATH;

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "24 1 0:22 / /dev rw,nosuid shared:2 - devtmpfs udev rw,size=4k\n";
    const COPY: &str = "90 80 0:51 / /dev rw,nosuid - tmpfs tmpfs rw,size=64k,mode=755\n";
    const BELOW: &str = "91 90 0:52 / /dev/pts rw - devpts devpts rw\n";

    #[test]
    fn new_devices_are_seen_where_dev_is_the_kernels() {
        assert!(shows_new_devices(&[OWN, BELOW].concat()));
        assert!(!shows_new_devices(&[COPY, BELOW].concat()));
        assert!(!shows_new_devices(&[OWN, COPY].concat()));
        assert!(!shows_new_devices(BELOW));
    }
}
