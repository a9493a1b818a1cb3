//! Ids of the connection manager: a listener, or one end of a connection.

use std::cell::OnceCell;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::net::{IpAddr, SocketAddr};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use super::address::{address, storage};
use super::channel::{EventChannel, Owner};
use super::layout::{self, CmId};
use super::library::Libraries;
use super::{check, device::Device};
use crate::event::NO_DEVICE;
use crate::look;

/// A listener, or one end of a connection before it has a queue pair.
pub struct Id {
    raw: NonNull<CmId>,
    channel: EventChannel,
    /// The device, once the id has one: it must not let go of its context before.
    device: OnceCell<Arc<Device>>,
}

/// An id on its way to the channel of another thread.
pub struct DetachedId {
    raw: NonNull<CmId>,
    owner: Arc<Owner>,
    device: Option<Arc<Device>>,
}

// SAFETY: nobody uses the id before it is attached, except the thread that takes the events of its
// old channel. The library lets that thread end before it moves or destroys the id.
// WHY UNSAFE: a raw pointer is not Send by itself.
unsafe impl Send for DetachedId {}
// SAFETY: a shared detached id only reads fields that nobody changes meanwhile.
// WHY UNSAFE: as for Send.
unsafe impl Sync for DetachedId {}

impl Id {
    /// A new id for connections over reliable queue pairs (RDMA_PS_TCP). Its events carry `key`.
    ///
    /// Errors: what the connection manager says.
    pub fn new(channel: &EventChannel, key: usize) -> io::Result<Self> {
        Ok(Self {
            raw: make(&channel.owner, key)?,
            channel: channel.clone(),
            device: OnceCell::new(),
        })
    }

    /// An id that only watches a device. [`EventKind::DeviceRemoved`] comes with `key` when the
    /// device goes away, also to an owner of memory or a completion queue without a connection. The
    /// id has a port that nobody connects to. It holds the device, so it is dropped with the rest.
    ///
    /// Errors: a sentence for a device that is gone, or whose address has gone to another one, and
    /// what the connection manager says.
    ///
    /// [`EventKind::DeviceRemoved`]: crate::EventKind::DeviceRemoved
    pub fn watch(channel: &EventChannel, key: usize, device: &Arc<Device>) -> io::Result<Self> {
        let id = Self::bound(channel, key, device.address()?).map_err(name_no_device)?;
        if id.context()?.as_ptr() != device.context() {
            return Err(no_device());
        }
        id.device.get_or_init(|| Arc::clone(device));
        Ok(id)
    }

    /// An id that is bound to an address at any port.
    pub(super) fn bound(
        channel: &EventChannel,
        key: usize,
        mut address: SocketAddr,
    ) -> io::Result<Self> {
        address.set_port(0);
        let id = Self::new(channel, key)?;
        bind(id.libraries(), id.raw, address)?;
        Ok(id)
    }

    /// # Safety
    /// The id is of this channel, and the caller gives up its ownership.
    pub(super) unsafe fn own(raw: NonNull<CmId>, channel: EventChannel) -> Self {
        let id = Self {
            raw,
            channel,
            device: OnceCell::new(),
        };
        let _fails_again_when_it_is_used = id.device();
        id
    }

    /// Events of this id carry this key from now on.
    pub fn set_key(&mut self, key: usize) {
        // SAFETY: the id exists, and only this thread uses it. The library never looks at the
        // value.
        // WHY UNSAFE: a raw pointer.
        unsafe { (*self.raw.as_ptr()).context = key as *mut _ }
    }

    /// Listens at an address. Requests come as events with the key of this id. A listener at an
    /// IPv6 address takes no IPv4 peers.
    ///
    /// Errors: `AddrInUse` or `AddrNotAvailable` for a port that another listener has, a sentence
    /// for an address of no RDMA device, and what the connection manager says.
    pub fn listen(&self, address: SocketAddr, backlog: u16) -> io::Result<()> {
        let cm = &self.libraries().cm;
        if address.is_ipv6() {
            let mut only: libc::c_int = 1;
            // SAFETY: the library reads one int through the pointer.
            // WHY UNSAFE: a foreign function.
            check(unsafe {
                (cm.rdma_set_option)(
                    self.raw(),
                    layout::OPTION_ID,
                    layout::OPTION_ID_AFONLY,
                    (&raw mut only).cast(),
                    size_of_val(&only),
                )
            })?;
        }
        bind(self.libraries(), self.raw, address).map_err(name_no_device)?;
        // SAFETY: the id is bound.
        // WHY UNSAFE: a foreign function.
        check(unsafe { (cm.rdma_listen)(self.raw(), backlog.into()) })?;
        // A listener at all addresses has no device.
        if self.context().is_ok() {
            self.device()?;
        }
        Ok(())
    }

    /// Resolves the address of a peer: an event says how it went. `from`: address of this end, None
    /// if the system chooses.
    ///
    /// Errors: `NetworkUnreachable` without a route, and what the connection manager says.
    pub fn resolve(
        &self,
        to: SocketAddr,
        from: Option<IpAddr>,
        timeout: Duration,
    ) -> io::Result<()> {
        let mut to = storage(to);
        let mut from = from.map(|from| storage(SocketAddr::new(from, 0)));
        let from = from
            .as_mut()
            .map_or(ptr::null_mut(), |from| ptr::from_mut(from).cast());
        let resolve = self.libraries().cm.rdma_resolve_addr;
        // SAFETY: the addresses are whole `sockaddr_storage`s, which the library copies.
        // WHY UNSAFE: a foreign function.
        check(unsafe {
            resolve(
                self.raw(),
                from,
                (&raw mut to).cast(),
                milliseconds(timeout),
            )
        })
    }

    /// Resolves the route, after the address: an event says how it went.
    ///
    /// Errors: a sentence for an address of no RDMA device, and what the connection manager says.
    pub fn resolve_route(&self, timeout: Duration) -> io::Result<()> {
        self.device()?;
        let resolve = self.libraries().cm.rdma_resolve_route;
        // SAFETY: the id exists and has a device.
        // WHY UNSAFE: a foreign function.
        check(unsafe { resolve(self.raw(), milliseconds(timeout)) }).map_err(name_no_device)
    }

    /// Refuses the connection that a peer has asked for. At most 148 bytes of private data.
    ///
    /// Errors: what the connection manager says.
    pub fn reject(self, private_data: &[u8]) -> io::Result<()> {
        let bytes = u8::try_from(private_data.len())
            .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        let reject = self.libraries().cm.rdma_reject;
        // SAFETY: the library reads so many bytes.
        // WHY UNSAFE: a foreign function.
        check(unsafe { reject(self.raw(), private_data.as_ptr().cast(), bytes) })
    }

    /// Address of this end.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        // SAFETY: the id exists, and only this thread uses it.
        // WHY UNSAFE: a raw pointer.
        address(unsafe { &(*self.raw()).src_addr })
    }

    /// Address of the peer.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        // SAFETY: as above.
        // WHY UNSAFE: as above.
        address(unsafe { &(*self.raw()).dst_addr })
    }

    /// The device of this id.
    ///
    /// Errors: a sentence for an id without a device (its address is not resolved or is none of an
    /// RDMA device, or it listens at all addresses), and what making a protection domain says.
    pub fn device(&self) -> io::Result<&Arc<Device>> {
        if let Some(device) = self.device.get() {
            return Ok(device);
        }
        let address = self.local_addr().ok_or_else(no_device)?;
        let device = Device::of(self.context()?, address, self.libraries());
        let device = device.map_err(name_no_device)?;
        Ok(self.device.get_or_init(|| device))
    }

    /// The id without its thread, for the channel of another one. Events that come before it is
    /// attached go to this channel or to the other one.
    pub fn detach(self) -> DetachedId {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the fields move out of it once.
        // WHY UNSAFE: a type with a destructor gives up its fields.
        let (channel, device) = unsafe {
            (
                ptr::read(&raw const this.channel),
                ptr::read(&raw const this.device),
            )
        };
        DetachedId {
            raw: this.raw,
            owner: channel.owner,
            device: device.into_inner(),
        }
    }

    pub(super) fn raw(&self) -> *mut CmId {
        self.raw.as_ptr()
    }

    pub(super) fn libraries(&self) -> &'static Libraries {
        self.channel.owner.libraries
    }

    /// The device's context, which librdmacm owns.
    pub(super) fn context(&self) -> io::Result<NonNull<layout::Context>> {
        // SAFETY: the id exists, and only this thread uses it.
        // WHY UNSAFE: a raw pointer.
        let context = unsafe { (*self.raw()).verbs };
        NonNull::new(context).ok_or_else(no_device)
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        destroy(self.libraries(), self.raw);
    }
}

impl DetachedId {
    /// The id on this thread. Its events come over `channel`, with `key`.
    ///
    /// Errors: what the connection manager says. The id is destroyed then.
    pub fn attach(self, channel: &EventChannel, key: usize) -> io::Result<Id> {
        let migrate = self.owner.libraries.cm.rdma_migrate_id;
        // SAFETY: the id and both channels exist. The library waits until the events that the old
        // channel has given are acknowledged, which its thread does at once.
        // WHY UNSAFE: a foreign function.
        check(unsafe { migrate(self.raw.as_ptr(), channel.owner.raw()) })?;
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the fields move out of it once. The id no longer
        // belongs to the old channel.
        // WHY UNSAFE: a type with a destructor gives up its fields.
        let (_owner, device) = unsafe {
            (
                ptr::read(&raw const this.owner),
                ptr::read(&raw const this.device),
            )
        };
        let mut id = Id {
            raw: this.raw,
            channel: channel.clone(),
            device: device.map_or_else(OnceCell::new, OnceCell::from),
        };
        id.set_key(key);
        Ok(id)
    }

    /// The device's context.
    pub(super) fn context(&self) -> *mut layout::Context {
        // SAFETY: the id exists, and nobody changes it.
        // WHY UNSAFE: a raw pointer.
        unsafe { (*self.raw.as_ptr()).verbs }
    }

    /// Address of this end.
    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        // SAFETY: as above.
        // WHY UNSAFE: as above.
        address(unsafe { &(*self.raw.as_ptr()).src_addr })
    }
}

impl Drop for DetachedId {
    fn drop(&mut self) {
        destroy(self.owner.libraries, self.raw);
    }
}

fn make(owner: &Owner, key: usize) -> io::Result<NonNull<CmId>> {
    let mut raw = ptr::null_mut();
    let context = key as *mut libc::c_void;
    let create = owner.libraries.cm.rdma_create_id;
    // SAFETY: the channel is open, and the library writes one pointer. It keeps the context as a
    // number.
    // WHY UNSAFE: a foreign function.
    check(unsafe { create(owner.raw(), &raw mut raw, context, layout::PS_TCP) })?;
    Ok(NonNull::new(raw).expect("a call that succeeds makes an id"))
}

fn bind(libraries: &Libraries, raw: NonNull<CmId>, address: SocketAddr) -> io::Result<()> {
    let mut address = storage(address);
    // SAFETY: the id exists, and the address is a whole `sockaddr_storage`, which the library
    // copies.
    // WHY UNSAFE: a foreign function.
    check(unsafe { (libraries.cm.rdma_bind_addr)(raw.as_ptr(), (&raw mut address).cast()) })
}

fn destroy(libraries: &Libraries, raw: NonNull<CmId>) {
    // SAFETY: the owner of the id gives it up. A queue pair of the id is destroyed before, because
    // it owns the id. All events of the id are acknowledged when they are taken.
    // WHY UNSAFE: a foreign function, and the object ends here.
    let destroyed = check(unsafe { (libraries.cm.rdma_destroy_id)(raw.as_ptr()) });
    debug_assert!(destroyed.is_ok(), "an id of ours: {destroyed:?}");
}

pub(super) fn no_device() -> io::Error {
    match look::closed() {
        Some(refused) => io::Error::new(io::ErrorKind::NotFound, refused),
        None => io::Error::new(io::ErrorKind::NotFound, NO_DEVICE),
    }
}

/// A sentence instead of ENODEV.
fn name_no_device(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENODEV) => no_device(),
        _ => error,
    }
}

/// Milliseconds for the library, rounded up so that a short time is not zero.
fn milliseconds(time: Duration) -> libc::c_int {
    let milliseconds = time.as_micros().div_ceil(1000);
    libc::c_int::try_from(milliseconds).unwrap_or(libc::c_int::MAX)
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({:?} to {:?})", self.local_addr(), self.peer_addr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_timeout_is_not_none() {
        assert_eq!(milliseconds(Duration::from_micros(1)), 1);
        assert_eq!(milliseconds(Duration::MAX), libc::c_int::MAX);
    }
}
