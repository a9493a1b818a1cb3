//! A device with its protection domain, shared by all threads of the process.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::channel::EventChannel;
use super::id::{DetachedId, Id, no_device};
use super::layout::{self, AsyncEvent, Context, DeviceAttr, Pd};
use super::library::{Libraries, constant};
use super::{check, check_errno, set_nonblocking};

/// A device and the protection domain that this process has on it. There is one for each device.
pub struct Device {
    context: NonNull<Context>,
    domain: NonNull<Pd>,
    libraries: &'static Libraries,
    limits: Limits,
    name: String,
    /// The device is going away.
    is_removed: AtomicBool,
    /// An id of the device, dropped after the protection domain: librdmacm may close a context
    /// without ids. Nobody takes its events.
    keeper: DetachedId,
}

// SAFETY: libibverbs lets all threads use a context and a protection domain at the same time. The
// fields never change.
// WHY UNSAFE: raw pointers are not Send by themselves, and all shards share the device.
unsafe impl Send for Device {}
// SAFETY: as for Send.
// WHY UNSAFE: as for Send.
unsafe impl Sync for Device {}

/// What a device can do, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Work requests of a queue pair, in each direction.
    pub work_requests: u32,
    /// Ranges of memory of a work request.
    pub ranges: u32,
    /// Ranges of memory of an RDMA READ.
    pub read_ranges: u32,
    /// Entries of a completion queue.
    pub completions: u32,
    /// RDMA READs of a peer that a queue pair answers at the same time. At most 254: the connection
    /// manager has one byte for it, and 255 has a meaning of its own.
    pub responder_resources: u8,
    /// RDMA READs that a queue pair has in progress at the same time. At most 254.
    pub initiator_depth: u8,
    /// Messages of this device may invalidate a key of the peer.
    pub invalidates: bool,
    /// The device has memory windows of type 2B.
    pub windows: bool,
    /// The device is an iWARP device.
    pub is_iwarp: bool,
    /// The device is soft-RoCE.
    pub is_soft_roce: bool,
}

impl Device {
    /// The device of a context that an id has, at this address of the machine.
    pub(super) fn of(
        context: NonNull<Context>,
        address: SocketAddr,
        libraries: &'static Libraries,
    ) -> io::Result<Arc<Self>> {
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = known(&devices, context.as_ptr()) {
            return Ok(device);
        }
        devices.retain(|device| device.strong_count() > 0);
        let device = Arc::new(Self::open(context, address, libraries)?);
        devices.push(Arc::downgrade(&device));
        Ok(device)
    }

    /// The connection manager has said that the device of a context goes away.
    pub(super) fn goes_away(context: *mut Context) {
        let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = known(&devices, context) {
            drop(devices);
            device.is_removed.store(true, Ordering::Relaxed);
        }
    }

    fn open(
        context: NonNull<Context>,
        address: SocketAddr,
        libraries: &'static Libraries,
    ) -> io::Result<Self> {
        let channel = EventChannel::new().map_err(io::Error::other)?;
        let keeper = Id::bound(&channel, 0, address)?.detach();
        if keeper.context() != context.as_ptr() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let limits = query(context, libraries)?;
        // SAFETY: the keeper keeps the context open.
        // WHY UNSAFE: a raw pointer.
        set_nonblocking(unsafe { (*context.as_ptr()).async_fd })?;
        // SAFETY: as above.
        // WHY UNSAFE: a foreign function.
        let domain = unsafe { (libraries.verbs.ibv_alloc_pd)(context.as_ptr()) };
        let domain = NonNull::new(domain).ok_or_else(io::Error::last_os_error)?;
        Ok(Self {
            context,
            domain,
            libraries,
            limits,
            name: name_of(context),
            is_removed: AtomicBool::new(false),
            keeper,
        })
    }

    /// Name, as in /sys/class/infiniband.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the device can do.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes a report of the device about itself (a port is down, the device has failed) without
    /// waiting, in words. None: there is none. One thread of the process asks for them.
    pub fn take_report(&self) -> Option<&'static str> {
        let verbs = &self.libraries.verbs;
        let mut event = AsyncEvent {
            element: std::ptr::null_mut(),
            event_type: 0,
        };
        // SAFETY: the context is open, and the library writes one event.
        // WHY UNSAFE: a foreign function.
        let taken = unsafe { (verbs.ibv_get_async_event)(self.context(), &raw mut event) };
        check(taken).ok()?;
        // SAFETY: the event was just taken, and is acknowledged once. The element is not looked at:
        // its owner may be another thread.
        // WHY UNSAFE: a foreign function.
        unsafe { (verbs.ibv_ack_async_event)(&raw mut event) };
        // SAFETY: takes a number. The result is a constant of the library.
        // WHY UNSAFE: a foreign function, and a raw C string.
        Some(unsafe { constant((verbs.ibv_event_type_str)(event.event_type)) })
    }

    /// Closes the files of the context, of which nothing is left. The kernel waits for that before
    /// a device is gone, and librdmacm keeps the context of the last device open. The library
    /// closes the numbers later, so they stay open: /dev/null has them.
    fn let_go(&self) -> io::Result<()> {
        let null = File::options().read(true).write(true).open("/dev/null")?;
        // SAFETY: the keeper keeps the context open.
        // WHY UNSAFE: a raw pointer.
        let files = unsafe { [(*self.context()).cmd_fd, (*self.context()).async_fd] };
        for file in files {
            // SAFETY: takes two descriptors and touches no memory. The library owns the replaced
            // one, and from now on it only closes it, or hears that it is no device.
            // WHY UNSAFE: std does not replace descriptors.
            let replaced = unsafe { libc::dup3(null.as_raw_fd(), file, libc::O_CLOEXEC) };
            if replaced < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// The address of this machine at which the device was found.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.keeper.local_addr().ok_or_else(no_device)
    }

    pub(super) fn context(&self) -> *mut Context {
        self.context.as_ptr()
    }

    pub(super) fn domain(&self) -> *mut Pd {
        self.domain.as_ptr()
    }

    pub(super) fn libraries(&self) -> &'static Libraries {
        self.libraries
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: all that belongs to the protection domain holds the device, so nothing is left
        // of it, except what could not be destroyed. The domain stays then.
        // WHY UNSAFE: a foreign function, and the object ends here.
        let _stays = check_errno(unsafe { (self.libraries.verbs.ibv_dealloc_pd)(self.domain()) });
        if self.is_removed.load(Ordering::Relaxed) {
            let _waits_for_the_process = self.let_go();
        }
    }
}

fn known(devices: &[Weak<Device>], context: *mut Context) -> Option<Arc<Device>> {
    let mut devices = devices.iter().filter_map(Weak::upgrade);
    devices.find(|device| device.context() == context)
}

/// The devices of this process.
static DEVICES: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());

fn query(context: NonNull<Context>, libraries: &Libraries) -> io::Result<Limits> {
    // SAFETY: the attributes are numbers; zero is valid for all of them.
    // WHY UNSAFE: the structure has private fields.
    let mut all: DeviceAttr = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open, and the library writes one `struct ibv_device_attr`.
    // WHY UNSAFE: a foreign function.
    check_errno(unsafe { (libraries.verbs.ibv_query_device)(context.as_ptr(), &raw mut all) })?;
    // SAFETY: the context is open and has a device as long.
    // WHY UNSAFE: raw pointers.
    let transport = unsafe { (*(*context.as_ptr()).device).transport_type };
    Ok(Limits {
        work_requests: number(all.max_qp_wr),
        ranges: number(all.max_sge),
        read_ranges: number(all.max_sge_rd),
        completions: number(all.max_cqe),
        responder_resources: reads(all.max_qp_rd_atom),
        initiator_depth: reads(all.max_qp_init_rd_atom),
        invalidates: all.device_cap_flags & layout::DEVICE_MEM_MGT_EXTENSIONS != 0,
        windows: all.device_cap_flags & layout::DEVICE_MEM_WINDOW_TYPE_2B != 0,
        is_soft_roce: all.vendor_id == layout::VENDOR_SOFT_ROCE,
        is_iwarp: transport == layout::TRANSPORT_IWARP,
    })
}

/// A number of a device, which is none below 0.
fn number(said: libc::c_int) -> u32 {
    u32::try_from(said).unwrap_or(0)
}

fn reads(said: libc::c_int) -> u8 {
    u8::try_from(number(said).min(READS_MOST.into())).unwrap_or(READS_MOST)
}

fn name_of(context: NonNull<Context>) -> String {
    // SAFETY: the context is open, and its device's name ends with a zero.
    // WHY UNSAFE: raw pointers and a raw C string.
    let name = unsafe { CStr::from_ptr((*(*context.as_ptr()).device).name.as_ptr()) };
    name.to_string_lossy().into_owned()
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name)
    }
}

/// 255 means "the most of the device" to the connection manager.
const READS_MOST: u8 = 254;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_at_the_same_time_fit_into_a_byte_that_is_not_255() {
        for (said, reads_most) in [
            (-1, 0),
            (0, 0),
            (16, 16),
            (254, 254),
            (255, 254),
            (512, 254),
        ] {
            assert_eq!(reads(said), reads_most);
        }
    }
}
