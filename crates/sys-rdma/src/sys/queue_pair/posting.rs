//! What a queue pair hands to its device: receives and requests.
//!
//! Requests are prepared one by one and handed over together. Without room they are refused, with
//! their memory.

use std::io;
use std::ptr;

use fabrix_rt::Buf;

use super::{QueuePair, State};
use crate::done::{Unsent, Why};
use crate::sys::check_errno;
use crate::sys::layout::{self, BindMw};
use crate::sys::memory::{Data, Memory, Part};
use crate::sys::sends::{Entry, Request};

impl QueuePair {
    /// Hands a slot to the device with the next [`QueuePair::flush`]. Panics for a slot that is
    /// posted already.
    pub fn post_receive(&mut self, slot: u32) {
        self.receives.prepare(slot);
    }

    /// The message in a slot. Panics for a posted slot, and for more bytes than the slot has.
    pub fn message(&self, slot: u32, bytes: usize) -> &[u8] {
        self.receives.bytes(slot, bytes)
    }

    /// Prepares a message. It goes with the next [`QueuePair::flush`]. `data` follows the message.
    /// `invalidate`: a key of the peer that becomes invalid with the message. Panics for a message
    /// that is too long.
    ///
    /// Errors: the reason, and the memory back.
    pub fn send(
        &mut self,
        message: &[u8],
        data: Option<Data>,
        invalidate: Option<u32>,
        token: u64,
    ) -> Result<(), Unsent> {
        let opcode = match invalidate {
            Some(_) => layout::WR_SEND_WITH_INV,
            None => layout::WR_SEND,
        };
        let key = match self.admit(1, data.as_ref().map(|data| &data.memory)) {
            Ok(key) => key,
            Err(why) => {
                let memory = data.map(|data| data.memory);
                return Err(Unsent { why, memory });
            }
        };
        let range = |data: &Data| data.memory.range(key, data.start, data.bytes);
        let request = Request {
            opcode,
            data: data.as_ref().map(range),
            remote: None,
            invalidate: invalidate.unwrap_or(0),
            bind: BindMw::empty(),
            entry: Entry {
                token: Some(token),
                memory: data.map(|data| data.memory),
                ..Entry::default()
            },
        };
        self.sends.prepare(message, request);
        Ok(())
    }

    /// Prepares RDMA WRITEs of all parts. They go with the next [`QueuePair::flush`]. Without a
    /// token their end is not told: the end of a message behind them tells it. Panics without parts
    /// and for a part outside the memory.
    ///
    /// Errors: the reason, and the memory back.
    pub fn write(
        &mut self,
        memory: Memory,
        parts: &[Part],
        token: Option<u64>,
    ) -> Result<(), Unsent> {
        self.transfer(layout::WR_RDMA_WRITE, memory, parts, token)
    }

    /// Prepares RDMA READs of all parts. They go with the next [`QueuePair::flush`]. Panics without
    /// parts, for a part outside the buffer, and for a shared buffer.
    ///
    /// Errors: the reason, and the buffer back. `Full` also for more READs at the same time than
    /// the connection allows, unless none is in progress.
    pub fn read(&mut self, buf: Buf, parts: &[Part], token: u64) -> Result<(), Unsent> {
        check_unique(&buf);
        let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let reads = self.sends.reads();
        if reads > 0 && reads.saturating_add(count) > self.reads_most {
            return Err(Unsent {
                why: Why::Full,
                memory: Some(Memory::Buf(buf)),
            });
        }
        self.transfer(layout::WR_RDMA_READ, Memory::Buf(buf), parts, Some(token))
    }

    fn transfer(
        &mut self,
        opcode: libc::c_int,
        memory: Memory,
        parts: &[Part],
        token: Option<u64>,
    ) -> Result<(), Unsent> {
        let key = match self.admit(parts.len(), Some(&memory)) {
            Ok(key) => key,
            Err(why) => {
                let memory = Some(memory);
                return Err(Unsent { why, memory });
            }
        };
        self.sends.prepare_parts(opcode, memory, key, parts, token);
        Ok(())
    }

    /// Whether a work of so many requests can begin. Result: the key of its memory.
    pub(super) fn admit(&self, requests: usize, memory: Option<&Memory>) -> Result<u32, Why> {
        let key = match memory {
            Some(memory) => memory.slab().and_then(|slab| self.memory.key(slab)),
            None => Some(0),
        };
        match key {
            _ if self.state != State::Open => Err(Why::Closed),
            _ if self.sends.room() < requests => Err(Why::Full),
            None => Err(Why::Unregistered),
            Some(key) => Ok(key),
        }
    }

    /// Hands all prepared receives and requests to the device, each kind in one call.
    ///
    /// Errors: the device takes no more. The connection has failed then.
    pub fn flush(&mut self) -> io::Result<()> {
        let posted = self.post_receives().and_then(|()| self.post_sends());
        if posted.is_err() {
            self.disconnect();
        }
        posted
    }

    fn post_receives(&mut self) -> io::Result<()> {
        let Some(first) = self.receives.chain() else {
            return Ok(());
        };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair exists. The chain and its ranges stay where they are until the
        // call returns, and the memory of the ranges until the queue pair ends.
        // WHY UNSAFE: a foreign function that hands memory to a device.
        let posted = check_errno(unsafe {
            let post = (*self.completions.device().context()).ops.post_recv;
            post(self.raw(), first, &raw mut bad)
        });
        match posted {
            Ok(()) => self.receives.all_posted(),
            Err(_) => self.receives.posted_before(bad),
        }
        posted
    }

    fn post_sends(&mut self) -> io::Result<()> {
        let Some(first) = self.sends.chain() else {
            return Ok(());
        };
        let mut bad = ptr::null_mut();
        // SAFETY: as of the receives. The entries of the requests own their memory until they have
        // ended.
        // WHY UNSAFE: as of the receives.
        let posted = check_errno(unsafe {
            let post = (*self.completions.device().context()).ops.post_send;
            post(self.raw(), first, &raw mut bad)
        });
        match posted {
            Ok(()) => self.sends.all_posted(),
            Err(_) => self.sends.posted_before(bad),
        }
        posted
    }
}

/// Panics for a shared buffer, which a device must not fill.
pub(super) fn check_unique(buf: &Buf) {
    assert!(buf.is_unique(), "a Buf to be filled is shared: {buf:?}");
}
