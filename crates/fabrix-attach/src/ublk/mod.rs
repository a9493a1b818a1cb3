//! The disk as a block device, /dev/ublkbN: the kernel's ublk driver sends requests, and this
//! process answers.
//!
//! This file creates, starts, takes over and stops devices, and `server` handles the requests. All
//! functions wait for the driver, and the driver often waits for the shard, so they belong on a
//! control thread.
//!
//! A device survives the process that serves it. Its users wait, and after a takeover the driver
//! repeats all unanswered requests. Every device carries a mark derived from its name, so that a
//! new process finds its own device.

mod control;
mod request;
mod server;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fabrix_block::{Device, Geometry};
use fabrix_proto::ublk::spec::{self, DeviceInfo, Facts, Parameters};
use fabrix_rt::{Engine, Remote};
use sys_devices::ublk::Control;

use crate::job::trims;
use crate::{BeginError, EventHandler, FrontEnd, on_shard};
use control::{control, features, find_own, no_driver, recover, remove, with_path};
use server::{Begin, Order, Server};

/// Queue depth: largest number of requests in progress.
const DEPTH: u16 = 128;
/// Longest read and write in bytes.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Smallest limit for transfers, in bytes, that the kernel accepts.
const TRANSFER_BYTES_MIN: u32 = 4096;
/// Required driver features.
const NEEDED: u64 = spec::F_USER_COPY
    | spec::F_USER_RECOVERY
    | spec::F_USER_RECOVERY_REISSUE
    | spec::F_CMD_IOCTL_ENCODE;
/// Time limit for the kernel's cleanup after a dead process, and for closing a device.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A disk served as a block device.
#[derive(Debug)]
pub struct UblkDisk {
    number: u32,
    path: PathBuf,
    mark: u64,
    flags: u64,
    front_end: FrontEnd,
    uncopied: Arc<AtomicU64>,
    /// Receives a message when the shard has closed the character device.
    closed: Mutex<Receiver<()>>,
}

/// Remains of a dead process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// A device whose users wait.
    Waiting,
    /// No usable device.
    Nothing,
}

/// Whether ublk is available to this user.
///
/// # Errors
/// A sentence about the missing part and its remedy.
pub fn available(engine: Engine) -> Result<(), BeginError> {
    if engine == Engine::Epoll {
        let sentence = "ublk is spoken over io_uring, and --engine epoll forbids that";
        return Err(BeginError(sentence.to_owned()));
    }
    let control_device = Path::new(spec::CONTROL_PATH);
    std::fs::metadata(control_device).map_err(|error| no_driver(&error))?;
    fabrix_rt::engine::probe().map_err(|refused| BeginError(refused.to_string()))?;
    features(&mut control()?).map(|_| ())
}

/// The remains of a dead process: the device at `path`, created with `mark`.
#[must_use]
pub fn left(path: &Path, mark: u64) -> Left {
    let info = control().and_then(|mut control| find_own(&mut control, path, mark));
    match info {
        Ok(info) if info.state != spec::STATE_DEAD => Left::Waiting,
        _ => Left::Nothing,
    }
}

/// Removes the device of a dead process, if it still has this mark. Waiting requests fail.
///
/// # Errors
/// The driver's error.
pub fn remove_dead_device(path: &Path, mark: u64) -> Result<(), BeginError> {
    let mut control = control()?;
    let Ok(info) = find_own(&mut control, path, mark) else {
        return Ok(());
    };
    remove(&mut control, info.number, || {}).map_err(|error| with_path(path, &error))
}

/// The mark of a name. Different names have different marks in practice.
///
/// The hash is FNV-1a, so the mark is the same in every version of this program.
#[must_use]
pub fn mark(name: &str) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
    "fabrix:".bytes().chain(name.bytes()).fold(FNV_OFFSET, fold)
}

impl UblkDisk {
    /// Creates a device and serves `disk` on it, on the shard of `remote`. `on_event` is called
    /// when the driver no longer needs the server.
    ///
    /// # Errors
    /// ublk is not available, the driver refuses this disk, or the disk cannot be opened on the
    /// shard.
    pub fn begin(
        remote: &Remote,
        disk: &Arc<dyn Device>,
        mark: u64,
        on_event: EventHandler,
    ) -> Result<Self, BeginError> {
        let mut control = control()?;
        let features = features(&mut control)?;
        let facts = facts(disk.geometry())?;
        let lends = if disk.takes_registered() {
            features & spec::F_AUTO_BUF_REG
        } else {
            0
        };
        let flags = NEEDED | features & spec::F_UPDATE_SIZE | lends;
        let mut info = DeviceInfo::wanted(DEPTH, facts.transfer_bytes, flags, mark).to_bytes();
        let made = control.ask(spec::ADD_DEV, spec::ANY_DEVICE, 0, &mut info);
        made.map_err(|error| with_path(Path::new(spec::CONTROL_PATH), &error))?;
        let info = DeviceInfo::parse(info);
        let begun = start(&mut control, &info, &facts, (remote, disk), on_event);
        begun.inspect_err(|_| {
            let _gone_already = remove(&mut control, info.number, || {});
        })
    }

    /// Takes over the device of a dead process under its old name, and serves `disk` on it. Waiting
    /// requests continue.
    ///
    /// # Errors
    /// The device no longer exists, or the disk differs from the earlier one.
    pub fn take_over(
        remote: &Remote,
        disk: &Arc<dyn Device>,
        (path, mark): (&Path, u64),
        on_event: EventHandler,
    ) -> Result<Self, BeginError> {
        let mut control = control()?;
        let info = find_own(&mut control, path, mark).map_err(|error| {
            BeginError(format!("{} cannot be taken over: {error}", path.display()))
        })?;
        let facts = facts(disk.geometry())?;
        let mut known = Parameters::to_fill();
        let done = control.ask(spec::GET_PARAMS, info.number, 0, &mut known);
        done.map_err(|error| with_path(path, &error))?;
        let known = Parameters::parse(known);
        let fits =
            info.depth > 0 && info.queues == 1 && info.transfer_bytes <= facts.transfer_bytes;
        if !fits || !known.same_disk(&Parameters::new(&facts)) {
            return Err(BeginError(format!(
                "{} cannot be taken over: the disk has another size, block size or cache than when it was attached; \
                 detach it",
                path.display()
            )));
        }
        recover(&mut control, &info, path)?;
        serve(
            &info,
            facts.transfer_bytes,
            (remote, disk),
            on_event,
            || {
                let server = u64::from(std::process::id());
                let went_on = control.ask(spec::END_USER_RECOVERY, info.number, server, &mut []);
                went_on.map(drop).map_err(|error| with_path(path, &error))
            },
        )
    }

    /// Path of the block device: /dev/ublkbN.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of requests executed without copying data. None if the driver or the disk cannot do
    /// that. For the other requests the kernel could not use the memory layout, so they were
    /// copied.
    #[must_use]
    pub fn zero_copy(&self) -> Option<u64> {
        let lends = self.flags & spec::F_AUTO_BUF_REG != 0;
        lends.then(|| self.uncopied.load(Ordering::Relaxed))
    }

    /// Changes the size of the device.
    ///
    /// # Errors
    /// The kernel's ublk cannot resize. Linux 6.16 and later can.
    pub fn resized(&self, disk: &Arc<dyn Device>) -> Result<(), BeginError> {
        if self.flags & spec::F_UPDATE_SIZE == 0 {
            return Err(BeginError(format!(
                "{} keeps its size: the ublk of this kernel cannot change it, that of Linux 6.16 can; detach and \
                 attach it",
                self.path.display()
            )));
        }
        self.front_end.send(Order::Resized(Arc::clone(disk)));
        let sectors = disk.geometry().bytes() / u64::from(spec::SECTOR_BYTES);
        let done = control()?.ask(spec::UPDATE_SIZE, self.number, sectors, &mut []);
        done.map(drop)
            .map_err(|error| with_path(&self.path, &error))
    }

    /// Writes cached data back and removes the device, if no mount, swap or driver has claimed it.
    ///
    /// # Errors
    /// `ResourceBusy` when the device is claimed. Otherwise an error of the write-back or of the
    /// driver.
    pub fn detach(&self) -> io::Result<()> {
        self.remove(Some(sys_devices::claim(&self.path)?))
    }

    /// Removes the device at once. Requests in progress and all later ones fail.
    ///
    /// # Errors
    /// The driver's error.
    pub fn detach_by_force(&self) -> io::Result<()> {
        self.front_end.send(Order::Fail);
        self.remove(None)
    }

    fn remove(&self, claimed: Option<File>) -> io::Result<()> {
        let mut control = Control::open(Path::new(spec::CONTROL_PATH))?;
        // Another process may have removed the device, and another program may have its number now.
        if find_own(&mut control, &self.path, self.mark).is_err() {
            return Ok(());
        }
        remove(&mut control, self.number, || {
            drop(claimed);
            let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
            let _closed_before = closed.recv_timeout(TIMEOUT);
        })
    }
}

/// Sets the parameters of a new device, serves it, and makes it visible to users.
fn start(
    control: &mut Control,
    info: &DeviceInfo,
    facts: &Facts,
    disk: (&Remote, &Arc<dyn Device>),
    on_event: EventHandler,
) -> Result<UblkDisk, BeginError> {
    let path = block_device(info.number);
    let mut parameters = Parameters::new(facts).to_bytes();
    let done = control.ask(spec::SET_PARAMS, info.number, 0, &mut parameters);
    done.map_err(|error| with_path(&path, &error))?;
    serve(info, facts.transfer_bytes, disk, on_event, || {
        let server = u64::from(std::process::id());
        let started = control.ask(spec::START_DEV, info.number, server, &mut []);
        started.map(drop).map_err(|error| with_path(&path, &error))
    })
}

/// Serves a device on the shard. `go` tells the driver that requests may start.
fn serve(
    info: &DeviceInfo,
    transfer_bytes: u32,
    (remote, disk): (&Remote, &Arc<dyn Device>),
    on_event: EventHandler,
    go: impl FnOnce() -> Result<(), BeginError>,
) -> Result<UblkDisk, BeginError> {
    let character = PathBuf::from(format!("/dev/ublkc{}", info.number));
    let device = OpenOptions::new().read(true).write(true).open(&character);
    let device = device.map_err(|error| with_path(&character, &error))?;
    let (tell_closed, closed) = sync_channel(1);
    let refused = Arc::new(AtomicI32::new(0));
    let uncopied = Arc::<AtomicU64>::default();
    let begin = Begin {
        disk: Arc::clone(disk),
        device,
        depth: info.depth,
        transfer_bytes,
        lends: info.flags & spec::F_AUTO_BUF_REG != 0,
        uncopied: Arc::clone(&uncopied),
        on_event,
        closed: tell_closed,
        refused: Arc::clone(&refused),
    };
    let front_end = FrontEnd::begin(remote, move |shard| {
        if shard.engine() != Engine::IoUring {
            return Err(BeginError("ublk is spoken over io_uring".to_owned()));
        }
        // Without this privilege a memory shortage can block the server. It works nevertheless.
        let _unprivileged = fabrix_rt::process::carries_io();
        Server::open(shard, begin)
    })?;
    // After one more turn the driver has accepted or refused all commands. After a refusal,
    // START_DEV would wait for ever.
    on_shard(remote, |_| ())?;
    match refused.load(Ordering::Relaxed) {
        0 => go()?,
        number => return Err(with_path(&character, &io::Error::from_raw_os_error(number))),
    }
    Ok(UblkDisk {
        number: info.number,
        path: block_device(info.number),
        mark: info.mark,
        flags: info.flags,
        front_end,
        uncopied,
        closed: Mutex::new(closed),
    })
}

/// The properties of a disk as reported to the driver.
fn facts(geometry: &Geometry) -> Result<Facts, BeginError> {
    let transfer = geometry.max_transfer_bytes.min(TRANSFER_BYTES_MAX);
    if transfer < TRANSFER_BYTES_MIN {
        let sentence = "the kernel has no block devices that move less than 4096 bytes at once";
        return Err(BeginError(sentence.to_owned()));
    }
    Ok(Facts {
        bytes: geometry.bytes(),
        block_bytes: geometry.block_bytes,
        physical_bytes: geometry.physical_block_bytes,
        optimal_bytes: geometry.optimal_io_bytes,
        transfer_bytes: transfer / TRANSFER_BYTES_MIN * TRANSFER_BYTES_MIN,
        read_only: geometry.read_only,
        volatile_cache: geometry.volatile_cache,
        trims: trims(geometry),
    })
}

fn block_device(number: u32) -> PathBuf {
    PathBuf::from(format!("{BLOCK_DEVICE}{number}"))
}

const BLOCK_DEVICE: &str = "/dev/ublkb";
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
