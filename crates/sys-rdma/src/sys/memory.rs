//! Memory that a device may read and write by itself.
//!
//! A registration keeps its memory mapped, and the memory keeps its pages: [`fabrix_rt`] neither
//! moves a held slab nor gives pages of it back.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use fabrix_rt::{Buf, Lent, MemoryListener, Pinned, Shard, Slab};

use super::check_errno;
use super::device::Device;
use super::layout::{self, Mr, Sge};

/// A registered range of memory, with what keeps it mapped.
struct Registration<M> {
    raw: NonNull<Mr>,
    device: Arc<Device>,
    memory: ManuallyDrop<M>,
}

impl<M> Registration<M> {
    /// # Safety
    /// The range is mapped as long as `memory` exists. If `access` lets a device or a peer write,
    /// no Rust reference to bytes that they write exists meanwhile.
    unsafe fn new(
        device: &Arc<Device>,
        (start, bytes): (NonNull<u8>, usize),
        access: libc::c_int,
        memory: M,
    ) -> io::Result<Self> {
        let register = device.libraries().verbs.ibv_reg_mr;
        // SAFETY: the caller vouches for the range.
        // WHY UNSAFE: a foreign function that hands memory to a device.
        let raw = unsafe { register(device.domain(), start.as_ptr().cast(), bytes, access) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self {
            raw,
            device: Arc::clone(device),
            memory: ManuallyDrop::new(memory),
        })
    }

    fn keys(&self) -> (u32, u32) {
        // SAFETY: the registration exists, and nobody changes its fields.
        // WHY UNSAFE: a raw pointer.
        let raw = unsafe { self.raw.as_ref() };
        (raw.lkey, raw.rkey)
    }
}

impl<M> Drop for Registration<M> {
    fn drop(&mut self) {
        let deregister = self.device.libraries().verbs.ibv_dereg_mr;
        // SAFETY: a queue pair with requests for buffers holds their registration, so none is left.
        // Peers may reach exposed memory until the call returns, and the memory exists so long.
        // WHY UNSAFE: a foreign function, and the object ends here.
        if check_errno(unsafe { deregister(self.raw.as_ptr()) }).is_ok() {
            // SAFETY: the memory is dropped once, here. Memory that the device may still use stays.
            // WHY UNSAFE: a field that is dropped on one condition.
            unsafe { ManuallyDrop::drop(&mut self.memory) }
        }
    }
}

/// The memory of one shard as one device knows it: all buffers, registered slab by slab. Peers
/// reach only what a window of a queue pair opens to them.
pub struct ShardMemory {
    device: Arc<Device>,
    /// By number of the slab.
    slabs: RefCell<Vec<Option<Registration<Slab>>>>,
    /// Errno of a slab that could not be registered.
    refused: Cell<Option<i32>>,
}

impl ShardMemory {
    /// Registers the buffers of a shard, now and from now on.
    ///
    /// Errors: `OutOfMemory` above the limit of locked memory (RLIMIT_MEMLOCK), and what the device
    /// says.
    pub fn new(shard: &mut Shard, device: &Arc<Device>) -> io::Result<Rc<Self>> {
        let this = Rc::new(Self {
            device: Arc::clone(device),
            slabs: RefCell::default(),
            refused: Cell::new(None),
        });
        let listener: Rc<dyn MemoryListener> = this.clone();
        shard.listen_to_memory(&listener);
        match this.refused.get() {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(this),
        }
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Why the last slab that the device does not know was not registered.
    pub fn refused(&self) -> Option<io::Error> {
        self.refused.get().map(io::Error::from_raw_os_error)
    }

    /// Local key of a slab. None: the device does not know it.
    pub(super) fn key(&self, slab: u32) -> Option<u32> {
        let slabs = self.slabs.borrow();
        let registration = slabs.get(slab as usize)?.as_ref()?;
        Some(registration.keys().0)
    }

    /// The registration of a slab, to which windows are bound. It lasts as long as a buffer of the
    /// slab.
    pub(super) fn registration(&self, slab: u32) -> Option<NonNull<Mr>> {
        let slabs = self.slabs.borrow();
        Some(slabs.get(slab as usize)?.as_ref()?.raw)
    }
}

impl MemoryListener for ShardMemory {
    fn mapped(&self, slab: Slab) {
        if slab.len() > SLAB_MOST_BYTES {
            return;
        }
        let number = slab.number() as usize;
        let range = (slab.start(), slab.len());
        let windows = match self.device.limits().windows {
            true => layout::ACCESS_MW_BIND,
            false => 0,
        };
        let access = layout::ACCESS_LOCAL_WRITE | windows;
        // SAFETY: the slab stays mapped while it exists. The device writes into a range only for a
        // posted work request or for an open window, which hold the only `Buf` of the range.
        // WHY UNSAFE: as of `Registration::new`.
        let registered = unsafe { Registration::new(&self.device, range, access, slab) };
        let mut slabs = self.slabs.borrow_mut();
        if slabs.len() <= number {
            slabs.resize_with(number + 1, || None);
        }
        match registered {
            Ok(registration) => slabs[number] = Some(registration),
            Err(error) => self.refused.set(error.raw_os_error()),
        }
    }

    fn unmapping(&self, number: u32) {
        let mut slabs = self.slabs.borrow_mut();
        if let Some(place) = slabs.get_mut(number as usize) {
            *place = None;
        }
    }
}

/// What peers may do with memory of this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
    Write,
    /// RDMA READ and RDMA WRITE.
    ReadAndWrite,
}

impl Access {
    /// The device's flags for it.
    pub(super) fn remote(self) -> libc::c_int {
        match self {
            Self::Read => layout::ACCESS_REMOTE_READ,
            Self::Write => layout::ACCESS_REMOTE_WRITE,
            Self::ReadAndWrite => layout::ACCESS_REMOTE_READ | layout::ACCESS_REMOTE_WRITE,
        }
    }
}

/// A region that peers read, or also write, by RDMA at any time.
pub struct Exposed {
    registration: Registration<Pinned>,
}

// SAFETY: the region is shared memory without references, and the keys never change.
// WHY UNSAFE: a raw pointer is not Send by itself.
unsafe impl Send for Exposed {}
// SAFETY: as for Send.
// WHY UNSAFE: as for Send.
unsafe impl Sync for Exposed {}

impl Exposed {
    /// Registers a region for peers of a device. All its pages are locked in memory.
    ///
    /// Errors: `OutOfMemory` above the limit of locked memory (RLIMIT_MEMLOCK), and what the device
    /// says.
    pub fn new(device: &Arc<Device>, region: Pinned, access: Access) -> io::Result<Self> {
        let range = (region.start(), region.len());
        let local = match access {
            Access::Read => 0,
            Access::Write | Access::ReadAndWrite => layout::ACCESS_LOCAL_WRITE,
        };
        let access = local | access.remote();
        // SAFETY: the region stays mapped while it is pinned. No reference to bytes of a region
        // ever exists.
        // WHY UNSAFE: as of `Registration::new`.
        let registration = unsafe { Registration::new(device, range, access, region) }?;
        Ok(Self { registration })
    }

    /// What a peer needs to reach `offset` of the region.
    pub fn remote(&self, offset: u64) -> Remote {
        let (_, key) = self.registration.keys();
        let start = self.registration.memory.start().as_ptr() as u64;
        Remote {
            address: start.wrapping_add(offset),
            key,
        }
    }
}

/// A place in memory of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Address, as the peer has said it.
    pub address: u64,
    /// Remote key.
    pub key: u32,
}

/// Memory of this end that a work request owns until it has ended.
#[derive(Debug)]
pub enum Memory {
    /// A buffer of the shard.
    Buf(Buf),
    /// Pages that a disk lends.
    Lent(Lent),
}

impl Memory {
    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Buf(buf) => buf.len(),
            Self::Lent(lent) => lent.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn slab(&self) -> Option<u32> {
        match self {
            Self::Buf(buf) => Some(buf.slab()),
            Self::Lent(lent) => lent.slab(),
        }
    }

    /// Address of the first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        match self {
            Self::Buf(buf) => buf.start(),
            Self::Lent(lent) => lent.start(),
        }
    }

    /// A range of the memory, for the device. Panics outside the memory.
    pub(super) fn range(&self, key: u32, start: usize, bytes: u32) -> Sge {
        let inside = start
            .checked_add(bytes as usize)
            .is_some_and(|end| end <= self.len());
        assert!(inside, "{bytes} bytes from {start} of {self:?}");
        Sge {
            addr: self.start().as_ptr() as u64 + start as u64,
            length: bytes,
            lkey: key,
        }
    }
}

/// A part of a transfer between memory of this end and memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte in the memory of this end.
    pub start: usize,
    /// Bytes.
    pub bytes: u32,
    /// Place in the memory of the peer.
    pub remote: Remote,
}

/// A range of memory that goes with a message.
#[derive(Debug)]
pub struct Data {
    /// The memory.
    pub memory: Memory,
    /// First byte.
    pub start: usize,
    /// Bytes.
    pub bytes: u32,
}

impl fmt::Debug for ShardMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShardMemory({:?})", self.device)
    }
}

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exposed({:?})", self.remote(0))
    }
}

/// Bytes of the largest slab of buffers. Longer slabs are the memory of disks, which is not locked
/// without being asked for.
const SLAB_MOST_BYTES: usize = 4 << 20;
