//! One connection of a hub, with its queue pair.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Weak;

use fabrix_rt::{Buf, Shard};
use sys_rdma::{Access, Data, Done, Memory, Part, QueuePair, Remote, Unsent, Why};

use super::hub::Inner;
use super::pair::{HostPair, Pair};

/// A queue pair whose events and completions reach the task of its connection. Dropping it ends all
/// access of the device to its memory.
pub struct Member {
    pair: QueuePair,
    _entry: Entry,
}

/// The entry of a connection in its hub. Dropping it ends the news.
pub(super) struct Entry {
    pub(super) key: usize,
    pub(super) hub: Weak<RefCell<Inner>>,
}

impl Member {
    pub(super) fn new(pair: QueuePair, entry: Entry) -> Self {
        Self {
            pair,
            _entry: entry,
        }
    }

    pub(super) fn pair(&mut self) -> &mut QueuePair {
        &mut self.pair
    }

    /// Address of this end.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.pair.id().local_addr()
    }
}

impl Pair for Member {
    fn receives(&self) -> u32 {
        self.pair.receives()
    }

    fn add_receives(&mut self, shard: &mut Shard) -> io::Result<()> {
        self.pair.add_receives(shard)
    }

    fn post_receive(&mut self, slot: u32) {
        self.pair.post_receive(slot);
    }

    fn message(&self, slot: u32, bytes: usize) -> &[u8] {
        self.pair.message(slot, bytes)
    }

    fn send(&mut self, message: &[u8], invalidate: Option<u32>, token: u64) -> Result<(), Unsent> {
        self.pair.send(message, None, invalidate, token)
    }

    fn write(&mut self, memory: Memory, parts: &[Part], token: u64) -> Result<(), Unsent> {
        self.pair.write(memory, parts, token)
    }

    fn read(&mut self, buf: Buf, parts: &[Part], token: u64) -> Result<(), Unsent> {
        self.pair.read(buf, parts, token)
    }

    fn room(&self) -> usize {
        self.pair.room()
    }

    fn sends_in_progress(&self) -> usize {
        self.pair.sends_in_progress()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pair.flush()
    }

    fn next_done(&mut self) -> Option<Done> {
        self.pair.next_done()
    }

    fn disconnect(&mut self) {
        self.pair.disconnect();
    }
}

impl HostPair for Member {
    fn send_with(&mut self, message: &[u8], data: Data, token: u64) -> Result<(), Unsent> {
        self.pair.send(message, Some(data), None, token)
    }

    fn open_window(&mut self, window: u32, data: Data, access: Access) -> Result<Remote, Unsent> {
        self.pair.open_window(window, data, access)
    }

    fn close_window(&mut self, window: u32, token: u64) -> Result<Option<Memory>, Why> {
        self.pair.close_window(window, token)
    }

    fn into_memory(self) -> Vec<(u32, Memory)> {
        self.pair.into_memory()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.borrow_mut().forget(self.key);
        }
    }
}
