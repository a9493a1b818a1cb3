//! One connection of a hub, with its queue pair.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

use fabrix_rt::{Buf, Shard};
use sys_rdma::{
    Access, CompletionQueue, Data, Done, Memory, Parameters, Part, QueuePair, Remote, Unsent, Why,
};

use super::hub::Inner;
use super::pair::{HostPair, Pair};
use super::simulated::{SimulatedId, SimulatedPair};

/// A queue pair whose events and completions reach the task of its connection. Dropping it ends all
/// access of the device to its memory.
pub struct Member {
    pair: QueuePairKind,
    entry: Entry,
}

/// The queue pair of a device, or one in memory with its id in a simulated network.
#[expect(
    clippy::large_enum_variant,
    reason = "the large variant is the one of the data path"
)]
pub(super) enum QueuePairKind {
    Verbs(QueuePair),
    Simulated(SimulatedPair, Box<dyn SimulatedId>),
}

/// The entry of a connection in its hub. Dropping it ends the news.
pub(super) struct Entry {
    pub(super) key: usize,
    pub(super) hub: Weak<RefCell<Inner>>,
}

/// Evaluates an expression with the queue pair of a member, whichever kind it is.
macro_rules! with_pair {
    ($member:ident, $pair:ident => $call:expr) => {
        match &$member.pair {
            QueuePairKind::Verbs($pair) => $call,
            QueuePairKind::Simulated($pair, _) => $call,
        }
    };
    (mut $member:ident, $pair:ident => $call:expr) => {
        match &mut $member.pair {
            QueuePairKind::Verbs($pair) => $call,
            QueuePairKind::Simulated($pair, _) => $call,
        }
    };
}

impl Member {
    pub(super) fn new(pair: QueuePairKind, entry: Entry) -> Self {
        Self { pair, entry }
    }

    pub(super) fn key(&self) -> usize {
        self.entry.key
    }

    /// The completion queue of the device.
    pub(super) fn completions(&self) -> Option<Rc<CompletionQueue>> {
        match &self.pair {
            QueuePairKind::Verbs(pair) => Some(Rc::clone(pair.completions())),
            QueuePairKind::Simulated(..) => None,
        }
    }

    /// As of [`QueuePair::connect`].
    pub(super) fn connect(&mut self, parameters: &Parameters) -> io::Result<()> {
        match &mut self.pair {
            QueuePairKind::Verbs(pair) => pair.connect(parameters),
            QueuePairKind::Simulated(pair, id) => {
                pair.set_reads(parameters.initiator_depth);
                id.connect(parameters);
                Ok(())
            }
        }
    }

    /// As of [`QueuePair::accept`].
    pub(super) fn accept(&mut self, parameters: &Parameters) -> io::Result<()> {
        match &mut self.pair {
            QueuePairKind::Verbs(pair) => pair.accept(parameters),
            QueuePairKind::Simulated(pair, id) => {
                pair.set_reads(parameters.initiator_depth);
                id.accept(parameters);
                Ok(())
            }
        }
    }

    /// As of [`QueuePair::established`].
    pub(super) fn established(&mut self) {
        if let QueuePairKind::Verbs(pair) = &mut self.pair {
            pair.established();
        }
    }

    /// Address of this end.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.pair {
            QueuePairKind::Verbs(pair) => pair.id().local_addr(),
            QueuePairKind::Simulated(_, id) => id.local_addr(),
        }
    }
}

impl Pair for Member {
    fn receives(&self) -> u32 {
        with_pair!(self, pair => pair.receives())
    }

    fn add_receives(&mut self, shard: &mut Shard) -> io::Result<()> {
        with_pair!(mut self, pair => pair.add_receives(shard))
    }

    fn post_receive(&mut self, slot: u32) {
        with_pair!(mut self, pair => pair.post_receive(slot))
    }

    fn message(&self, slot: u32, bytes: usize) -> &[u8] {
        with_pair!(self, pair => pair.message(slot, bytes))
    }

    fn send(&mut self, message: &[u8], invalidate: Option<u32>, token: u64) -> Result<(), Unsent> {
        match &mut self.pair {
            QueuePairKind::Verbs(pair) => pair.send(message, None, invalidate, token),
            QueuePairKind::Simulated(pair, _) => pair.send(message, invalidate, token),
        }
    }

    fn write(&mut self, memory: Memory, parts: &[Part]) -> Result<(), Unsent> {
        match &mut self.pair {
            QueuePairKind::Verbs(pair) => pair.write(memory, parts, None),
            QueuePairKind::Simulated(pair, _) => pair.write(memory, parts),
        }
    }

    fn read(&mut self, buf: Buf, parts: &[Part], token: u64) -> Result<(), Unsent> {
        with_pair!(mut self, pair => pair.read(buf, parts, token))
    }

    fn room(&self) -> usize {
        with_pair!(self, pair => pair.room())
    }

    fn sends_in_progress(&self) -> usize {
        with_pair!(self, pair => pair.sends_in_progress())
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.pair {
            QueuePairKind::Verbs(pair) => pair.flush(),
            QueuePairKind::Simulated(pair, id) => {
                pair.flush()?;
                id.posted();
                Ok(())
            }
        }
    }

    fn next_done(&mut self) -> Option<Done> {
        with_pair!(mut self, pair => pair.next_done())
    }

    fn disconnect(&mut self) {
        match &mut self.pair {
            QueuePairKind::Verbs(pair) => pair.disconnect(),
            QueuePairKind::Simulated(pair, id) => {
                pair.disconnect();
                id.disconnect();
            }
        }
    }
}

impl HostPair for Member {
    fn send_with(&mut self, message: &[u8], data: Data, token: u64) -> Result<(), Unsent> {
        match &mut self.pair {
            QueuePairKind::Verbs(pair) => pair.send(message, Some(data), None, token),
            QueuePairKind::Simulated(pair, _) => pair.send_with(message, data, token),
        }
    }

    fn open_window(&mut self, window: u32, data: Data, access: Access) -> Result<Remote, Unsent> {
        with_pair!(mut self, pair => pair.open_window(window, data, access))
    }

    fn close_window(&mut self, window: u32, token: u64) -> Result<Option<Memory>, Why> {
        with_pair!(mut self, pair => pair.close_window(window, token))
    }

    fn into_memory(self) -> Vec<(u32, Memory)> {
        match self.pair {
            QueuePairKind::Verbs(pair) => pair.into_memory(),
            QueuePairKind::Simulated(pair, _id) => pair.into_memory(),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.borrow_mut().forget(self.key);
        }
    }
}
