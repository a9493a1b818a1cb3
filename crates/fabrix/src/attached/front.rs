//! The forms in which a disk is attached: block device, file or socket. Starts and ends them.
//!
//! This code runs on a control thread and may wait for the kernel. The shard that answers the
//! kernel runs on another thread.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf, absolute};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabrix_attach::fuse::{FuseFile, KernelRing};
use fabrix_attach::nbd::{NbdPeer, NbdSocket};
use fabrix_attach::ublk::{self, UblkDisk};
use fabrix_attach::vhost::VhostSocket;
use fabrix_attach::{BeginError, EventHandler};
use fabrix_block::Device;
use fabrix_rt::Remote;
use sys_devices::loop_device::LoopDevice;
use sys_devices::mounts::{self, Unmount};
use sys_devices::nbd_device::NbdDevice;

use super::in_use::{in_use, not_ended};
use super::kernel_fuse::{begin_file, begin_loop, end_loop};
use super::records::{Claim, Record};
use super::{kernel_nbd, nbd_port, size};
use crate::api::bind;
use crate::args::{AttachArgs, FrontEnd};
use crate::failure::Failure;
use crate::locks::lock;

/// The visible form of an attached disk.
pub(crate) enum Front {
    /// A device of the kernel's ublk driver.
    Ublk(UblkDisk),
    /// A loop device over a hidden file.
    Loop {
        file: FuseFile,
        device: LoopDevice,
        /// The file, opened with O_PATH for reading its size. It keeps the mount alive, so it must
        /// be closed when the device is gone.
        look: Mutex<Option<File>>,
    },
    /// A file.
    File { file: FuseFile, place: PathBuf },
    /// A device of the kernel's NBD client.
    Nbd { peer: NbdPeer, device: NbdDevice },
    /// An NBD server on a Unix socket, or on a TCP port.
    NbdSocket {
        socket: NbdSocket,
        /// Path of the socket, or nbd://ADDR:PORT.
        path: PathBuf,
        is_port: bool,
    },
    /// A vhost-user socket for virtual machines.
    Vhost { socket: VhostSocket, path: PathBuf },
}

impl Front {
    /// Starts a front end on the shard of `remote`.
    ///
    /// # Errors
    /// The front end is not available.
    pub(crate) fn begin(
        kind: FrontEnd,
        claim: &Claim,
        (args, left): (&AttachArgs, Option<&Record>),
        (remote, disk): (&Remote, &Arc<dyn Device>),
        on_event: EventHandler,
    ) -> Result<Self, Failure> {
        if kind == FrontEnd::Ublk {
            let mark = ublk::mark(&claim.name);
            return Ok(Self::Ublk(match left {
                Some(left) => UblkDisk::take_over(remote, disk, (&left.device, mark), on_event)?,
                None => UblkDisk::begin(remote, disk, mark, on_event)?,
            }));
        }
        if kind == FrontEnd::Nbd {
            let longest = args.remote.fast_io_fail_tmo.0.unwrap_or(Duration::MAX);
            let (peer, device) = kernel_nbd::begin(remote, disk, longest, on_event)?;
            return Ok(Self::Nbd { peer, device });
        }
        if kind == FrontEnd::NbdSocket {
            let is_port = args.listen.is_some();
            let (listener, path) = match &args.listen {
                Some(address) => nbd_port::listen(address, args.allow.is_some())?,
                None => {
                    let (listener, path) = listen(claim, args.socket.as_deref(), "nbd")?;
                    (listener.into(), path)
                }
            };
            return Ok(Self::NbdSocket {
                socket: NbdSocket::begin(remote, Arc::clone(disk), listener, on_event)?,
                path,
                is_port,
            });
        }
        if kind == FrontEnd::VhostUser {
            let (listener, path) = listen(claim, args.socket.as_deref(), "vhost")?;
            let socket = VhostSocket::begin(remote, Arc::clone(disk), listener, on_event)?;
            return Ok(Self::Vhost { socket, path });
        }
        let place = claim.path("disk");
        let begun = begin_file(&place, remote, disk, on_event);
        let file = begun.inspect_err(|_| {
            let _was_not_there = fs::remove_file(&place);
        })?;
        if kind == FrontEnd::File {
            return Ok(Self::File { file, place });
        }
        let made = begin_loop(&claim.name, &place, disk);
        // The loop device keeps the mount alive. Unmounting the path now leaves nothing behind when
        // this process dies.
        let _stays_in_sight = mounts::unmount(&place, Unmount::Lazily);
        let (device, look) = made?;
        let look = Mutex::new(Some(look));
        Ok(Self::Loop { file, device, look })
    }

    /// Path or URI for users.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Ublk(device) => device.path(),
            Self::Loop { device, .. } => device.path(),
            Self::File { place, .. } => place,
            Self::Nbd { device, .. } => device.path(),
            Self::NbdSocket { path, .. } | Self::Vhost { path, .. } => path,
        }
    }

    /// Path or URI for users, independent of the working directory.
    pub(crate) fn device(&self) -> PathBuf {
        match self {
            Self::NbdSocket {
                path,
                is_port: true,
                ..
            } => path.clone(),
            _ => absolute(self.path()).unwrap_or_else(|_| self.path().to_owned()),
        }
    }

    /// Checks that a block device has the size of its disk.
    fn has_size_of(&self, disk: &dyn Device) -> Result<(), Failure> {
        match self {
            Self::Ublk(_) | Self::Loop { .. } | Self::Nbd { .. } => {
                size::is(self.path(), disk.geometry().bytes())
            }
            Self::File { .. } | Self::NbdSocket { .. } | Self::Vhost { .. } => Ok(()),
        }
    }

    /// Sentences about restrictions on this machine.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        self.is_cached().into_iter().chain(self.is_read())
    }

    fn is_cached(&self) -> Option<String> {
        match self {
            Self::Loop { device, .. } => match device.status() {
                Ok(status) if status.direct => None,
                _ => Some(format!(
                    "data written to {} is cached twice: this kernel's loop driver has no direct I/O for it",
                    device.path().display()
                )),
            },
            _ => None,
        }
    }

    /// Number of requests executed without copying data. None if this front end never does.
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
            return None; // the normal case; `fabrix doctor` shows the remedy
        }
        Some(format!(
            "requests are read from /dev/fuse, not over io_uring: {why}"
        ))
    }

    /// Whether requests come over io_uring, or why not. None: this front end does not use FUSE, or
    /// nothing is known yet.
    pub(crate) fn over_uring(&self) -> Option<Result<(), &str>> {
        match self {
            Self::Loop { file, .. } | Self::File { file, .. } => file.over_uring(),
            _ => None,
        }
    }

    /// Changes the size.
    pub(crate) fn resized(&self, disk: &Arc<dyn Device>) -> Result<(), Failure> {
        self.resize(disk)?;
        self.has_size_of(&**disk)
    }

    fn resize(&self, disk: &Arc<dyn Device>) -> Result<(), Failure> {
        match self {
            Self::Ublk(device) => Ok(device.resized(disk)?),
            Self::Loop { file, device, look } => {
                file.resized(Arc::clone(disk))?;
                let look = lock(look);
                let look = look.as_ref();
                let look = look.ok_or_else(|| Failure::usage("it is being detached"))?;
                // Reading the attributes makes the kernel learn the new size.
                let taken = look.metadata().and_then(|_| device.take_over_size());
                taken.map_err(Failure::at(device.path()))
            }
            Self::File { file, .. } => Ok(file.resized(Arc::clone(disk))?),
            Self::Nbd { peer, device } => {
                // The server gets the size first, then the client. This also works when the disk
                // shrinks, because requests behind the new end fail anyway.
                peer.resized(Arc::clone(disk))?;
                let taken = device.resize(disk.geometry().bytes());
                taken.map_err(Failure::at(device.path()))
            }
            Self::NbdSocket { socket, .. } => Ok(socket.resized(Arc::clone(disk))?),
            Self::Vhost { socket, .. } => Ok(socket.resized(Arc::clone(disk))?),
        }
    }

    /// Ends the front end. Without `force` it fails if the disk is in use. The end event follows
    /// later.
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
                drop(lock(look).take());
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
                match mounts::unmount(place, how) {
                    // It was unmounted before, and a copy of the mount keeps it alive.
                    Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
                    Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                        Err(in_use(place, "a program has it open"))
                    }
                    unmounted => unmounted.map_err(Failure::at(place)),
                }
            }
            Self::Nbd { device, .. } => {
                let ended = if force {
                    device.disconnect_by_force()
                } else {
                    device.disconnect()
                };
                ended.map_err(|error| not_ended(device.path(), &error))
            }
            Self::NbdSocket {
                socket,
                path,
                is_port,
            } => {
                is_unused(socket, path, force)?;
                if !is_port {
                    let _somebody_removed_it = fs::remove_file(path);
                }
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

    /// Ends the front end by force if its block device has another size than the disk.
    pub(crate) fn checked(self, disk: &dyn Device) -> Result<Self, Failure> {
        if let Err(failure) = self.has_size_of(disk) {
            let _gone_already = self.end(true);
            return Err(failure);
        }
        Ok(self)
    }

    /// Cleans up after another program has ended the device.
    pub(crate) fn over(&self) {
        if let Self::Ublk(device) = self {
            let _gone_already = device.detach_by_force();
        }
    }
}

/// Listens on the user's path, or on one beside the record.
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

/// Checks that a socket has no clients. `force` skips the check.
fn is_unused(socket: &NbdSocket, place: &Path, force: bool) -> Result<(), Failure> {
    match socket.clients() {
        clients if force || clients == 0 => Ok(()),
        clients => Err(in_use(place, &format!("{clients} connected"))),
    }
}

impl From<BeginError> for Failure {
    fn from(error: BeginError) -> Self {
        Self::io(error)
    }
}
