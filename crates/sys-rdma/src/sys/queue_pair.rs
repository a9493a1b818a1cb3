//! A queue pair with its connection.
//!
//! The queue pair owns all memory that its device may use. It counts every receive and every
//! request, so each is told as ended exactly once. Memory is free when its request has ended, or
//! when the queue pair is destroyed, which ends all access of the device.

mod posting;
mod window;

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::rc::Rc;

use fabrix_rt::Shard;

use super::check;
use super::completions::{Arrivals, CompletionQueue, direction};
use super::creation::{conn_param, create, destroy};
use super::id::Id;
use super::layout::{self, Qp, QpAttr, Wc};
use super::library::constant;
use super::memory::ShardMemory;
use super::receives::ReceiveRing;
use super::sends::{Ended, SendRing};
use super::slots::Slots;
use super::windows::Windows;
use crate::done::{Done, WorkFailure};
use crate::event::Parameters;

/// One end of a connection: its id with a queue pair.
pub struct QueuePair {
    raw: NonNull<Qp>,
    id: Id,
    completions: Rc<CompletionQueue>,
    memory: Rc<ShardMemory>,
    arrivals: Rc<Arrivals>,
    number: u32,
    sizes: QueueSizes,
    sends: ManuallyDrop<SendRing>,
    receives: ManuallyDrop<ReceiveRing>,
    windows: Windows,
    state: State,
    /// RDMA READs that may be in progress at the same time.
    reads_most: u32,
    /// A failure that was not told yet.
    failure: Option<WorkFailure>,
}

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSizes {
    /// Requests to send, write and read in progress at the same time.
    pub sends: u32,
    /// Receives: the slots for messages of the peer.
    pub receives: u32,
    /// Bytes of the longest message of the peer.
    pub receive_bytes: u32,
    /// Bytes of the longest message to the peer, without data that goes with it.
    pub message_bytes: u32,
    /// Memory windows, through which the peer reaches memory of this end.
    pub windows: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Receives may be posted.
    Connecting,
    /// Requests may be posted.
    Open,
    /// Nothing may be posted.
    Closed,
}

impl QueuePair {
    /// Gives a connection its queue pair. Its events and completions carry `key`. No receive is
    /// posted yet. The first slots have memory ([`QueuePair::receives`]): a peer that nobody knows
    /// yet costs little.
    ///
    /// Errors: `OutOfMemory` without buffers, `StorageFull` for a completion queue without room,
    /// `Unsupported` for a device without the windows that it needs, and what the device says. The
    /// connection is gone then.
    pub fn new(
        mut id: Id,
        shard: &mut Shard,
        completions: &Rc<CompletionQueue>,
        memory: &Rc<ShardMemory>,
        key: usize,
        sizes: &QueueSizes,
    ) -> io::Result<Self> {
        let context = id.context()?.as_ptr();
        for device in [completions.device(), memory.device()] {
            if device.context() != context {
                return Err(io::Error::from_raw_os_error(libc::EXDEV));
            }
        }
        if sizes.sends == 0 || sizes.receives == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let key_of = |slab| memory.key(slab);
        let messages = Slots::take(shard, key_of, sizes.sends, sizes.message_bytes)?;
        let mut slots = Slots::new(sizes.receives, sizes.receive_bytes);
        let first = slots.per_buffer().min(sizes.receives);
        slots.grow(shard, key_of, first)?;
        let windows = Windows::new(memory.device(), sizes.windows)?;
        let (raw, inline_bytes) = create(&id, completions, memory, sizes)?;
        id.set_key(key);
        let added = completions.add(key, sizes.sends.saturating_add(sizes.receives));
        let (number, arrivals) = match added {
            Ok(added) => added,
            Err(error) => {
                destroy(&id, raw)?;
                return Err(error);
            }
        };
        let sends = SendRing::new(number, sizes.sends, messages, inline_bytes);
        Ok(Self {
            raw,
            id,
            completions: Rc::clone(completions),
            memory: Rc::clone(memory),
            arrivals,
            number,
            sizes: *sizes,
            sends: ManuallyDrop::new(sends),
            receives: ManuallyDrop::new(ReceiveRing::new(number, sizes.receives, slots)),
            windows,
            state: State::Connecting,
            reads_most: 1,
            failure: None,
        })
    }

    /// Slots that have memory, from 0 on.
    pub fn receives(&self) -> u32 {
        self.receives.count()
    }

    /// Gives all slots memory.
    ///
    /// Errors: `OutOfMemory` without buffers, or with buffers that the device does not know.
    pub fn add_receives(&mut self, shard: &mut Shard) -> io::Result<()> {
        let memory = Rc::clone(&self.memory);
        self.receives.grow(shard, |slab| memory.key(slab))
    }

    /// The connection.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// The completion queue.
    pub fn completions(&self) -> &Rc<CompletionQueue> {
        &self.completions
    }

    /// Asks the peer for the connection, after the route is resolved. An event tells the answer.
    ///
    /// Errors: `InvalidInput` for more than the device can do, and what the connection manager
    /// says.
    pub fn connect(&mut self, parameters: &Parameters) -> io::Result<()> {
        let connect = self.id.libraries().cm.rdma_connect;
        let mut conn = conn_param(parameters)?;
        // SAFETY: the id has a queue pair, and so a device. The library copies the parameters.
        // WHY UNSAFE: a foreign function.
        check(unsafe { connect(self.id.raw(), &raw mut conn) })?;
        self.reads_most = parameters.initiator_depth.into();
        Ok(())
    }

    /// Accepts the connection that the peer has asked for. Requests may be posted from now on.
    ///
    /// Errors: as of [`QueuePair::connect`].
    pub fn accept(&mut self, parameters: &Parameters) -> io::Result<()> {
        let accept = self.id.libraries().cm.rdma_accept;
        let mut conn = conn_param(parameters)?;
        // SAFETY: as of `connect`.
        // WHY UNSAFE: as of `connect`.
        check(unsafe { accept(self.id.raw(), &raw mut conn) })?;
        self.reads_most = parameters.initiator_depth.into();
        self.state = State::Open;
        Ok(())
    }

    /// The connection is established ([`EventKind::Established`]). The active end may post requests
    /// from now on.
    ///
    /// [`EventKind::Established`]: crate::EventKind::Established
    pub fn established(&mut self) {
        if self.state == State::Connecting {
            self.state = State::Open;
        }
    }

    /// Ends the connection. Everything that is posted ends, mostly as failed: the queue pair may be
    /// dropped at once, or after [`QueuePair::is_drained`] when the owner wants its memory back.
    pub fn disconnect(&mut self) {
        self.state = State::Closed;
        // SAFETY: the id exists and has a device.
        // WHY UNSAFE: a foreign function.
        let _not_connected = unsafe { (self.id.libraries().cm.rdma_disconnect)(self.id.raw()) };
        // A connection that never came about has a queue pair that does not end its receives.
        let mut attributes = QpAttr::of_state(layout::QPS_ERR);
        let modify = self.id.libraries().verbs.ibv_modify_qp;
        // SAFETY: the queue pair exists. Only its state is read from the attributes.
        // WHY UNSAFE: a foreign function.
        let _in_error_already =
            unsafe { modify(self.raw(), &raw mut attributes, layout::QP_STATE) };
    }

    /// Whether the connection takes no more work: it has failed or was ended.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether nothing is posted, and all has been told.
    pub fn is_drained(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty()
    }

    /// Requests that were begun and not told as ended. At 0 the peer's device has the last message,
    /// unless the connection has failed.
    pub fn sends_in_progress(&self) -> usize {
        self.sends.in_use()
    }

    /// Requests that may be begun now.
    pub fn room(&self) -> usize {
        self.sends.room()
    }

    /// The next news. The owner takes them until there are none.
    pub fn next_done(&mut self) -> Option<Done> {
        loop {
            if let Some(failure) = self.failure.take() {
                return Some(Done::Failed(failure));
            }
            if let Some(ended) = self.sends.next_ended() {
                return Some(self.told(ended));
            }
            match self.arrivals.take() {
                Some(wc) => {
                    if let Some(received) = self.completed(&wc) {
                        return Some(received);
                    }
                }
                None if self.state == State::Closed && !self.sends.is_empty() => {
                    self.sends.abandon();
                    let ended = self.sends.next_ended()?;
                    return Some(self.told(ended));
                }
                None => return None,
            }
        }
    }

    fn completed(&mut self, wc: &Wc) -> Option<Done> {
        let is_ok = wc.status == layout::WC_SUCCESS;
        if !is_ok {
            self.fail(wc.status);
        }
        match direction(wc.wr_id) {
            (true, low) => {
                self.sends.completed(low, is_ok);
                None
            }
            (false, slot) => {
                let bytes = wc.byte_len as usize;
                let is_ours = self.receives.completed(slot, bytes);
                let flags = wc.wc_flags & self.invalidation_flags();
                let invalidated = (flags != 0).then_some(wc.invalidated_rkey);
                if is_ok
                    && is_ours
                    && let Some(key) = invalidated
                {
                    self.windows.invalidated(key);
                }
                (is_ok && is_ours).then_some(Done::Received {
                    slot,
                    bytes,
                    invalidated,
                })
            }
        }
    }

    /// Flags of a completion whose message has invalidated a key.
    fn invalidation_flags(&self) -> libc::c_uint {
        match self.completions.device().limits().is_soft_roce {
            true => layout::WC_WITH_INV | layout::WC_WITH_INV_OF_KERNEL,
            false => layout::WC_WITH_INV,
        }
    }

    /// A work that has ended, with the memory of the window that it has closed.
    fn told(&mut self, ended: Ended) -> Done {
        let closes = ended.closes.filter(|_| ended.is_ok);
        let closed = closes.and_then(|window| self.windows.closed(window));
        Done::Ended {
            token: ended.token,
            is_ok: ended.is_ok,
            memory: ended.memory.or(closed),
        }
    }

    /// Notes the first failure. Flushed requests are a consequence and no cause.
    fn fail(&mut self, status: i32) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        // SAFETY: takes a number. The result is a constant of the library.
        // WHY UNSAFE: a foreign function, and a raw C string.
        let text = unsafe { constant((self.id.libraries().verbs.ibv_wc_status_str)(status)) };
        self.failure = Some(WorkFailure { status, text });
    }

    fn raw(&self) -> *mut Qp {
        self.raw.as_ptr()
    }

    fn requests(&self) -> u32 {
        self.sizes.sends + self.sizes.receives
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // Some drivers keep a queue pair as long as windows that were opened through it.
        self.windows.end();
        if destroy(&self.id, self.raw).is_ok() {
            self.completions.remove(self.number, self.requests());
            // SAFETY: each is dropped once, here. The queue pair is destroyed, so the device no
            // longer uses their memory. Otherwise the memory stays for ever.
            // WHY UNSAFE: fields that are dropped on one condition.
            unsafe {
                ManuallyDrop::drop(&mut self.sends);
                ManuallyDrop::drop(&mut self.receives);
            }
        }
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair({:?}, {:?})", self.id, self.state)
    }
}
