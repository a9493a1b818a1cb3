//! The ways a disk can look on this machine: a block device, a file, a socket. Begins them and ends
//! them.
//!
//! Everything here runs on a control thread and may wait for the kernel; the shard that answers the
//! kernel is another.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf, absolute};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fabrix_attach::fuse::{FuseFile, KernelRing};
use fabrix_attach::nbd::{NbdPeers, NbdSocket};
use fabrix_attach::ublk::{self, UblkDisk};
use fabrix_attach::vhost::VhostSocket;
use fabrix_attach::{BeginError, Tell};
use fabrix_block::Device;
use fabrix_rt::Remote;
use sys_devices::loop_device::LoopDevice;
use sys_devices::mounts::{self, Unmount};
use sys_devices::nbd_device::NbdDevice;

use super::kernel_fuse::{begin_file, begin_loop, end_loop, is_left};
use super::records::{Claim, Record};
use super::size;
use super::takeover::FRONT_END;
use super::{kernel_nbd, nbd_port};
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
        /// The file, not opened: to look at its size. It keeps the mount, so it has to go when the
        /// device is gone.
        look: Mutex<Option<File>>,
    },
    /// A file.
    File { file: FuseFile, place: PathBuf },
    /// A device of the kernel's NBD client.
    Nbd { peers: NbdPeers, device: NbdDevice },
    /// A Unix socket.
    NbdSocket { socket: NbdSocket, path: PathBuf },
    /// A port of TCP, at nbd://ADDR:PORT.
    NbdPort { socket: NbdSocket, uri: PathBuf },
    /// A socket for virtual machines.
    Vhost { socket: VhostSocket, path: PathBuf },
}

impl Front {
    /// Begins, on the shard of `remote`.
    ///
    /// # Errors
    /// There is no such front end here, or the block device that the kernel has made has not the
    /// disk's size.
    pub(crate) fn begin(
        kind: FrontEnd,
        claim: &Claim,
        (args, left): (&AttachArgs, Option<&Record>),
        (remote, disk): (&Remote, &Arc<dyn Device>),
        tell: Tell,
    ) -> Result<Self, Failure> {
        let front = Self::make(kind, claim, (args, left), (remote, disk), tell)?;
        // The size of a device that is taken over was compared before it was; its users would lose
        // it here.
        if left.is_none()
            && let Err(failure) = front.has_size_of(&**disk)
        {
            let _gone_already = front.end(true);
            return Err(failure);
        }
        Ok(front)
    }

    fn make(
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
            let longest = args.remote.fast_io_fail_tmo.0.unwrap_or(Duration::MAX);
            let (peers, device) = kernel_nbd::begin(remote, disk, longest, tell)?;
            return Ok(Self::Nbd { peers, device });
        }
        if kind == FrontEnd::NbdSocket {
            return match &args.listen {
                Some(listen) => {
                    let (listener, uri) = nbd_port::listen(listen, args.allow.is_some())?;
                    let socket = NbdSocket::begin(remote, Arc::clone(disk), listener, tell)?;
                    Ok(Self::NbdPort { socket, uri })
                }
                None => {
                    let (listener, path) = listen(claim, args.socket.as_deref(), "nbd")?;
                    let disk = Arc::clone(disk);
                    let socket = NbdSocket::begin(remote, disk, listener.into(), tell)?;
                    Ok(Self::NbdSocket { socket, path })
                }
            };
        }
        if kind == FrontEnd::VhostUser {
            let (listener, path) = listen(claim, args.socket.as_deref(), "vhost")?;
            let socket = VhostSocket::begin(remote, Arc::clone(disk), listener, tell)?;
            return Ok(Self::Vhost { socket, path });
        }
        let place = claim.path("disk");
        let begun = begin_file(&place, remote, disk, tell);
        let file = begun.inspect_err(|_| {
            let _was_not_there = fs::remove_file(&place);
        })?;
        if kind == FrontEnd::File {
            return Ok(Self::File { file, place });
        }
        let made = begin_loop(&claim.name, &place, disk);
        // The loop device holds what it needs of it; so nothing is left to see, or to clear away,
        // when we die.
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
            Self::NbdPort { uri, .. } => uri,
        }
    }

    /// What users open, wherever they are.
    pub(crate) fn device(&self) -> PathBuf {
        match self {
            Self::NbdPort { uri, .. } => uri.clone(),
            _ => absolute(self.path()).unwrap_or_else(|_| self.path().to_owned()),
        }
    }

    /// Compares the size of a block device with that of its disk.
    fn has_size_of(&self, disk: &dyn Device) -> Result<(), Failure> {
        match self {
            Self::Ublk(_) | Self::Loop { .. } | Self::Nbd { .. } => {
                size::is(self.path(), disk.geometry().bytes())
            }
            Self::File { .. }
            | Self::NbdSocket { .. }
            | Self::NbdPort { .. }
            | Self::Vhost { .. } => Ok(()),
        }
    }

    /// What the user should know about how it works here.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        self.is_cached().into_iter().chain(self.is_read())
    }

    fn is_cached(&self) -> Option<String> {
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

    /// How many requests were carried out without a copy of their data, where that can be.
    pub(crate) fn zero_copy(&self) -> Option<u64> {
        match self {
            Self::Ublk(device) => device.zero_copy(),
            _ => None,
        }
    }

    fn is_read(&self) -> Option<String> {
        if let Self::File { place, .. } = self {
            let _whoever_looks_asks = fs::metadata(place);
        }
        let why = self.over_uring()?.err()?;
        if KernelRing::look() != KernelRing::On {
            return None; // as on most machines: `fabrix doctor` says what could be done
        }
        Some(format!(
            "requests are read from /dev/fuse, not over io_uring: {why}"
        ))
    }

    /// Whether the kernel asks over io_uring, or why it does not; None: nothing here could ask so.
    pub(crate) fn over_uring(&self) -> Option<Result<(), &str>> {
        match self {
            Self::Loop { file, .. } | Self::File { file, .. } => file.over_uring(),
            _ => None,
        }
    }

    /// Goes on with the same disk in another size.
    pub(crate) fn resized(&self, disk: &Arc<dyn Device>) -> Result<(), Failure> {
        self.resize(disk)?;
        self.has_size_of(&**disk)
    }

    fn resize(&self, disk: &Arc<dyn Device>) -> Result<(), Failure> {
        match self {
            Self::Ublk(device) => Ok(device.resized(disk)?),
            Self::Loop { file, device, look } => {
                file.resized(Arc::clone(disk))?;
                let look = look.lock().unwrap_or_else(PoisonError::into_inner);
                let look = look
                    .as_ref()
                    .ok_or_else(|| Failure::usage("it is being detached"))?;
                // The kernel learns of a size by looking.
                let taken = look.metadata().and_then(|_| device.take_over_size());
                taken.map_err(|error| Failure::io(format!("{}: {error}", device.path().display())))
            }
            Self::File { file, .. } => Ok(file.resized(Arc::clone(disk))?),
            Self::Nbd { peers, device } => {
                // First who answers, then who asks; a disk that has become smaller the same: what
                // is behind its end fails either way.
                peers.resized(Arc::clone(disk))?;
                let taken = device.resize(disk.geometry().bytes());
                taken.map_err(|error| Failure::io(format!("{}: {error}", device.path().display())))
            }
            Self::NbdSocket { socket, .. } | Self::NbdPort { socket, .. } => {
                Ok(socket.resized(Arc::clone(disk))?)
            }
            Self::Vhost { socket, .. } => Ok(socket.resized(Arc::clone(disk))?),
        }
    }

    /// Ends: politely only when nobody uses it, by force in any case. What tells that it is over
    /// comes later.
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
                is_unused(socket, path, force)?;
                let _somebody_removed_it = fs::remove_file(path);
                socket.close();
                Ok(())
            }
            Self::NbdPort { socket, uri } => {
                is_unused(socket, uri, force)?;
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
    /// It is over without our having ended it: somebody else has stopped the device. What is left
    /// of it goes too.
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
            "--socket {}: {error}; choose another path, in a folder that is yours",
            path.display()
        ))
    })?;
    Ok((listener, path))
}

/// A socket with clients is in use, unless it is taken away by force.
fn is_unused(socket: &NbdSocket, place: &Path, force: bool) -> Result<(), Failure> {
    match socket.clients() {
        0 => Ok(()),
        _ if force => Ok(()),
        clients => Err(in_use(place, &format!("{clients} connected"))),
    }
}

/// Why a block device is still there.
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

/// What a dead process has left: a device whose users wait, a loop device over nothing, a mount of
/// nothing.
pub(crate) fn clear_away(record: &Record, place: &Path) {
    if record.front_end == FRONT_END {
        let _somebody_else_did = ublk::clear_away(&record.device, ublk::mark(&record.name));
    }
    let device = LoopDevice::at(&record.device);
    if record.front_end == "fuse" && is_left(&device, &record.name) {
        let _somebody_else_did = device.detach_by_force();
    }
    let nbd = NbdDevice::at(&record.device).filter(|nbd| nbd.owner() == Some(record.pid));
    if let Some(nbd) = nbd {
        let _somebody_else_did = nbd.disconnect_by_force();
    }
    let is_socket = matches!(record.front_end.as_str(), "nbd-socket" | "vhost-user");
    let is_file = record.device.is_absolute(); // else a port, which goes with its process
    if is_socket && is_file && UnixStream::connect(&record.device).is_err() {
        let _was_not_there = fs::remove_file(&record.device);
    }
    let _nothing_is_mounted = mounts::unmount(place, Unmount::Lazily);
}

impl From<BeginError> for Failure {
    fn from(error: BeginError) -> Self {
        Self::io(error)
    }
}
