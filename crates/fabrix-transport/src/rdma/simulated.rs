//! Queue pairs in memory, for tests and simulators.
//!
//! Nothing moves by itself. A request is executed at the other end, ends later at its own, and its
//! message is told at the other end at a third moment ([`SimulatedEnd`]). A simulator chooses these
//! moments. In tests [`link`] makes both ends of a connection, and [`SimulatedPair::step`] does all
//! three at once, so the caller decides about delay and about the order of the two directions.
//!
//! The rules are those of reliable connections. Requests of one end are executed in order, and end
//! in order. A message without a receive waits. A wrong key, a message that is too long, or a fault
//! that the caller plants ends the connection at both ends, and everything posted ends as failed.

mod end;
mod network;
mod window;

use std::io;

use fabrix_rt::{Buf, Shard};
use sys_rdma::{Done, Memory, Part, QueueSizes, Unsent, Why};

use self::end::{End, Request, Work};
pub use self::end::{SimulatedEnd, Step};
pub use self::network::{SimulatedEvent, SimulatedId, SimulatedNetwork};
use super::pair::Pair;

/// One end of a connection in memory.
pub struct SimulatedPair {
    end: SimulatedEnd,
    /// The other end, in tests. A simulated network knows both ends by itself.
    peer: Option<SimulatedEnd>,
    /// Messages that were taken, by slot.
    messages: Vec<Vec<u8>>,
}

/// Sizes of one end.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedSizes {
    /// Requests that have not ended.
    pub requests: usize,
    /// Receives.
    pub receives: usize,
    /// Receives that have memory at the start.
    pub first_receives: usize,
    /// Bytes of a receive.
    pub receive_bytes: usize,
    /// RDMA READs at the same time.
    pub reads: usize,
}

/// Both ends of a connection.
#[must_use]
pub fn link(sizes: [SimulatedSizes; 2]) -> (SimulatedPair, SimulatedPair) {
    let [mut one, mut other] = sizes.map(SimulatedPair::of);
    one.peer = Some(other.end.clone());
    other.peer = Some(one.end.clone());
    (one, other)
}

impl SimulatedPair {
    /// A queue pair of a simulated network, with these sizes. It has no RDMA READs yet.
    pub(super) fn new(sizes: &QueueSizes) -> Self {
        let receives = sizes.receives as usize;
        let per_buffer = (BUFFER_BYTES / sizes.receive_bytes.max(1)) as usize;
        Self::of(SimulatedSizes {
            requests: sizes.sends as usize,
            receives,
            first_receives: receives.min(per_buffer),
            receive_bytes: sizes.receive_bytes as usize,
            reads: 0,
        })
    }

    fn of(sizes: SimulatedSizes) -> Self {
        Self {
            end: SimulatedEnd::new(sizes),
            peer: None,
            messages: vec![Vec::new(); sizes.receives],
        }
    }

    /// The device's view of this end.
    #[must_use]
    pub fn end(&self) -> SimulatedEnd {
        self.end.clone()
    }

    /// RDMA READs at the same time.
    pub(super) fn set_reads(&mut self, reads: u8) {
        self.end.with(|end| end.sizes.reads = reads.into());
    }

    /// Lets the other end reach these bytes with a key.
    pub fn expose(&self, key: u32, bytes: Vec<u8>) {
        self.end.with(|end| end.exposed.insert(key, bytes));
    }

    /// The bytes behind a key. None: there is no such key any more.
    #[must_use]
    pub fn exposed(&self, key: u32) -> Option<Vec<u8>> {
        self.end.with(|end| end.exposed.get(&key).cloned())
    }

    /// Carries out the next request of this end at once. False: there is none, or its message waits
    /// for a receive of the other end.
    pub fn step(&self) -> bool {
        let peer = self.peer.as_ref();
        peer.is_some_and(|peer| self.end.step(peer))
    }

    /// The same for the other end.
    pub fn step_peer(&self) -> bool {
        let peer = self.peer.as_ref();
        peer.is_some_and(|peer| peer.step(&self.end))
    }

    /// Breaks the connection: the next request of this end fails with this status.
    pub fn break_with(&self, status: i32, text: &'static str) {
        self.end.fail(status, text);
        if let Some(peer) = &self.peer {
            peer.flush_all();
        }
    }

    /// Receives that the device of this end has.
    #[must_use]
    pub fn posted(&self) -> usize {
        self.end.with(|end| end.receives.len())
    }

    /// Requests of this end that are posted.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.end.with(|end| end.requests.len())
    }

    /// Prepares a request of so many entries. Without a token its end is not told.
    fn prepare(&self, entries: usize, work: Work, token: Option<u64>) -> Result<(), Unsent> {
        let request = Request::new(work, entries, token);
        self.end.with(|end| {
            let reads: usize = end.all().map(Request::reads).sum();
            let too_many = reads > 0 && request.reads() > 0;
            let too_many = too_many && reads + request.reads() > end.sizes.reads;
            let why = match () {
                () if end.is_closed => Why::Closed,
                () if too_many || end.entries() + entries > end.sizes.requests => Why::Full,
                () if request.is_lent() => Why::Unregistered,
                () => {
                    end.prepared.push(request);
                    return Ok(());
                }
            };
            let memory = request.into_memory();
            Err(Unsent { why, memory })
        })
    }
}

impl Pair for SimulatedPair {
    fn receives(&self) -> u32 {
        let count = self.end.with(|end| end.slots.len());
        u32::try_from(count).expect("few")
    }

    fn add_receives(&mut self, _: &mut Shard) -> io::Result<()> {
        self.end
            .with(|end| end.slots.resize(end.sizes.receives, Vec::new()));
        Ok(())
    }

    fn post_receive(&mut self, slot: u32) {
        self.end.with(|end| {
            assert!(
                (slot as usize) < end.slots.len(),
                "slot {slot} has no memory"
            );
            assert!(end.posted.insert(slot), "slot {slot} is posted already");
            end.prepared_receives.push(slot);
        });
    }

    fn message(&self, slot: u32, bytes: usize) -> &[u8] {
        let is_posted = self.end.with(|end| end.posted.contains(&slot));
        assert!(!is_posted, "slot {slot} is posted");
        &self.messages[slot as usize][..bytes]
    }

    fn send(&mut self, message: &[u8], invalidate: Option<u32>, token: u64) -> Result<(), Unsent> {
        self.prepare(
            1,
            Work::Send(message.to_vec(), invalidate, None),
            Some(token),
        )
    }

    fn write(&mut self, memory: Memory, parts: &[Part]) -> Result<(), Unsent> {
        self.prepare(parts.len(), Work::Write(memory, parts.to_vec()), None)
    }

    fn read(&mut self, buf: Buf, parts: &[Part], token: u64) -> Result<(), Unsent> {
        assert!(buf.is_unique(), "a buffer to be filled is shared");
        self.prepare(parts.len(), Work::Read(buf, parts.to_vec()), Some(token))
    }

    fn room(&self) -> usize {
        self.end.with(|end| end.sizes.requests - end.entries())
    }

    fn sends_in_progress(&self) -> usize {
        self.end.with(|end| end.all().count())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.end.with(|end| {
            end.receives.extend(end.prepared_receives.drain(..));
            end.requests.extend(end.prepared.drain(..));
        });
        Ok(())
    }

    fn next_done(&mut self) -> Option<Done> {
        let (mut done, closes) = self.end.with(|end| end.done.pop_front())?;
        if let Done::Received { slot, .. } = done {
            let index = slot as usize;
            let take = |end: &mut End| std::mem::take(&mut end.slots[index]);
            self.messages[index] = self.end.with(take);
        }
        if let (Done::Ended { memory, .. }, Some(window)) = (&mut done, closes) {
            *memory = self.end.with(|end| end.remove_window(window));
        }
        Some(done)
    }

    fn disconnect(&mut self) {
        self.end.flush_all();
        if let Some(peer) = &self.peer {
            peer.flush_all();
        }
    }
}

/// All access to the memory of this end is over.
impl Drop for SimulatedPair {
    fn drop(&mut self) {
        self.disconnect();
        self.end.with(|end| {
            end.done.clear();
            end.windows.clear();
        });
    }
}

/// 64 KiB: the buffer of the first receives of a queue pair.
const BUFFER_BYTES: u32 = 64 << 10;
