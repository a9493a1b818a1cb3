//! Event channels of the connection manager.
//!
//! An event is copied and acknowledged before its taker sees it. The libraries wait for
//! acknowledgements when an object is destroyed, so an event that stays unacknowledged would stop
//! its own thread.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::slice;
use std::sync::Arc;

use super::device::Device;
use super::id::Id;
use super::layout::{self, CmEvent, ConnParam};
use super::library::{Libraries, libraries};
use super::{borrow_descriptor, check, set_nonblocking};
use crate::event::{Event, EventKind, Parameters};
use crate::refused::Refused;

/// A channel over which the connection manager reports the events of connections and listeners.
/// All of them stay on the thread of the channel, unless an id is detached.
#[derive(Clone)]
pub struct EventChannel {
    pub(super) owner: Arc<Owner>,
    /// Taking an event changes ids of this channel, so both belong to one thread.
    one_thread: PhantomData<Rc<()>>,
}

/// Owner of `struct rdma_event_channel`. Every id of the channel holds it.
pub(super) struct Owner {
    raw: NonNull<layout::EventChannel>,
    pub(super) libraries: &'static Libraries,
}

// SAFETY: the owner gives access to nothing but the address and the descriptor, which never change.
// The library guards its own state by locks.
// WHY UNSAFE: a raw pointer is not Send by itself, and detached ids keep their channel.
unsafe impl Send for Owner {}
// SAFETY: as for Send.
// WHY UNSAFE: as for Send.
unsafe impl Sync for Owner {}

impl Owner {
    fn new() -> Result<Arc<Self>, Refused> {
        let libraries = libraries().map_err(Refused::no_library)?;
        // SAFETY: takes nothing.
        // WHY UNSAFE: a foreign function.
        let raw = unsafe { (libraries.cm.rdma_create_event_channel)() };
        let Some(raw) = NonNull::new(raw) else {
            return Err(Refused::no_channel(&io::Error::last_os_error()));
        };
        let owner = Self { raw, libraries };
        set_nonblocking(owner.descriptor()).map_err(|error| Refused::no_channel(&error))?;
        Ok(Arc::new(owner))
    }

    pub(super) fn raw(&self) -> *mut layout::EventChannel {
        self.raw.as_ptr()
    }

    fn descriptor(&self) -> i32 {
        // SAFETY: the channel exists as long as its owner, and nobody writes the field.
        // WHY UNSAFE: a raw pointer.
        unsafe { (*self.raw.as_ptr()).fd }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: every id of the channel holds its owner, so none is left.
        // WHY UNSAFE: a foreign function, and the object ends here.
        unsafe { (self.libraries.cm.rdma_destroy_event_channel)(self.raw.as_ptr()) }
    }
}

impl EventChannel {
    /// Opens the libraries and a channel.
    ///
    /// Errors: what is missing on this machine, and what to do.
    pub fn new() -> Result<Self, Refused> {
        Ok(Self {
            owner: Owner::new()?,
            one_thread: PhantomData,
        })
    }

    /// Takes the next event without waiting. None: there is none.
    ///
    /// Errors: what the connection manager says.
    pub fn take(&self) -> io::Result<Option<Event>> {
        let cm = &self.owner.libraries.cm;
        let mut event = ptr::null_mut();
        // SAFETY: the channel is open, and the library writes one pointer.
        // WHY UNSAFE: a foreign function.
        let taken = check(unsafe { (cm.rdma_get_cm_event)(self.owner.raw(), &raw mut event) });
        match taken {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            taken => taken?,
        }
        // SAFETY: the library has just returned the event, which stays until it is acknowledged.
        // WHY UNSAFE: a raw pointer.
        let copy = unsafe { self.copy(&*event) };
        // SAFETY: the event was returned by this library and is acknowledged once. No reference to
        // it is left.
        // WHY UNSAFE: a foreign function, and the object ends here.
        let acknowledged = check(unsafe { (cm.rdma_ack_cm_event)(event) });
        debug_assert!(acknowledged.is_ok(), "an event of ours");
        Ok(Some(copy))
    }

    /// A second descriptor of the channel. It is readable when an event waits.
    ///
    /// Errors: no descriptor is free.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.as_fd().try_clone_to_owned()
    }

    /// # Safety
    /// The event is as the library has returned it, not acknowledged yet.
    unsafe fn copy(&self, event: &CmEvent) -> Event {
        let concerned = match event.listen_id.is_null() {
            true => event.id,
            false => event.listen_id,
        };
        // SAFETY: the library keeps the id of an event until the event is acknowledged.
        // WHY UNSAFE: a raw pointer.
        let key = unsafe { (*concerned).context } as usize;
        // SAFETY: the caller vouches for the event.
        // WHY UNSAFE: as below.
        let parameters = unsafe { parameters(&event.conn) };
        let kind = match event.event {
            layout::CONNECT_REQUEST => {
                let raw = NonNull::new(event.id).expect("a request comes with its id");
                // SAFETY: the library has made this id for us, and nobody else owns it.
                // WHY UNSAFE: ownership of a raw pointer.
                let id = unsafe { Id::own(raw, self.clone()) };
                EventKind::ConnectRequest(id, parameters)
            }
            layout::DEVICE_REMOVAL => {
                // SAFETY: as of the key.
                // WHY UNSAFE: as of the key.
                Device::goes_away(unsafe { (*event.id).verbs });
                EventKind::DeviceRemoved
            }
            number => EventKind::of(number, event.status, parameters),
        };
        Event { key, kind }
    }
}

/// # Safety
/// The parameters lie in an event that is not acknowledged yet.
unsafe fn parameters(conn: &ConnParam) -> Parameters {
    let private_data = match conn.private_data.is_null() {
        true => Vec::new(),
        false => {
            let bytes = usize::from(conn.private_data_len);
            // SAFETY: the pointer leads to so many bytes inside the event.
            // WHY UNSAFE: a raw pointer.
            unsafe { slice::from_raw_parts(conn.private_data.cast::<u8>(), bytes) }.to_vec()
        }
    };
    Parameters {
        private_data,
        responder_resources: conn.responder_resources,
        initiator_depth: conn.initiator_depth,
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        borrow_descriptor(self, self.owner.descriptor())
    }
}
