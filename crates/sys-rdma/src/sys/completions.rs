//! Completion queues: one for many queue pairs of a shard.
//!
//! A completion queue of a device loses completions when it overflows. So each queue pair reserves
//! an entry for each of its work requests, and is refused when there are not enough.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;

use fabrix_rt::{Poller, Waitable};

use super::device::Device;
use super::layout::{CompChannel, Cq, Wc};
use super::{borrow_descriptor, check, check_errno, set_nonblocking};

/// A completion queue with the channel that wakes its shard. It is a [`Poller`]: when it is ready,
/// [`CompletionQueue::next_ready`] names the queue pairs that have news.
pub struct CompletionQueue {
    channel: Channel,
    raw: NonNull<Cq>,
    entries: u32,
    reserved: Cell<u32>,
    /// A notice is asked for and has not come yet.
    is_armed: Cell<bool>,
    /// The device has failed to tell completions. Errno.
    failed: Cell<Option<i32>>,
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    /// By number. None: the number is free.
    queues: Vec<Option<Rc<Arrivals>>>,
    ready: VecDeque<Rc<Arrivals>>,
    /// Where the device writes completions.
    taken: [Wc; AT_ONCE as usize],
}

/// Completions of one queue pair that it has not taken yet.
pub(super) struct Arrivals {
    key: usize,
    list: RefCell<VecDeque<Wc>>,
    is_ready: Cell<bool>,
}

/// A completion channel, destroyed after the queue.
struct Channel {
    raw: NonNull<CompChannel>,
    device: Arc<Device>,
}

impl CompletionQueue {
    /// A queue for at least `entries` completions.
    ///
    /// Errors: what the device says.
    pub fn new(device: &Arc<Device>, entries: u32) -> io::Result<Rc<Self>> {
        let channel = Channel::new(device)?;
        let asked = entries.clamp(1, device.limits().completions.max(1));
        let asked = libc::c_int::try_from(asked).map_err(|_| io::ErrorKind::InvalidInput)?;
        let create = device.libraries().verbs.ibv_create_cq;
        // SAFETY: context and channel exist. The vector is zero, which every device has.
        // WHY UNSAFE: a foreign function.
        let raw = unsafe {
            create(
                device.context(),
                asked,
                ptr::null_mut(),
                channel.raw.as_ptr(),
                0,
            )
        };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the queue exists, and nobody changes its size.
        // WHY UNSAFE: a raw pointer.
        let granted = unsafe { (*raw.as_ptr()).cqe };
        Ok(Rc::new(Self {
            channel,
            raw,
            entries: u32::try_from(granted).unwrap_or(0),
            reserved: Cell::new(0),
            is_armed: Cell::new(false),
            failed: Cell::new(None),
            inner: RefCell::default(),
        }))
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.channel.device
    }

    /// Entries that no queue pair has reserved.
    pub fn free_entries(&self) -> u32 {
        self.entries - self.reserved.get()
    }

    /// Key of a queue pair that has completions to take. Each call names another one, until the
    /// named queue pairs have taken theirs.
    ///
    /// Errors: the device has failed to tell completions.
    pub fn next_ready(&self) -> io::Result<Option<usize>> {
        self.collect();
        if let Some(errno) = self.failed.get() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let ready = self.inner.borrow_mut().ready.pop_front();
        Ok(ready.map(|arrivals| {
            arrivals.is_ready.set(false);
            arrivals.key
        }))
    }

    /// Whether no queue pair uses it.
    pub fn is_idle(&self) -> bool {
        self.reserved.get() == 0
    }

    pub(super) fn raw(&self) -> *mut Cq {
        self.raw.as_ptr()
    }

    /// Adds a queue pair with so many work requests. Result: its number, which its work requests
    /// carry.
    ///
    /// Errors: `StorageFull` if too few entries are free.
    pub(super) fn add(&self, key: usize, requests: u32) -> io::Result<(u32, Rc<Arrivals>)> {
        if requests > self.free_entries() {
            let sentence = "the completion queue has no room for this connection";
            return Err(io::Error::new(io::ErrorKind::StorageFull, sentence));
        }
        let mut inner = self.inner.borrow_mut();
        let number = inner.free_number();
        let arrivals = Rc::new(Arrivals {
            key,
            list: RefCell::new(VecDeque::with_capacity(requests as usize)),
            is_ready: Cell::new(false),
        });
        inner.queues[number as usize] = Some(Rc::clone(&arrivals));
        let queues = inner.queues.len();
        inner.ready.reserve(queues);
        self.reserved.set(self.reserved.get() + requests);
        Ok((number, arrivals))
    }

    /// Removes a queue pair that no longer exists. Its completions leave the queue before its
    /// entries are free for another one.
    pub(super) fn remove(&self, number: u32, requests: u32) {
        self.collect();
        let inner = &mut *self.inner.borrow_mut();
        if let Some(gone) = inner.queues[number as usize].take() {
            inner.ready.retain(|arrivals| !Rc::ptr_eq(arrivals, &gone));
        }
        self.reserved.set(self.reserved.get() - requests);
    }

    /// Moves all completions of the device to their queue pairs.
    fn collect(&self) {
        let context = self.channel.device.context();
        // SAFETY: the context is open.
        // WHY UNSAFE: a raw pointer.
        let poll = unsafe { (*context).ops.poll_cq };
        let inner = &mut *self.inner.borrow_mut();
        loop {
            // SAFETY: the queue exists, and the library writes at most so many completions.
            // WHY UNSAFE: a foreign function.
            let count = unsafe { poll(self.raw(), AT_ONCE, inner.taken.as_mut_ptr()) };
            let Ok(count) = usize::try_from(count) else {
                return self.failed.set(Some(libc::EIO));
            };
            for index in 0..count {
                inner.deliver(index);
            }
            if count < inner.taken.len() {
                return;
            }
        }
    }

    /// Takes all notices of the channel.
    fn read_notices(&self) {
        let verbs = &self.channel.device.libraries().verbs;
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        let channel = self.channel.raw.as_ptr();
        // SAFETY: the channel exists and does not wait. The library writes two pointers.
        // WHY UNSAFE: a foreign function.
        while check(unsafe { (verbs.ibv_get_cq_event)(channel, &raw mut queue, &raw mut context) })
            .is_ok()
        {
            self.is_armed.set(false);
            // SAFETY: the notice was just taken, and is acknowledged once.
            // WHY UNSAFE: a foreign function.
            unsafe { (verbs.ibv_ack_cq_events)(queue, 1) }
        }
    }
}

impl Inner {
    /// The lowest number that no queue pair has.
    fn free_number(&mut self) -> u32 {
        let free = self.queues.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            self.queues.push(None);
            self.queues.len() - 1
        });
        u32::try_from(number).expect("each queue pair has reserved entries, whose count is a u32")
    }

    /// Hands a completion that was taken to its queue pair.
    fn deliver(&mut self, index: usize) {
        let wc = self.taken[index];
        // A queue pair that is gone has no interest in its completions.
        let Some(Some(arrivals)) = self.queues.get(number_of(wc.wr_id)) else {
            return;
        };
        arrivals.list.borrow_mut().push_back(wc);
        if !arrivals.is_ready.replace(true) {
            self.ready.push_back(Rc::clone(arrivals));
        }
    }
}

impl Poller for CompletionQueue {
    fn waitable(&self) -> Waitable<'_> {
        // SAFETY: the channel exists, and nobody writes the field.
        // WHY UNSAFE: a raw pointer.
        let descriptor = unsafe { (*self.channel.raw.as_ptr()).fd };
        borrow_descriptor(self, descriptor)
    }

    fn is_ready(&self) -> bool {
        if self.inner.borrow().ready.is_empty() {
            self.collect();
        }
        !self.inner.borrow().ready.is_empty() || self.failed.get().is_some()
    }

    /// Asks for a notice unless one is asked for already: then the next completion brings it.
    fn arm(&self) {
        self.read_notices();
        if self.is_armed.get() {
            return;
        }
        let context = self.channel.device.context();
        // SAFETY: the context is open, and the queue exists.
        // WHY UNSAFE: a raw pointer and a foreign function.
        let asked = unsafe { ((*context).ops.req_notify_cq)(self.raw(), 0) };
        match check_errno(asked) {
            Ok(()) => self.is_armed.set(true),
            Err(error) => self
                .failed
                .set(Some(error.raw_os_error().unwrap_or(libc::EIO))),
        }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let destroy = self.channel.device.libraries().verbs.ibv_destroy_cq;
        // SAFETY: every queue pair holds its completion queue, so none is left, and all notices are
        // acknowledged. A queue that cannot be destroyed stays.
        // WHY UNSAFE: a foreign function, and the object ends here.
        let _stays = check_errno(unsafe { destroy(self.raw()) });
    }
}

impl Channel {
    fn new(device: &Arc<Device>) -> io::Result<Self> {
        let create = device.libraries().verbs.ibv_create_comp_channel;
        // SAFETY: the context is open.
        // WHY UNSAFE: a foreign function.
        let raw = unsafe { create(device.context()) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        let device = Arc::clone(device);
        let channel = Self { raw, device };
        // SAFETY: the channel exists.
        // WHY UNSAFE: a raw pointer.
        set_nonblocking(unsafe { (*raw.as_ptr()).fd })?;
        Ok(channel)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let destroy = self.device.libraries().verbs.ibv_destroy_comp_channel;
        // SAFETY: the completion queue of the channel is destroyed. A channel that cannot be
        // destroyed stays.
        // WHY UNSAFE: a foreign function, and the object ends here.
        let _stays = check_errno(unsafe { destroy(self.raw.as_ptr()) });
    }
}

impl Arrivals {
    /// The next completion, in the order of the device.
    pub(super) fn take(&self) -> Option<Wc> {
        self.list.borrow_mut().pop_front()
    }
}

/// The queue pair of a work request.
fn number_of(wr_id: u64) -> usize {
    usize::try_from(wr_id >> 33).expect("31 bits are left")
}

/// The id of a work request: number of the queue pair (31 bits), direction (1 bit), and slot or
/// sequence number (32 bits).
pub(super) fn request_id(number: u32, is_send: bool, low: u32) -> u64 {
    (u64::from(number) << 33) | (u64::from(is_send) << 32) | u64::from(low)
}

/// Whether a request id is that of a send, and its low 32 bits.
pub(super) fn direction(wr_id: u64) -> (bool, u32) {
    let low = u32::try_from(wr_id & u64::from(u32::MAX)).expect("32 bits are left");
    (wr_id & (1 << 32) != 0, low)
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.reserved.get();
        write!(f, "CompletionQueue({used} of {} entries)", self.entries)
    }
}

/// Completions that one call takes.
const AT_ONCE: libc::c_int = 16;
