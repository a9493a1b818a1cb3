//! The disk as a block device of its own, /dev/ublkbN: the kernel's ublk driver asks, this process
//! answers.
//!
//! Knows a device's life: making, starting, taking over what a dead process has left, stopping.
//! What the kernel asks meanwhile is `server`. Everything here waits for the driver, and often the
//! driver for the shard: it belongs on a control thread.
//!
//! A device outlives the process that serves it: its users wait, and whoever takes it over is asked
//! again what the dead one had not answered. So each device carries a mark, made of its name, by
//! which its own is found again.

mod control;
mod request;
mod server;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fabrix_block::{Device, Geometry};
use fabrix_proto::ublk::spec::{self, DeviceInfo, Facts, Parameters};
use fabrix_rt::{Engine, Remote, TaskId, errno};
use sys_devices::ublk::Control;

use crate::job::trims;
use crate::{BeginError, Tell, on_shard};
use control::{control, features, no_driver, ours, recover, remove, said};
use server::{Begin, Order, Server};

/// Requests in progress.
const DEPTH: u16 = 128;
/// The longest read and write.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// The kernel has no devices that take less at once.
const TRANSFER_BYTES_MIN: u32 = 4096;
/// Without these a kernel's ublk is too old for us.
const NEEDED: u64 = spec::F_USER_COPY
    | spec::F_USER_RECOVERY
    | spec::F_USER_RECOVERY_REISSUE
    | spec::F_CMD_IOCTL_ENCODE;
/// How long the kernel may take to clear up after a dead process, or we to close a device.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A disk that is served as a block device.
#[derive(Debug)]
pub struct UblkDisk {
    number: u32,
    path: PathBuf,
    mark: u64,
    flags: u64,
    remote: Remote,
    task: TaskId,
    uncopied: Arc<AtomicU64>,
    /// Hears that the shard has closed the character device.
    closed: Mutex<Receiver<()>>,
}

/// What a dead process has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// A device whose users wait.
    Waiting,
    /// Nothing, or nothing of use.
    Nothing,
}

/// Whether there is ublk here, for this user.
///
/// # Errors
/// What is missing, and what to do: a sentence.
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

/// What has become of the device of a dead process: the number in `path`, made with `mark`.
#[must_use]
pub fn left(path: &Path, mark: u64) -> Left {
    let info = control().and_then(|mut control| ours(&mut control, path, mark));
    match info {
        Ok(info) if info.state != spec::STATE_DEAD => Left::Waiting,
        _ => Left::Nothing,
    }
}

/// Takes away what a dead process has left, if it is that device still: whoever waits for it is
/// told that it failed.
///
/// # Errors
/// What the driver says.
pub fn clear_away(path: &Path, mark: u64) -> Result<(), BeginError> {
    let mut control = control()?;
    let Ok(info) = ours(&mut control, path, mark) else {
        return Ok(());
    };
    remove(&mut control, info.number, || {}).map_err(|error| said(path, &error))
}

/// The mark of a name: the devices of two names are not mistaken for each other.
///
/// FNV-1a, so that it is the same in every version of this program.
#[must_use]
pub fn mark(name: &str) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
    "fabrix:".bytes().chain(name.bytes()).fold(FNV_OFFSET, fold)
}

impl UblkDisk {
    /// Makes a device and serves `disk` as it, on the shard of `remote`. `tell` hears when the
    /// driver needs us no more.
    ///
    /// # Errors
    /// There is no ublk here, or it does not want this disk; the disk cannot be opened on the
    /// shard.
    pub fn begin(
        remote: &Remote,
        disk: &Arc<dyn Device>,
        mark: u64,
        tell: Tell,
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
        made.map_err(|error| said(Path::new(spec::CONTROL_PATH), &error))?;
        let info = DeviceInfo::parse(info);
        let begun = start(&mut control, &info, &facts, (remote, disk), tell);
        begun.inspect_err(|_| {
            let _gone_already = remove(&mut control, info.number, || {});
        })
    }

    /// Takes over the device that a dead process has left, under its old name, and serves `disk` as
    /// it. Its users' requests go on.
    ///
    /// # Errors
    /// There is no such device any more, or this is not the disk that it was.
    pub fn take_over(
        remote: &Remote,
        disk: &Arc<dyn Device>,
        (path, mark): (&Path, u64),
        tell: Tell,
    ) -> Result<Self, BeginError> {
        let mut control = control()?;
        let info = ours(&mut control, path, mark).map_err(|error| {
            BeginError(format!("{} cannot be taken over: {error}", path.display()))
        })?;
        let facts = facts(disk.geometry())?;
        let mut known = Parameters::to_fill();
        let asked = control.ask(spec::GET_PARAMS, info.number, 0, &mut known);
        asked.map_err(|error| said(path, &error))?;
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
        serve(&info, facts.transfer_bytes, (remote, disk), tell, || {
            let server = u64::from(std::process::id());
            let went_on = control.ask(spec::END_USER_RECOVERY, info.number, server, &mut []);
            went_on.map(drop).map_err(|error| said(path, &error))
        })
    }

    /// What users open: /dev/ublkbN.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many requests were carried out whose data nobody has copied, where the driver and the
    /// disk can do that. The rest, if there is one, lay in memory in a way that the disk could not
    /// use.
    #[must_use]
    pub fn zero_copy(&self) -> Option<u64> {
        let lends = self.flags & spec::F_AUTO_BUF_REG != 0;
        lends.then(|| self.uncopied.load(Ordering::Relaxed))
    }

    /// Goes on with the same disk in another size.
    ///
    /// # Errors
    /// This kernel's ublk cannot: it can from Linux 6.16 on.
    pub fn resized(&self, disk: &Arc<dyn Device>) -> Result<(), BeginError> {
        if self.flags & spec::F_UPDATE_SIZE == 0 {
            return Err(BeginError(format!(
                "{} keeps its size: the ublk of this kernel cannot change it, that of Linux 6.16 can; detach and \
                 attach it",
                self.path.display()
            )));
        }
        let order = Box::new(Order::Resized(Arc::clone(disk)));
        let _it_is_over = self.remote.send(self.task, order);
        let sectors = disk.geometry().bytes() / u64::from(spec::SECTOR_BYTES);
        let told = control()?.ask(spec::UPDATE_SIZE, self.number, sectors, &mut []);
        told.map(drop).map_err(|error| said(&self.path, &error))
    }

    /// Writes back what the kernel holds and takes the device away, if nobody has claimed it: no
    /// mount, no swap, no other driver.
    ///
    /// # Errors
    /// `ResourceBusy` when it is claimed; what was not written back; what the driver says.
    pub fn detach(&self) -> io::Result<()> {
        let claimed = OpenOptions::new()
            .read(true)
            .custom_flags(errno::O_EXCL)
            .open(&self.path)?;
        claimed.sync_all()?;
        self.remove(Some(claimed))
    }

    /// Takes the device away whatever is on its way to it: that fails now, and so does all that
    /// comes.
    ///
    /// # Errors
    /// What the driver says.
    pub fn detach_by_force(&self) -> io::Result<()> {
        let _it_is_over = self.remote.send(self.task, Box::new(Order::Fail));
        self.remove(None)
    }

    fn remove(&self, claimed: Option<File>) -> io::Result<()> {
        let mut control = Control::open(Path::new(spec::CONTROL_PATH))?;
        // Somebody else may have taken it away, and its number may be another's now.
        if ours(&mut control, &self.path, self.mark).is_err() {
            return Ok(());
        }
        remove(&mut control, self.number, || {
            drop(claimed);
            let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
            let _closed_before = closed.recv_timeout(PATIENCE);
        })
    }
}

/// Tells a fresh device what it is, serves it, and lets users see it.
fn start(
    control: &mut Control,
    info: &DeviceInfo,
    facts: &Facts,
    disk: (&Remote, &Arc<dyn Device>),
    tell: Tell,
) -> Result<UblkDisk, BeginError> {
    let path = block_device(info.number);
    let mut parameters = Parameters::new(facts).to_bytes();
    let told = control.ask(spec::SET_PARAMS, info.number, 0, &mut parameters);
    told.map_err(|error| said(&path, &error))?;
    serve(info, facts.transfer_bytes, disk, tell, || {
        let server = u64::from(std::process::id());
        let started = control.ask(spec::START_DEV, info.number, server, &mut []);
        started.map(drop).map_err(|error| said(&path, &error))
    })
}

/// Serves a device on the shard; `go` tells the driver that it may ask.
fn serve(
    info: &DeviceInfo,
    transfer_bytes: u32,
    (remote, disk): (&Remote, &Arc<dyn Device>),
    tell: Tell,
    go: impl FnOnce() -> Result<(), BeginError>,
) -> Result<UblkDisk, BeginError> {
    let character = PathBuf::from(format!("/dev/ublkc{}", info.number));
    let device = OpenOptions::new().read(true).write(true).open(&character);
    let device = device.map_err(|error| said(&character, &error))?;
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
        tell,
        closed: tell_closed,
        refused: Arc::clone(&refused),
    };
    let task = on_shard(remote, move |shard| {
        if shard.engine() != Engine::IoUring {
            return Err(BeginError("ublk is spoken over io_uring".to_owned()));
        }
        // Without the privilege memory may run short in a bad moment; it works all the same.
        let _unprivileged = fabrix_rt::process::carries_io();
        Server::open(shard, begin)
    })??;
    // One turn later the driver has all commands of ours, or has refused some: then it would wait
    // for them for ever.
    on_shard(remote, |_| ())?;
    match refused.load(Ordering::Relaxed) {
        0 => go()?,
        number => return Err(said(&character, &io::Error::from_raw_os_error(number))),
    }
    Ok(UblkDisk {
        number: info.number,
        path: block_device(info.number),
        mark: info.mark,
        flags: info.flags,
        remote: remote.clone(),
        task,
        uncopied,
        closed: Mutex::new(closed),
    })
}

/// What users of the device are told of a disk.
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
